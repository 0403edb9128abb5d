//! The messages of a tenant: lines in its standard error.
//!
//! The interface has no way to say that a message is not taken, and a guest that logs must not wait
//! for a slow reader. A line is therefore written as a whole or not at all, and lines that were lost
//! are counted before the next one that is not.

use super::stdio::Sink;
use crate::clock::monotonic_ns;
use crate::shown::is_obeyed;
use crate::steps::caps::LOG_LINE;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines of a tenant in a second; so many may come at once.
const LINES_PER_SECOND: u64 = 1_000;

/// The time that a line takes of a tenant's second, ns.
const LINE_NS: u64 = 1_000_000_000 / LINES_PER_SECOND;

/// How fast a tenant, with its tasks and children, may log. Only the cell's thread uses it.
#[derive(Debug, Default)]
pub(crate) struct LogRate {
    /// When as much time as the lines took so far has gone by, ns of the monotonic clock.
    paid_until: AtomicU64,
    /// Lines that were lost and not reported yet.
    lost: AtomicU64,
}

impl LogRate {
    /// Whether another line may be written now; it is counted then.
    fn take(&self, now: u64) -> bool {
        let from = self.paid_until.load(Ordering::Relaxed).max(now);
        let may = from - now < LINE_NS * LINES_PER_SECOND;
        if may {
            self.paid_until.store(from + LINE_NS, Ordering::Relaxed);
        }
        may
    }
}

/// Where the messages of an execution go.
pub(crate) struct Log {
    sink: Sink,
    rate: Arc<LogRate>,
}

impl Log {
    pub(super) fn new(sink: Sink, rate: Arc<LogRate>) -> Self {
        Self { sink, rate }
    }

    /// One that nothing is written to.
    pub(super) fn none() -> Self {
        Self::new(Sink::Discard, Arc::default())
    }

    /// Writes a message, or counts that it was lost.
    pub(super) fn put(&mut self, level: &str, context: &str, message: &str) {
        let lost = self.rate.lost.load(Ordering::Relaxed);
        let mut line = String::new();
        if lost > 0 {
            // Writing to a string cannot fail.
            let _ = writeln!(line, "WARN leasehold: {lost} messages were lost");
        }
        let mut text = Line::default();
        let _ = write!(text, "{level} {context}: {message}");
        line.push_str(&text.end());
        let is_written = self.rate.take(monotonic_ns()) && self.sink.write_whole(line.as_bytes());
        let lost = if is_written { 0 } else { lost + 1 };
        self.rate.lost.store(lost, Ordering::Relaxed);
    }
}

/// A line without control characters, of at most [`LOG_LINE`] bytes with its end.
#[derive(Default)]
struct Line {
    text: String,
    is_cut: bool,
}

impl Line {
    /// Marks a line that is cut.
    const CUT: &str = "…";

    fn end(mut self) -> String {
        if self.is_cut {
            self.text.push_str(Self::CUT);
        }
        self.text.push('\n');
        self.text
    }

    fn push(&mut self, c: char) {
        self.is_cut |= self.text.len() + c.len_utf8() + Self::CUT.len() + 1 > LOG_LINE.size();
        if !self.is_cut {
            self.text.push(c);
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match is_obeyed(c) {
                true => c.escape_default().for_each(|c| self.push(c)),
                false => self.push(c),
            }
            if self.is_cut {
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_NS, LINES_PER_SECOND, Line, LogRate};
    use crate::steps::caps::LOG_LINE;
    use std::fmt::Write as _;

    #[test]
    fn a_line_has_no_control_characters_and_a_bound() {
        let mut line = Line::default();
        let _ = line.write_str("a\nb\x1b[1mä");
        assert_eq!(line.end(), "a\\nb\\u{1b}[1mä\n");
        let mut line = Line::default();
        let _ = write!(line, "{}", "ä".repeat(100_000));
        let line = line.end();
        assert!(line.len() <= LOG_LINE.size() && line.len() + 3 > LOG_LINE.size());
        assert!(line.ends_with("ä…\n"));
    }

    #[test]
    fn so_many_lines_come_at_once_and_then_one_for_each_part_of_a_second() {
        let rate = LogRate::default();
        let taken = (0..3 * LINES_PER_SECOND).filter(|_| rate.take(5)).count();
        assert_eq!(taken as u64, LINES_PER_SECOND);
        let taken = (0..100).filter(|_| rate.take(5 + 10 * LINE_NS)).count();
        assert_eq!(taken, 10);
    }
}
