//! A timer, and where it is among its tenant's deadlines.

use leasehold_reclaim::Handle;

use crate::id::TenantId;
use crate::queue::Queue;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    /// When it fires next, if it is armed.
    pub(crate) deadline: Option<u64>,
    /// Nanoseconds from one expiry to the next; 0 for a one-shot timer.
    pub(crate) period: u64,
    /// Expiries since the last wait.
    pub(crate) fired: u64,
    pub(crate) waiters: Queue,
    /// The tenant whose deadlines include it.
    pub(crate) owner: TenantId,
    /// `Some` for one that stands for the earliest deadline of a child tenant.
    pub(crate) stands_for: Option<TenantId>,
    pub(crate) links: Links,
}

impl Timer {
    pub(super) const fn new(owner: TenantId) -> Self {
        Timer {
            deadline: None,
            period: 0,
            fired: 0,
            waiters: Queue::EMPTY,
            owner,
            stands_for: None,
            links: Links::NONE,
        }
    }

    /// A timer without an object of its own, that stands for a child tenant's deadlines.
    pub(crate) const fn alarm(owner: TenantId) -> Self {
        Timer::new(owner)
    }

    pub(crate) const fn stand_for(&mut self, tenant: TenantId) {
        self.stands_for = Some(tenant);
    }
}

/// Where a timer is in its heap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    pub(crate) left: Option<Handle<Timer>>,
    pub(crate) right: Option<Handle<Timer>>,
    pub(crate) parent: Option<Handle<Timer>>,
    /// Nodes on the shortest way down to a missing child; at most log2(n + 1).
    pub(crate) rank: u8,
}

impl Links {
    pub(crate) const NONE: Links = Links {
        left: None,
        right: None,
        parent: None,
        rank: 1,
    };
}
