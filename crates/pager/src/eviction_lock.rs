//! Shared-Page Eviction Lock: areas whose pages are never evicted, and of which one copy is paid
//! for (SPC §IV-B).
//!
//! Of `n` reservations of `R` frames that share an area of `S` pages, each gives `S` frames up, and
//! the area itself holds `S`: together `n·(R − S) + S`. So `(n−1)·S` frames are unreserved again,
//! and no sharer owns the pages: the end of any of them does not affect the others.
//!
//! Locking many pages at once would delay all other tenants. A lock is therefore taken page by
//! page, from the first to the last, and the locking tenant can be preempted between two pages. A
//! tenant that joins a lock gives up a frame for each page when it maps it.

use crate::area::{Area, Sharing, State};
use crate::attachment::{Attachment, AttachmentId};
use crate::backend::{Backend, Held};
use crate::end::Ending;
use crate::fault::Fault;
use crate::frame::Frame;
use crate::frame_source::Borrow;
use crate::lists::{BySharer, List, Listing, Mapping};
use crate::page::{AreaId, PageNumber};
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::Reservation;
use crate::table::At;

impl<B: Backend> Pager<B> {
    /// Makes all pages of an area resident, maps them for every sharer, and locks them; returns
    /// the frames that this makes unreserved. Takes a step per page and sharer, and a read per
    /// page that was written out.
    ///
    /// # Errors
    /// Those of [`lock_step`](Self::lock_step). More pages are then mapped than before. Nothing
    /// else has changed, unless the lock was begun before, or the frames that it set free are in
    /// use: then the locked part stays.
    pub fn lock(&mut self, area: AreaId) -> Result<u32, Refused> {
        let index = self.area_of(area)?;
        let target = self.areas.at(index);
        let (begins, from) = (target.lock.is_none(), target.lock.unwrap_or(0));
        let copies = (target.attachments.len() as u32).saturating_sub(1);
        let freed = copies * (target.len() - from);
        loop {
            match self.lock_step(area, u32::MAX) {
                Ok(Ending::More) => {}
                Ok(Ending::Done) => return Ok(freed),
                Err(refused) => {
                    if begins {
                        let _ = self.unlock(area);
                    }
                    return Err(refused);
                }
            }
        }
    }

    /// Continues to lock an area: at most `limit` of its pages, each for all its sharers. Locked
    /// pages stay locked between the steps, even if sharers are added or removed.
    ///
    /// # Errors
    /// [`Refused::TooSmall`] unless every sharer's reservation is larger than its locked areas with
    /// this one (SPC §V): nothing has been locked then. [`Refused::Store`], [`Refused::Lost`] if a
    /// page cannot be made resident: the locked part stays. [`Refused::Unmanaged`],
    /// [`Refused::Unattached`], [`Refused::Locked`], [`Refused::Kept`], [`Refused::Ending`],
    /// [`Refused::Stale`].
    pub fn lock_step(&mut self, area: AreaId, limit: u32) -> Result<Ending, Refused> {
        let index = self.area_of(area)?;
        let target = self.areas.at(index);
        if target.is_locked() {
            return Err(Refused::Locked);
        }
        if target.sharing != Sharing::Conserve {
            return Err(Refused::Unmanaged);
        }
        if target.attachments.is_empty() {
            return Err(Refused::Unattached);
        }
        self.no_sharer_is_ending(index)?;
        let pages = self.areas.at(index).len();
        let from = match self.areas.at(index).lock {
            Some(locked) => locked,
            None => self.begin_lock(index)?,
        };
        let to = pages.min(from.saturating_add(limit));
        for page in PageNumber::range(from..to) {
            if let Err(refused) = self.lock_page(index, page) {
                self.list_again(index, page);
                return Err(refused);
            }
        }
        Ok(if to == pages {
            Ending::Done
        } else {
            Ending::More
        })
    }

