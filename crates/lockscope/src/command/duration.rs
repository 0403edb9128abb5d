//! Times on the command line: `500ms`, `30s`, `10m`.

use std::time::Duration;

use leasehold_lockscope::tracer::LONGEST_DELAY_NS;

/// Units, and how many milliseconds they have. Longer suffixes first.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// The time that `text` stands for.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("found {text:?}; allowed: a whole number and ms, s, m or h");
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
        .ok_or_else(refused)?;
    let number: u64 = number.parse().map_err(|_| refused())?;
    let milliseconds = number.checked_mul(*unit).ok_or_else(refused)?;
    match milliseconds {
        0 => Err(refused()),
        milliseconds => Ok(Duration::from_millis(milliseconds)),
    }
}

/// The delay in nanoseconds that `text` stands for: whole microseconds, no more than a lock may be held longer by.
pub(crate) fn parse_delay(text: &str) -> Result<u64, String> {
    let longest = LONGEST_DELAY_NS / 1_000;
    let refused = || format!("found {text:?}; allowed: 1us to {longest}us");
    let number = text.strip_suffix("us").ok_or_else(refused)?;
    match number.parse() {
        Ok(us) if (1..=longest).contains(&us) => Ok(us * 1_000),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_are_not_zero() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in [
            "",
            "5",
            "s",
            "0s",
            "-1s",
            "1.5s",
            "99999999999999999999h",
            "9999999999999999h",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn delays_are_of_microseconds_and_not_too_long() {
        assert_eq!(parse_delay("5us"), Ok(5_000));
        assert_eq!(parse_delay("100us"), Ok(100_000));
        for wrong in ["", "5", "us", "0us", "101us", "1.5us", "1ms", "-1us"] {
            assert!(parse_delay(wrong).is_err(), "{wrong}");
        }
    }
}
