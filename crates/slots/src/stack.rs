//! Stacks for the fibers that guests run on.
//!
//! As with [slots](crate::slot), a stack outlives its tenant: dropping it puts it into a queue, and
//! cleaning happens later in bounded steps. Below each stack lies a guard. The top of a stack,
//! which every run touches, stays resident and is overwritten with zeros, so that no tenant can
//! read what the previous one left.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use wasmtime::{StackCreator, StackMemory};

use crate::address_range::PAGE;
use crate::cleaning::Dirty;
use crate::range_pool::{Claim, CleanRange, Cleaned, PoolState, RangePool};
use crate::stack_class::StackClass;

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
            ranges: Arc::new(RangePool::new(capacity, stride)?),
            class,
            keep_resident: keep_resident
                .min(class.fiber_bytes())
                .next_multiple_of(PAGE),
        })
    }

    /// Distance between two stacks.
    const fn stride(&self) -> usize {
        GUARD + self.class.fiber_bytes()
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
struct Stack {
    pool: StackPool,
    /// Offset of the guard in the pool's reservation; the stack follows it.
    start: usize,
}

impl Stack {
    fn address(&self, offset: usize) -> *mut u8 {
        self.pool
            .ranges
            .reservation()
            .at(self.start + offset)
            .as_ptr()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let (bottom, top) = (self.start + GUARD, self.start + self.pool.stride());
        let kept = top - self.pool.keep_resident;
        let range = CleanRange {
            start: self.start,
            accessible: self.pool.class.fiber_bytes(),
            resident: 0,
        };
        // SAFETY: the fiber is gone with its owner; the whole stack has been accessible since it
        // was first taken, and `dirty` covers all of it.
        unsafe {
            self.pool
                .ranges
                .detach(range, Dirty::staying(bottom..kept, kept..top))
        };
    }
}

// SAFETY: the range is page-aligned, readable and writable, belongs to this stack until it is
// dropped, and has an inaccessible guard below it.
unsafe impl StackMemory for Stack {
    fn top(&self) -> *mut u8 {
        self.address(self.pool.stride())
    }

    fn range(&self) -> Range<usize> {
        self.address(GUARD).addr()..self.top().addr()
    }

    fn guard_range(&self) -> Range<*mut u8> {
        self.address(0)..self.address(GUARD)
    }
}

// SAFETY: every stack is zero-filled, has a guard, and is as large as was asked for.
unsafe impl StackCreator for StackPool {
    /// `zeroed` makes no difference: a clean stack reads as zero.
    fn new_stack(&self, size: usize, _zeroed: bool) -> wasmtime::Result<Box<dyn StackMemory>> {
        let bytes = self.class.fiber_bytes();
        if size > bytes {
            wasmtime::bail!("a stack of {size} bytes does not fit into the pool's {bytes}");
        }
        let range = self.ranges.take(
            |reservation,
             CleanRange {
                 start, accessible, ..
             }| { reservation.allow(start + GUARD + accessible, bytes - accessible) },
        )?;
        Ok(Box::new(Stack {
            pool: self.clone(),
            start: range.start,
        }))
    }
}
