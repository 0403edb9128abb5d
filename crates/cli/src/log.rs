//! The log: lines on standard error.
//!
//! A thread of a cell must never wait for the reader of standard error, and a guest can cause log
//! lines. Once a cell has started, lines therefore go through a bounded pipe to a thread of their
//! own. A line without room is lost, and counted.
//!
//! Libraries log what a client does, at any rate. Their lines are off unless the environment
//! variable asks for them.

use crate::access_log::{self, Form};
use leasehold_cell::{Destination, escaped, escaped_json};
use serde_json::json;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

static THREAD: OnceLock<Destination> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

/// What is logged unless the environment variable says something else: warnings of Leasehold's own
/// crates, by the beginning of their names.
const FILTER: &str = "off,leasehold=warn";

/// The form of all lines on standard error.
static FORM: OnceLock<Form> = OnceLock::new();

/// Begins to log: warnings, or as the environment variable `LEASEHOLD_LOG` says.
pub(crate) fn begin(form: Form) {
    let _ = FORM.set(form);
    let filter = EnvFilter::try_from_env("LEASEHOLD_LOG").unwrap_or_else(|_| FILTER.into());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // What is logged may come from a guest: no line has control characters.
        .with_ansi(false)
        .with_writer(Lines);
    match is_json() {
        true => lines.without_time().init(),
        false => lines.init(),
    }
}

/// Whether each line on standard error is an object.
pub(crate) fn is_json() -> bool {
    FORM.get() == Some(&Form::Json)
}

/// Returns an object for each line of a message that is not empty.
pub(crate) fn objects(message: &str) -> String {
    let time = access_log::stamp(SystemTime::now());
    let lines = message.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let object = json!({ "time": time, "message": line });
            format!("{}\n", escaped_json(&object.to_string()))
        })
        .collect()
}

/// From now on lines are written by a thread of their own. To be called before a guest starts, by a thread
/// whose confinement the new one may have.
pub(crate) fn never_blocks() {
    THREAD.get_or_init(|| Destination::new("leasehold-log", io::stderr()));
    // The thread that panics may be one that works for all tenants, and it goes on.
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a thread");
        let backtrace = Backtrace::capture();
        match backtrace.status() {
            BacktraceStatus::Captured => tracing::error!("{name} {panic}\n{backtrace}"),
            _ => tracing::error!("{name} {panic}"),
        }
    }));
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

/// The destination of lines.
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
        let text = match is_json() {
            true => objects(&String::from_utf8_lossy(line)).into_bytes(),
            false => {
                let line = String::from_utf8_lossy(line);
                format!("{}\n", escaped(line.trim_end_matches('\n'))).into_bytes()
            }
        };
        match THREAD.get() {
            None => io::stderr().write_all(&text)?,
            Some(thread) if thread.put(&text) => {}
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

#[cfg(test)]
mod tests {
    use super::{FILTER, Form, begin, never_blocks, objects};
    use std::time::{Duration, Instant};
    use tracing::Level;
    use tracing_subscriber::EnvFilter;

    #[test]
    fn panics_wait_for_no_reader_of_standard_error() {
        const CHILD: &str = "LEASEHOLD_TEST_OF_PANICS";
        if std::env::var_os(CHILD).is_some() {
            begin(Form::Text);
            never_blocks();
            for _ in 0..5000 {
                let _ = std::panic::catch_unwind(|| panic!("{}", "again ".repeat(20)));
            }
            std::process::exit(0);
        }
        let own = std::env::current_exe().expect("this program");
        let mut child = std::process::Command::new(own)
            .args(["--nocapture", "panics_wait_for_no_reader_of_standard_error"])
            .env(CHILD, "1")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("runs");
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break Some(status),
                None if Instant::now() > until => break None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let _ = child.kill();
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }

    #[test]
    fn libraries_log_nothing_unless_that_is_asked_for() {
        let seen = |filter: &str| {
            let lines = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter));
            tracing::subscriber::with_default(lines.finish(), || {
                [
                    tracing::enabled!(target: "h2::proto::streams::recv", Level::ERROR),
                    tracing::enabled!(target: "hyper", Level::WARN),
                    tracing::enabled!(target: "leasehold_cell::executor", Level::WARN),
                    tracing::enabled!(target: "leasehold", Level::WARN),
                    tracing::enabled!(target: "leasehold_cell", Level::INFO),
                ]
            })
        };
        assert_eq!(seen(FILTER), [false, false, true, true, false]);
        assert_eq!(seen("warn"), [true, true, true, true, false]);
    }

    #[test]
    fn each_line_of_a_message_is_an_object() {
        let text = objects("one \"two\"\n\n\x1b[2J three\n");
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "one \"two\"");
        assert_eq!(lines[1]["message"], "\x1b[2J three");
        assert!(!text.contains('\x1b'));
    }
}
