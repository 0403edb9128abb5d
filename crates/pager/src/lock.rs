//! Shared-Page Eviction Lock: areas whose pages are never evicted, and of which one copy is paid
//! for (SPC §IV-B).
//!
//! Of `n` reservations of `R` frames that share an area of `S` pages, each gives `S` frames up,
//! and the area itself holds `S`: together `n·(R − S) + S`. So `(n−1)·S` frames are unreserved
//! again, and no sharer owns the pages: any of them may end, and the others notice nothing.

use crate::area::{AreaId, Sharing, State};
use crate::attachment::AttachmentId;
use crate::backend::Backend;
use crate::fault::Borrow;
use crate::frame::{Frame, Stack};
use crate::lists::{BySharer, List, Place};
use crate::pager::Pager;
use crate::refused::Refused;
use crate::table::NIL;

impl<B: Backend> Pager<B> {
    /// Makes all pages of an area resident, maps them for every sharer, and locks them; returns
    /// the frames that this makes unreserved. Takes a step per page and sharer, and a read per
    /// page that was written out.
    ///
    /// # Errors
    /// [`Refused::TooSmall`] unless every sharer's reservation is larger than its locked areas
    /// with this one (SPC §V). [`Refused::Store`], [`Refused::Lost`] if a page cannot be made
    /// resident; pages are mapped then that were not, nothing else has changed.
    /// [`Refused::Unmanaged`], [`Refused::Unattached`], [`Refused::Locked`], [`Refused::Kept`],
    /// [`Refused::Ending`], [`Refused::Stale`].
    pub fn lock(&mut self, area: AreaId) -> Result<u32, Refused> {
        let index = self.area_of(area)?;
        let target = self.areas.at(index);
        if target.locked {
            return Err(Refused::Locked);
        }
        if target.sharing != Sharing::Conserve {
            return Err(Refused::Unmanaged);
        }
        let (pages, sharers) = (target.len(), target.attachments.len());
        if sharers == 0 {
            return Err(Refused::Unattached);
        }
        self.no_sharer_is_ending(index)?;
        for &attachment in &target.attachments {
            if self.attachments.at(attachment).pinned.is_some() {
                return Err(Refused::Kept);
            }
            self.is_larger_than_locks(self.attachments.at(attachment).reservation, pages)?;
        }
        if let Err(refused) = self.prefault(index) {
            self.list_again(index);
            return Err(refused);
        }
        let before = self.unreserved.len();
        for page in 0..pages {
            self.give_up_copies(index, page);
        }
        for sharer in 0..sharers {
            let reservation = self.sharer(index, sharer);
            self.reservations.at_mut(reservation).locked += pages;
        }
        self.areas.at_mut(index).locked = true;
        Ok(self.unreserved.len() - before)
    }

    /// Cancels the lock of an area: all its sharers hold their pages again, with a frame each.
    ///
    /// The frames that the lock made unreserved are needed back, which is why SPC §IV-B advises
    /// against doing this while tenants run. Borrowed frames are taken back for it.
    ///
    /// # Errors
    /// [`Refused::Frames`] if they cannot be had, [`Refused::NotLocked`], [`Refused::Store`],
    /// [`Refused::Ending`], [`Refused::Stale`].
    pub fn unlock(&mut self, area: AreaId) -> Result<(), Refused> {
        let index = self.area_of(area)?;
        let target = self.areas.at(index);
        if !target.locked {
            return Err(Refused::NotLocked);
        }
        let (pages, sharers) = (target.len(), target.attachments.len());
        self.no_sharer_is_ending(index)?;
        let copies = u64::from(pages) * (sharers as u64 - 1);
        // More than a number of frames can be is more than there are.
        self.require_unreserved(u32::try_from(copies).unwrap_or(u32::MAX))?;
        for page in 0..pages {
            self.take_copies(index, page);
        }
        for sharer in 0..sharers {
            let reservation = self.sharer(index, sharer);
            self.reservations.at_mut(reservation).locked -= pages;
        }
        self.areas.at_mut(index).locked = false;
        self.list_again(index);
        Ok(())
    }

    fn sharer(&self, area: u32, number: usize) -> u32 {
        let attachment = self.areas.at(area).attachments[number];
        self.attachments.at(attachment).reservation
    }

    /// While a sharer is being taken back, some of its pages are mapped and some are not.
    pub(crate) fn no_sharer_is_ending(&self, area: u32) -> Result<(), Refused> {
        let mut sharers = self.areas.at(area).attachments.iter();
        let is_ending = |&attachment: &u32| {
            let reservation = self.attachments.at(attachment).reservation;
            self.reservations.at(reservation).ending
        };
        if sharers.any(is_ending) {
            return Err(Refused::Ending);
        }
        Ok(())
    }

