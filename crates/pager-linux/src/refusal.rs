//! Accesses that cannot be served, and their treatment.

use leasehold_pager::{AttachmentId, Refused};
use rustix::io::Errno;

/// Why a page is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The policy or the store refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A write to an area that is attached to be read only.
    #[error("it is read-only data")]
    ReadOnly,
    /// Code that cannot be suspended would have waited for the disk once more than its owner
    /// [allows](crate::Handlers::may_wait).
    #[error("what the host does for it at once waits for more pages than it may")]
    Waits,
    /// The kernel could not give a page that the policy had granted: the host is out of memory,
    /// which [holding](crate::Held) a node's memory prevents.
    #[error("the kernel: {0}")]
    Kernel(Errno),
}

/// An access that cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no page for the access to {address:#x}: {reason}")]
pub struct Denied {
    /// The accessed address.
    pub address: usize,
    /// The attachment there; `None` if it was detached.
    pub attachment: Option<AttachmentId>,
    /// Why.
    pub reason: Reason,
}

/// The treatment of an access that cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The handler of SIGBUS that was there before is called; by default the process ends.
    Chain,
    /// A page of zeros of the process's own takes the place, so that the access succeeds: what is
    /// read or written there is lost, and the tenant must not run again.
    Substitute,
}
