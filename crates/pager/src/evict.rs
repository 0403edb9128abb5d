//! Making room in a reservation.

use crate::area::{Sharing, State};
use crate::backend::Backend;
use crate::lists::Mapping;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::Reservation;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Puts at least one frame on the free list, at the cost of a page of this reservation.
    pub(crate) fn make_room(&mut self, reservation: At<Reservation>) -> Result<(), Refused> {
        let victim = self.victim(reservation).ok_or(Refused::Starved)?;
        self.evict(victim)
    }

    fn evict(&mut self, victim: At<Mapping>) -> Result<(), Refused> {
        if self.sharers_of(victim) == 1 {
            return self.evict_private(victim);
        }
        match self.sharing_of(victim) {
            Sharing::Conserve => {
                self.leave_conserving(victim);
                Ok(())
            }
            Sharing::Plain => self.evict_plainly(victim),
            Sharing::FirstTouch => self.evict_as_first_toucher(victim),
        }
    }

    /// Evicts a page without another sharer: "only private pages are evicted to secondary storage"
    /// follows from SPC §IV-A.
    pub(crate) fn evict_private(&mut self, victim: At<Mapping>) -> Result<(), Refused> {
        self.save(victim)?;
        let gone = self.unmap(victim);
        let frame = self.vacate(gone.area, gone.page, State::Absent);
        let mine = self.reservations.at_mut(gone.reservation);
        mine.owned -= 1;
        mine.counts.evicted += 1;
        self.push_free(gone.reservation, frame);
        Ok(())
    }
}
