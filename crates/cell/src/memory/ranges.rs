//! Addresses for linear memories that page.
//!
//! A range is 4 GiB and a guard, like a [slot](leasehold_slots::slot), of which only what an area is attached
//! to is accessible. Detaching leaves it inaccessible again, so that there is nothing to clean. The
//! ranges are not those of the slots: an attachment replaces the mapping below it, and with it what
//! the slots rely on, such as that it never becomes huge pages.

use leasehold_slots::address_range::AddressRange;
use leasehold_slots::slot::{MEMORY_GUARD, MEMORY_RESERVATION};
use std::io;

const STRIDE: usize = (MEMORY_RESERVATION + MEMORY_GUARD) as usize;

/// Ranges of equal size, of which some are taken.
pub(super) struct Ranges {
    reservation: AddressRange,
    /// Used before.
    free: Vec<Range>,
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
            unused: 0,
            capacity,
        })
    }

    /// Takes a range, of which nothing is accessible.
    pub(super) fn take(&mut self) -> Option<Range> {
        self.free.pop().or_else(|| {
            let next = (self.unused < self.capacity).then_some(Range(self.unused))?;
            self.unused += 1;
            Some(next)
        })
    }

    /// Gives an inaccessible range back.
    pub(super) fn give_back(&mut self, range: Range) {
        self.free.push(range);
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
