//! Pages that one sharer keeps: its mappings of them are on no list, so that nothing evicts them.
//!
//! Memory through which tenants communicate belongs to one of them. The owner pays a frame for each
//! page and keeps all of them, so that they are in memory as long as it exists. For every other
//! tenant a page is foreign: it sets a frame aside for the page (SPC §IV-A), and unmaps it without
//! writing it out. When the owner ends, the area is [abandoned], and each of the others has the
//! frames that it had set aside for pages of its own.
//!
//! [abandoned]: Pager::abandon

use crate::area::Sharing;
use crate::attachment::AttachmentId;
use crate::backend::Backend;
use crate::end::Ending;
use crate::page::{AreaId, PageNumber};
use crate::pager::Pager;
use crate::refused::Refused;

impl<B: Backend> Pager<B> {
    /// Continues to pin the pages of an attachment, from the first to the last: at most `limit` of
    /// them. Returns whether there are more. They stay mapped until the attachment is removed.
    ///
    /// # Errors
    /// [`Refused::TooSmall`], before anything is mapped, unless the reservation is larger than all
    /// that is locked or kept in it, with this area. [`Refused::Store`], [`Refused::Lost`] if a page
    /// cannot be had: what was mapped until then stays. [`Refused::Locked`],
    /// [`Refused::Unmanaged`], [`Refused::Stale`].
    pub fn pin_step(&mut self, at: AttachmentId, limit: u32) -> Result<Ending, Refused> {
        let index = self.attachments.find(at.0).ok_or(Refused::Stale)?;
        let attachment = self.attachments.at(index);
        let (reservation, from) = (attachment.reservation, attachment.pinned);
        if self.reservations.at(reservation).ending {
            return Err(Refused::Stale);
        }
        let area = self.areas.at(attachment.area);
        let pages = area.len();
        if area.lock.is_some() {
            return Err(Refused::Locked);
        }
        if area.sharing != Sharing::Conserve {
            return Err(Refused::Unmanaged);
        }
        let from = match from {
            Some(from) => from,
            None => {
                self.is_larger_than_kept(reservation, pages)?;
                self.reservations.at_mut(reservation).kept += pages;
                self.attachments.at_mut(index).pinned = Some(0);
                0
            }
        };
        let to = pages.min(from.saturating_add(limit));
        for page in PageNumber::range(from..to) {
            self.fault(at, page)?;
            let mapping = self.attachments.at(index).table[page];
            self.delist(reservation, mapping);
            self.attachments.at_mut(index).pinned = Some(page.next().get());
        }
        let all = to == pages;
        Ok(if all { Ending::Done } else { Ending::More })
    }

    /// Abandons an area, whose contents are no longer needed: its pages are not written out for
    /// sharers, and are [lost](Refused::Lost) when the last sharer unmaps them. The area cannot be
    /// attached again.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn abandon(&mut self, area: AreaId) -> Result<(), Refused> {
        let index = self.area_of(area)?;
        self.areas.at_mut(index).abandoned = true;
        Ok(())
    }
}
