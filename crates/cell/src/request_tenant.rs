//! The child tenant of one request: what the request makes is in a group of its own, which is taken back
//! as a whole when the request is over.

use crate::local;
use leasehold_kernel::{Errno, Selector, TenantId};

/// The part of its parent's lease that each of them has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its reclamation budget at the base price, ns.
    budget_ns: u64,
    /// Its memory reservation, bytes.
    memory_bytes: u64,
}

impl Part {
    /// The part of each, when `parent` divides what it has left among so many at a time. What an ended one owes
    /// counts until it is taken back, so that there are two budgets more than requests; a sixteenth is the parent's,
    /// which pays for making them.
    ///
    /// # Errors
    /// When the parent has gone.
    pub(crate) fn of(parent: TenantId, concurrency: u32) -> Result<Self, Errno> {
        let at_a_time = u64::from(concurrency);
        local::with(|local| {
            let group = local.kernel.group_of(parent)?;
            let left = local.kernel.groups().left(group).ok_or(Errno::Gone)?;
            let memory = local.kernel.memory(parent)?;
            Ok(Self {
                budget_ns: left.0 / 1000 / 16 * 15 / (at_a_time + 2),
                memory_bytes: (memory.reserved - memory.used) / at_a_time,
            })
        })
    }
}

/// A tenant that answers one request.
#[derive(Debug)]
pub(crate) struct RequestTenant {
    parent: TenantId,
    tenant: TenantId,
    /// The parent's capability for it.
    selector: Selector,
}

impl RequestTenant {
    /// Makes one, in which nothing runs yet.
    ///
    /// # Errors
    /// When the parent's lease does not pay for it.
    pub(crate) fn create(parent: TenantId, part: Part) -> Result<Self, Errno> {
        local::with(|local| {
            let kernel = &mut local.kernel;
            let selector = kernel.tenant_create(parent, part.budget_ns, part.memory_bytes)?;
            let tenant = kernel.tenant_of(parent, selector)?;
            Ok(Self {
                parent,
                tenant,
                selector,
            })
        })
    }

    pub(crate) const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Frees what its parent has of it. It must have ended, or begun to.
    pub(crate) fn forget(self) {
        let dropped = local::with(|local| local.kernel.capability_drop(self.parent, self.selector));
        debug_assert!(
            matches!(dropped, Ok(()) | Err(Errno::Gone)),
            "it has ended: {dropped:?}"
        );
    }
}
