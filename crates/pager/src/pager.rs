//! The pager: the memory of one node, and the reservation of each frame.

use crate::area::{Area, PageRecord, Sharing, State};
use crate::attachment::{Attachment, AttachmentId};
use crate::backend::{Backend, Held};
use crate::frame::Frame;
use crate::lists::{Listing, Mapping, Mappings};
use crate::mappings_needed::MappingsNeeded;
use crate::node_frames::NodeFrames;
use crate::page::{AreaId, Page, PageNumber};
use crate::refused::Refused;
use crate::reservation::{Account, Counts, Reservation, ReservationId};
use crate::table::{At, Table};
use crate::usage::Usage;

/// Memory reservations over the frames of one node.
///
/// Single-threaded. Memory is allocated when a reservation or an area is made and when an area is
/// attached, and never at a fault.
#[derive(Debug, Clone)]
pub struct Pager<B> {
    pub(crate) backend: B,
    pub(crate) frames: NodeFrames,
    pub(crate) reservations: Table<Reservation>,
    pub(crate) areas: Table<Area>,
    pub(crate) attachments: Table<Attachment>,
    pub(crate) mappings: Mappings,
    pub(crate) mappings_needed: MappingsNeeded,
    /// Frames that an access of a tenant may need at the same time.
    pub(crate) at_once: u32,
}

/// The state of a mapping before it was undone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unmapped {
    pub(crate) reservation: At<Reservation>,
    pub(crate) area: At<Area>,
    pub(crate) page: PageNumber,
    /// It was first in the ownership list.
    pub(crate) owner: bool,
}

impl<B: Backend> Pager<B> {
    /// Bytes of memory for a mapping, and for a page of an area (SPC §VI-A). There are as many
    /// mappings as reserved frames, or more with firm reservations.
    pub const BYTES: (usize, usize) = (size_of::<Mapping>(), size_of::<PageRecord>());

    /// A node of `total` frames, all unreserved.
    pub fn new(total: u32, backend: B) -> Self {
        // With firm reservations each can be mapped by one that has borrowed it, too. Memory for that is
        // not touched before.
        let mut mappings = Mappings::with_room_for(2 * total as usize);
        // Each frame can be mapped once: no reservation makes room for its own when it comes.
        mappings.grow(total);
        Pager {
            backend,
            frames: NodeFrames::new(total),
            reservations: Table::new(),
            areas: Table::new(),
            attachments: Table::new(),
            mappings,
            mappings_needed: MappingsNeeded::default(),
            at_once: 1,
        }
    }

    /// The same node for tenants whose accesses need up to `frames` frames at the same time, as an instruction does that
    /// copies from one page to another: with fewer, its pages evict each other for ever. So many are left to each
    /// reservation when pages are locked or [kept](Self::pin_step). Without this, it is one, as in the paper.
    #[must_use]
    pub fn with_at_once(self, frames: u32) -> Self {
        Pager {
            at_once: frames.max(1),
            ..self
        }
    }

    /// Makes room for more of the mappings that may be needed, for `left` at most, which become fewer.
    /// Returns whether there is room for all.
    pub(crate) fn make_room_for_mappings(&mut self, left: &mut u32) -> bool {
        let needed = self.mappings_needed.most(self.frames.total());
        let lacking = needed.saturating_sub(self.mappings.capacity().into());
        // Places are numbered by `u32`, as frames are.
        let lacking = u32::try_from(lacking).expect("fewer mappings than a number can tell apart");
        let more = lacking.min(*left);
        *left -= more;
        self.mappings.grow(more);
        more == lacking
    }

    /// Makes an area of `pages` pages, which read as zero. It lasts until its last attachment
    /// goes, or until it is [discarded](Self::discard_area).
    ///
    /// # Errors
    /// [`Refused::Empty`] for no pages.
    pub fn create_area(&mut self, pages: u32, sharing: Sharing) -> Result<AreaId, Refused> {
        self.add_area(pages, sharing, false)
    }

    fn add_area(&mut self, pages: u32, sharing: Sharing, stored: bool) -> Result<AreaId, Refused> {
        if pages == 0 {
            return Err(Refused::Empty);
        }
        let at = self.areas.add(Area::new(pages, sharing, stored));
        Ok(AreaId(self.areas.key(at)))
    }

