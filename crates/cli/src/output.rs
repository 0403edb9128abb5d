//! The program's output: results on standard output, everything else on standard error. At the end
//! it waits for tenants' output that was not read yet.
//!
//! If standard output cannot be written, the command fails at its end ([`is_lost`]), even for the
//! output of a tenant that ended earlier. A closed reader, as with `| head`, is no failure. If
//! standard error cannot be written, the command does not fail, because the failure could not be
//! reported.

use crate::log;
use leasehold_cell::{Destination, flush_output, flush_output_within, stdout_failure};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output, and a line's end unless it is a part.
macro_rules! tell {
    (part $($text:tt)*) => { $crate::output::result(format_args!($($text)*)) };
    ($($text:tt)*) => { $crate::output::result(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to standard error, and a line's end unless it is a part.
macro_rules! say {
    (part $($text:tt)*) => { $crate::output::note(format_args!($($text)*)) };
    ($($text:tt)*) => { $crate::output::note(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {say, tell};

/// What [`tell`] writes.
pub(crate) fn result(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_fmt(text).and_then(|()| stdout.flush());
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Relaxed);
    }
}

/// What [`say`] writes.
pub(crate) fn note(text: Arguments<'_>) {
    // In one piece: other threads write there, too.
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// Returns a message with names that a program may have chosen. Control characters are escaped, and
/// each line but the first is indented, so that no line can be taken for another message.
pub(crate) fn plain(message: &str) -> String {
    let mut plain = String::with_capacity(message.len());
    for character in message.chars() {
        match character {
            '\n' => plain.push_str("\n  "),
            '\t' => plain.push(character),
            _ if character.is_control() => plain.extend(character.escape_default()),
            _ => plain.push(character),
        }
    }
    plain
}

/// Whether a result could not be written.
pub(crate) fn is_lost() -> bool {
    LOST.load(Relaxed)
}

/// How long the output of killed tenants is waited for: a kill has a deadline, whether the output
/// is read or not.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits until the output of all tenants is written: without a limit, like any program, or, if they
/// were `killed`, for a second. Reports on standard error if output was not read, or not logged.
pub(crate) fn finish(killed: bool, destinations: &[&Destination]) {
    if !killed {
        flush_output();
        destinations
            .iter()
            .for_each(|destination| destination.flush());
    }
    let is_out = flush_output_within(destinations, PATIENCE);
    if stdout_failure().is_some_and(|kind| kind != ErrorKind::BrokenPipe) {
        LOST.store(true, Relaxed);
    }
    let is_logged = log::flush_within(PATIENCE);
    if !is_out {
        say!("leasehold: not all output was read");
    }
    // If the log is not read, this line would not be read either.
    if is_logged && log::lost() > 0 {
        say!("leasehold: {} lines of the log were lost", log::lost());
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_name_can_neither_move_the_cursor_nor_look_like_another_message() {
        let shown = plain("in \x1b[2J\nleasehold: all is well\r");
        assert_eq!(shown, "in \\u{1b}[2J\n  leasehold: all is well\\r");
    }
}
