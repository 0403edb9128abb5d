//! The urgency of a server, which orders ready servers and timeouts.

use crate::contract::{Nanos, Priority};

/// Levels of priority.
pub(crate) const LEVELS: u32 = 256;

/// The smaller, the more urgent. Under fixed priorities a level, 0 for the highest priority;
/// under earliest deadline first the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency(u64);

impl Urgency {
    /// Less urgent than any reservation.
    pub(crate) const LEAST: Urgency = Urgency(u64::MAX);

    #[inline]
    pub(crate) const fn of_priority(priority: Priority) -> Self {
        Urgency((u8::MAX - priority.0) as u64)
    }

    #[inline]
    pub(crate) const fn of_level(level: u32) -> Self {
        Urgency(level as u64)
    }

    /// The level of a fixed priority.
    #[inline]
    pub(crate) const fn level(self) -> u32 {
        self.0 as u32 % LEVELS
    }

    #[inline]
    pub(crate) const fn of_deadline(deadline: Nanos) -> Self {
        Urgency(deadline)
    }

    #[inline]
    pub(crate) const fn deadline(self) -> Nanos {
        self.0
    }
}
