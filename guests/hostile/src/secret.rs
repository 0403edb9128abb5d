//! The pattern that one tenant leaves behind and the next looks for.

/// Sixteen bytes that no other program writes. Kept complemented, so that a program that looks for
/// the pattern does not itself have it in its memory.
#[derive(Clone, Copy)]
pub struct Secret(u128);

impl Secret {
    /// Bytes of the pattern.
    pub const BYTES: usize = 16;

    /// The pattern written as 32 hexadecimal digits.
    #[must_use]
    pub fn parse(digits: &str) -> Option<Secret> {
        if digits.len() != 2 * Secret::BYTES {
            return None;
        }
        let mut complement = 0;
        for digit in digits.chars() {
            complement = complement << 4 | u128::from(15 - digit.to_digit(16)?);
        }
        Some(Secret(complement))
    }

    /// Writes the pattern over all of `bytes`, again and again.
    pub fn fill(self, bytes: &mut [u8]) {
        let pattern = (!self.0).to_be_bytes();
        for chunk in bytes.chunks_mut(Secret::BYTES) {
            chunk.copy_from_slice(&pattern[..chunk.len()]);
        }
    }

    /// How often the pattern occurs in `bytes`, and how many bytes these are.
    pub fn count(self, bytes: impl Iterator<Item = u8>) -> (u64, u64) {
        let (mut window, mut found, mut looked) = (0_u128, 0, 0);
        for byte in bytes {
            window = window << 8 | u128::from(!byte);
            looked += 1;
            found += u64::from(looked >= Secret::BYTES as u64 && window == self.0);
        }
        (found, looked)
    }
}
