//! The one place where areas are attached to addresses.
//!
//! An attachment replaces what is mapped at its addresses. They are inside of the [ranges](super::ranges)
//! of linear memories, where nothing but guests' memory is: that is checked here.

use super::ranges::Ranges;
use leasehold_pager::{AreaId, AttachmentId, PAGE, ReservationId};
use leasehold_pager_linux::{CopyOnWrite, Error, Paging};

/// The areas of a cell, and the addresses where they can be attached.
#[derive(Clone, Copy)]
pub(super) struct Attaching<'a> {
    paging: &'a Paging,
    ranges: &'a Ranges,
}

impl<'a> Attaching<'a> {
    pub(super) fn new(paging: &'a Paging, ranges: &'a Ranges) -> Self {
        Self { paging, ranges }
    }

    /// The areas.
    pub(super) fn paging(&self) -> &'a Paging {
        self.paging
    }

    /// Attaches the first `accessible` pages of an area, as [`Paging::attach_at`] does.
    ///
    /// # Errors
    /// As there; [`Error::Misplaced`] if the area would not be inside of the ranges.
    pub(super) fn writable(
        &self,
        to: ReservationId,
        area: AreaId,
        address: *mut u8,
        accessible: u32,
    ) -> Result<AttachmentId, Error> {
        self.is_inside(area, address)?;
        // SAFETY: all pages of the area are inside of the ranges, which were reserved for linear
        // memories: only guests access what is there, and the host on their behalf, in this thread.
        // The ranges are unmapped after the pager is dropped.
        unsafe { self.paging.attach_at(to, area, address, accessible) }
    }

    /// Attaches an area to be read, as [`Paging::attach_read_only`] does.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    pub(super) fn read_only(
        &self,
        to: ReservationId,
        area: AreaId,
        address: *mut u8,
    ) -> Result<AttachmentId, Error> {
        self.is_inside(area, address)?;
        // SAFETY: as in `writable`.
        unsafe { self.paging.attach_read_only(to, area, address) }
    }

    /// Attaches an area copy on write, as [`Paging::attach_copied`] does.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    pub(super) fn copied(
        &self,
        to: ReservationId,
        (area, copies): (AreaId, AreaId),
        address: *mut u8,
    ) -> Result<CopyOnWrite, Error> {
        self.is_inside(area, address)?;
        // SAFETY: as in `writable`; no more of the copies is shown than there are originals.
        unsafe { self.paging.attach_copied(to, area, copies, address) }
    }

    fn is_inside(&self, area: AreaId, address: *mut u8) -> Result<(), Error> {
        let pages = self.paging.pages(area)?;
        let address = address as usize;
        match self.ranges.contain(address, pages as usize * PAGE as usize) {
            true => Ok(()),
            false => Err(Error::Misplaced { address, pages }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Attaching, Ranges};
    use leasehold_pager::{Contract, PAGE, Sharing};
    use leasehold_pager_linux::{Error, Options, Paging};

    #[test]
    fn an_area_is_attached_inside_of_the_ranges_only() {
        let paging = Paging::open(Options::new(16)).expect("paging");
        let mut ranges = Ranges::new(1).expect("addresses");
        let range = ranges.take(&paging).expect("one");
        let start = ranges.start(&range);
        let contract = Contract::hard(4).with_swap(0);
        let to = paging.reserve(&contract).expect("frames");
        let area = paging
            .create_resident_area(2, Sharing::Conserve)
            .expect("an area");
        let attaching = Attaching::new(&paging, &ranges);
        let page = PAGE as usize;
        let end = start.wrapping_add(Ranges::BYTES);
        for outside in [start.wrapping_sub(page), end.wrapping_sub(page), end] {
            let writable = attaching.writable(to, area, outside, 2);
            assert!(matches!(writable, Err(Error::Misplaced { pages: 2, .. })));
            let read_only = attaching.read_only(to, area, outside);
            assert!(matches!(read_only, Err(Error::Misplaced { .. })));
            let copied = attaching.copied(to, (area, area), outside);
            assert!(matches!(copied, Err(Error::Misplaced { .. })));
        }
        let inside = attaching.writable(to, area, end.wrapping_sub(2 * page), 2);
        paging
            .detach(inside.expect("the last pages"))
            .expect("detached");
    }
}
