//! The program's output: results on standard output, everything else on standard error. At the end
//! it waits for tenants' output that was not read yet.
//!
//! A command with a handler for signals that request its end must end by itself, whether or not its
//! output is read. From [`never_blocks`] on, all of its output therefore goes through bounded queues
//! to threads of their own, and every wait for them has a limit: without a limit, like any program,
//! only until the command is told to end or has killed its tenants ([`hurry`]); from then on all
//! waits together take at most [`LIMIT`]. What is not written by then is lost.
//!
//! If standard output cannot be written, the command fails at its end ([`lost`]), even for the
//! output of a tenant that ended earlier. A closed reader, as with `| head`, is no failure. If
//! standard error cannot be written, the command fails only if its report was to go there ([`reported`]):
//! other lines are for people, and their loss could not be told.

use crate::log;
use leasehold_cell::{Destination, flush_output_within, is_obeyed, stdout_failure};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

static LOST: AtomicBool = AtomicBool::new(false);

/// Whether a report was to be written to standard error.
static REPORTS: AtomicBool = AtomicBool::new(false);

/// Whether it could not be.
static REPORT_LOST: AtomicBool = AtomicBool::new(false);

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

/// Writes a report to standard error, and a line's end unless it is a part. The command fails if it cannot be written.
macro_rules! report {
    (part $($text:tt)*) => { $crate::output::reported(format_args!($($text)*)) };
    ($($text:tt)*) => { $crate::output::reported(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {report, say, tell};

/// The two streams of this process, each with a thread that may block.
struct Threads {
    stdout: Destination,
    stderr: Destination,
}

static THREADS: OnceLock<Threads> = OnceLock::new();

/// From now on no write of the command blocks without a limit. To be called where signals no longer
/// end the process by themselves, by a thread whose confinement the new ones may have.
pub(crate) fn never_blocks() {
    THREADS.get_or_init(|| Threads {
        stdout: Destination::new("leasehold-told", io::stdout()),
        stderr: Destination::new("leasehold-said", io::stderr()),
    });
}

/// The text that [`tell`] writes.
pub(crate) fn result(text: Arguments<'_>) {
    if let Some(threads) = THREADS.get() {
        put(&threads.stdout, text.to_string().as_bytes());
        return;
    }
    let mut stdout = io::stdout().lock();
    let written = stdout.write_fmt(text).and_then(|()| stdout.flush());
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Relaxed);
    }
}

/// The text that [`report`] writes.
pub(crate) fn reported(text: Arguments<'_>) {
    REPORTS.store(true, Relaxed);
    if written_note(text).is_err_and(|error| is_failure(error.kind())) {
        REPORT_LOST.store(true, Relaxed);
    }
}

/// The text that [`say`] writes.
pub(crate) fn note(text: Arguments<'_>) {
    // A failure could not be told.
    let _ = written_note(text);
}

/// Writes a note. With a thread for it, [`end`] finds out whether it was written.
fn written_note(text: Arguments<'_>) -> io::Result<()> {
    // In one piece: other threads write there, too.
    let text = match log::is_json() {
        true => log::objects(&text.to_string()),
        false => text.to_string(),
    };
    match THREADS.get() {
        Some(threads) => {
            put(&threads.stderr, text.as_bytes());
            Ok(())
        }
        None => io::stderr().lock().write_all(text.as_bytes()),
    }
}

/// The most bytes that are put into a queue at once; it has room for several.
const PIECE: usize = 16 * 1024;

/// Puts `bytes` into the queue. What finds no room within the limit is lost.
fn put(destination: &Destination, bytes: &[u8]) {
    for piece in bytes.chunks(PIECE) {
        if !wait_until(|| destination.failure().is_some() || destination.put(piece)) {
            return;
        }
    }
}

/// How long the command waits for readers, in all, once it is told to end.
const LIMIT: Duration = Duration::from_secs(2);

/// The longest of these waits.
const PATIENCE: Duration = Duration::from_secs(1);

static HURRIES: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// What the command has waited since it hurries, ns.
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// From now on the command ends, whether or not its output is read.
pub(crate) fn hurry() {
    HURRIES.store(true, Relaxed);
}

/// The flag with which it does: a signal raises it.
pub(crate) fn hurries() -> Arc<AtomicBool> {
    HURRIES.clone()
}

/// How long a wait may last that begins now, once the command hurries.
pub(crate) fn patience() -> Duration {
    let waited = Duration::from_nanos(WAITED_NS.load(Relaxed));
    PATIENCE.min(LIMIT.saturating_sub(waited))
}

/// Waits until `is_done`, within the limit if the command hurries; whether it is.
fn wait_until(is_done: impl Fn() -> bool) -> bool {
    const STEP: Duration = Duration::from_millis(1);
    let patience = patience();
    let mut began = None::<Instant>;
    let is_over = loop {
        // Once a step: it may do something.
        if is_done() {
            break true;
        }
        if HURRIES.load(Relaxed) {
            let began = *began.get_or_insert_with(Instant::now);
            if began.elapsed() >= patience {
                break false;
            }
        }
        std::thread::sleep(STEP);
    };
    if let Some(began) = began {
        WAITED_NS.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
    }
    is_over
}

/// Returns a message with names that a program may have chosen. What a terminal obeys is escaped, and
/// each line but the first is indented, so that no line can be taken for another message.
pub(crate) fn plain(message: &str) -> String {
    let mut plain = String::with_capacity(message.len());
    for character in message.chars() {
        match character {
            '\n' => plain.push_str("\n  "),
            '\t' => plain.push(character),
            _ if is_obeyed(character) => plain.extend(character.escape_default()),
            _ => plain.push(character),
        }
    }
    plain
}

/// What could not be written, if anything that the command was for.
pub(crate) fn lost() -> Option<&'static str> {
    match (LOST.load(Relaxed), REPORT_LOST.load(Relaxed)) {
        (true, _) => Some("standard output cannot be written"),
        (false, true) => Some("the report cannot be written to standard error"),
        (false, false) => None,
    }
}

