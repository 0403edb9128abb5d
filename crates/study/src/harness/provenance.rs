//! When a measurement was made, and of which tree.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Date, commit and form of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// The day on which it was made (UTC), as `2026-01-31`.
    pub date: String,
    /// The commit of the source tree that this program was built in, as `git describe` has it, with `-dirty` if files
    /// were changed; `None` where that tree or git is not there.
    pub commit: Option<String>,
    /// Whether it is the quick form, with smaller points.
    pub quick: bool,
}

impl Provenance {
    /// Takes date and commit as they are now.
    pub fn now(quick: bool) -> Self {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            date: date(elapsed.map_or(0, |elapsed| elapsed.as_secs() / 86_400)),
            commit: commit(),
            quick,
        }
    }
}

/// The date of a day after 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> String {
    // Years begin in March here, so that the day that is not in every year is a year's last one.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR")])
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Provenance, date};

    #[test]
    fn a_day_is_the_date_that_the_calendar_says() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_454, "2026-01-01"),
            (20_818, "2026-12-31"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn a_measurement_of_now_has_a_date_of_this_century() {
        let provenance = Provenance::now(true);
        assert!(
            provenance.date.starts_with("20") && provenance.quick,
            "{provenance:?}"
        );
    }
}
