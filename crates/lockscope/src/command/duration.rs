//! Times on the command line: `500ms`, `30s`, `10m`.

use std::time::Duration;

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
}
