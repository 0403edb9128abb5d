//! What a workload writes to its standard output: read to the end by a thread, so that it never waits
//! for a reader, and listened to for two words.

use std::io::{self, Read, Write};
use std::process::ChildStdout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// Of a line, what is looked at; the rest is let go.
const LINE: usize = 64;
/// Rounds that are kept until they are taken.
const ROUNDS: usize = 1 << 20;

/// Listens to a workload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listener {
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    ready: bool,
    rounds: Vec<Instant>,
}

impl Listener {
    /// Begins to read `output`, and copies it to this program's if it is to be shown.
    pub(crate) fn of(output: ChildStdout, show: bool) -> Self {
        let listener = Self::default();
        let own = listener.clone();
        thread::spawn(move || own.read(output, show));
        listener
    }

    /// Whether it has said `ready`.
    pub(crate) fn is_ready(&self) -> bool {
        self.heard().ready
    }

    /// When it said `round`, since this was asked last.
    pub(crate) fn take_rounds(&self) -> Vec<Instant> {
        std::mem::take(&mut self.heard().rounds)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, mut output: impl Read, show: bool) {
        let mut buffer = [0; 8192];
        let mut line = Vec::with_capacity(LINE);
        loop {
            let read = match output.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            for &byte in &buffer[..read] {
                match byte {
                    b'\n' => {
                        self.hear(&line);
                        line.clear();
                    }
                    byte if line.len() < LINE => line.push(byte),
                    _ => {}
                }
            }
            if show {
                // The reader of this program's output may have closed it; the workload continues.
                let _ = io::stdout().lock().write_all(&buffer[..read]);
            }
        }
    }

    fn hear(&self, line: &[u8]) {
        match line.trim_ascii() {
            b"ready" => self.heard().ready = true,
            b"round" => {
                let mut heard = self.heard();
                if heard.rounds.len() < ROUNDS {
                    heard.rounds.push(Instant::now());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_are_heard_on_lines_of_their_own() {
        let listener = Listener::default();
        listener.read(&b"not ready\nround\r\nrounds\nro"[..], false);
        assert!(!listener.is_ready());
        assert_eq!(listener.take_rounds().len(), 1);
        listener.read(&b"ready\nround\nround\n"[..], false);
        assert!(listener.is_ready());
        assert_eq!(listener.take_rounds().len(), 2);
        assert!(listener.take_rounds().is_empty());
    }

    #[test]
    fn a_line_that_never_ends_takes_no_memory() {
        let listener = Listener::default();
        listener.read(io::repeat(b'x').take(50_000_000), false);
        listener.read(&b"ready"[..], false);
        assert!(!listener.is_ready());
    }
}
