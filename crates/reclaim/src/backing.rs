//! Where arenas get their address ranges from.

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use crate::cost::PAGE;

/// A source of address ranges for arenas.
///
/// # Safety
/// A range returned by [`reserve`](Backing::reserve) must be readable and writable, zeroed,
/// aligned to 4 KiB, disjoint from all memory in use, and stay so until it is released. After
/// [`discard`](Backing::discard) the given bytes must read as zero and be as usable as before.
/// None of the methods may call back into the groups that use the backing.
pub unsafe trait Backing {
    /// Reserves `bytes`, a positive multiple of 4 KiB; `None` if there is no room. Pages should
    /// cost nothing until they are touched.
    fn reserve(&mut self, bytes: usize) -> Option<NonNull<u8>>;

    /// Gives the memory of some pages back; they read as zero afterwards.
    ///
    /// # Safety
    /// The range must consist of whole pages of a reserved range, with no reference into it.
    unsafe fn discard(&mut self, start: NonNull<u8>, bytes: usize);

    /// Gives a whole range back.
    ///
    /// # Safety
    /// `start` and `bytes` must be those of one `reserve`, not released before, and without
    /// references to the range.
    unsafe fn release(&mut self, start: NonNull<u8>, bytes: usize);
}

/// Arenas from the global allocator: for tests, and for hosts without virtual memory.
///
/// Discarding clears the pages in place, so `pages returned` does not mean that the operating
/// system got them back.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeapBacking;

impl HeapBacking {
    /// The range and up to one page in front of it, where the allocation's own start is noted.
    ///
    /// Asking the allocator for page alignment would make it clear the whole range by hand
    /// instead of using pages that are zero anyway.
    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(PAGE)?, NOTE).ok()
    }
}

/// Bytes that the note needs; the allocator's alignment keeps them free in front of the range.
const NOTE: usize = 16;

// SAFETY: `reserve` returns the page-aligned part of a fresh zeroed allocation that is `PAGE`
// bytes longer than asked for, `discard` writes zeros, and neither calls anything else.
unsafe impl Backing for HeapBacking {
    fn reserve(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let layout = Self::layout(bytes)?;
        // SAFETY: the layout is not empty.
        let whole = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // `whole` is a multiple of NOTE, so there are NOTE ..= PAGE bytes up to the next page.
        let skip = PAGE - whole.as_ptr().addr() % PAGE;
        // SAFETY: `skip` is at most PAGE, by which the allocation is longer than `bytes`.
        let start = unsafe { whole.add(skip) };
        // SAFETY: the NOTE bytes before `start` are inside the allocation, and aligned.
        unsafe { start.sub(NOTE).cast::<NonNull<u8>>().write(whole) };
        Some(start)
    }

    unsafe fn discard(&mut self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller passes pages of a reserved range that nothing refers to.
        unsafe { start.write_bytes(0, bytes) };
    }

    unsafe fn release(&mut self, start: NonNull<u8>, bytes: usize) {
        let layout = Self::layout(bytes).expect("the layout was valid when it was reserved");
        // SAFETY: `reserve` noted the start of the allocation there, with this layout.
        unsafe {
            let whole = start.sub(NOTE).cast::<NonNull<u8>>().read();
            dealloc(whole.as_ptr(), layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Backing, HeapBacking};
    use crate::cost::PAGE;

    #[test]
    fn ranges_are_aligned_zeroed_and_zero_again_after_a_discard() {
        let mut heap = HeapBacking;
        let bytes = 4 * PAGE;
        let start = heap.reserve(bytes).expect("memory");
        assert_eq!(start.as_ptr().addr() % PAGE, 0);
        // SAFETY: the range is reserved, `bytes` long, and used by this test only.
        unsafe {
            let all = core::slice::from_raw_parts_mut(start.as_ptr(), bytes);
            assert!(all.iter().all(|&byte| byte == 0));
            all.fill(7);
            heap.discard(start.add(PAGE), 2 * PAGE);
            let all = core::slice::from_raw_parts(start.as_ptr(), bytes);
            assert!(all[PAGE..3 * PAGE].iter().all(|&byte| byte == 0));
            assert!(
                all[..PAGE]
                    .iter()
                    .chain(&all[3 * PAGE..])
                    .all(|&byte| byte == 7)
            );
            heap.release(start, bytes);
        }
    }
}
