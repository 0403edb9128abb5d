//! Attaching areas to reservations, and detaching them.

use crate::area::{Area, Sharing};
use crate::attachment::{Attachment, AttachmentId};
use crate::backend::Backend;
use crate::begin::EVICTION;
use crate::end::Ending;
use crate::page::AreaId;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::{Kind, ReservationId};
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Makes an area visible to a tenant. Maps nothing: pages under a [lock](Self::lock) are mapped
    /// when they are touched like others, and stay then, for a frame of the reservation each. Until
    /// the tenant has [touched](Self::fault) all of them, a touch may wait.
    ///
    /// # Errors
    /// [`Refused::Swap`] if more pages would be attached than the contract allows, and
    /// [`Refused::Attached`], [`Refused::Stale`], the last also if all sharers of the area are
    /// ending, or it was [abandoned](Self::abandon). For a locked area also [`Refused::TooSmall`]
    /// and [`Refused::Ending`]. [`Refused::Unmanaged`] for a firm reservation and an area that is
    /// shared [plainly](Sharing::Plain).
    pub fn attach(&mut self, to: ReservationId, area: AreaId) -> Result<AttachmentId, Refused> {
        let reservation = self.living(to)?;
        let index = self.area_of(area)?;
        let &Area { lock, sharing, .. } = self.areas.at(index);
        let pages = self.areas.at(index).len();
        let mine = self.reservations.at(reservation);
        if mine
            .attachments
            .iter()
            .any(|&at| self.attachments.at(at).area == index)
        {
            return Err(Refused::Attached);
        }
        if sharing == Sharing::Plain && mine.kind == Kind::Firm {
            // It could leave more pages to other sharers than it has frames of its own, and those
            // that it borrowed may be promised to a third.
            return Err(Refused::Unmanaged);
        }
        if self.areas.at(index).abandoned || self.is_going(index) {
            return Err(Refused::Stale);
        }
        let left = mine.attachable - mine.attached;
        if pages > left {
            return Err(Refused::Swap {
                needed: pages,
                left,
            });
        }
        if lock.is_some() {
            self.no_sharer_is_ending(index)?;
            self.is_larger_than_kept(reservation, pages)?;
        }
        if sharing == Sharing::FirstTouch {
            self.mappings_needed.add_pages(pages);
            let mut all = u32::MAX;
            self.make_room_for_mappings(&mut all);
        }
        let at = self
            .attachments
            .add(Attachment::new(reservation, index, pages));
        self.areas.at_mut(index).attachments.push(at);
        let mine = self.reservations.at_mut(reservation);
        mine.attachments.push(at);
        mine.attached += pages;
        if lock.is_some() {
            mine.kept += pages;
        }
        let id = AttachmentId(self.attachments.key(at));
        self.backend.attach(id, area, pages);
        Ok(id)
    }

    /// Returns whether all sharers of the area are ending: it is removed with them, and some of its
    /// pages may be gone already.
    fn is_going(&self, area: At<Area>) -> bool {
        let attachments = &self.areas.at(area).attachments;
        let is_ending = |&at: &At<Attachment>| {
            let reservation = self.attachments.at(at).reservation;
            self.reservations.at(reservation).ending
        };
        !attachments.is_empty() && attachments.iter().all(is_ending)
    }

    /// Detaches an area from a tenant. Its pages stay for the other sharers: pages that no other
    /// sharer has mapped are written out first. The last detachment removes the area. Takes a step
    /// per page of the area.
    ///
    /// # Errors
    /// [`Refused::Store`] if a page cannot be written out; the attachment then stays, with the
    /// pages that are left. [`Refused::Frames`] if the area is [locked](Self::lock) and the
    /// frames that were given up for it cannot be had. [`Refused::Stale`].
    pub fn detach(&mut self, at: AttachmentId) -> Result<(), Refused> {
        while self.detach_step(at, u32::MAX)? == Ending::More {}
        Ok(())
    }

    /// Continues to [detach](Self::detach) an area that its tenant no longer uses, in preemptible
    /// steps: visits at most `limit` of its pages.
    ///
    /// # Errors
    /// As [`detach`](Self::detach).
    pub fn detach_step(&mut self, at: AttachmentId, limit: u32) -> Result<Ending, Refused> {
        let ending = self.vacate_step(at, limit)?;
        if ending == Ending::Done {
            let attachment = self.attachments.find(at.0).ok_or(Refused::Stale)?;
            self.remove_attachment(attachment);
        }
        Ok(ending)
    }

    /// Continues to unmap an area that its tenant no longer uses, and leaves it attached: visits at
    /// most `limit` of its pages and blocks of records. The contents of an area without another
    /// attachment are lost.
    ///
    /// # Errors
    /// As [`detach`](Self::detach).
    pub fn vacate_step(&mut self, at: AttachmentId, limit: u32) -> Result<Ending, Refused> {
        let attachment = self.attachments.find(at.0).ok_or(Refused::Stale)?;
        let &Attachment {
            reservation, area, ..
        } = self.attachments.at(attachment);
        if self.reservations.at(reservation).ending {
            return Err(Refused::Stale);
        }
        if let Some(locked) = self.areas.at(area).lock
            && self.areas.at(area).attachments.len() > 1
        {
            // As many frames as it has given up.
            let needed = self.attachments.at(attachment).mapped.min(locked);
            let left = self.frames.left();
            if needed > left {
                return Err(Refused::Frames { needed, left });
            }
        }
        if let Some(kept) = &mut self.attachments.at_mut(attachment).pinned {
            *kept = 0;
        }
        let mut left = limit;
        while left > 0 {
            let target = self.attachments.at_mut(attachment);
            if target.mapped == 0 {
                match self.shed(attachment) {
                    0 => return Ok(Ending::Done),
                    visits => left = left.saturating_sub(visits),
                }
                continue;
            }
            left -= 1;
            let mapping = target.sweep();
            if mapping.is_nil() {
                continue;
            }
            if self.areas.at(area).locks(self.mappings.at(mapping).page) {
                while self.frames.unreserved() == 0 && self.sharers_of(mapping) > 1 {
                    if self.regain()? {
                        return Ok(Ending::More);
                    }
                    left = left.saturating_sub(EVICTION);
                }
                self.leave_lock(mapping)?;
            } else {
                self.depart(mapping)?;
            }
        }
        Ok(Ending::More)
    }

    /// Frees a block of records of an attachment without mapped pages, or of its area if the
    /// attachment is the last. Returns the number of visits that this counts as: 0 if nothing is
    /// left.
    pub(crate) fn shed(&mut self, attachment: At<Attachment>) -> u32 {
        /// The backend frees something for each page of a block.
        const VISITS: u32 = 8;
        let gone = self.attachments.at_mut(attachment);
        if gone.table.take_block().is_some() {
            return 1;
        }
        let area = gone.area;
        if self.areas.at(area).attachments.len() > 1 {
            return 0;
        }
        if self.areas.at_mut(area).pages.take_block().is_some() {
            return 1;
        }
        let id = AreaId(self.areas.key(area));
        u32::from(self.backend.shed(id)) * VISITS
    }

    /// Removes an attachment of which nothing is mapped, and its area if it was the last.
    pub(crate) fn remove_attachment(&mut self, attachment: At<Attachment>) {
        let id = AttachmentId(self.attachments.key(attachment));
        self.backend.detach(id);
        let gone = self.attachments.remove(attachment);
        debug_assert_eq!(gone.mapped, 0, "removed with pages mapped");
        let area = self.areas.at_mut(gone.area);
        area.attachments.retain(|&other| other != attachment);
        let (pages, last) = (area.len(), area.attachments.is_empty());
        let kept = gone.pinned.is_some() || area.lock.is_some();
        if area.sharing == Sharing::FirstTouch {
            self.mappings_needed.remove_pages(pages);
        }
        let mine = self.reservations.at_mut(gone.reservation);
        mine.attachments.retain(|&other| other != attachment);
        mine.attached -= pages;
        if kept {
            mine.kept -= pages;
        }
        if last {
            self.backend.discard(AreaId(self.areas.key(gone.area)));
            self.areas.remove(gone.area);
        }
    }
}
