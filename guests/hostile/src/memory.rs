//! The program's own linear memory, beyond what the compiler knows of.

use core::arch::wasm32::{memory_grow, memory_size};
use core::ops::Range;
use core::slice;

/// Bytes of a page of linear memory.
pub const PAGE_BYTES: usize = 65_536;

/// A page of linear memory.
pub type Page = [u8; PAGE_BYTES];

/// Pages that the program added to its memory. They are lent one at a time, since no slice may
/// be as long as a memory.
pub struct Pages(Range<usize>);

/// Grows the memory by `bytes`, rounded up to pages, or as far as the host lets it, in steps that
/// halve at each refusal. Returns the added pages.
#[must_use]
pub fn grow(bytes: u64) -> Pages {
    let start = memory_size::<0>();
    // Never the last page of 4 GiB: no object reaches the end of the address space.
    let mut wanted = bytes.div_ceil(PAGE_BYTES as u64).min(65_535 - start as u64) as usize;
    let mut step = wanted;
    while wanted > 0 && step > 0 {
        step = step.min(wanted);
        if memory_grow::<0>(step) == usize::MAX {
            step /= 2;
        } else {
            wanted -= step;
        }
    }
    Pages(start..memory_size::<0>())
}

impl Iterator for Pages {
    type Item = &'static mut Page;

    fn next(&mut self) -> Option<&'static mut Page> {
        let page = (self.0.next()? * PAGE_BYTES) as *mut Page;
        // SAFETY: the program has no allocator, so that only `grow` refers to the page: it exists,
        // is initialised, and is lent here for the only time.
        Some(unsafe { &mut *page })
    }
}

/// The part of the first memory that the compiler put nothing into: from the end of the data and
/// stack to the end of the last page. To be called once, before [`grow`].
#[must_use]
pub fn untouched() -> &'static mut [u8] {
    let start = own_bytes();
    let end = memory_size::<0>() * PAGE_BYTES;
    // SAFETY: the range exists, is initialised, and has no other user: the linker places nothing
    // from `own_bytes` on, and the program has no allocator.
    unsafe { slice::from_raw_parts_mut(start as *mut u8, end - start) }
}

/// The program's stack and data as they are at this moment, byte by byte, but for the first few,
/// which would be at the address of no object.
pub fn own() -> impl Iterator<Item = u8> {
    const FIRST: usize = 16;
    (FIRST..own_bytes()).map(|address| {
        // SAFETY: the address lies in the linear memory, and any byte there may be read, live
        // object or not; volatile, so that the compiler assumes nothing of what it reads.
        unsafe { (address as *const u8).read_volatile() }
    })
}

/// Where the program's stack and data end.
fn own_bytes() -> usize {
    unsafe extern "C" {
        /// Set by the linker: its address is where the heap would begin.
        static __heap_base: u8;
    }
    (&raw const __heap_base).addr()
}
