//! Why a call was refused: the error numbers of the guest interface.

use leasehold_reclaim::Refused;

/// Why a system call was refused. A refused call has no effect (but see [`Errno::Memory`]).
///
/// The numbers are stable: they are part of the guest interface, which returns them negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum Errno {
    /// The selector names no capability of the caller: it never did, or it was dropped.
    #[error("no such capability")]
    BadSelector = 1,
    /// The capability is for an object of another class.
    #[error("capability of another class")]
    BadClass = 2,
    /// The capability does not carry the right that the call needs.
    #[error("the capability does not carry the right")]
    Rights = 3,
    /// The object has ended, or the capability was revoked.
    #[error("the object has ended or the capability was revoked")]
    Gone = 4,
    /// The reclamation budget does not pay for it (BRR §III).
    #[error("the reclamation budget does not pay for it")]
    Budget = 5,
    /// The arena is full, or the memory reservation is used up. This is the one refusal after
    /// which more may be *charged* than before (a table that has already grown keeps its room);
    /// no object, capability or link has appeared.
    #[error("out of memory")]
    Memory = 6,
    /// The capability table has reached its bound.
    #[error("the capability table is full")]
    TableFull = 7,
    /// The channel has no room now.
    #[error("the channel is full")]
    Full = 8,
    /// Nothing to take now.
    #[error("nothing to take")]
    Empty = 9,
    /// Beyond what the object, or the caller's buffer, can hold.
    #[error("too large")]
    TooLarge = 10,
    /// Too many derivations or tenants inside one another.
    #[error("too deeply nested")]
    Depth = 11,
    /// The owner of the object has not granted so many links to foreign tenants.
    #[error("no link left in the allowance")]
    Allowance = 12,
    /// An argument makes no sense.
    #[error("invalid argument")]
    Invalid = 13,
    /// The object is in use.
    #[error("busy")]
    Busy = 14,
    /// A limit of this cell is reached.
    #[error("a limit of the cell is reached")]
    Limit = 15,
}

impl Errno {
    /// The stable number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Budget { .. } => Errno::Budget,
            Refused::Memory => Errno::Memory,
            Refused::TooManyGroups => Errno::Limit,
            Refused::Stale => Errno::Gone,
        }
    }
}
