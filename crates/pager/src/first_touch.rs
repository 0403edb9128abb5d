//! Baseline: the rule of Linux's memory control group (SPC §III-C).
//!
//! The reservation that touched a page first owns it and is charged for it. All others use it free
//! of charge, and lose it when the owner, which reads its own reference bits only, needs the frame.

use crate::area::State;
use crate::attachment::Attachment;
use crate::backend::Backend;
use crate::lists::{Listing, Mapping};
use crate::page::PageNumber;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::table::At;

impl<B: Backend> Pager<B> {
    pub(crate) fn join_free_of_charge(&mut self, attachment: At<Attachment>, page: PageNumber) {
        self.map(attachment, page, Listing::Unlisted);
    }

    /// Evicts a page for all: its owner needs the frame, or is about to end.
    pub(crate) fn evict_as_first_toucher(&mut self, victim: At<Mapping>) -> Result<(), Refused> {
        self.save(victim)?;
        self.take_from_all(victim, State::Absent);
        Ok(())
    }

    /// Unmaps a page from all sharers, first from its owner, which gets the frame.
    pub(crate) fn take_from_all(&mut self, owner: At<Mapping>, state: State) {
        let gone = self.unmap(owner);
        debug_assert!(gone.owner, "only the first toucher has the page listed");
        while let Some(other) = self.areas.at(gone.area).page(gone.page).sharers.first() {
            let robbed = self.unmap(other);
            self.reservations.at_mut(robbed.reservation).counts.robbed += 1;
        }
        let frame = self.vacate(gone.area, gone.page, state);
        self.push_free(gone.reservation, frame);
        let mine = self.reservations.at_mut(gone.reservation);
        mine.owned -= 1;
        mine.counts.evicted += 1;
    }
}
