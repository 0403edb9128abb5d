//! Times, as a lease states them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::quantity::{Grammar, Quantity, QuantityError};

/// A time of 1 ns to one hour, in nanoseconds.
///
/// Text form: a decimal number, fractions allowed, directly followed by `ns`, `us`, `ms` or `s`.
///
/// ```
/// use leasehold_lease::Nanoseconds;
///
/// let budget: Nanoseconds = "1.5ms".parse()?;
/// assert_eq!(budget.get(), 1_500_000);
/// assert_eq!(budget.to_string(), "1500us");
/// assert!("500".parse::<Nanoseconds>().is_err());
/// # Ok::<(), leasehold_lease::QuantityError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanoseconds(u64);

impl Nanoseconds {
    /// One hour: a host that waits longer than that for a tenant to end has no deadline at all.
    pub const MAX: Self = Self(3_600_000_000_000);

    /// `nanoseconds` as a lease may state it, or `None` for zero and for more than [`Self::MAX`].
    #[must_use]
    pub const fn new(nanoseconds: u64) -> Option<Self> {
        if nanoseconds == 0 || nanoseconds > Self::MAX.0 {
            None
        } else {
            Some(Self(nanoseconds))
        }
    }

    /// The time in nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Quantity for Nanoseconds {
    const GRAMMAR: Grammar = Grammar {
        units: &[
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
        ],
        max: Self::MAX.0,
        allowed: "a time with its unit (ns, us, ms, s), more than zero and at most 3600s, such as \"500us\"",
    };
}

impl FromStr for Nanoseconds {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::GRAMMAR.parse(text).map(Self)
    }
}

/// The exact value, in the largest unit that needs no fraction.
impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::GRAMMAR.format(self.0, f)
    }
}

impl From<Nanoseconds> for Duration {
    fn from(time: Nanoseconds) -> Self {
        Self::from_nanos(time.0)
    }
}
