//! Why a tenant is not started.

use crate::build_error::BuildError;
use leasehold_kernel::Errno;
use leasehold_lease::Nanoseconds;
use std::time::Duration;

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
    /// What it is given is longer, or more, than one step copies.
    #[error("{0}")]
    TooLong(String),
    /// The program asks for an interface with another type than the one offered.
    #[error("the program does not fit: {0}")]
    Program(String),
    /// It was killed before it was started.
    #[error("it was killed while it was being started")]
    Killed,
    /// It was not started in time.
    #[error("it was not started within {0:?}: its reservation gives its start too little time")]
    Late(Duration),
    /// The cell has ended.
    #[error("the cell has ended")]
    CellEnded,
}

impl StartError {
    /// Whether there was too little of something that another tenant may give back when it ends.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Processor(_) | Self::Memory(_) | Self::Full(_) => true,
            Self::Lease { .. }
            | Self::Surroundings(_)
            | Self::TooLong(_)
            | Self::Program(_)
            | Self::Killed
            | Self::Late(_)
            | Self::CellEnded => false,
        }
    }

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

/// The demands of a program's beginning, for the words of a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demands {
    pub(crate) budget: Nanoseconds,
    /// The budget that would have paid for the first refused charge, ns, if there was one.
    pub(crate) enough_ns: Option<u64>,
    /// The host's memory that the program begins with, KiB.
    pub(crate) host_kib: u64,
    /// The part of that for a host call, bytes.
    pub(crate) call_bytes: u64,
    /// Whether `memory.host` was too small for something.
    pub(crate) host_is_short: bool,
    /// Whether what was refused takes descriptors.
    pub(crate) opens_files: bool,
}

impl Demands {
    /// The error for the client when the lease does not pay for them.
    pub(crate) fn refused(&self, error: &BuildError) -> StartError {
        match error {
            BuildError::Lease(errno) => self.refused_by_lease(*errno),
            BuildError::Directory { .. } | BuildError::Data { .. } => {
                StartError::Surroundings(error.to_string())
            }
            BuildError::Memory(why) => StartError::Memory(why.clone()),
            BuildError::Link(_) => StartError::Program(error.to_string()),
        }
    }

    /// The error for the client when the kernel cannot take the program.
    pub(crate) fn not_taken(&self, errno: Errno) -> StartError {
        StartError::refused(self.budget, self.enough_ns, errno)
    }

    fn refused_by_lease(&self, errno: Errno) -> StartError {
        let (kib, call_bytes) = (self.host_kib, self.call_bytes);
        // A step that takes descriptors takes other things, too, and its error does not say what was short.
        let errno = match (errno, self.enough_ns) {
            (Errno::Limit, Some(_)) => Errno::Budget,
            _ => errno,
        };
        let reason = match (errno, self.opens_files && !self.host_is_short) {
            (Errno::Limit, true) => {
                "`files.open` is too small: the program begins with its standard streams and its \
                 directories"
                    .to_owned()
            }
            (Errno::Limit, false) => format!(
                "`memory.table_elements` is too small, or `memory.host` for the {kib} KiB that the program begins \
                 with, `reclaim.call_bytes` of {call_bytes} among them, or the cell has no further memory \
                 for this tenant: one may have a quarter of them, and some are promised to others"
            ),
            (Errno::Budget, _) => format!(
                "{}: the program begins with {kib} KiB of the host's memory, `reclaim.call_bytes` of {call_bytes} \
                 among them",
                budget_reason(self.budget, self.enough_ns)
            ),
            (Errno::Memory, _) => "`memory.reserve` (`memory.limit` of a tenant that pages) is too small for the linear \
                                   memory that the program begins with"
                .to_owned(),
            _ => return self.not_taken(errno),
        };
        StartError::Lease { reason }
    }
}

/// The message for a reclamation budget that does not pay for a start, with the least that can: what would have paid for
/// the charge that was refused, where it is known, and more than the budget in any case.
fn budget_reason(budget: Nanoseconds, enough_ns: Option<u64>) -> String {
    let more = budget.get().saturating_add(1);
    let least = enough_ns.unwrap_or(more).max(more);
    match Nanoseconds::new(least.next_multiple_of(1_000)) {
        Some(enough) => {
            format!("`reclaim.budget` is {budget}, and a start takes {enough} or more on this host")
        }
        None => format!("`reclaim.budget` is {budget}, and none is enough on this host"),
    }
}
