//! The order of dispatch among the reservations of a cell.

use std::fmt;
use std::str::FromStr;

use crate::flag_error::FlagError;

/// How a cell orders the reservations that are ready to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// By the priorities that the leases state (SPR §II).
    #[default]
    FixedPriority,
    /// By the ends of their current periods, the earliest first: hard constant-bandwidth servers
    /// (SPR §V-D). Priorities are ignored.
    EarliestDeadline,
}

impl Order {
    pub(crate) const ALLOWED: &'static str = "\"fixed-priority\" or \"earliest-deadline\"";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "fixed-priority" => Some(Self::FixedPriority),
            "earliest-deadline" => Some(Self::EarliestDeadline),
            _ => None,
        }
    }
}

/// A name of [`Order`] as a flag.
impl FromStr for Order {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        Self::named(text).ok_or_else(|| FlagError::new(text, Self::ALLOWED))
    }
}

/// The name in a lease file.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FixedPriority => "fixed-priority",
            Self::EarliestDeadline => "earliest-deadline",
        })
    }
}
