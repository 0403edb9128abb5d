//! The host's heap, made predictable: no thread waits for another one to have a block or to give one back, large
//! blocks are mappings of their own, and a program's freed blocks are given back some pages a step.
//!
//! The C library's heaps have locks. A thread that frees what a cell's thread has allocated takes the lock of the
//! cell's heap, and keeps it when the host takes the processor from it: beside other programs the cell would wait for
//! milliseconds. In mimalloc such a block goes into a list of its owner's, by an atomic operation.
//!
//! A table of the engine is one block. Dropping a program would give all its pages back at once, so that
//! blocks which are freed [meanwhile](keep_freed) are kept: their bytes are a list that takes no other memory,
//! until their pages have gone ([`Blocks::clean`]).

use leasehold_door::{Call, pass};
use leasehold_slots::address_range::PAGE;
use mimalloc::MiMalloc;
use rustix::mm::{Advice, madvise};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::Once;

/// Allocations of this size and more are mappings of their own, bytes.
const OWN_MAPPING: i32 = 128 << 10;

/// Blocks of this size and more are kept, bytes: all that are mappings of their own.
const LARGE: usize = OWN_MAPPING as usize;

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// The header of a kept block.
struct Kept {
    next: *mut Kept,
    layout: Layout,
    /// The part from the start that may still have pages, bytes.
    rest: usize,
}

thread_local! {
    /// Whether this thread keeps what it frees.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    static FIRST: Cell<*mut Kept> = const { Cell::new(null_mut()) };
}

const fn is_large(size: usize) -> bool {
    size >= LARGE
}

// SAFETY: a block is of the allocator that its size says, and is given back to that one, with the layout that it was
// made with. One that is kept was given up by its owner and is given back once, by `Blocks::clean`.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe {
            match is_large(layout.size()) {
                true => System.alloc(layout),
                false => MiMalloc.alloc(layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe {
            match is_large(layout.size()) {
                true => System.alloc_zeroed(layout),
                false => MiMalloc.alloc_zeroed(layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's. A block that goes from one allocator to the other is copied as far as both
        // blocks reach; the caller has seen to it that the new size is a valid one for the alignment.
        unsafe {
            match (is_large(layout.size()), is_large(size)) {
                (true, true) => System.realloc(block, layout, size),
                (false, false) => MiMalloc.realloc(block, layout, size),
                _ => {
                    let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !new.is_null() {
                        new.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    new
                }
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_large(layout.size()) {
            // SAFETY: the caller's.
            return unsafe { MiMalloc.dealloc(block, layout) };
        }
        let is_kept =
            block.cast::<Kept>().is_aligned() && KEEPS.try_with(Cell::get).unwrap_or(false);
        if !is_kept {
            // SAFETY: the caller's.
            return unsafe { System.dealloc(block, layout) };
        }
        FIRST.with(|first| {
            let kept = block.cast::<Kept>();
            let rest = layout.size();
            let next = first.get();
            // SAFETY: the block was freed by its only user, and is large enough and aligned.
            unsafe { kept.write(Kept { next, layout, rest }) };
            first.set(kept);
        });
    }
}

/// Keeps the large blocks that this thread frees meanwhile.
pub(crate) fn keep_freed<T>(work: impl FnOnce() -> T) -> T {
    struct Stop(bool);
    impl Drop for Stop {
        fn drop(&mut self) {
            KEEPS.set(self.0);
        }
    }
    let _stop = Stop(KEEPS.replace(true));
    work()
}

/// Blocks that were kept.
#[derive(Debug, Default)]
pub(crate) struct Blocks(Option<NonNull<Kept>>);

impl Blocks {
    /// Adds all that this thread has kept since this was called last, in constant time unless there are
    /// both.
    pub(crate) fn claim(&mut self) {
        let Some(mut last) = NonNull::new(FIRST.replace(null_mut())) else {
            return;
        };
        let first = last;
        // SAFETY: blocks that are kept are their list's alone.
        unsafe {
            while let Some(next) = NonNull::new(last.as_ref().next).filter(|_| self.0.is_some()) {
                last = next;
            }
            if let Some(own) = self.0 {
                last.as_mut().next = own.as_ptr();
            }
        }
        self.0 = Some(first);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Gives at most `pages` pages of the first block back; returns how many.
    pub(crate) fn clean(&mut self, pages: usize) -> usize {
        let Some(mut first) = self.0 else {
            return 0;
        };
        // SAFETY: as above; of the block only what is behind its first page is given up, where nothing is.
        unsafe {
            let block = first.as_mut();
            let start = first.as_ptr() as usize;
            let end = (start + block.rest) / PAGE * PAGE;
            let least = (start + size_of::<Kept>()).next_multiple_of(PAGE);
            let from = end.saturating_sub(pages * PAGE).max(least);
            if from < end {
                let at = first.as_ptr().cast::<u8>().add(from - start);
                // On failure the pages are given back with the block.
                let _ = pass(Call::Advise)
                    .and_then(|()| madvise(at.cast(), end - from, Advice::LinuxDontNeed));
                block.rest = from - start;
                return (end - from) / PAGE;
            }
            let (next, layout) = (block.next, block.layout);
            self.0 = NonNull::new(next);
            System.dealloc(first.as_ptr().cast(), layout);
        }
        1
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        while !self.is_empty() {
            self.clean(usize::MAX / PAGE);
        }
    }
}

/// Makes the C library give every large allocation back to the system when it is freed, and limits
/// the allocations that are separate mappings to what [the host has](crate::mappings).
///
/// By default glibc raises the size from which it does so after the first such free, up to 32 MiB.
/// Then the same drop is sometimes a list operation and sometimes gives back thousands of pages,
/// depending on what other tenants did before: no bound could be calibrated for it. It also
/// returns memory to the host when a tenant ends rather than at some later time.
pub(crate) fn make_predictable() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(target_env = "gnu")]
        // SAFETY: changes parameters of the allocator, which may be done at any time.
        let accepted = unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING)
                & libc::mallopt(libc::M_MMAP_MAX, crate::mappings::HEAP)
        };
        #[cfg(not(target_env = "gnu"))]
        let accepted = 0;
        if accepted != 1 {
            tracing::debug!("the allocator keeps its own ways with large allocations");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Blocks, LARGE, PAGE, keep_freed};

    #[test]
    fn large_blocks_are_kept_while_a_program_is_dropped_and_given_back_some_pages_a_step() {
        let blocks = || [vec![1_u8; 4 * LARGE], vec![2; LARGE], vec![3; LARGE - 1]];
        drop(blocks());
        let mut kept = Blocks::default();
        kept.claim();
        assert!(kept.is_empty());
        let made = blocks();
        keep_freed(|| drop(made));
        kept.claim();
        let more = vec![4_u8; LARGE];
        keep_freed(|| drop(more));
        kept.claim();
        let (mut pages, mut steps) = (0, 0);
        while !kept.is_empty() {
            let given = kept.clean(16);
            assert!(given <= 16);
            pages += given;
            steps += 1;
        }
        let all = 6 * LARGE / PAGE;
        assert!((all - 12..=all + 3).contains(&pages), "{pages} of {all}");
        assert!(steps >= all / 16, "{steps}");
    }
}
