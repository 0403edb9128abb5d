//! Replacement: first in, first out, with a second chance (SPC §II-B, fig. 1).
//!
//! A page enters at the end of the active list. When room is needed, the oldest active pages
//! move to the inactive list and their reference bits are cleared; the oldest inactive page is
//! the victim unless it was referenced since, in which case it is active again.

use crate::attachment::AttachmentId;
use crate::backend::Backend;
use crate::lists::{Listing, Mapping};
use crate::pager::Pager;
use crate::reservation::Reservation;
use crate::table::At;

/// Most moves between the lists for one victim: the time for a fault must not depend on how many
/// pages a reservation has. Then the oldest inactive page is the victim, referenced or not.
const MOVES: u32 = 256;

impl<B: Backend> Pager<B> {
    /// The page that has to go first; `None` if none is listed.
    pub(crate) fn victim(&mut self, reservation: At<Reservation>) -> Option<At<Mapping>> {
        let mut moves = MOVES;
        loop {
            self.deactivate(reservation, &mut moves);
            let oldest = self.reservations.at(reservation).inactive.first()?;
            if moves == 0 || !self.take_referenced(oldest) {
                return Some(oldest);
            }
            self.relist(reservation, oldest, Listing::Active);
            moves -= 1;
        }
    }

    /// Keeps a third of the pages inactive, as far as `moves` allow, and at least one.
    fn deactivate(&mut self, reservation: At<Reservation>, moves: &mut u32) {
        loop {
            let mine = self.reservations.at(reservation);
            let (inactive, active) = (mine.inactive.len(), mine.active.len());
            let enough = inactive >= active.div_ceil(2) || (*moves == 0 && inactive > 0);
            let Some(oldest) = mine.active.first().filter(|_| !enough) else {
                return;
            };
            self.take_referenced(oldest);
            self.relist(reservation, oldest, Listing::Inactive);
            *moves = moves.saturating_sub(1);
        }
    }

    fn take_referenced(&mut self, at: At<Mapping>) -> bool {
        let &Mapping {
            attachment, page, ..
        } = self.mappings.at(at);
        let id = AttachmentId(self.attachments.key(attachment));
        self.backend.take_referenced(id, page)
    }
}
