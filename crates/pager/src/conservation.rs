//! Shared-Page Conservation: mapping and unmapping pages that others use (SPC §IV-A).
//!
//! A reservation that maps a foreign page sets a frame aside, and can so always replace it by a
//! page of its own. A reservation that evicts a shared page loses its own mapping only.

use crate::attachment::Attachment;
use crate::backend::Backend;
use crate::frame::Frame;
use crate::lists::{Listing, Mapping};
use crate::page::PageNumber;
use crate::pager::Pager;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Maps a page that another reservation owns: one frame, from the free list, moves to
    /// the conserved-page list (SPC fig. 4a).
    pub(crate) fn join_conserving(
        &mut self,
        attachment: At<Attachment>,
        page: PageNumber,
        frame: Frame,
    ) {
        let reservation = self.attachments.at(attachment).reservation;
        self.conserve(reservation, frame);
        self.map(attachment, page, Listing::Active);
    }

    /// Unmaps a page that others have mapped too, and puts one frame on the free list: its own
    /// conserved one, or, if it owned the page, one of the reservation that owns it next (SPC
    /// fig. 4b, 4c). With one sharer left the page is private to it.
    pub(crate) fn leave_conserving(&mut self, at: At<Mapping>) {
        let gone = self.unmap(at);
        let frame = if gone.owner {
            let heir = self.areas.at(gone.area).page(gone.page).sharers.first();
            let heir = self.holder(heir.expect("the page has other sharers"));
            self.reservations.at_mut(gone.reservation).owned -= 1;
            self.inherit(heir)
        } else {
            self.take_conserved(gone.reservation)
        };
        self.push_free(gone.reservation, frame);
        self.reservations.at_mut(gone.reservation).counts.unmapped += 1;
    }
}
