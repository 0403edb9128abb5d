//! Objects in arenas: making, reading and freeing them.

use core::mem::size_of;

use crate::arena::Space;
use crate::backing::Backing;
use crate::budget::Refused;
use crate::class::Class;
use crate::group::GroupId;
use crate::groups::{Groups, Price};
use crate::handle::{Handle, RawHandle};
use crate::slots::{Header, SMALL_MAX, Slots, units_of};

/// The largest object, in bytes.
pub const OBJECT_MAX: usize = (SMALL_MAX as usize - 2) * crate::arena::UNIT;

/// A slot in use, as found by a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) space: Space,
    pub(crate) at: u32,
    pub(crate) class: u8,
}

impl<B: Backing, L: Copy> Groups<B, L> {
    /// Units in front of what a slot holds: its header, and its links if all slots are linked.
    #[inline]
    pub(crate) const fn head_units(&self) -> u32 {
        if self.slab.is_some() { 2 } else { 1 }
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
        let space = self.space_of(index);
        // SAFETY: the slot was just taken, and has room for a `T` behind its head.
        unsafe { space.write(slot.at + head, value) };
        Ok(Handle::from_raw(RawHandle {
            group,
            slot: slot.at,
            generation: slot.generation,
        }))
    }

    /// The memory that a group's slots lie in.
    #[inline]
    pub(crate) fn space_of(&self, index: u32) -> Space {
        self.table.at(index).slots.space()
    }

    /// Reads an object; `None` if it or its group has gone, or it is no `T`. Work: compares
    /// the group's generation, its root's, the slot's, and the type.
    #[inline]
    pub fn get<T: 'static>(&self, handle: Handle<T>) -> Option<&T> {
        let found = self.find_object(handle)?;
        // SAFETY: the slot is in use and holds a `T` behind its head. The reference borrows
        // from `self`, and everything that writes to arenas needs `self` mutably.
        Some(unsafe { found.space.at::<T>(found.at + self.head_units()).as_ref() })
    }

    /// Reads an object to change it; `None` as for [`get`](Self::get).
    #[inline]
    pub fn get_mut<T: 'static>(&mut self, handle: Handle<T>) -> Option<&mut T> {
        let found = self.find_object(handle)?;
        // SAFETY: as in `get`; the mutable borrow of `self` makes the reference the only one.
        Some(unsafe { found.space.at::<T>(found.at + self.head_units()).as_mut() })
    }

    /// Frees an object and returns it; `None` as for [`get`](Self::get).
    ///
    /// The slot stays with the group, for the next object of the class, and so does its charge:
    /// what the group pays for is the most slots it ever had in use (high-water charging).
    #[inline]
    pub fn free<T: 'static>(&mut self, handle: Handle<T>) -> Option<T> {
        let found = self.find_object(handle)?;
        // SAFETY: the slot is in use and holds a `T`, which is not read again: the slot's
        // generation moves on in `release`.
        let value = unsafe { found.space.at::<T>(found.at + self.head_units()).read() };
        self.release(found);
        Some(value)
    }

    /// The handle of an object, from nothing but its group and [`Handle::slot`]: for embedders
    /// whose own handles have room for 32 bits and vouch for them. `None` if the group has gone
    /// or the object is no `T`.
    ///
    /// # Safety
    /// `slot` is what [`Handle::slot`] returned for an object of this group that has not been
    /// freed since.
    pub unsafe fn handle_at<T: 'static>(&self, group: GroupId, slot: u32) -> Option<Handle<T>> {
        let index = self.table.alive(group)?;
        let space = self.space_of(index);
        // SAFETY: the caller's promise: a slot of this very group, which is alive.
        let header: Header = unsafe { space.read(slot) };
        let handle = Handle::from_raw(RawHandle {
            group,
            slot,
            generation: header.generation(),
        });
        self.find_object(handle).map(|_| handle)
    }

    /// The group of the object, if both are there.
    pub fn group_of(&self, handle: RawHandle) -> Option<GroupId> {
        self.find(handle).map(|_| handle.group)
    }

    #[inline]
    fn find_object<T: 'static>(&self, handle: Handle<T>) -> Option<Found> {
        self.find(handle.raw())
            .filter(|found| self.classes.holds::<T>(found.class))
    }

    /// The slot that a handle names, if it is in use.
    #[inline]
    pub(crate) fn find(&self, handle: RawHandle) -> Option<Found> {
        let index = self.table.alive(handle.group)?;
        let space = self.space_of(index);
        let at = handle.slot;
        // SAFETY: the handle was made by this instance (group identifiers tell instances
        // apart) for a slot of this very group, which is alive. A group keeps its slots until
        // it ends (and the shared slab for ever), and they keep their headers.
        let header: Header = unsafe { space.read(at) };
        (header.generation() == handle.generation).then_some(Found {
            index,
            space,
            at,
            class: header.class(),
        })
    }

    /// Gives a slot in use back to its group or to the shared slab.
    #[inline]
    pub(crate) fn release(&mut self, found: Found) {
        if self.slab.is_some() {
            let record = self.table.at_mut(found.index);
            // SAFETY: the slot is in use, so it is on its group's list.
            unsafe { Slots::unlink(found.space, &mut record.owned, found.at) };
        }
        // SAFETY: the slot is in use, and the caller has no reference to what it holds.
        unsafe { self.slots_of(found.index).give_back(found.at) };
    }
}
