//! The cell's pools together: linear-memory slots and fiber stacks, and what of them still has to
//! be cleaned.

use crate::range_pool::{PoolState, STEP_PAGES};
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

/// Everything that was dirty at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    slots: u64,
    stacks: u64,
}

fn reached(state: PoolState, ticket: u64) -> bool {
    state.cleaned >= ticket
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
        config.with_host_memory(Arc::new(self.slots.clone()));
        config.with_host_stack(Arc::new(self.stacks.clone()));
    }

    /// What is dirty now.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket {
            slots: self.slots.state().detached,
            stacks: self.stacks.state().detached,
        }
    }

    /// Whether all that was dirty when the ticket was taken is clean.
    pub(crate) fn is_clean(&self, ticket: Ticket) -> bool {
        reached(self.slots.state(), ticket.slots) && reached(self.stacks.state(), ticket.stacks)
    }

    /// Cleans up to `pages` pages of what has been dirty for the longest time, slots first;
    /// returns how many.
    pub(crate) fn clean(&self, ticket: Ticket, pages: usize) -> usize {
        if reached(self.slots.state(), ticket.slots) {
            self.stacks.clean_step(pages).pages
        } else {
            self.slots.clean_step(pages).pages
        }
    }

    /// Takes up to `steps` cleaning steps; true when all that the ticket stands for is clean.
    pub(crate) fn clean_steps(&self, ticket: Ticket, steps: usize) -> bool {
        for _ in 0..steps {
            if self.is_clean(ticket) {
                return true;
            }
            self.clean(ticket, STEP_PAGES);
        }
        self.is_clean(ticket)
    }
}
