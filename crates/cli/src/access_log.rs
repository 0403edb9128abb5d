//! The access log: a line for each request, through a bounded pipe. A line without room is lost, and
//! counted.

use leasehold_cell::{Destination, escaped, escaped_json};
use leasehold_front::Record;
use serde_json::json;
use std::fmt::Write;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The form of the access log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// Lines of text.
    Text,
    /// An object for each line.
    Json,
    /// No lines.
    None,
}

/// The access log of a server, on standard error.
pub(crate) struct AccessLog {
    form: Form,
    destination: OnceLock<Destination>,
    lost: AtomicU64,
}

impl AccessLog {
    /// A log that is not written anywhere yet.
    pub(crate) const fn new(form: Form) -> Self {
        Self {
            form,
            destination: OnceLock::new(),
            lost: AtomicU64::new(0),
        }
    }

    /// Starts the thread that writes the lines, confined as the calling one.
    pub(crate) fn begin(&self) {
        if self.form != Form::None {
            self.destination
                .get_or_init(|| Destination::new("leasehold-access", io::stderr()));
        }
    }

    /// Writes the line of a request. Never blocks.
    pub(crate) fn put(&self, record: &Record) {
        let Some(destination) = self.destination.get() else {
            return;
        };
        let now = SystemTime::now();
        let line = match self.form {
            Form::Text => text(record, now),
            Form::Json => object(record, now),
            Form::None => return,
        };
        if !destination.put(line.as_bytes()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits for at most `patience` until what was logged is out.
    pub(crate) fn flush_within(&self, patience: Duration) {
        let all: Vec<_> = self.destination.get().into_iter().collect();
        leasehold_cell::flush_output_within(&all, patience);
    }
}

fn text(record: &Record, now: SystemTime) -> String {
    let mut line = format!(
        "{} {} {} {} {} {:?} {} {} {:.3}ms {}",
        stamp(now),
        record.id,
        record.listener,
        record.tenant.as_deref().unwrap_or("-"),
        record.remote,
        format!("{} {}{}", record.method, record.authority, record.path),
        record
            .status
            .map_or_else(|| "-".to_owned(), |status| status.to_string()),
        record.bytes,
        record.elapsed.as_secs_f64() * 1e3,
        record.outcome.name(),
    );
    if let Some(failure) = record.failure {
        let _ = write!(line, " ({failure})");
    }
    let mut line = escaped(&line);
    line.push('\n');
    line
}

fn object(record: &Record, now: SystemTime) -> String {
    let timing = record.timing;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let object = json!({
        "time": stamp(now),
        "request": record.id,
        "listener": &*record.listener,
        "tenant": record.tenant,
        "remote": record.remote.to_string(),
        "method": record.method,
        "host": record.authority,
        "path": record.path,
        "status": record.status,
        "bytes": record.bytes,
        "elapsed_ns": ns(record.elapsed),
        "queued_ns": timing.and_then(|timing| timing.queued).map(ns),
        "guest_ns": timing.map(|timing| ns(timing.guest)),
        "outcome": record.outcome.name(),
        "failure": record.failure.map(|failure| failure.to_string()),
    });
    format!("{}\n", escaped_json(&object.to_string()))
}

/// A time as RFC 3339 writes it, in UTC, to the millisecond.
pub(crate) fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days of the proleptic Gregorian calendar, in years that begin in March (Howard Hinnant).
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::stamp;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_time_is_written_as_the_calendar_has_it() {
        let rows = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (4_107_542_400_001, "2100-03-01T00:00:00.001Z"),
        ];
        for (ms, expected) in rows {
            assert_eq!(stamp(UNIX_EPOCH + Duration::from_millis(ms)), expected);
        }
    }
}