/// Waits until the output of all tenants is written: like any program, or, if they were `killed` or
/// a signal requests the end, for a second. Reports on standard error if output was not read, or
/// not logged.
pub(crate) fn finish(killed: bool, destinations: &[&Destination]) {
    if killed {
        hurry();
    }
    let is_out = wait_until(|| flush_output_within(destinations, Duration::ZERO));
    if stdout_failure().is_some_and(is_failure) {
        LOST.store(true, Relaxed);
    }
    let is_logged = log::flush_within(patience());
    if !is_out {
        say!("leasehold: not all output was read");
    }
    // If the log is not read, this line would not be read either.
    if is_logged && log::lost() > 0 {
        say!("leasehold: {} lines of the log were lost", log::lost());
    }
}

/// Waits until what was written to a destination is out, as [`finish`] does.
pub(crate) fn wait_for(destination: &Destination) {
    wait_until(|| destination.is_written());
}

/// Waits until the command's own output is written, as [`finish`] does for that of tenants.
pub(crate) fn end() {
    let Some(Threads { stdout, stderr }) = THREADS.get() else {
        return;
    };
    wait_for(stdout);
    wait_for(stderr);
    if stdout.failure().is_some_and(is_failure) {
        LOST.store(true, Relaxed);
    }
    if REPORTS.load(Relaxed) && stderr.failure().is_some_and(is_failure) {
        REPORT_LOST.store(true, Relaxed);
    }
}

fn is_failure(kind: ErrorKind) -> bool {
    kind != ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_name_can_neither_move_the_cursor_nor_look_like_another_message() {
        let shown = plain("in \x1b[2J\nleasehold: all is well\r");
        assert_eq!(shown, "in \\u{1b}[2J\n  leasehold: all is well\\r");
        let shown = plain("\u{202e}a\u{2066}\u{2028}\u{200f}");
        assert_eq!(shown, "\\u{202e}a\\u{2066}\\u{2028}\\u{200f}");
    }
}
