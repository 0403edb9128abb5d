//! Taking everything back from a reservation, in steps.

use crate::area::{Sharing, State};
use crate::attachment::Attachment;
use crate::backend::Backend;
use crate::lists::{Listing, Mapping};
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::{Reservation, ReservationId};
use crate::table::At;

/// How far the end of a reservation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Pages are left to be taken back.
    More,
    /// The reservation has gone, and its frames are unreserved.
    Done,
}

impl<B: Backend> Pager<B> {
    /// Continues the end of a reservation, which serves no faults from the first call on. Visits at
    /// most `limit` of its pages, so that its end can be preempted and charged.
    ///
    /// Shared pages stay for the others: those that the reservation owned pass to the next sharer.
    /// Pages of shared areas that no other sharer has mapped are written out. A page that cannot be
    /// written is [lost](Refused::Lost) to the others, because an end must not fail. The end takes
    /// as many visits as there are resident pages, plus one per attachment and some for each 512
    /// pages of which any was touched.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has gone.
    pub fn end_step(&mut self, id: ReservationId, limit: u32) -> Result<Ending, Refused> {
        let index = self.reservations.find(id.0).ok_or(Refused::Stale)?;
        self.reservations.at_mut(index).ending = true;
        let mut left = limit;
        while left > 0 {
            match self.take_back_one(index) {
                0 => {
                    self.release(index);
                    return Ok(Ending::Done);
                }
                visits => left = left.saturating_sub(visits),
            }
        }
        Ok(Ending::More)
    }

    /// Ends a reservation, in one go.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has gone.
    pub fn end(&mut self, id: ReservationId) -> Result<(), Refused> {
        while self.end_step(id, u32::MAX)? == Ending::More {}
        Ok(())
    }

    /// Visits one page, block of records or attachment; returns as how many visits that counts, 0 if there was none.
    fn take_back_one(&mut self, index: At<Reservation>) -> u32 {
        let Some(&attachment) = self.reservations.at(index).attachments.last() else {
            return 0;
        };
        let gone = self.attachments.at_mut(attachment);
        if gone.mapped > 0 {
            if let Some(at) = gone.next_mapped_in_block() {
                self.take_back_page(at);
            }
            return 1;
        }
        match self.shed(attachment) {
            0 => self.remove_attachment(attachment),
            visits => return visits,
        }
        1
    }

    /// Takes a page from an ending reservation.
    fn take_back_page(&mut self, at: At<Mapping>) {
        let &Mapping {
            attachment,
            page,
            listing,
            ..
        } = self.mappings.at(at);
        let &Attachment { area, pinned, .. } = self.attachments.at(attachment);
        if self.areas.at(area).locks(page) {
            self.leave_lock_at_any_price(at);
        } else if listing == Listing::Unlisted && pinned.is_none() {
            // It has the page free of charge.
            self.unmap(at);
        } else {
            self.depart_at_any_price(at);
        }
    }

    /// Takes a page from an ending reservation, even if its contents are lost.
    fn depart_at_any_price(&mut self, at: At<Mapping>) {
        if self.depart(at).is_err() {
            self.lose(at);
        }
    }

    /// Takes a page from one reservation, and leaves it to its other sharers. If none of them has
    /// it mapped, it is written out for them.
    pub(crate) fn depart(&mut self, at: At<Mapping>) -> Result<(), Refused> {
        let attachment = self.mappings.at(at).attachment;
        let area = self.areas.at(self.attachments.at(attachment).area);
        if area.attachments.len() == 1 {
            self.drop_private(at, State::Absent);
            return Ok(());
        }
        if self.sharers_of(at) == 1 {
            if area.abandoned {
                self.drop_private(at, State::Lost);
                return Ok(());
            }
            return self.evict_private(at);
        }
        match area.sharing {
            Sharing::Conserve => self.leave_conserving(at),
            Sharing::Plain => self.leave_plainly(at),
            Sharing::FirstTouch if self.owns(at) => return self.evict_as_first_toucher(at),
            Sharing::FirstTouch => {
                self.unmap(at);
            }
        }
        Ok(())
    }

    fn owns(&self, at: At<Mapping>) -> bool {
        let mapping = self.mappings.at(at);
        let area = self.attachments.at(mapping.attachment).area;
        self.areas.at(area).page(mapping.page).sharers.first() == Some(at)
    }

    /// Gives up a page that could not be written out.
    fn lose(&mut self, at: At<Mapping>) {
        if self.sharers_of(at) == 1 {
            self.drop_private(at, State::Lost);
        } else {
            self.take_from_all(at, State::Lost);
        }
    }

    /// Takes the frame of a page without another sharer, without saving its contents.
    fn drop_private(&mut self, at: At<Mapping>, state: State) {
        let gone = self.unmap(at);
        let frame = self.vacate(gone.area, gone.page, state);
        self.reservations.at_mut(gone.reservation).owned -= 1;
        self.push_free(gone.reservation, frame);
    }

    /// Gives the frames of a reservation without pages to the node.
    fn release(&mut self, index: At<Reservation>) {
        self.forgo(index);
        let mut gone = self.reservations.remove(index);
        debug_assert_eq!(
            gone.conserved.len(),
            0,
            "conserved for pages that have gone"
        );
        self.frames.release(&mut gone.free, gone.borrowed);
        self.mappings_needed.remove(&gone);
    }
}
