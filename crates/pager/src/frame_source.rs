//! Where the frame for a page comes from: the reservation itself, the node, or an eviction.

use crate::backend::Backend;
use crate::frame::Frame;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::{Kind, Reservation};
use crate::table::At;

/// Whether a firm reservation may take an unreserved frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Borrow {
    Allowed,
    Never,
}

impl<B: Backend> Pager<B> {
    /// Takes a frame that the reservation may use, making room if it must.
    pub(crate) fn take_frame(
        &mut self,
        reservation: At<Reservation>,
        borrow: Borrow,
    ) -> Result<Frame, Refused> {
        if let Some(frame) = self.pop_free(reservation) {
            return Ok(frame);
        }
        if let Some(frame) = self.take_missing(reservation) {
            return Ok(frame);
        }
        let firm = self.reservations.at(reservation).kind == Kind::Firm;
        if firm
            && borrow == Borrow::Allowed
            && let Some(frame) = self.borrow(reservation)
        {
            return Ok(frame);
        }
        self.make_room(reservation)?;
        self.pop_free(reservation).ok_or(Refused::Starved)
    }
}
