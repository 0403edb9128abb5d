//! The cell's pools together: linear-memory slots and fiber stacks, and what of them still has to
//! be cleaned.

use crate::heap::Blocks;
use crate::memory::{self, Left, Memories, Tenancy};
use leasehold_slots::range_pool::{Claim, Retried, STEP_PAGES};
use leasehold_slots::slot::SlotPool;
use leasehold_slots::stack::StackPool;
use leasehold_slots::stack_class::StackClass;
use leasehold_slots::warm_room::Keeper;
use std::sync::{Arc, OnceLock};
use wasmtime::Config;

/// Bytes of each slot that stay resident for its next user: what a Go program's data and first
/// heap take, so that starting one takes no page faults. The pool bounds the sum.
const KEEP_SLOT: usize = 4 << 20;

/// Bytes of each stack that stay resident.
const KEEP_STACK: usize = 16 << 10;

/// Memory that tenants use and leave behind.
#[derive(Clone)]
pub(crate) struct Pools {
    slots: SlotPool,
    /// One for each class that is in use.
    stacks: Arc<[OnceLock<StackPool>; StackClass::COUNT]>,
    capacity: usize,
}

/// The remains of one tenant in the pools, to be cleaned at its expense.
#[derive(Debug, Default)]
pub(crate) struct DirtyRanges {
    slots: Claim,
    stacks: [Claim; StackClass::COUNT],
    /// Memories of a tenant that pages.
    paged: Vec<Left>,
    /// Large blocks of the host's heap.
    blocks: Blocks,
}

impl DirtyRanges {
    /// Whether all of it is clean.
    pub(crate) fn is_clean(&self) -> bool {
        self.slots.is_empty()
            && self.stacks.iter().all(Claim::is_empty)
            && self.paged.is_empty()
            && self.blocks.is_empty()
    }

    /// The memories that page go with the reservation of their tenant, which is being taken back.
    pub(crate) fn leave_paged_to(&mut self, tenancy: &mut Tenancy) {
        tenancy.take_over(&mut self.paged);
    }
}

impl Pools {
    /// Pools for `capacity` memories and as many stacks of each class.
    ///
    /// # Errors
    /// The system's, when the address space is limited.
    pub(crate) fn new(capacity: usize) -> std::io::Result<Self> {
        Ok(Self {
            slots: SlotPool::new(capacity, KEEP_SLOT)?,
            stacks: Arc::default(),
            capacity,
        })
    }

    /// Configures an engine to take its memories, and its stacks of this class, from these pools.
    ///
    /// # Errors
    /// The system's, when the address space is limited.
    pub(crate) fn configure(&self, config: &mut Config, class: StackClass) -> std::io::Result<()> {
        let stacks = StackPool::of_class(class, self.capacity, KEEP_STACK)?;
        let stacks = self.stacks[class.index()].get_or_init(|| stacks);
        config.with_host_memory(Arc::new(Memories(self.slots.clone())));
        config.with_host_stack(Arc::new(stacks.clone()));
        Ok(())
    }

    /// The pools of stacks that are in use, and a tenant's claim on each.
    fn stacks<'a>(
        &'a self,
        claims: &'a mut [Claim; StackClass::COUNT],
    ) -> impl Iterator<Item = (&'a StackPool, &'a mut Claim)> {
        let pools = self.stacks.iter().zip(claims);
        pools.filter_map(|(pool, claim)| Some((pool.get()?, claim)))
    }

    /// Adds everything that was left behind since the last call, in constant time.
    ///
    /// All programs of a cell run and are dropped on its thread, one tenant's at a time: so what
    /// was left behind meanwhile is that tenant's.
    /// Of memories that could be [kept](Self::claim_keeping) none is.
    pub(crate) fn claim(&self, dirty: &mut DirtyRanges) {
        self.claim_keeping(dirty);
        self.forgo(dirty);
    }

    /// The same, but memories whose [`Keeper`] wants them are restored, and are then warm.
    pub(crate) fn claim_keeping(&self, dirty: &mut DirtyRanges) {
        self.slots.claim(&mut dirty.slots);
        for (stacks, claim) in self.stacks(&mut dirty.stacks) {
            stacks.claim(claim);
        }
        memory::claim(&mut dirty.paged);
        dirty.blocks.claim();
    }

    /// Has memories among the remains cleaned that were to be kept.
    pub(crate) fn forgo(&self, dirty: &DirtyRanges) {
        self.slots.forgo(&dirty.slots);
    }

    /// How many memories are warm for a keeper.
    pub(crate) fn warm(&self, keeper: Keeper) -> usize {
        self.slots.warm(keeper)
    }

    /// Adds to the remains what is warm for a keeper beyond `most` memories.
    pub(crate) fn cool(&self, keeper: Keeper, most: usize, dirty: &mut DirtyRanges) {
        self.slots.cool(keeper, most, &mut dirty.slots);
    }

    /// Takes one step in cleaning what the system refused to clean; returns true if it did.
    pub(crate) fn retry(&self) -> bool {
        let slots = || self.slots.retry(STEP_PAGES);
        let stacks = self.stacks.iter().filter_map(OnceLock::get);
        let mut retried =
            std::iter::once_with(slots).chain(stacks.map(|stacks| stacks.retry(STEP_PAGES)));
        retried.any(|retried| retried == Retried::Stepped)
    }

    /// Cleans up to `pages` pages, slots first; returns how many.
    pub(crate) fn clean(&self, dirty: &mut DirtyRanges, pages: usize) -> usize {
        if !dirty.paged.is_empty() {
            memory::detach(&mut dirty.paged, pages as u32);
            pages
        } else if !dirty.blocks.is_empty() {
            dirty.blocks.clean(pages)
        } else if dirty.slots.is_empty() {
            let mut stacks = self.stacks(&mut dirty.stacks);
            let dirty = stacks.find(|(_, claim)| !claim.is_empty());
            dirty.map_or(0, |(stacks, claim)| stacks.clean_claimed(claim, pages))
        } else {
            self.slots.clean_claimed(&mut dirty.slots, pages)
        }
    }
}
