//! A terminal with a table at its bottom, and tenants' output above it.

use crate::output;
use leasehold_cell::{Destination, is_obeyed};
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest line without an end that is kept back, bytes.
const LONGEST: usize = 4096;

/// The terminal, if standard error is one and a table was requested. Clones share it.
#[derive(Clone)]
pub(crate) struct Screen(Option<Live>);

/// A terminal and the thread that draws on it.
#[derive(Clone)]
struct Live {
    shown: Arc<Mutex<Shown>>,
    /// The table to be drawn next. Its lock is never held while something is written.
    next: Arc<Mutex<Vec<String>>>,
    /// Any byte in it has the next table drawn.
    drawer: Destination,
}

/// The text at the bottom of the terminal.
#[derive(Default)]
struct Shown {
    table: String,
    lines: usize,
}

impl Screen {
    /// A screen; one on which nothing is ever shown if it is not `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        let live = wanted && io::stderr().is_terminal();
        Self(live.then(Live::begin))
    }

    /// Columns and rows, if there is a screen.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        self.0.as_ref()?;
        let (width, height) = terminal_size::terminal_size_of(io::stderr())?;
        Some((width.0.into(), height.0.into()))
    }

    /// Shows these lines in place of those that are there. None of them may be wider than the
    /// screen. Never blocks, because a terminal can be stopped: the caller also looks for signals.
    pub(super) fn show(&self, lines: &[String]) {
        if let Some(live) = &self.0 {
            *lock(&live.next) = lines.to_vec();
            // Without room, enough drawings are due.
            live.drawer.put(b"\n");
        }
    }

    /// Removes the table, and waits for that as for all output.
    pub(super) fn clear(&self) {
        self.show(&[]);
        if let Some(live) = &self.0 {
            output::wait_for(&live.drawer);
        }
    }

    /// Text that is written here appears above the table, line by line. `None` without a screen, or
    /// where `stream` goes somewhere else.
    pub(super) fn above(&self, stream: Stream) -> Option<Above> {
        let screen = self.0.as_ref()?.shown.clone();
        let here = match stream {
            Stream::Output => io::stdout().is_terminal(),
            Stream::Error => true,
        };
        here.then(|| Above {
            screen,
            stream,
            begun: Vec::new(),
        })
    }
}

impl Live {
    fn begin() -> Self {
        let (shown, next) = <(Arc<Mutex<Shown>>, Arc<Mutex<Vec<String>>>)>::default();
        let drawer = Drawer {
            shown: shown.clone(),
            next: next.clone(),
        };
        Self {
            shown,
            next,
            drawer: Destination::new("leasehold-table", drawer),
        }
    }
}

/// Draws the next table each time something is written.
struct Drawer {
    shown: Arc<Mutex<Shown>>,
    next: Arc<Mutex<Vec<String>>>,
}

impl Write for Drawer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shown = lock(&self.shown);
        let lines = lock(&self.next).clone();
        let mut text = shown.erased();
        shown.table = lines.iter().map(|line| format!("{line}\n")).collect();
        shown.lines = lines.len();
        text.push_str(&shown.table);
        put(io::stderr(), text.as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shown {
    /// Returns the control sequence that removes the table from the terminal.
    fn erased(&mut self) -> String {
        match std::mem::take(&mut self.lines) {
            0 => String::new(),
            // Up to where the table began, and everything below it away.
            lines => format!("\r\x1b[{lines}A\x1b[J"),
        }
    }
}

/// An error is ignored, because a message could not be shown either.
fn put(mut to: impl Write, bytes: &[u8]) {
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

/// A stream of this process.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Output,
    Error,
}

/// Writes above the table.
pub(super) struct Above {
    screen: Arc<Mutex<Shown>>,
    stream: Stream,
    /// A line without an end yet.
    begun: Vec<u8>,
}

impl Above {
    fn put_lines(&self, lines: &[u8]) {
        let mut shown = lock(&self.screen);
        let count = shown.lines;
        put(io::stderr(), shown.erased().as_bytes());
        let harmless = harmless(lines).into_bytes();
        match self.stream {
            Stream::Output => put(io::stdout(), &harmless),
            Stream::Error => put(io::stderr(), &harmless),
        }
        put(io::stderr(), shown.table.as_bytes());
        shown.lines = count;
    }
}

/// A tenant's output must not move the cursor, or it could overwrite the table. Terminals obey
/// control characters of one byte, of ISO 8859 or in UTF-8, and some show text backwards where they
/// are told to.
fn harmless(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let shown = |character: char| match character {
        '\n' | '\t' => character,
        _ if is_obeyed(character) => '?',
        _ => character,
    };
    text.chars().map(shown).collect()
}

impl Write for Above {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        if let Some(last) = self.begun.iter().rposition(|&byte| byte == b'\n') {
            let rest = self.begun.split_off(last + 1);
            let lines = std::mem::replace(&mut self.begun, rest);
            self.put_lines(&lines);
        } else if self.begun.len() >= LONGEST {
            let mut line = std::mem::take(&mut self.begun);
            line.push(b'\n');
            self.put_lines(&line);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Above, Shown, Stream, harmless};
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[test]
    fn what_is_erased_is_as_high_as_what_was_shown() {
        let mut shown = Shown {
            table: String::new(),
            lines: 3,
        };
        assert_eq!(shown.erased(), "\r\x1b[3A\x1b[J");
        assert_eq!(shown.erased(), "", "once");
    }

    #[test]
    fn a_line_is_kept_until_it_ends_but_not_for_ever() {
        let mut above = Above {
            screen: Arc::new(Mutex::default()),
            stream: Stream::Error,
            begun: Vec::new(),
        };
        above.write_all(b"half").expect("kept");
        assert_eq!(above.begun, b"half");
        above.write_all(b" a line\nthe next").expect("written");
        assert_eq!(above.begun, b"the next");
        above.write_all(&[b'x'; 5000]).expect("written");
        assert!(above.begun.is_empty());
    }

    #[test]
    fn tenants_cannot_move_the_cursor() {
        let written = b"a\x1b[2J\rb\tc\n";
        assert_eq!(harmless(written), "a?[2J?b\tc\n");
        // Of one byte, in UTF-8, and half of it, which the next write may end.
        assert_eq!(
            harmless(b"\x9b31m\xc2\x9b31m\xc2"),
            "\u{fffd}31m?31m\u{fffd}"
        );
        assert_eq!(
            harmless("\u{85}\u{9d}52;\u{9c}\u{202e}\u{2028}\u{200f}".as_bytes()),
            "??52;????"
        );
        assert_eq!(harmless("größer 漢字\n".as_bytes()), "größer 漢字\n");
    }
}
