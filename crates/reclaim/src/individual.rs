//! The baseline of BRR fig. 7 and fig. 8: objects are taken back one by one.
//!
//! All groups share one slab and its free lists, and every object is on the list of the group
//! that owns it. Ending a group walks that list.

use crate::backing::Backing;
use crate::groups::Groups;

impl<B: Backing, L: Copy> Groups<B, L> {
    /// Takes back the first object on an ending group's list: the name of its class, or `None`
    /// if there is none left (or objects go with their arena).
    pub(crate) fn pop_object(&mut self, index: u32) -> Option<&'static str> {
        let slab = self.slab.as_mut()?;
        let slot = self.table.at_mut(index).owned.pop(slab.space())?;
        let class = slot.class();
        slab.give_back(slot);
        Some(self.classes.name(class))
    }
}
