//! The links that leave a group: the entries of its scrub list, and how each is severed.

use leasehold_reclaim::{Backing, Groups, Handle, Sever};

use crate::allowance::{self, Allowance};
use crate::end::Host;
use crate::execution::{ExecutionId, Executions};

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

/// Severs the links of an ending group. O(1) each, except that one freed place in a channel may
/// wake several senders.
pub(crate) struct Severing<'a, H> {
    pub(crate) executions: &'a mut Executions,
    pub(crate) host: &'a mut H,
}

impl<B: Backing, H: Host> Sever<B, Link> for Severing<'_, H> {
    fn sever(&mut self, groups: &mut Objects<B>, link: Link) {
        match link {
            Link::Stop(id) => {
                if self.executions.remove(groups, id).is_some() {
                    self.host.stop_execution(id);
                }
            }
            Link::Wake(id) => self.executions.bereave(groups, id),
            Link::Close(Granted(allowance)) => allowance::close(groups, allowance),
        }
    }
}
