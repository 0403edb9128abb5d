//! The queue of an object: executions in order of arrival.

use core::num::NonZeroU32;

/// An execution's number in the table of executions; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) NonZeroU32);

/// A list of executions, linked through their records. An execution is on at most one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct List {
    pub(crate) first: Option<Number>,
    pub(crate) last: Option<Number>,
}

/// The waiters of an object, and the units reserved for woken ones.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Queue {
    pub(crate) list: List,
    pub(crate) reserved: u32,
}

impl Queue {
    pub(crate) const EMPTY: Queue = Queue {
        list: List {
            first: None,
            last: None,
        },
        reserved: 0,
    };

    /// Whether a call may take `need` of what is `available`: not what is reserved for others,
    /// and not before those in the queue unless it has waited itself.
    pub(crate) fn admits(&self, available: u32, need: u32, has_reserved: bool) -> bool {
        (has_reserved || self.list.first.is_none())
            && available.saturating_sub(self.reserved) >= need
    }
}
