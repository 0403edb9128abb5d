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
    /// The kernel could not give a page that the policy had granted: the host is out of memory,
    /// which [holding](crate::Held) a node's memory prevents.
    #[error("the kernel: {0}")]
    Kernel(Errno),
}

/// An access that cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no page for the access to {address:#x}: {reason}")]
pub struct Denied {
    /// What was accessed.
    pub address: usize,
    /// What is attached there; `None` if it was detached.
    pub attachment: Option<AttachmentId>,
    /// Why.
    pub reason: Reason,
    /// Address of the instruction, to tell guests' code from the host's; 0 if there is none.
    pub instruction: usize,
}

/// The treatment of an access that cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The handler of SIGBUS that was there before is called; by default the process ends.
    Chain,
    /// The handler of SIGSEGV is called, as for an address that may not be accessed. In guest
    /// code this is a trap to a wasm engine that handles the signal.
    Segv,
    /// A page of zeros of the process's own takes the place, so that the access succeeds. For
    /// host code: what it reads or writes there is lost, and the tenant must not run again.
    Substitute,
}
