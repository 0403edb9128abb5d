//! `free + owned + conserved = reservation`, executable: compares every account with its frames and mappings.

use alloc::vec::Vec;

use crate::area::{Area, Sharing, State};
use crate::backend::Backend;
use crate::frame::Frame;
use crate::lists::Listing;
use crate::pager::Pager;
use crate::reservation::Reservation;
use crate::table::At;

/// The violated invariant: a defect of this crate, or of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invariant broken: {0}")]
pub struct Violation(&'static str);

fn holds(what: bool, name: &'static str) -> Result<(), Violation> {
    if what { Ok(()) } else { Err(Violation(name)) }
}

/// The holdings of a reservation, counted anew.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    owned: u32,
    conserved: u32,
    returned: u32,
    locked: u32,
    listed: u32,
    attached: u32,
    kept: u32,
}

impl<B: Backend> Pager<B> {
    /// Counts everything anew and compares: each frame is in one place; each reservation's frames
    /// add up and are no more than it may have; each conserved frame stands for one foreign page.
    /// Looks at every page and frame: for tests.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn audit(&self) -> Result<(), Violation> {
        self.audit_frames()?;
        let (mut borrowed, mut promised) = (0, 0);
        for (index, reservation) in self.reservations.iter() {
            let found = self.found(index, reservation)?;
            audit_account(reservation, found)?;
            self.audit_lists(index, reservation, found)?;
            borrowed += reservation.borrowed;
            promised += reservation.promised;
        }
        holds(
            borrowed == self.frames.borrowed(),
            "the sum of what is borrowed",
        )?;
        holds(
            promised == self.frames.promised(),
            "the sum of what is promised",
        )?;
        holds(
            promised <= self.frames.unreserved() + self.frames.borrowed(),
            "what is promised can be had",
        )?;
        for (index, area) in self.areas.iter() {
            self.audit_area(index, area)?;
        }
        Ok(())
    }

    /// No frame is lost, none is in two places.
    fn audit_frames(&self) -> Result<(), Violation> {
        let mut seen = alloc::vec![false; self.frames.total() as usize];
        let mut count = 0;
        let mut see = |frame: Frame| {
            count += 1;
            let before = core::mem::replace(&mut seen[frame.index() as usize], true);
            holds(!before, "a frame is in one place")
        };
        self.frames.iter_unreserved().try_for_each(&mut see)?;
        for (_, reservation) in self.reservations.iter() {
            self.frames.iter(&reservation.free).try_for_each(&mut see)?;
            let conserved = self.frames.iter(&reservation.conserved);
            conserved.into_iter().try_for_each(&mut see)?;
        }
        for (_, area) in self.areas.iter() {
            for page in area.pages.iter() {
                if let State::Resident(frame) = page.state {
                    see(frame)?;
                }
            }
        }
        holds(count == self.frames.total(), "no frame is lost")
    }

    fn found(&self, index: At<Reservation>, reservation: &Reservation) -> Result<Found, Violation> {
        let mut found = Found::default();
        for &at in &reservation.attachments {
            let attachment = self.attachments.at(at);
            let area = self.areas.at(attachment.area);
            holds(attachment.reservation == index, "attachments are mutual")?;
            found.attached += area.len();
            let kept = attachment.pinned.unwrap_or(0);
            let stays = attachment.pinned.is_some() || area.lock.is_some();
            found.kept += if stays { area.len() } else { 0 };
            holds(
                reservation.ending || attachment.mapped >= kept,
                "kept pages stay",
            )?;
            let mut mapped = 0;
            for (page, &mapping) in attachment.table.entries() {
                if mapping.is_nil() {
                    continue;
                }
                mapped += 1;
                let owner = area.pages[page].sharers.first() == Some(mapping);
                let listed = self.mappings.at(mapping).listing != Listing::Unlisted;
                let free_of_charge = area.sharing == Sharing::FirstTouch && !owner;
                let locked = area.locks(page);
                let stays = locked || free_of_charge || page.is_within(kept);
                let may_be_unlisted = stays || attachment.pinned.is_some();
                holds(
                    if listed { !stays } else { may_be_unlisted },
                    "pages are listed unless kept, locked or free of charge",
                )?;
                found.listed += u32::from(listed);
                if locked {
                    found.locked += 1;
                    continue;
                }
                match (owner, area.sharing) {
                    (true, _) => found.owned += 1,
                    (false, Sharing::Conserve) => found.conserved += 1,
                    (false, Sharing::Plain) => found.returned += 1,
                    (false, Sharing::FirstTouch) => {}
                }
            }
            holds(mapped == attachment.mapped, "the count of mapped pages")?;
        }
        Ok(found)
    }

    fn audit_lists(
        &self,
        index: At<Reservation>,
        mine: &Reservation,
        found: Found,
    ) -> Result<(), Violation> {
        let lists = [
            (mine.active, Listing::Active),
            (mine.inactive, Listing::Inactive),
        ];
        let mut listed = 0;
        for (list, listing) in lists {
            let mut members = 0;
            for at in list.iter(&self.mappings) {
                members += 1;
                holds(self.holder(at) == index, "lists hold pages of their own")?;
                holds(self.mappings.at(at).listing == listing, "listings are true")?;
            }
            holds(members == list.len(), "the length of a list")?;
            listed += members;
        }
        holds(listed == found.listed, "every listed page is on one list")
    }

    fn audit_area(&self, index: At<Area>, area: &Area) -> Result<(), Violation> {
        for (page, record) in area.pages.entries() {
            let sharers: Vec<_> = record.sharers.iter(&self.mappings).collect();
            let resident = matches!(record.state, State::Resident(_));
            holds(resident != sharers.is_empty(), "resident means mapped")?;
            for &at in &sharers {
                let mapping = self.mappings.at(at);
                let attachment = self.attachments.at(mapping.attachment);
                let mutual = attachment.area == index && attachment.table[page] == at;
                holds(mutual, "ownership lists and page tables agree")?;
            }
        }
        Ok(())
    }
}

fn audit_account(mine: &Reservation, found: Found) -> Result<(), Violation> {
    let account = mine.account();
    holds(account.balances(), "free + owned + conserved = reservation")?;
    holds(account.owned == found.owned, "the count of owned pages")?;
    holds(
        account.conserved == found.conserved,
        "a conserved frame per foreign page",
    )?;
    holds(
        account.returned == found.returned,
        "a returned frame per foreign page",
    )?;
    // Frames that were given up for a lock are not returned at the end.
    holds(
        account.locked == found.locked || mine.ending,
        "the count of locked pages",
    )?;
    holds(mine.kept == found.kept, "the count of kept pages")?;
    holds(
        mine.attached == found.attached && mine.attached <= mine.attachable,
        "the count of attached pages",
    )?;
    let most = account.size - account.locked + account.borrowed;
    holds(found.listed <= most, "pages never exceed the reservation")
}
