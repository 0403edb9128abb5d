//! Firm reservations: borrowing unreserved frames, and giving them back (SPC §II-B).

use crate::backend::Backend;
use crate::frame::Frame;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::Reservation;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Takes an unreserved frame beyond the size of a reservation.
    pub(crate) fn borrow(&mut self, reservation: At<Reservation>) -> Option<Frame> {
        let frame = self.frames.lend()?;
        self.reservations.at_mut(reservation).borrowed += 1;
        Some(frame)
    }

    /// Ensures that the node has `n` unreserved frames, taking back borrowed ones if necessary.
    /// Hard reservations are not touched.
    pub(crate) fn require_unreserved(&mut self, n: u32) -> Result<(), Refused> {
        let left = self.frames.left();
        if n > left {
            return Err(Refused::Frames { needed: n, left });
        }
        while self.frames.unreserved() < n {
            self.regain()?;
        }
        Ok(())
    }

    /// Takes a borrowed frame back. Returns whether a cluster was written out for it.
    pub(crate) fn regain(&mut self) -> Result<bool, Refused> {
        let borrower = self.largest_borrower();
        let borrower = borrower.filter(|&at| self.reservations.at(at).borrowed > 0);
        debug_assert!(borrower.is_some(), "what is promised can be had");
        let borrower = borrower.ok_or(Refused::Starved)?;
        let writes = self.reservations.at(borrower).counts.writes;
        self.give_back(borrower)?;
        Ok(self.reservations.at(borrower).counts.writes > writes)
    }

    /// Returns the reservation with the most borrowed frames, if any: it gives back first.
    fn largest_borrower(&self) -> Option<At<Reservation>> {
        let borrowers = self.reservations.iter();
        let most = borrowers.max_by_key(|(_, reservation)| reservation.borrowed);
        most.map(|(at, _)| at)
    }

    /// Returns one borrowed frame to the node.
    fn give_back(&mut self, reservation: At<Reservation>) -> Result<(), Refused> {
        let frame = match self.pop_free(reservation) {
            Some(frame) => frame,
            None => {
                self.make_room(reservation)?;
                self.pop_free(reservation).ok_or(Refused::Starved)?
            }
        };
        self.frames.take_back(frame);
        self.reservations.at_mut(reservation).borrowed -= 1;
        Ok(())
    }
}
