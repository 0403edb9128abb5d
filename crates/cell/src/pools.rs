//! The cell's pools together: linear-memory slots and fiber stacks, and what of them still has to
//! be cleaned.

use crate::heap::Blocks;
use crate::memory::{self, Left, Memories, Tenancy};
use crate::range_pool::Claim;
use crate::slot::SlotPool;
use crate::stack::StackPool;
use std::sync::Arc;
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
    stacks: StackPool,
}

/// What one tenant left behind in the pools, to be cleaned at its expense.
#[derive(Debug, Default)]
pub(crate) struct Leavings {
    slots: Claim,
    stacks: Claim,
    /// Memories of a tenant that pages.
    paged: Vec<Left>,
    /// Large blocks of the host's heap.
    blocks: Blocks,
}

impl Leavings {
    /// Whether all of it is clean.
    pub(crate) fn is_clean(&self) -> bool {
        self.slots.is_empty()
            && self.stacks.is_empty()
            && self.paged.is_empty()
            && self.blocks.is_empty()
    }

    /// The memories that page go with the reservation of their tenant, which is being taken back.
    pub(crate) fn leave_paged_to(&mut self, tenancy: &mut Tenancy) {
        tenancy.take_over(&mut self.paged);
    }
}

impl Pools {
    /// Pools for `capacity` memories and as many stacks.
    ///
    /// # Errors
    /// The system's, when the address space is limited.
    pub(crate) fn new(capacity: usize) -> std::io::Result<Self> {
        Ok(Self {
            slots: SlotPool::new(capacity, KEEP_SLOT)?,
            stacks: StackPool::new(capacity, KEEP_STACK)?,
        })
    }

    /// Has an engine take its memories and stacks from here.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.with_host_memory(Arc::new(Memories(self.slots.clone())));
        config.with_host_stack(Arc::new(self.stacks.clone()));
    }

    /// Adds everything that was left behind since this was last called, in constant time.
    ///
    /// All programs of a cell run and are dropped on its thread, one tenant's at a time: so what
    /// was left behind meanwhile is that tenant's.
    pub(crate) fn claim(&self, leavings: &mut Leavings) {
        self.slots.claim(&mut leavings.slots);
        self.stacks.claim(&mut leavings.stacks);
        memory::claim(&mut leavings.paged);
        leavings.blocks.claim();
    }

    /// Cleans up to `pages` pages, slots first; returns how many.
    pub(crate) fn clean(&self, leavings: &mut Leavings, pages: usize) -> usize {
        if !leavings.paged.is_empty() {
            memory::detach(&mut leavings.paged, pages as u32);
            pages
        } else if !leavings.blocks.is_empty() {
            leavings.blocks.clean(pages)
        } else if leavings.slots.is_empty() {
            self.stacks.clean_claimed(&mut leavings.stacks, pages)
        } else {
            self.slots.clean_claimed(&mut leavings.slots, pages)
        }
    }
}
