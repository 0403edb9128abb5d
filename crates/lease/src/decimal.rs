//! Whole numbers in decimal digits.

use std::str::FromStr;

/// The whole number that `text` is in decimal digits, if it fits. The parser of Rust's integers takes a sign, too.
#[must_use]
pub fn decimal<T: FromStr>(text: &str) -> Option<T> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn a_number_is_digits_and_fits() {
        assert_eq!((decimal("0"), decimal("007")), (Some(0_u8), Some(7_u8)));
        for text in ["", "+1", "-1", " 1", "1 ", "256", "1.0", "٣"] {
            assert_eq!(decimal::<u8>(text), None, "{text:?}");
        }
    }
}
