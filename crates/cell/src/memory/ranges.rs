//! Addresses for linear memories that page.
//!
//! A range is 4 GiB and a guard, like a [slot](leasehold_slots::slot), of which only what an area is attached
//! to is accessible. Detaching leaves it inaccessible again, so that there is nothing to clean. The
//! ranges are not those of the slots: an attachment replaces the mapping below it, and with it what
//! the slots rely on, such as that it never becomes huge pages.
//!
//! A memory that is taken back while its tenant ends may leave what it shared with others to the end of the tenant's
//! reservation. Its range is then *left*, and free when the pager says that nothing is attached there: that is asked
//! here, of every range, so that no end takes addresses that are another memory's by then.

use leasehold_pager_linux::Paging;
use leasehold_slots::address_range::AddressRange;
use leasehold_slots::slot::{MEMORY_GUARD, MEMORY_RESERVATION};
use std::collections::VecDeque;
use std::io;

const STRIDE: usize = (MEMORY_RESERVATION + MEMORY_GUARD) as usize;

/// Ranges that were left which are looked at when one is taken, 100 ns each.
const LOOKS: usize = 16;

/// Ranges of equal size, of which some are taken.
pub(super) struct Ranges {
    reservation: AddressRange,
    /// Used before; nothing is attached there.
    free: Vec<Range>,
    /// Given back, and something was attached there when that was looked at last.
    left: VecDeque<Range>,
    /// Ranges from this one on have never been used.
    unused: usize,
    capacity: usize,
}

/// A range in use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range(usize);

impl Ranges {
    /// Bytes of a range.
    #[cfg(test)]
    pub(super) const BYTES: usize = STRIDE;

    /// Reserves address space for `capacity` ranges.
    ///
    /// # Errors
    /// The system's, when the address space is limited.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        let bytes = capacity.max(1).checked_mul(STRIDE);
        Ok(Self {
            reservation: AddressRange::inaccessible(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?,
            free: Vec::with_capacity(capacity),
            left: VecDeque::new(),
            unused: 0,
            capacity,
        })
    }

    /// Takes a range, of which nothing is accessible. Looks at [`LOOKS`] of those that were left at the most.
    pub(super) fn take(&mut self, paging: &Paging) -> Option<Range> {
        for _ in 0..self.left.len().min(LOOKS) {
            self.look(paging);
        }
        self.free.pop().or_else(|| {
            let next = (self.unused < self.capacity).then_some(Range(self.unused))?;
            self.unused += 1;
            Some(next)
        })
    }

    /// Gives a range back, which is taken again when nothing is attached there.
    pub(super) fn give_back(&mut self, range: Range, paging: &Paging) {
        self.left.push_front(range);
        self.look(paging);
    }

    /// Looks at the range that was looked at longest ago, of those that were left.
    fn look(&mut self, paging: &Paging) {
        let Some(range) = self.left.pop_front() else {
            return;
        };
        let start = self.start(&range) as usize;
        match paging.is_vacant(start..start + STRIDE) {
            true => self.free.push(range),
            false => self.left.push_back(range),
        }
    }

    /// Whether all of these addresses are in ranges.
    pub(super) fn contain(&self, address: usize, bytes: usize) -> bool {
        let start = self.reservation.at(0).as_ptr() as usize;
        let end = start + self.capacity.max(1) * STRIDE;
        address >= start && address.checked_add(bytes).is_some_and(|last| last <= end)
    }

    /// Where a range starts.
    pub(super) fn start(&self, range: &Range) -> *mut u8 {
        self.reservation.at(range.0 * STRIDE).as_ptr()
    }
}
