//! Page faults: besides locks, the only way for a page to enter a page table.

use crate::area::{Sharing, State};
use crate::attachment::{Attachment, AttachmentId};
use crate::backend::{Backend, Held};
use crate::frame_source::Borrow;
use crate::lists::Listing;
use crate::page::PageNumber;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::Reservation;
use crate::table::At;

/// How a fault was resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The page was mapped already: nothing to do.
    Present,
    /// The page was resident for others, and is now mapped here as well.
    Minor,
    /// The page was never written to: it is a frame of zeros.
    Zero,
    /// The page was read from secondary storage.
    Major,
}

impl<B: Backend> Pager<B> {
    /// Maps a page that a tenant has touched.
    ///
    /// The frame for it comes from the reservation's free list; if that is empty, a page of the
    /// same reservation makes room. Visits at most 256 mappings and writes at most one cluster. No
    /// other tenant loses a page, unless areas with [`Sharing::Plain`] or [`Sharing::FirstTouch`]
    /// are used.
    ///
    /// # Errors
    /// [`Refused::Store`] if a page cannot be read or written out, [`Refused::Lost`],
    /// [`Refused::OutOfRange`], [`Refused::Stale`]; [`Refused::Starved`] as described there.
    pub fn fault(&mut self, at: AttachmentId, page: PageNumber) -> Result<Fault, Refused> {
        let attachment = self.attachments.find(at.0).ok_or(Refused::Stale)?;
        let target = self.attachments.at(attachment);
        let &mapping = target.table.get(page).ok_or(Refused::OutOfRange)?;
        if self.reservations.at(target.reservation).ending {
            return Err(Refused::Stale);
        }
        if !mapping.is_nil() {
            return Ok(Fault::Present);
        }
        let reservation = target.reservation;
        let area = self.areas.at(target.area);
        let fault = match area.page(page).state {
            _ if area.locks(page) => self.join_lock(attachment, page)?,
            State::Resident(_) => self.join(attachment, page)?,
            State::Absent => self.bring_in(attachment, page)?,
            State::Lost => return Err(Refused::Lost),
        };
        let counts = &mut self.reservations.at_mut(reservation).counts;
        match fault {
            Fault::Minor => counts.minor += 1,
            Fault::Zero => counts.zero += 1,
            Fault::Major => counts.major += 1,
            Fault::Present => {}
        }
        Ok(fault)
    }

    /// Maps a page that others have mapped.
    pub(crate) fn join(
        &mut self,
        attachment: At<Attachment>,
        page: PageNumber,
    ) -> Result<Fault, Refused> {
        let &Attachment {
            reservation, area, ..
        } = self.attachments.at(attachment);
        match self.areas.at(area).sharing {
            Sharing::Conserve => {
                let frame = self.take_frame(reservation, Borrow::Allowed)?;
                self.join_conserving(attachment, page, frame);
            }
            Sharing::Plain => {
                let frame = self.take_frame(reservation, Borrow::Allowed)?;
                self.join_plainly(attachment, page, frame);
            }
            Sharing::FirstTouch => self.join_free_of_charge(attachment, page),
        }
        Ok(Fault::Minor)
    }

    /// Gives a page a frame of the reservation, which owns it from now on.
    pub(crate) fn bring_in(
        &mut self,
        attachment: At<Attachment>,
        page: PageNumber,
    ) -> Result<Fault, Refused> {
        let &Attachment {
            reservation, area, ..
        } = self.attachments.at(attachment);
        let frame = self.take_frame(reservation, Borrow::Allowed)?;
        let stored = self.areas.at(area).page(page).stored;
        let held = Held {
            page: self.name(area, page),
            frame,
        };
        self.fill(reservation, held, stored)?;
        self.areas.at_mut(area).page_mut(page).state = State::Resident(frame);
        self.map(attachment, page, Listing::Active);
        self.reservations.at_mut(reservation).owned += 1;
        Ok(if stored { Fault::Major } else { Fault::Zero })
    }

    /// Fills a frame of a reservation with a page from storage, or with zeros; if that fails, the
    /// frame is free again.
    pub(crate) fn fill(
        &mut self,
        reservation: At<Reservation>,
        held: Held,
        stored: bool,
    ) -> Result<(), Refused> {
        if !stored {
            self.backend.clear(held);
        } else if let Err(failed) = self.backend.read(held.page, held) {
            self.push_free(reservation, held.frame);
            return Err(failed.into());
        }
        Ok(())
    }
}
