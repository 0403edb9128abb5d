//! The beginning of a reservation: frames are set aside for it, in steps.
//!
//! A firm reservation may have borrowed the frames, and a page that was written to has to be written out
//! before its frame is free. So a reservation is promised its frames at once and gets them step by
//! step: while it does, no other one can be promised them, and none that it has is lent again.

use crate::backend::Backend;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::{Contract, Reservation, ReservationId};
use crate::table::At;

/// The visits that evicting a page counts as, which takes system calls.
pub(crate) const EVICTION: u32 = 64;

/// How far the beginning of a reservation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Beginning {
    /// Frames are left to be had.
    More,
    /// It has all its frames.
    Done,
}

impl<B: Backend> Pager<B> {
    /// Sets frames aside for a tenant, in one go.
    ///
    /// # Errors
    /// [`Refused::Empty`] for no frames; [`Refused::Frames`] if the node has too few that are
    /// unreserved or borrowed, and [`Refused::Store`] if a borrowed one cannot be had back.
    pub fn reserve(&mut self, contract: &Contract) -> Result<ReservationId, Refused> {
        let id = self.promise(contract)?;
        loop {
            match self.reserve_step(id, u32::MAX) {
                Ok(Beginning::More) => {}
                Ok(Beginning::Done) => return Ok(id),
                Err(refused) => {
                    self.end(id)?;
                    return Err(refused);
                }
            }
        }
    }

    /// Promises frames to a reservation, which gets them by [steps](Self::reserve_step) and ends like
    /// any other. Constant time.
    ///
    /// # Errors
    /// [`Refused::Empty`], [`Refused::Frames`] as for [`reserve`](Self::reserve).
    pub fn promise(&mut self, contract: &Contract) -> Result<ReservationId, Refused> {
        if contract.frames == 0 {
            return Err(Refused::Empty);
        }
        self.frames.promise(contract.frames)?;
        let reservation = Reservation::new(contract);
        self.mappings_needed.add(&reservation);
        let at = self.reservations.add(reservation);
        Ok(ReservationId(self.reservations.key(at)))
    }

    /// Gives a reservation more of the frames that it was [promised](Self::promise): unreserved ones, and
    /// then what others have borrowed. At most `limit` visits, a frame or a mapping to come each,
    /// or 64 for an evicted page, and at most one cluster is written out.
    ///
    /// # Errors
    /// [`Refused::Store`] if a page of a borrower cannot be written out: the next step tries it
    /// again. [`Refused::Stale`].
    pub fn reserve_step(&mut self, id: ReservationId, limit: u32) -> Result<Beginning, Refused> {
        let index = self.living(id)?;
        let mut left = limit;
        if !self.make_room_for_mappings(&mut left) {
            return Ok(Beginning::More);
        }
        while self.reservations.at(index).promised > 0 {
            if left == 0 {
                return Ok(Beginning::More);
            }
            let frame = match self.frames.take_promised() {
                Some(frame) => {
                    left -= 1;
                    frame
                }
                None => {
                    let wrote = self.regain()?;
                    left = if wrote {
                        0
                    } else {
                        left.saturating_sub(EVICTION)
                    };
                    continue;
                }
            };
            self.push_free(index, frame);
            self.reservations.at_mut(index).promised -= 1;
        }
        Ok(Beginning::Done)
    }

    /// Gives up what a reservation was promised and does not have.
    pub(crate) fn forgo(&mut self, index: At<Reservation>) {
        let mine = self.reservations.at_mut(index);
        self.frames.forgo(core::mem::take(&mut mine.promised));
    }
}
