//! Baseline: reservations without shared-page management (SPC §III-B, §IV-A).
//!
//! A shared page belongs to every reservation that has it mapped. A reservation that maps a foreign
//! page gives one free frame back to the node, so that each frame is counted once. A reservation
//! that picks a shared page as its victim evicts it for all.

use crate::area::State;
use crate::attachment::Attachment;
use crate::backend::Backend;
use crate::frame::Frame;
use crate::lists::{Listing, Mapping};
use crate::page::PageNumber;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::Reservation;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Maps a page that another reservation has: one frame goes back to the node.
    pub(crate) fn join_plainly(
        &mut self,
        attachment: At<Attachment>,
        page: PageNumber,
        frame: Frame,
    ) {
        let reservation = self.attachments.at(attachment).reservation;
        self.frames.put(frame);
        self.reservations.at_mut(reservation).returned += 1;
        self.map(attachment, page, Listing::Active);
    }

    /// Evicts a page that others have mapped. The evictor gets the frame, the others one of the
    /// node's in its place, if there is one.
    pub(crate) fn evict_plainly(&mut self, victim: At<Mapping>) -> Result<(), Refused> {
        self.save(victim)?;
        let gone = self.unmap(victim);
        self.unbook_plainly(gone.reservation, gone.owner);
        let mut owner = !gone.owner;
        while let Some(other) = self.areas.at(gone.area).page(gone.page).sharers.first() {
            let robbed = self.unmap(other);
            self.unbook_plainly(robbed.reservation, owner);
            owner = false;
            self.reservations.at_mut(robbed.reservation).counts.robbed += 1;
            match self.frames.take() {
                Some(frame) => self.push_free(robbed.reservation, frame),
                None => self.reservations.at_mut(robbed.reservation).missing += 1,
            }
        }
        let frame = self.vacate(gone.area, gone.page, State::Absent);
        self.push_free(gone.reservation, frame);
        self.reservations.at_mut(gone.reservation).counts.evicted += 1;
        Ok(())
    }

    fn unbook_plainly(&mut self, reservation: At<Reservation>, owner: bool) {
        let mine = self.reservations.at_mut(reservation);
        if owner {
            mine.owned -= 1;
        } else {
            mine.returned -= 1;
        }
    }

    /// Unmaps a page that others have mapped, and leaves it to them.
    pub(crate) fn leave_plainly(&mut self, at: At<Mapping>) {
        let gone = self.unmap(at);
        self.unbook_plainly(gone.reservation, gone.owner);
        if gone.owner {
            let heir = self.areas.at(gone.area).page(gone.page).sharers.first();
            let heir = self.holder(heir.expect("the page has other sharers"));
            let heir = self.reservations.at_mut(heir);
            heir.returned -= 1;
            heir.owned += 1;
        }
        self.reservations.at_mut(gone.reservation).missing += 1;
    }

    /// Compensates for a page that another reservation evicted, if the node has a frame for it.
    pub(crate) fn take_missing(&mut self, reservation: At<Reservation>) -> Option<Frame> {
        if self.reservations.at(reservation).missing == 0 {
            return None;
        }
        let frame = self.frames.take()?;
        self.reservations.at_mut(reservation).missing -= 1;
        Some(frame)
    }
}
