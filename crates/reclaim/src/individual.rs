//! The baseline of BRR fig. 7 and fig. 8: objects are taken back one by one.
//!
//! All groups share one slab and its free lists, and every object is on the list of the group
//! that owns it. Ending a group walks that list.

use crate::arena::NOTHING;
use crate::backing::Backing;
use crate::groups::Groups;
use crate::slots::{Header, Slots};

impl<B: Backing, L: Copy> Groups<B, L> {
    /// Takes back the first object on an ending group's list: the name of its class, or `None`
    /// if there is none left (or objects go with their arena).
    pub(crate) fn pop_object(&mut self, index: u32) -> Option<&'static str> {
        let slab = self.slab.as_mut()?;
        let record = self.table.at_mut(index);
        let (at, space) = (record.owned, record.slots.space());
        if at == NOTHING {
            return None;
        }
        // SAFETY: the slots on the list are linked slots in use, and nothing refers to what
        // this one holds: the group is stale, and `self` is borrowed mutably.
        let header: Header = unsafe {
            Slots::unlink(space, &mut record.owned, at);
            slab.give_back(at);
            space.read(at)
        };
        Some(self.classes.name(header.class()))
    }
}
