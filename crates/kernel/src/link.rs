//! The links that leave a group: what its scrub list holds, to be severed when it ends.

use leasehold_reclaim::{Groups, Handle};

use crate::capability::Allowance;
use crate::id::ExecutionId;

/// The groups of one cell, with the kernel's scrub entries.
pub(crate) type Objects<B> = Groups<B, Link>;

/// A link that must be severed when the group that it is charged to ends (BRR §IV).
///
/// Everything else that refers to a group from outside (capabilities, in the first place) goes
/// stale by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The group runs this execution: take it off every queue and have the host stop it.
    Stop(ExecutionId),
    /// This foreign tenant's execution waits for an object of the group: wake it.
    Wake(ExecutionId),
    /// The group holds links granted by another one: give them back.
    Close(Granted),
}

/// The allowance that a [`Link::Close`] gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted(pub(crate) Handle<Allowance>);
