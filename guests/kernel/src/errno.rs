//! Why the kernel refused a call.

use core::fmt;

use crate::Selector;

/// Why the kernel refused a call. A refused call changed nothing.
///
/// The numbers are those of `docs/guest-abi.md` and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Errno {
    /// The selector names nothing.
    BadSelector = 1,
    /// The object is of another class.
    BadClass = 2,
    /// The capability does not carry the right.
    Rights = 3,
    /// The object ended, or the capability was revoked.
    Gone = 4,
    /// The reclamation budget does not cover the request.
    Budget = 5,
    /// The memory reservation does not cover the request.
    Memory = 6,
    /// The capability table is full.
    TableFull = 7,
    /// The channel or semaphore holds as much as it can.
    Full = 8,
    /// The channel or semaphore holds nothing.
    Empty = 9,
    /// The message or request exceeds what the receiver or the kernel takes.
    TooLarge = 10,
    /// Too many generations of tenants or derivations.
    Depth = 11,
    /// The owner of the object allows no more links at its expense.
    Allowance = 12,
    /// An argument is invalid, or a range lies outside the memory.
    Invalid = 13,
    /// The object cannot do this in its present state.
    Busy = 14,
    /// A limit of the host, not of the lease.
    Limit = 15,
}

/// Every error, at the place of its number less one.
const ALL: [Errno; 15] = [
    Errno::BadSelector,
    Errno::BadClass,
    Errno::Rights,
    Errno::Gone,
    Errno::Budget,
    Errno::Memory,
    Errno::TableFull,
    Errno::Full,
    Errno::Empty,
    Errno::TooLarge,
    Errno::Depth,
    Errno::Allowance,
    Errno::Invalid,
    Errno::Busy,
    Errno::Limit,
];

impl Errno {
    /// The name as in `wit/kernel.wit`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Errno::BadSelector => "bad-selector",
            Errno::BadClass => "bad-class",
            Errno::Rights => "rights",
            Errno::Gone => "gone",
            Errno::Budget => "budget",
            Errno::Memory => "memory",
            Errno::TableFull => "table-full",
            Errno::Full => "full",
            Errno::Empty => "empty",
            Errno::TooLarge => "too-large",
            Errno::Depth => "depth",
            Errno::Allowance => "allowance",
            Errno::Invalid => "invalid",
            Errno::Busy => "busy",
            Errno::Limit => "limit",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Errno {}

/// The result of a call. A number that this crate does not know, from a newer host, is
/// [`Errno::Limit`].
pub(crate) fn result(returned: i64) -> Result<u64, Errno> {
    match u64::try_from(returned) {
        Ok(value) => Ok(value),
        Err(_) => {
            let number = usize::try_from(returned.unsigned_abs()).unwrap_or(usize::MAX);
            Err(ALL.get(number - 1).copied().unwrap_or(Errno::Limit))
        }
    }
}

/// The result of a call that returns nothing.
pub(crate) fn done(returned: i64) -> Result<(), Errno> {
    result(returned).map(drop)
}

/// The result of a call that returns a selector.
pub(crate) fn selector(returned: i64) -> Result<Selector, Errno> {
    // The interface promises a selector: it fits.
    result(returned).map(|value| Selector::new(value as u32))
}