    /// Pages of an area that are locked: from the first on.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn locked(&self, area: AreaId) -> Result<u32, Refused> {
        let index = self.area_of(area)?;
        Ok(self.areas.at(index).lock.unwrap_or(0))
    }

    /// Ensures that all sharers can give up the frames permanently.
    fn begin_lock(&mut self, area: At<Area>) -> Result<u32, Refused> {
        let target = self.areas.at(area);
        let pages = target.len();
        for &attachment in &target.attachments {
            if self.attachments.at(attachment).pinned.is_some() {
                return Err(Refused::Kept);
            }
            self.is_larger_than_kept(self.attachments.at(attachment).reservation, pages)?;
        }
        for sharer in 0..self.areas.at(area).attachments.len() {
            let (_, reservation) = self.sharer(area, sharer);
            self.reservations.at_mut(reservation).kept += pages;
        }
        self.areas.at_mut(area).lock = Some(0);
        Ok(0)
    }

    /// Maps a page for every sharer, each off the lists at once, so that making room for the next
    /// one cannot evict it, and takes all frames but one.
    fn lock_page(&mut self, area: At<Area>, page: PageNumber) -> Result<(), Refused> {
        for sharer in 0..self.areas.at(area).attachments.len() {
            let (attachment, reservation) = self.sharer(area, sharer);
            let id = AttachmentId(self.attachments.key(attachment));
            self.fault(id, page)?;
            let at = self.attachments.at(attachment).table[page];
            self.delist(reservation, at);
        }
        self.give_up_copies(area, page);
        self.areas.at_mut(area).lock = Some(page.next().get());
        Ok(())
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
        let locked = target.lock.ok_or(Refused::NotLocked)?;
        self.no_sharer_is_ending(index)?;
        let pages = target.pages.iter().take(locked as usize);
        let copies = pages.map(|page| page.sharers.len().saturating_sub(1));
        let copies = copies.map(u64::from).sum::<u64>();
        // More than a number of frames can be is more than there are.
        self.require_unreserved(u32::try_from(copies).unwrap_or(u32::MAX))?;
        for page in PageNumber::range(0..locked) {
            self.take_copies(index, page);
        }
        self.areas.at_mut(index).lock = None;
        let pages = self.areas.at(index).len();
        for sharer in 0..self.areas.at(index).attachments.len() {
            let (_, reservation) = self.sharer(index, sharer);
            self.reservations.at_mut(reservation).kept -= pages;
        }
        for page in PageNumber::range(0..locked) {
            self.list_again(index, page);
        }
        Ok(())
    }

    /// An attachment of an area, and its reservation.
    fn sharer(&self, area: At<Area>, number: usize) -> (At<Attachment>, At<Reservation>) {
        let attachment = self.areas.at(area).attachments[number];
        (attachment, self.attachments.at(attachment).reservation)
    }

    /// While a sharer is being taken back, some of its pages are mapped and some are not.
    pub(crate) fn no_sharer_is_ending(&self, area: At<Area>) -> Result<(), Refused> {
        let mut sharers = self.areas.at(area).attachments.iter();
        let is_ending = |&attachment: &At<Attachment>| {
            let reservation = self.attachments.at(attachment).reservation;
            self.reservations.at(reservation).ending
        };
        if sharers.any(is_ending) {
            return Err(Refused::Ending);
        }
        Ok(())
    }

    /// Returns whether a reservation has room for what an access needs at once beside its kept pages and `pages` more.
    pub(crate) fn is_larger_than_kept(
        &self,
        reservation: At<Reservation>,
        pages: u32,
    ) -> Result<(), Refused> {
        let mine = self.reservations.at(reservation);
        let beside = self.at_once - 1;
        let needed = mine.kept.saturating_add(pages).saturating_add(beside);
        if mine.size <= needed {
            return Err(Refused::TooSmall {
                needed,
                size: mine.size,
            });
        }
        Ok(())
    }

    /// Puts the mappings of a page that is not locked back on the lists.
    fn list_again(&mut self, area: At<Area>, page: PageNumber) {
        for sharer in 0..self.areas.at(area).attachments.len() {
            let (attachment, reservation) = self.sharer(area, sharer);
            let at = self.attachments.at(attachment).table[page];
            if !at.is_nil() && self.mappings.at(at).listing == Listing::Unlisted {
                self.enlist(reservation, at, Listing::Active);
            }
        }
    }

    /// The owner's frame becomes the area's, and the others' conserved ones the node's.
    fn give_up_copies(&mut self, area: At<Area>, page: PageNumber) {
        let mut next = self.areas.at(area).page(page).sharers.first();
        let mut owner = true;
        while let Some(at) = next {
            let reservation = self.holder(at);
            if owner {
                self.reservations.at_mut(reservation).owned -= 1;
            } else {
                let frame = self.take_conserved(reservation);
                self.frames.put(frame);
            }
            self.reservations.at_mut(reservation).locked += 1;
            owner = false;
            next = List::<BySharer>::after(&self.mappings, at);
        }
    }

    /// The first sharer owns the area's frame again, and the others conserve one of the node's.
    fn take_copies(&mut self, area: At<Area>, page: PageNumber) {
        let mut next = self.areas.at(area).page(page).sharers.first();
        let mut owner = true;
        while let Some(at) = next {
            let reservation = self.holder(at);
            if owner {
                self.reservations.at_mut(reservation).owned += 1;
            } else {
                let frame = self.frames.take();
                self.conserve(reservation, frame.expect("required before"));
            }
            self.reservations.at_mut(reservation).locked -= 1;
            owner = false;
            next = List::<BySharer>::after(&self.mappings, at);
        }
    }

    /// Maps a locked page for a sharer that came when it was locked already: it gives up a frame,
    /// to the node, or to the area if no other sharer has the page mapped.
    pub(crate) fn join_lock(
        &mut self,
        attachment: At<Attachment>,
        page: PageNumber,
    ) -> Result<Fault, Refused> {
        let &Attachment {
            reservation, area, ..
        } = self.attachments.at(attachment);
        let record = self.areas.at(area).page(page);
        let (state, stored) = (record.state, record.stored);
        let frame = match state {
            State::Lost => return Err(Refused::Lost),
            State::Absent | State::Resident(_) => self.take_frame(reservation, Borrow::Never)?,
        };
        let fault = match state {
            State::Resident(_) => {
                self.frames.put(frame);
                Fault::Minor
            }
            State::Absent | State::Lost => {
                let held = Held {
                    page: self.name(area, page),
                    frame,
                };
                self.fill(reservation, held, stored)?;
                self.areas.at_mut(area).page_mut(page).state = State::Resident(frame);
                if stored { Fault::Major } else { Fault::Zero }
            }
        };
        self.map(attachment, page, Listing::Unlisted);
        self.reservations.at_mut(reservation).locked += 1;
        Ok(fault)
    }

    /// Takes a locked page from one sharer, which gets a frame back for it: the area's own if no
    /// other sharer has it mapped, else one of the node's, which were required before.
    pub(crate) fn leave_lock(&mut self, at: At<Mapping>) -> Result<(), Refused> {
        if self.is_wanted_by_no_other(at) {
            self.save(at)?;
        }
        let reservation = self.holder(at);
        let frame = self.leave_locked_page(at, State::Absent);
        let frame = frame.or_else(|| self.frames.take());
        self.push_free(reservation, frame.expect("required before"));
        self.reservations.at_mut(reservation).locked -= 1;
        Ok(())
    }

    /// The same for an ending sharer, which does not get back the frames that it gave up.
    pub(crate) fn leave_lock_at_any_price(&mut self, at: At<Mapping>) {
        let lost = self.is_wanted_by_no_other(at) && self.save(at).is_err();
        let left = if lost { State::Lost } else { State::Absent };
        if let Some(frame) = self.leave_locked_page(at, left) {
            self.frames.put(frame);
        }
    }

    /// Returns whether others have attached the area but not mapped this page, so that its contents
    /// must be saved.
    fn is_wanted_by_no_other(&self, at: At<Mapping>) -> bool {
        let area = self.attachments.at(self.mappings.at(at).attachment).area;
        self.sharers_of(at) == 1 && self.areas.at(area).attachments.len() > 1
    }

    /// Unmaps a locked page from one sharer; returns its frame if it was the last.
    fn leave_locked_page(&mut self, at: At<Mapping>, left: State) -> Option<Frame> {
        let gone = self.unmap(at);
        let last = self.areas.at(gone.area).page(gone.page).sharers.len() == 0;
        last.then(|| self.vacate(gone.area, gone.page, left))
    }
}
