//! Names of objects: generational, so that one that outlives its object or its group is
//! detectably stale, at no cost to reclamation.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

use crate::group::GroupId;

/// A handle to an object of any class: its group and its slot, each with a generation.
///
/// It cannot be made from numbers, so a handle always names a slot that existed; whether it
/// still does is checked at every use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawHandle {
    group: GroupId,
    slot: u32,
    generation: u32,
}

impl RawHandle {
    /// Names a slot in use of `group`: for `Slot::handle` alone.
    #[inline]
    pub(crate) const fn new(group: GroupId, slot: u32, generation: u32) -> Self {
        RawHandle {
            group,
            slot,
            generation,
        }
    }

    #[inline]
    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }

    #[inline]
    pub(crate) const fn generation(self) -> u32 {
        self.generation
    }

    /// The group that the object was made in, alive or not.
    #[inline]
    pub const fn group(self) -> GroupId {
        self.group
    }
}

/// A handle to an object of type `T`, 16 bytes, copied freely.
pub struct Handle<T> {
    raw: RawHandle,
    object: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    /// Claims that `raw` names a `T`. The claim is checked at every use: a wrong one reads as
    /// stale.
    #[inline]
    pub const fn from_raw(raw: RawHandle) -> Self {
        Handle {
            raw,
            object: PhantomData,
        }
    }

    /// The handle without its type.
    #[inline]
    pub const fn raw(self) -> RawHandle {
        self.raw
    }

    /// Where the object is in its group's memory: tells the group's living objects apart. See
    /// [`Groups::handle_at`](crate::Groups::handle_at).
    pub const fn slot(self) -> u32 {
        self.raw.slot
    }
}

impl<T> From<Handle<T>> for RawHandle {
    fn from(handle: Handle<T>) -> Self {
        handle.raw
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Handle<T> {}

impl<T> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

/// A handle to a run of bytes; its length is kept with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent(pub(crate) RawHandle);

impl Extent {
    /// The group that the extent was made in, alive or not.
    pub const fn group(self) -> GroupId {
        self.0.group
    }
}

/// A handle to a scrub entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkId(pub(crate) RawHandle);

impl LinkId {
    /// The group whose scrub list the entry is on, alive or not.
    pub const fn group(self) -> GroupId {
        self.0.group
    }
}