    /// Makes an area of `pages` pages that secondary storage holds already, such as those of a
    /// file: the first touch of each reads it.
    ///
    /// # Errors
    /// [`Refused::Empty`] for no pages.
    pub fn create_stored_area(&mut self, pages: u32, sharing: Sharing) -> Result<AreaId, Refused> {
        self.add_area(pages, sharing, true)
    }

    /// Pages of an area.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn pages(&self, area: AreaId) -> Result<u32, Refused> {
        let index = self.area_of(area)?;
        Ok(self.areas.at(index).len())
    }

    /// Removes an area that is not attached.
    ///
    /// # Errors
    /// [`Refused::Attached`] and [`Refused::Stale`].
    pub fn discard_area(&mut self, area: AreaId) -> Result<(), Refused> {
        let index = self.area_of(area)?;
        if !self.areas.at(index).attachments.is_empty() {
            return Err(Refused::Attached);
        }
        self.backend.discard(area);
        self.areas.remove(index);
        Ok(())
    }

    /// Where the frames of a reservation are. Constant time.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn account(&self, id: ReservationId) -> Result<Account, Refused> {
        let index = self.reservations.find(id.0).ok_or(Refused::Stale)?;
        Ok(self.reservations.at(index).account())
    }

    /// The counts of paging in a reservation. Constant time.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn counts(&self, id: ReservationId) -> Result<Counts, Refused> {
        let index = self.reservations.find(id.0).ok_or(Refused::Stale)?;
        Ok(self.reservations.at(index).counts)
    }

    /// Frames of the node.
    pub fn total_frames(&self) -> u32 {
        self.frames.total()
    }

    /// Frames that are neither reserved nor borrowed.
    pub fn unreserved(&self) -> u32 {
        self.frames.unreserved()
    }

    /// Frames that firm reservations have borrowed.
    pub fn borrowed(&self) -> u32 {
        self.frames.borrowed()
    }

    /// Attachments of an area. Constant time.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn sharers(&self, area: AreaId) -> Result<u32, Refused> {
        let index = self.area_of(area)?;
        Ok(self.areas.at(index).attachments.len() as u32)
    }

    /// Pages of an attachment that its tenant has mapped. Constant time.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn mapped(&self, at: AttachmentId) -> Result<u32, Refused> {
        let index = self.attachments.find(at.0).ok_or(Refused::Stale)?;
        Ok(self.attachments.at(index).mapped)
    }

    /// Records how many pages each sharer of an area uses now, for the [rule](Usage::choice): a
    /// step per sharer. To be called now and then while the area is in use.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn observe(&mut self, area: AreaId) -> Result<Usage, Refused> {
        let index = self.area_of(area)?;
        let attachments = &self.attachments;
        let area = self.areas.at_mut(index);
        let mapped = area.attachments.iter();
        area.usage
            .observe(mapped.map(|&index| attachments.at(index).mapped));
        Ok(area.usage)
    }

    /// What carries the decisions out.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// What carries the decisions out. Mappings and frames belong to the pager: do not change them.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    pub(crate) fn area_of(&self, id: AreaId) -> Result<At<Area>, Refused> {
        self.areas.find(id.0).ok_or(Refused::Stale)
    }

    /// The reservation, if it is there and not on its way out.
    pub(crate) fn living(&self, id: ReservationId) -> Result<At<Reservation>, Refused> {
        let index = self.reservations.find(id.0).ok_or(Refused::Stale)?;
        if self.reservations.at(index).ending {
            return Err(Refused::Stale);
        }
        Ok(index)
    }

    /// The reservation that a mapping belongs to.
    #[inline]
    pub(crate) fn holder(&self, mapping: At<Mapping>) -> At<Reservation> {
        let attachment = self.mappings.at(mapping).attachment;
        self.attachments.at(attachment).reservation
    }

    /// Returns the number of sharers of this mapping's page, itself included.
    #[inline]
    pub(crate) fn sharers_of(&self, mapping: At<Mapping>) -> u32 {
        let mapping = self.mappings.at(mapping);
        let area = self.attachments.at(mapping.attachment).area;
        self.areas.at(area).page(mapping.page).sharers.len()
    }

    /// How the sharers of this mapping's page divide it.
    pub(crate) fn sharing_of(&self, mapping: At<Mapping>) -> Sharing {
        let attachment = self.mappings.at(mapping).attachment;
        self.areas.at(self.attachments.at(attachment).area).sharing
    }

    /// The name of a page outside the policy.
    pub(crate) fn name(&self, area: At<Area>, number: PageNumber) -> Page {
        Page {
            area: AreaId(self.areas.key(area)),
            number,
        }
    }

    /// Puts a resident page into a page table, last in its ownership list.
    pub(crate) fn map(&mut self, attachment: At<Attachment>, page: PageNumber, listing: Listing) {
        let id = AttachmentId(self.attachments.key(attachment));
        let at = self.mappings.take(attachment, page);
        let target = self.attachments.at_mut(attachment);
        target.table[page] = at;
        target.mapped += 1;
        let record = self.areas.at_mut(target.area).page_mut(page);
        record.sharers.push(&mut self.mappings, at);
        let frame = record.frame();
        let reservation = target.reservation;
        self.enlist(reservation, at, listing);
        self.backend.map(id, page, frame);
    }

    /// Takes a page out of one page table and its mapping off every list. Frames do not move.
    pub(crate) fn unmap(&mut self, at: At<Mapping>) -> Unmapped {
        let &Mapping {
            attachment, page, ..
        } = self.mappings.at(at);
        let id = AttachmentId(self.attachments.key(attachment));
        let source = self.attachments.at_mut(attachment);
        let (reservation, area) = (source.reservation, source.area);
        source.table[page] = At::NIL;
        source.mapped -= 1;
        let sharers = &mut self.areas.at_mut(area).page_mut(page).sharers;
        let owner = sharers.first() == Some(at);
        sharers.remove(&mut self.mappings, at);
        self.delist(reservation, at);
        self.mappings.give_back(at);
        self.backend.unmap(id, page);
        Unmapped {
            reservation,
            area,
            page,
            owner,
        }
    }

    /// Takes the frame from a page that is no longer mapped.
    pub(crate) fn vacate(&mut self, area: At<Area>, page: PageNumber, state: State) -> Frame {
        let name = self.name(area, page);
        let record = self.areas.at_mut(area).page_mut(page);
        let frame = record.frame();
        debug_assert_eq!(record.sharers.len(), 0, "vacated while mapped");
        record.state = state;
        self.backend.release(Held { page: name, frame });
        frame
    }

    /// Appends a mapping that is unlisted to a list of its reservation.
    #[inline]
    pub(crate) fn enlist(
        &mut self,
        reservation: At<Reservation>,
        at: At<Mapping>,
        listing: Listing,
    ) {
        let reservation = self.reservations.at_mut(reservation);
        match listing {
            Listing::Active => reservation.active.push(&mut self.mappings, at),
            Listing::Inactive => reservation.inactive.push(&mut self.mappings, at),
            Listing::Unlisted => {}
        }
        self.mappings.at_mut(at).listing = listing;
    }

    /// Takes a mapping off the list of its reservation that it is on.
    #[inline]
    pub(crate) fn delist(&mut self, reservation: At<Reservation>, at: At<Mapping>) {
        let reservation = self.reservations.at_mut(reservation);
        match self.mappings.at(at).listing {
            Listing::Active => reservation.active.remove(&mut self.mappings, at),
            Listing::Inactive => reservation.inactive.remove(&mut self.mappings, at),
            Listing::Unlisted => {}
        }
        self.mappings.at_mut(at).listing = Listing::Unlisted;
    }

    /// Moves a mapping to the end of a list.
    pub(crate) fn relist(
        &mut self,
        reservation: At<Reservation>,
        at: At<Mapping>,
        listing: Listing,
    ) {
        self.delist(reservation, at);
        self.enlist(reservation, at, listing);
    }

    #[inline]
    pub(crate) fn push_free(&mut self, reservation: At<Reservation>, frame: Frame) {
        let free = &mut self.reservations.at_mut(reservation).free;
        self.frames.push(free, frame);
    }

    #[inline]
    pub(crate) fn pop_free(&mut self, reservation: At<Reservation>) -> Option<Frame> {
        let free = &mut self.reservations.at_mut(reservation).free;
        self.frames.pop(free)
    }
}
