//! The beginning of a reservation.

use crate::backend::Backend;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::{Contract, Kind, Reservation, ReservationId};

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
        let n = contract.frames;
        self.frames
            .shift(&mut self.unreserved, &mut reservation.free, n);
        self.count_mappings(&reservation);
        Ok(ReservationId(self.reservations.add(reservation)))
    }

    /// Makes room for the mappings of a reservation: each frame can be mapped once by the
    /// reservation that holds it, conserves it, or gave it up for a lock.
    fn count_mappings(&mut self, reservation: &Reservation) {
        self.mappings_needed += u64::from(reservation.size);
        self.firm += u32::from(reservation.kind == Kind::Firm);
        self.make_room_for_mappings();
    }
}
