//! A terminal, and the screens that a program shows on it.

use std::fs::File;
use std::io::Read;
use std::num::NonZero;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const ROWS: NonZero<u16> = NonZero::new(30).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(140).unwrap();

/// The visible output of a program.
pub(crate) struct Seen {
    /// The screen after each piece of what the program wrote.
    pub(crate) screens: Vec<String>,
    pub(crate) status: ExitStatus,
}

/// Runs `command` on a terminal of its own until it ends.
pub(crate) fn watch(mut command: Command) -> Seen {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("granted");
    unlockpt(&terminal).expect("unlocked");
    let size = Winsize {
        ws_row: ROWS.get(),
        ws_col: COLUMNS.get(),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).expect("a size");
    let name = ptsname(&terminal, Vec::new()).expect("a name");
    let name = name.to_str().expect("a path");
    let programs_side = File::options().read(true).write(true).open(name);
    let programs_side = programs_side.expect("opened");
    command
        .stdin(Stdio::null())
        .stdout(programs_side.try_clone().expect("cloned"))
        .stderr(programs_side);
    let mut child = command.spawn().expect("runs");
    // It holds the program's side open.
    drop(command);

    let mut emulator = vt100::Parser::new(ROWS, COLUMNS, 0);
    let mut screens = Vec::new();
    let mut reader = File::from(terminal);
    let mut bytes = [0; 4096];
    // Once the program has ended, its side is closed: an error, on Linux.
    while let Ok(length @ 1..) = reader.read(&mut bytes) {
        emulator.process(&bytes[..length]);
        screens.push(emulator.screen().contents());
    }
    Seen {
        screens,
        status: child.wait().expect("waited for"),
    }
}
