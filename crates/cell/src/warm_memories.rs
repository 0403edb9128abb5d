//! The memories that a tenant which answers requests keeps for its next ones.
//!
//! Each request has a new instance. If the program's initial memory is [shown](leasehold_wasm::image), the memory of an instance
//! is not taken apart when it ends, but [restored](leasehold_slots::slot): the next instance begins without a system call and
//! without faults on the pages that the last one wrote to.
//!
//! 1. *A tenant pays for what it keeps*, like for a memory in use, from at most an eighth of its reclamation budget and in
//!    places that it was promised. No other tenant is refused anything for it, and its end cleans it.
//! 2. *What is kept never stands in the way*: when the lease does not pay for an execution, or has refused anything for want
//!    of budget, everything is given back, and nothing is kept from then on.

use crate::local;
use leasehold_kernel::TenantId;
use leasehold_slots::warm_room::Keeper;

/// Most memories that a tenant keeps: a quarter of what stays resident of memories in all. The one that was restored last is
/// taken first.
const MOST: u64 = 16;

/// The memories that a tenant keeps.
#[derive(Debug)]
pub(crate) struct WarmMemories {
    keeper: Keeper,
    tenant: TenantId,
    /// The execution among whose holdings they are: none that runs.
    holder: u64,
    /// Pages of each.
    pages: u64,
    /// For how many the tenant is charged.
    held: u64,
    most: u64,
    /// What its budget had refused when that was looked at last.
    refusals: u64,
}

impl WarmMemories {
    /// Of a tenant that answers `concurrency` requests at a time, each in a memory that begins with `pages` pages.
    pub(crate) fn new(
        keeper: Keeper,
        (tenant, holder): (TenantId, u64),
        pages: u64,
        concurrency: u32,
    ) -> Self {
        let most = local::with(|local| local.most_unused(tenant, pages));
        Self {
            keeper,
            tenant,
            holder,
            pages,
            held: 0,
            most: most.min(MOST).min(concurrency.into()),
            refusals: 0,
        }
    }

    pub(crate) fn keeper(&self) -> Keeper {
        self.keeper
    }

    /// For how many the tenant is charged.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// The tenant, and the execution among whose holdings they are.
    pub(crate) fn holder(&self) -> (TenantId, u64) {
        (self.tenant, self.holder)
    }

    /// None is kept from here on. What they are charged stays with the holder.
    pub(crate) fn give_up(&mut self) {
        (self.held, self.most) = (0, 0);
    }

    /// Whether the memory of an execution that has ended may be kept: what the tenant then gets back pays for it.
    pub(crate) fn has_room(&self) -> bool {
        self.held < self.most && local::with(|local| local.has_promised(self.tenant))
    }

    /// Whether the budget has refused anything that it would have paid for without them.
    pub(crate) fn stand_in_the_way(&mut self) -> bool {
        let refusals = local::with(|local| local.budget_refusals(self.tenant));
        let before = std::mem::replace(&mut self.refusals, refusals);
        refusals > before && self.held > 0
    }

    /// Changes the number for which the tenant is charged; false if its lease does not pay for so many.
    pub(crate) fn hold(&mut self, memories: u64) -> bool {
        let (tenant, holder, pages) = (self.tenant, self.holder, self.pages);
        local::with(|local| {
            while self.held > memories {
                local.release_unused(tenant, holder, pages);
                self.held -= 1;
            }
            while self.held < memories.min(self.most) && local.hold_unused(tenant, holder, pages) {
                self.held += 1;
            }
        });
        self.held == memories
    }
}
