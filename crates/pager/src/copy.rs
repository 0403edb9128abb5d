//! Copy-on-write: a tenant writes to a page that it may only read, and gets a copy of its own.
//!
//! With Shared-Page Conservation this needs no victim: leaving the shared page puts its conserved
//! frame on the free list, and the copy takes that frame (SPC §IV-A counts copy-on-write among the
//! sharing that it manages).

use crate::area::{Area, Sharing, State};
use crate::attachment::{Attachment, AttachmentId};
use crate::backend::{Backend, Held};
use crate::fault::Fault;
use crate::frame_source::Borrow;
use crate::lists::Listing;
use crate::page::PageNumber;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Makes page `copy` of the attachment `to` a copy of page `page` of `from`, both of the same
    /// reservation, and maps it. A shared page is unmapped from this reservation in exchange.
    /// If `copy` was touched before, this is a [fault](Self::fault) on it.
    ///
    /// Returns [`Fault::Minor`] if the page was copied in memory, [`Fault::Major`] if it was read
    /// from secondary storage, and [`Fault::Zero`] if it was never written to.
    ///
    /// # Errors
    /// As [`fault`](Self::fault); [`Refused::Foreign`] for two reservations, [`Refused::Locked`] for a
    /// copy under a lock.
    pub fn copy_on_write(
        &mut self,
        from: AttachmentId,
        page: PageNumber,
        to: AttachmentId,
        copy: PageNumber,
    ) -> Result<Fault, Refused> {
        let source = self.attachments.find(from.0).ok_or(Refused::Stale)?;
        let target = self.attachments.find(to.0).ok_or(Refused::Stale)?;
        let reservation = self.attachments.at(target).reservation;
        if self.attachments.at(source).reservation != reservation {
            return Err(Refused::Foreign);
        }
        let (area, into) = (
            self.attachments.at(source).area,
            self.attachments.at(target).area,
        );
        if !page.is_within(self.areas.at(area).len()) || !copy.is_within(self.areas.at(into).len())
        {
            return Err(Refused::OutOfRange);
        }
        let record = self.areas.at(into).page(copy);
        let untouched = record.state == State::Absent && !record.stored;
        if !untouched || self.reservations.at(reservation).ending {
            return self.fault(to, copy);
        }
        if self.areas.at(into).locks(copy) {
            // Its frame would belong to the area, which others share or shared.
            return Err(Refused::Locked);
        }
        if self.areas.at(area).page(page).state == State::Lost {
            return Err(Refused::Lost);
        }
        self.leave_if_shared(source, page);
        self.fill_copy(area, page, target, copy)
    }

    fn leave_if_shared(&mut self, source: At<Attachment>, page: PageNumber) {
        let attachment = self.attachments.at(source);
        let (mapping, area) = (attachment.table[page], attachment.area);
        let area = self.areas.at(area);
        let stays = area.locks(page) || attachment.pinned.is_some();
        let managed = area.sharing == Sharing::Conserve && !stays;
        if !mapping.is_nil() && managed && self.sharers_of(mapping) > 1 {
            self.leave_conserving(mapping);
        }
    }

    fn fill_copy(
        &mut self,
        area: At<Area>,
        page: PageNumber,
        target: At<Attachment>,
        copy: PageNumber,
    ) -> Result<Fault, Refused> {
        let reservation = self.attachments.at(target).reservation;
        let frame = self.take_frame(reservation, Borrow::Allowed)?;
        // Only now: making room may have evicted the page itself.
        let source = self.name(area, page);
        let into = self.attachments.at(target).area;
        let held = Held {
            page: self.name(into, copy),
            frame,
        };
        let record = self.areas.at(area).page(page);
        let fault = match record.state {
            State::Resident(frame) => {
                let from = Held {
                    page: source,
                    frame,
                };
                self.backend.copy(from, held);
                Fault::Minor
            }
            _ if record.stored => {
                if let Err(failed) = self.backend.read(source, held) {
                    self.push_free(reservation, frame);
                    return Err(failed.into());
                }
                // The copy is a page of its own, without a copy in storage.
                self.backend.mark_dirty(held);
                Fault::Major
            }
            _ => {
                self.backend.clear(held);
                Fault::Zero
            }
        };
        self.areas.at_mut(into).page_mut(copy).state = State::Resident(frame);
        self.map(target, copy, Listing::Active);
        let mine = self.reservations.at_mut(reservation);
        mine.owned += 1;
        match fault {
            Fault::Major => mine.counts.major += 1,
            Fault::Zero => mine.counts.zero += 1,
            Fault::Minor | Fault::Present => mine.counts.copied += 1,
        }
        Ok(fault)
    }
}
