//! Numbers as arguments.

/// `number` in decimal digits, written into `digits`.
pub fn decimal(number: impl Into<u64>, digits: &mut [u8; 20]) -> &str {
    let mut rest = number.into();
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            // Digits are UTF-8.
            return str::from_utf8(&digits[start..]).unwrap_or_default();
        }
    }
}
