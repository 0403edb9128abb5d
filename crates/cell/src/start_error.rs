//! Why a tenant is not started.

use leasehold_kernel::Errno;
use leasehold_lease::Nanoseconds;

/// Why a tenant could not be started. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The lease does not pay for an empty tenant with this program, or does not allow as much of
    /// something as the program begins with.
    #[error("the lease does not allow the start: {reason}")]
    Lease {
        /// Which of its values is too small.
        reason: String,
    },
    /// Its processor reservation cannot be set up.
    #[error("the processor reservation: {0}")]
    Processor(String),
    /// Its memory reservation cannot be kept.
    #[error("the memory reservation: {0}")]
    Memory(String),
    /// The cell has no place for another program.
    #[error("the cell has no place for it: {0}")]
    Full(String),
    /// A directory could not be opened.
    #[error("{0}")]
    Surroundings(String),
    /// The program asks for an interface with another type than the one offered.
    #[error("the program does not fit: {0}")]
    Program(String),
    /// The cell has ended.
    #[error("the cell has ended")]
    CellEnded,
}

impl StartError {
    /// Why a tenant was refused. If `budget` did not pay for something, `enough_ns` is the smallest
    /// budget that would have, where it is known.
    pub(crate) fn refused(budget: Nanoseconds, enough_ns: Option<u64>, errno: Errno) -> Self {
        match errno {
            Errno::Limit => Self::Full(errno.to_string()),
            Errno::Budget => Self::Lease {
                reason: budget_reason(budget, enough_ns),
            },
            _ => Self::Lease {
                reason: errno.to_string(),
            },
        }
    }
}

/// The message for a reclamation budget that does not pay for a start, with the smallest sufficient
/// budget, where it is known.
pub(crate) fn budget_reason(budget: Nanoseconds, enough_ns: Option<u64>) -> String {
    let stated = enough_ns.map(|ns| Nanoseconds::new(ns.next_multiple_of(1_000)));
    match stated {
        Some(Some(enough)) => {
            format!("`reclaim.budget` is {budget}, and a start takes {enough} or more on this host")
        }
        Some(None) => format!("`reclaim.budget` is {budget}, and none is enough on this host"),
        None => format!("`reclaim.budget` is {budget}, and does not pay for a start"),
    }
}
