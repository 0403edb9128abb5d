//! Objects in arenas: making, reading and freeing them.

use core::mem::size_of;

use crate::backing::Backing;
use crate::budget::Refused;
use crate::class::Class;
use crate::group::GroupId;
use crate::groups::{Groups, Price};
use crate::handle::{Handle, RawHandle};
use crate::slots::{HEAD, LINKED_HEAD, SMALL_MAX, Slot, TrustedSlot, units_of};

/// The largest object, in bytes.
pub const OBJECT_MAX: usize = (SMALL_MAX as usize - 2) * crate::arena::UNIT;

/// A slot in use, as found by a handle.
#[derive(Debug)]
pub(crate) struct Found {
    /// The record of its group.
    pub(crate) index: u32,
    pub(crate) slot: Slot,
}

impl<B: Backing, L: Copy> Groups<B, L> {
    /// Units in front of what a slot holds: its header, and its links if all slots are linked.
    #[inline]
    pub(crate) const fn head_units(&self) -> u32 {
        if self.slab.is_some() {
            LINKED_HEAD
        } else {
            HEAD
        }
    }

    /// Makes an object in the group.
    ///
    /// A fresh slot is charged to the group; a slot that an object of the class was freed from
    /// is paid for already.
    ///
    /// # Errors
    /// [`Refused::Stale`], [`Refused::Budget`] and [`Refused::Memory`].
    ///
    /// # Panics
    /// If the class was registered with another `Groups`.
    #[inline]
    pub fn alloc<T: 'static>(
        &mut self,
        group: GroupId,
        class: Class<T>,
        value: T,
    ) -> Result<Handle<T>, Refused> {
        let index = self.table.alive(group).ok_or(Refused::Stale)?;
        let class = self.classes.object(class);
        let head = self.head_units();
        // At least one unit, for the link of a free slot.
        let units = head
            + const {
                if size_of::<T>() == 0 {
                    1
                } else {
                    units_of(size_of::<T>())
                }
            };
        let slot = self.take_slot(index, class, class, units, Price { class, units: 1 }, 0)?;
        self.slots_of(index).write_object(&slot, head, value);
        Ok(Handle::from_raw(slot.handle(group)))
    }

    /// Reads an object; `None` if it or its group has gone, or it is no `T`. Work: compares
    /// the group's generation, its root's, the slot's, and the type.
    #[inline]
    pub fn get<T: 'static>(&self, handle: Handle<T>) -> Option<&T> {
        let Found { slot, .. } = self.find(handle.raw())?;
        slot.object(self.head_units(), &self.classes)
    }

    /// Reads an object to change it; `None` as for [`get`](Self::get).
    #[inline]
    pub fn get_mut<T: 'static>(&mut self, handle: Handle<T>) -> Option<&mut T> {
        let found = self.find(handle.raw())?;
        found.slot.object_mut(self.head_units(), &mut self.classes)
    }

    /// Frees an object and returns it; `None` as for [`get`](Self::get).
    ///
    /// The slot stays with the group, for the next object of the class, and so does its charge:
    /// what the group pays for is the most slots it ever had in use (high-water charging).
    #[inline]
    pub fn free<T: 'static>(&mut self, handle: Handle<T>) -> Option<T> {
        let Found { index, slot } = self.find(handle.raw())?;
        let (value, slot) = slot.take_object(self.head_units(), &self.classes)?;
        self.release(Found { index, slot });
        Some(value)
    }

    /// The handle of an object, from nothing but its group and [`Handle::slot`]: for embedders
    /// whose own handles have room for 32 bits and vouch for them. `None` if the group has gone
    /// or the object is no `T`.
    pub fn handle_at<T: 'static>(&self, name: TrustedSlot) -> Option<Handle<T>> {
        let group = name.group();
        let index = self.table.alive(group)?;
        let slot = self.table.at(index).slots.trust(name);
        self.classes
            .holds::<T>(slot.class())
            .then(|| Handle::from_raw(slot.handle(group)))
    }

    /// The group of the object, if both are there.
    pub fn group_of(&self, handle: RawHandle) -> Option<GroupId> {
        self.find(handle).map(|_| handle.group())
    }

    /// The slot that a handle names, if it is in use.
    #[inline]
    pub(crate) fn find(&self, handle: RawHandle) -> Option<Found> {
        let index = self.table.alive(handle.group())?;
        // The handle is of this instance, since group identifiers tell instances apart.
        let slot = self.table.at(index).slots.find(handle)?;
        Some(Found { index, slot })
    }

    /// Gives a slot in use back to its group or to the shared slab.
    #[inline]
    pub(crate) fn release(&mut self, found: Found) {
        let Found { index, slot } = found;
        if self.slab.is_some() {
            self.table.at_mut(index).owned.remove(&slot);
        }
        self.slots_of(index).give_back(slot);
    }
}
