//! Scrub lists: the links that leave a group and are severed one by one (BRR §IV).
//!
//! Entries live in the group's own memory. Groups that have entries are on a list of their
//! root's, so that ending the root finds every entry of its tree without visiting the groups
//! that have none.

use core::mem::{align_of, size_of};

use crate::backing::Backing;
use crate::budget::Refused;
use crate::class::SCRUB;
use crate::group::GroupId;
use crate::groups::Groups;
use crate::handle::{LinkId, RawHandle};
use crate::object::OBJECT_MAX;
use crate::slots::{Slots, units_of};

/// Units in front of what an entry says: header and links.
const HEAD: u32 = 2;

impl<B: Backing, L: Copy> Groups<B, L> {
    const ENTRY_UNITS: u32 = {
        assert!(
            align_of::<L>() <= 8 && size_of::<L>() <= OBJECT_MAX,
            "a link is a small value"
        );
        HEAD + units_of(size_of::<L>())
    };

    /// Puts `link` on the group's scrub list: it will be severed when the group ends.
    ///
    /// Charges [`CostModel::scrub_ps`](crate::CostModel::scrub_ps) until it is
    /// [unlinked](Self::unlink), and the memory of a new entry for good.
    ///
    /// # Errors
    /// [`Refused::Stale`], [`Refused::Budget`] and [`Refused::Memory`].
    pub fn link(&mut self, group: GroupId, link: L) -> Result<LinkId, Refused> {
        let index = self.table.alive(group).ok_or(Refused::Stale)?;
        let units = Self::ENTRY_UNITS;
        let price = Self::memory_price(units as usize * crate::arena::UNIT);
        let scrub_ps = self.costs.scrub_ps;
        let slot = self.take_slot(index, SCRUB, SCRUB, units, price, scrub_ps)?;
        let record = self.table.at_mut(index);
        record.budget.spend(scrub_ps);
        record.count(&mut self.arenas[record.arena as usize], SCRUB, 1);
        let space = record.slots.space();
        let first = !record.is_scrubbed();
        // SAFETY: the slot was just taken, with room for the link behind its head, and entries
        // are linked slots.
        unsafe {
            space.write(slot.at + HEAD, link);
            Slots::link(space, &mut record.scrub, slot.at);
        }
        if first {
            self.table.enlist(index);
        }
        Ok(LinkId(RawHandle {
            group,
            slot: slot.at,
            generation: slot.generation,
        }))
    }

    /// Takes an entry off its scrub list because the link has gone, and refunds its charge;
    /// `None` if the entry or its group has gone.
    pub fn unlink(&mut self, id: LinkId) -> Option<L> {
        let found = self.find(id.0)?;
        let link = self.take_entry(found.index, found.at);
        // SAFETY: the entry was in use, and is on no list any more.
        unsafe { self.slots_of(found.index).give_back(found.at) };
        let scrub_ps = self.costs.scrub_ps;
        let record = self.table.at_mut(found.index);
        record.budget.refund(scrub_ps);
        record.discount(&mut self.arenas[record.arena as usize], SCRUB, 1);
        Some(link)
    }

    /// Takes the first entry off an ending group's scrub list.
    pub(crate) fn pop_entry(&mut self, index: u32) -> Option<L> {
        let record = self.table.at(index);
        if !record.is_scrubbed() {
            return None;
        }
        let at = record.scrub;
        let link = self.take_entry(index, at);
        if let Some(slab) = &mut self.slab {
            // SAFETY: the entry was in use, and is on no list any more.
            unsafe { slab.give_back(at) };
        }
        Some(link)
    }

    fn take_entry(&mut self, index: u32, at: u32) -> L {
        let record = self.table.at_mut(index);
        let space = record.slots.space();
        // SAFETY: `at` is an entry on the group's list, with a link behind its head.
        let link = unsafe {
            Slots::unlink(space, &mut record.scrub, at);
            space.read(at + HEAD)
        };
        if !record.is_scrubbed() {
            self.table.delist(index);
        }
        link
    }
}
