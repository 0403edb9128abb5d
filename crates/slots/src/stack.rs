//! Stacks for the fibers that guests run on.
//!
//! As with [slots](crate::slot), a stack outlives its tenant: dropping it puts it into a queue, and
//! cleaning happens later in bounded steps. Below each stack lies a guard. The top of a stack,
//! which every run touches, stays resident and is overwritten with zeros, so that no tenant can
//! read what the previous one left.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::address_range::PAGE;
use crate::cleaning::Dirty;
use crate::range_pool::{Claim, CleanState, Cleaned, PoolState, RangePool, Retried};
use crate::stack_class::StackClass;
use crate::taken::Taken;

/// Inaccessible bytes below a stack. The code of host functions touches every page it passes, so
/// that one page would do.
const GUARD: usize = 16 * PAGE;

/// Pages of one stack of the smallest class, all of which cleaning visits: what a lease is charged for it.
pub const STACK_PAGES: usize = StackClass::SMALLEST.pages();

/// The fiber stacks of a cell of one class. Cloning gives another handle to the same pool.
#[derive(Clone, Debug)]
pub struct StackPool {
    ranges: Arc<RangePool>,
    class: StackClass,
    keep_resident: usize,
}

impl StackPool {
    /// Reserves address space for `capacity` stacks of the smallest class at a time. Cleaning keeps the top
    /// `keep_resident` bytes of each used stack resident, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// The system's, when the address space is limited.
    pub fn new(capacity: usize, keep_resident: usize) -> io::Result<StackPool> {
        StackPool::of_class(StackClass::SMALLEST, capacity, keep_resident)
    }

    /// As [`new`](StackPool::new), of a class.
    ///
    /// # Errors
    ///
    /// The system's, when the address space is limited.
    pub fn of_class(
        class: StackClass,
        capacity: usize,
        keep_resident: usize,
    ) -> io::Result<StackPool> {
        let stride = GUARD + class.fiber_bytes();
        Ok(StackPool {
            ranges: Arc::new(RangePool::new(capacity, stride, GUARD)?),
            class,
            keep_resident: keep_resident
                .min(class.fiber_bytes())
                .next_multiple_of(PAGE),
        })
    }

    /// Bytes of a stack.
    pub(crate) const fn bytes(&self) -> usize {
        self.class.fiber_bytes()
    }

    /// Takes a clean stack.
    ///
    /// # Errors
    ///
    /// `QuotaExceeded` if no stack is clean; the system's if it refuses to make pages accessible.
    pub(crate) fn take(&self) -> io::Result<Stack> {
        let (taken, _) = self.ranges.take(self.bytes(), usize::MAX)?;
        Ok(Stack {
            pool: self.clone(),
            taken,
        })
    }

    /// The numbers of clean, taken and dirty stacks.
    #[inline]
    pub fn state(&self) -> PoolState {
        self.ranges.state()
    }

    /// Cleans at most `pages` pages of the stack that has been dirty for the longest time.
    pub fn clean_step(&self, pages: usize) -> Cleaned {
        self.ranges.clean_step(pages)
    }

    /// Tries again to clean at most `pages` pages of a stack on which the system refused a call.
    pub fn retry(&self, pages: usize) -> Retried {
        self.ranges.retry(pages)
    }

    /// Adds to a claim all that was detached since the last one.
    #[inline]
    pub fn claim(&self, claim: &mut Claim) {
        self.ranges.claim(claim);
    }

    /// Cleans at most `pages` pages of the first range of a claim; returns how many.
    #[inline]
    pub fn clean_claimed(&self, claim: &mut Claim, pages: usize) -> usize {
        self.ranges.clean_claimed(claim, pages)
    }
}

/// A stack in use.
pub(crate) struct Stack {
    pool: StackPool,
    taken: Taken,
}

impl Stack {
    /// All of it, from its bottom to its top.
    pub(crate) fn addresses(&self) -> Range<*mut u8> {
        let Range { start, end } = self.taken.accessible();
        self.address(start)..self.address(end)
    }

    /// The inaccessible addresses below it.
    pub(crate) fn guard(&self) -> Range<*mut u8> {
        let bottom = self.taken.accessible().start;
        self.address(bottom - GUARD)..self.address(bottom)
    }

    fn address(&self, offset: usize) -> *mut u8 {
        self.pool.ranges.reservation().at(offset).as_ptr()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let then = CleanState {
            accessible: self.pool.bytes(),
            ..CleanState::default()
        };
        let dirty = Dirty::staying(std::mem::take(&mut self.taken), self.pool.keep_resident);
        self.pool.ranges.detach(dirty, then);
    }
}