    pub(crate) fn is_larger_than_locks(&self, reservation: u32, pages: u32) -> Result<(), Refused> {
        let mine = self.reservations.at(reservation);
        let kept = mine.locked.saturating_add(mine.pinned);
        let needed = kept.saturating_add(pages);
        if mine.size <= needed {
            return Err(Refused::TooSmall {
                needed,
                size: mine.size,
            });
        }
        Ok(())
    }

    /// Maps every page for every sharer, and takes each off the lists at once, so that making
    /// room for the next one cannot evict it.
    fn prefault(&mut self, area: u32) -> Result<(), Refused> {
        for page in 0..self.areas.at(area).len() {
            for sharer in 0..self.areas.at(area).attachments.len() {
                let attachment = self.areas.at(area).attachments[sharer];
                let id = AttachmentId(self.attachments.key(attachment));
                self.fault(id, page)?;
                let target = self.attachments.at(attachment);
                let (reservation, at) = (target.reservation, target.table[page as usize]);
                self.delist(reservation, at);
            }
        }
        Ok(())
    }

    /// Puts the mappings of an area that is not locked back on the lists.
    fn list_again(&mut self, area: u32) {
        for sharer in 0..self.areas.at(area).attachments.len() {
            let attachment = self.areas.at(area).attachments[sharer];
            for page in 0..self.areas.at(area).len() as usize {
                let target = self.attachments.at(attachment);
                let (reservation, at) = (target.reservation, target.table[page]);
                if at != NIL && self.mappings.at(at).place == Place::Unlisted {
                    self.enlist(reservation, at, Place::Active);
                }
            }
        }
    }

    /// The owner's frame becomes the area's, and the others' conserved ones the node's.
    fn give_up_copies(&mut self, area: u32, page: u32) {
        let mut next = self.areas.at(area).page(page).sharers.first();
        let mut owner = true;
        while let Some(at) = next {
            let reservation = self.holder(at);
            if owner {
                self.reservations.at_mut(reservation).owned -= 1;
            } else {
                let frame = self.take_conserved(reservation);
                self.frames.push(&mut self.unreserved, frame);
            }
            owner = false;
            next = List::<BySharer>::after(&self.mappings, at);
        }
    }

    /// The first sharer owns the area's frame again, and the others conserve one of the node's.
    fn take_copies(&mut self, area: u32, page: u32) {
        let mut next = self.areas.at(area).page(page).sharers.first();
        let mut owner = true;
        while let Some(at) = next {
            let reservation = self.holder(at);
            if owner {
                self.reservations.at_mut(reservation).owned += 1;
            } else {
                let frame = self.frames.pop(&mut self.unreserved);
                self.conserve(reservation, frame.expect("required before"));
            }
            owner = false;
            next = List::<BySharer>::after(&self.mappings, at);
        }
    }

    /// Makes a reservation give up what joining a lock takes: a frame per page.
    pub(crate) fn give_up_frames_for_lock(
        &mut self,
        reservation: u32,
        pages: u32,
    ) -> Result<(), Refused> {
        self.is_larger_than_locks(reservation, pages)?;
        let mut given = Stack::EMPTY;
        for _ in 0..pages {
            match self.take_frame(reservation, Borrow::Never) {
                Ok(frame) => self.frames.push(&mut given, frame),
                Err(refused) => {
                    let free = &mut self.reservations.at_mut(reservation).free;
                    self.frames.append(&mut given, free);
                    return Err(refused);
                }
            }
        }
        self.frames.append(&mut given, &mut self.unreserved);
        self.reservations.at_mut(reservation).locked += pages;
        Ok(())
    }

    /// Maps all pages of a locked area for a sharer that has just attached it.
    pub(crate) fn map_locked(&mut self, attachment: u32) {
        let area = self.attachments.at(attachment).area;
        for page in 0..self.areas.at(area).len() {
            self.map(attachment, page, Place::Unlisted);
        }
    }

    /// Unmaps a locked area from one sharer, which gets its frames back: the area's own if nobody
    /// else is left, else the node's.
    pub(crate) fn leave_lock(&mut self, attachment: u32) -> Result<(), Refused> {
        let target = self.attachments.at(attachment);
        let (reservation, area) = (target.reservation, target.area);
        let pages = self.areas.at(area).len();
        if self.areas.at(area).attachments.len() > 1 {
            self.require_unreserved(pages)?;
        }
        for page in 0..pages {
            let frame = self
                .leave_locked_page(attachment, page)
                .or_else(|| self.frames.pop(&mut self.unreserved));
            self.push_free(reservation, frame.expect("required before"));
        }
        self.reservations.at_mut(reservation).locked -= pages;
        Ok(())
    }

    /// Unmaps one page of a locked area from one sharer; returns its frame if that was the last.
    pub(crate) fn leave_locked_page(&mut self, attachment: u32, page: u32) -> Option<Frame> {
        let at = self.attachments.at(attachment).table[page as usize];
        let gone = self.unmap(at);
        let last = self.areas.at(gone.area).page(page).sharers.len() == 0;
        last.then(|| self.vacate(gone.area, page, State::Absent))
    }
}
