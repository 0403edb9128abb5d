//! Amounts of memory, as a lease states them.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{Grammar, Quantity, QuantityError};

/// A size of 1 byte to 1 TiB, in bytes.
///
/// Text form: a decimal number, fractions allowed, directly followed by `B`, `KiB`, `MiB`, `GiB`
/// or `TiB`. Decimal units (`MB`) are refused: too often the author means the binary ones.
///
/// ```
/// use leasehold_lease::ByteSize;
///
/// let reserve: ByteSize = "1.5MiB".parse()?;
/// assert_eq!(reserve.get(), 1_572_864);
/// assert_eq!(reserve.to_string(), "1536KiB");
/// assert!("16MB".parse::<ByteSize>().is_err());
/// # Ok::<(), leasehold_lease::QuantityError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// 1 TiB: 256 times what one 32-bit linear memory can hold.
    pub const MAX: Self = Self(1 << 40);

    /// `bytes` as a lease may state it, or `None` for zero and for more than [`Self::MAX`].
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes == 0 || bytes > Self::MAX.0 {
            None
        } else {
            Some(Self(bytes))
        }
    }

    /// The size in bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Quantity for ByteSize {
    const GRAMMAR: Grammar = Grammar {
        units: &[
            ("B", 1),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
        ],
        max: Self::MAX.0,
        allowed: "a size with its unit (B, KiB, MiB, GiB, TiB), more than zero and at most 1TiB, \
                  such as \"16MiB\"",
    };
}

impl FromStr for ByteSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::GRAMMAR.parse(text).map(Self)
    }
}

/// The exact value, in the largest unit that needs no fraction.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::GRAMMAR.format(self.0, f)
    }
}
