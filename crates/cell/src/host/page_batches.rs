//! Keeps the batches small in which the kernel hands free pages to a core.
//!
//! A call that caches pages of a file takes them from those that its core has. When there are none, the
//! kernel fetches a batch, with interrupts off; and each batch is twice as large as the last, from 63 pages up
//! to 2,016, unless the core has given a page back meanwhile (`nr_pcp_alloc` in `mm/page_alloc.c`, since Linux
//! 6.7). The largest took 0.2 to 0.5 ms: a reservation on that core woke as much later. A call that takes a page
//! and gives it back after every [`BATCH`] pages leaves the batches at their smallest.

use crate::system;
use leasehold_slots::address_range::PAGE;
use std::cell::Cell;

/// Pages that a thread may take before it gives one back: fewer than the smallest batch.
const BATCH: usize = 48;

thread_local! {
    /// Pages that this thread may have taken since it gave one back.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// Records that a call of this thread may have taken pages for so many bytes. A system call of 0.1 µs in every
/// [`BATCH`] pages.
#[inline]
pub(super) fn took(bytes: usize) {
    let taken = TAKEN.get() + bytes.div_ceil(PAGE);
    TAKEN.set(taken);
    if taken >= BATCH {
        TAKEN.set(0);
        let given_back = system::take_and_give_back_a_page();
        debug_assert!(given_back.is_ok(), "{given_back:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, PAGE, TAKEN, system, took};

    #[test]
    fn a_page_is_given_back_before_the_smallest_batch_is_used_up() {
        TAKEN.set(0);
        for bytes in [1, PAGE, PAGE + 1, 16 * PAGE, BATCH * PAGE] {
            let before = TAKEN.get();
            took(bytes);
            let pages = before + bytes.div_ceil(PAGE);
            let left = if pages < BATCH { pages } else { 0 };
            assert_eq!(TAKEN.get(), left, "{bytes} bytes");
        }
    }

    #[test]
    fn the_kernel_takes_the_question_about_no_pages() {
        assert_eq!(system::take_and_give_back_a_page(), Ok(()));
    }
}
