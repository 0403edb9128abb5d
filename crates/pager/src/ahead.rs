//! Mapping pages before they are touched.

use crate::area::{Sharing, State};
use crate::attachment::AttachmentId;
use crate::backend::Backend;
use crate::page::PageNumber;
use crate::pager::Pager;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Maps a page that its tenant is likely to touch soon, if that needs no eviction: the
    /// reservation has a frame on its free list, and the page is resident for others or was never
    /// written to. Returns whether it was mapped. Constant time.
    ///
    /// So nothing is evicted, borrowed, read or written for a guess. The frame is the tenant's own,
    /// and is replaced like all others if the guess was wrong.
    pub fn map_ahead(&mut self, at: AttachmentId, page: PageNumber) -> bool {
        let Some(attachment) = self.attachments.find(at.0) else {
            return false;
        };
        let target = self.attachments.at(attachment);
        if target.table.get(page) != Some(&At::NIL) {
            return false;
        }
        let (reservation, area) = (target.reservation, self.areas.at(target.area));
        let mine = self.reservations.at(reservation);
        if mine.ending || mine.free.len() == 0 || area.locks(page) {
            return false;
        }
        let record = area.page(page);
        let mapped = match record.state {
            State::Resident(_) if area.sharing == Sharing::Conserve => self.join(attachment, page),
            State::Absent if !record.stored => self.bring_in(attachment, page),
            _ => return false,
        };
        if mapped.is_ok() {
            self.reservations.at_mut(reservation).counts.ahead += 1;
        }
        mapped.is_ok()
    }
}
