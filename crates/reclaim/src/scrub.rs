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
use crate::handle::LinkId;
use crate::object::{Found, OBJECT_MAX};
use crate::slots::{LINKED_HEAD, Slot, units_of};

impl<B: Backing, L: Copy> Groups<B, L> {
    const ENTRY_UNITS: u32 = {
        assert!(
            align_of::<L>() <= 8 && size_of::<L>() <= OBJECT_MAX,
            "a link is a small value"
        );
        LINKED_HEAD + units_of(size_of::<L>())
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
        let first = !record.is_scrubbed();
        record.slots.write_link(&slot, link);
        record.scrub.push(&slot);
        if first {
            self.table.enlist(index);
        }
        Ok(LinkId(slot.handle(group)))
    }

    /// Takes an entry off its scrub list because the link has gone, and refunds its charge;
    /// `None` if the entry or its group has gone.
    pub fn unlink(&mut self, id: LinkId) -> Option<L> {
        let Found { index, slot } = self.find(id.0)?;
        let record = self.table.at_mut(index);
        record.scrub.remove(&slot);
        let link = self.take_link(index, &slot);
        self.slots_of(index).give_back(slot);
        let scrub_ps = self.costs.scrub_ps;
        let record = self.table.at_mut(index);
        record.budget.refund(scrub_ps);
        record.discount(&mut self.arenas[record.arena as usize], SCRUB, 1);
        Some(link)
    }

    /// Takes the first entry off an ending group's scrub list.
    pub(crate) fn pop_entry(&mut self, index: u32) -> Option<L> {
        let record = self.table.at_mut(index);
        let slot = record.scrub.pop(record.slots.space())?;
        let link = self.take_link(index, &slot);
        if let Some(slab) = &mut self.slab {
            slab.give_back(slot);
        }
        Some(link)
    }

    /// Reads an entry that was just taken off the group's scrub list.
    fn take_link(&mut self, index: u32, entry: &Slot) -> L {
        let record = self.table.at(index);
        let link = record.slots.read_link(entry);
        if !record.is_scrubbed() {
            self.table.delist(index);
        }
        link
    }
}
