//! The beginning of a reservation.

use crate::backend::Backend;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::{Contract, Reservation, ReservationId};

impl<B: Backend> Pager<B> {
    /// Sets frames aside for a tenant. Takes a step per frame.
    ///
    /// # Errors
    /// [`Refused::Empty`] for no frames; [`Refused::Frames`] if the node has too few that are
    /// unreserved or borrowed, and [`Refused::Store`] if a borrowed one cannot be had back.
    pub fn reserve(&mut self, contract: &Contract) -> Result<ReservationId, Refused> {
        if contract.frames == 0 {
            return Err(Refused::Empty);
        }
        self.require_unreserved(contract.frames)?;
        let mut reservation = Reservation::new(contract);
        self.frames
            .set_aside(&mut reservation.free, contract.frames);
        self.mappings_needed.add(&reservation);
        self.make_room_for_mappings();
        Ok(ReservationId(self.reservations.add(reservation)))
    }
}
