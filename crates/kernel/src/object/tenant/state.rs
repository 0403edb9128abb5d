//! A child tenant, as its creator has it.

use leasehold_reclaim::Handle;

use crate::id::TenantId;
use crate::object::timer::state::Timer;
use crate::queue::Queue;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Child {
    pub(crate) tenant: Option<TenantId>,
    pub(crate) alarm: Handle<Timer>,
    /// How its program exited first.
    pub(super) exit: Option<i32>,
    pub(in crate::object) ended: bool,
    pub(crate) waiters: Queue,
}

impl Child {
    /// Whether a waiter can continue.
    pub(crate) const fn has_news(&self) -> bool {
        self.exit.is_some() || self.ended
    }
}
