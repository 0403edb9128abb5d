//! The conserved-page list: frames set aside for pages that others own (SPC §IV-A).
//!
//! `|CPL| =` pages that the reservation has mapped and does not own, always. So the list is empty
//! if it owns all it uses, and as long as the reservation if it owns nothing.

use crate::backend::Backend;
use crate::frame::Frame;
use crate::pager::Pager;
use crate::reservation::Reservation;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Sets a frame aside.
    pub(crate) fn conserve(&mut self, reservation: At<Reservation>, frame: Frame) {
        let conserved = &mut self.reservations.at_mut(reservation).conserved;
        self.frames.push(conserved, frame);
    }

    /// Takes a frame back that was set aside for a page that is mapped no longer.
    pub(crate) fn take_conserved(&mut self, reservation: At<Reservation>) -> Frame {
        let conserved = &mut self.reservations.at_mut(reservation).conserved;
        self.frames
            .pop(conserved)
            .expect("a frame was conserved when the page was mapped")
    }

    /// Makes the next sharer of a page its owner: it takes over the page's frame, and gives up the
    /// frame that it had conserved for it.
    pub(crate) fn inherit(&mut self, heir: At<Reservation>) -> Frame {
        let frame = self.take_conserved(heir);
        let heir = self.reservations.at_mut(heir);
        heir.owned += 1;
        heir.counts.inherited += 1;
        frame
    }
}
