//! The log: lines on standard error.
//!
//! A thread of a cell must never wait for the reader of standard error, and a guest can cause log
//! lines. Once a cell has started, lines therefore go through a bounded pipe to a thread of their
//! own. A line without room is lost, and counted.

use leasehold_cell::Destination;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

static THREAD: OnceLock<Destination> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

/// Begins to log: warnings, or as the environment variable `LEASEHOLD_LOG` says.
pub(crate) fn begin() {
    let filter = EnvFilter::try_from_env("LEASEHOLD_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines)
        .init();
}

/// From now on lines are written by a thread of their own. To be called before a guest starts, by a thread
/// whose confinement the new one may have.
pub(crate) fn never_blocks() {
    THREAD.get_or_init(|| Destination::new("leasehold-log", io::stderr()));
}

/// Lines that found no room.
pub(crate) fn lost() -> u64 {
    LOST.load(Relaxed)
}

/// Waits for at most `patience` until what was logged is out; whether it is.
pub(crate) fn flush_within(patience: Duration) -> bool {
    let thread: Vec<_> = THREAD.get().into_iter().collect();
    leasehold_cell::flush_output_within(&thread, patience)
}

/// What lines are written to.
struct Lines;

impl MakeWriter<'_> for Lines {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line
    }
}

/// A line.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match THREAD.get() {
            None => return io::stderr().write(line),
            Some(thread) if thread.put(line) => {}
            Some(_) => {
                LOST.fetch_add(1, Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
