//! Units of reclamation time: budgets are given in nanoseconds, kept in picoseconds.
//!
//! A 32-byte slot's share of giving its page back is well under a nanosecond, so charging whole
//! nanoseconds per object would overcharge small objects several times over.

use core::fmt;

/// Reclamation time in nanoseconds: the unit of budgets and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// Reclamation time in picoseconds: the unit of charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Picos(pub u64);

impl Nanos {
    /// The same time in picoseconds; saturates at `u64::MAX` (213 days).
    pub const fn to_picos(self) -> Picos {
        Picos(self.0.saturating_mul(1_000))
    }
}

impl Picos {
    /// The same time in nanoseconds, rounded up: what to report of a charge.
    pub const fn to_nanos_ceil(self) -> Nanos {
        Nanos(self.0.div_ceil(1_000))
    }

    /// The same time in nanoseconds, rounded down: what to report of a remaining budget.
    pub const fn to_nanos_floor(self) -> Nanos {
        Nanos(self.0 / 1_000)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ps", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Nanos, Picos};

    #[test]
    fn charges_round_up_and_remaining_budgets_round_down() {
        assert_eq!(Picos(1_001).to_nanos_ceil(), Nanos(2));
        assert_eq!(Picos(1_999).to_nanos_floor(), Nanos(1));
    }

    #[test]
    fn an_absurd_budget_saturates() {
        assert_eq!(Nanos(u64::MAX).to_picos(), Picos(u64::MAX));
    }
}
