//! Slots: how a group hands out the memory of its chunks.
//!
//! A slot is a header of one unit and what it holds. A slot that was given back stays with its
//! group and its free list: one list per class of objects and per size of extents, so that a
//! recycled slot has always been charged what its next use costs.
//!
//! What is read and written raw goes through [`Slot`], the proof that there is a slot in use. Only this
//! file makes one: for a slot that it hands out, that a list or a handle names, or that a caller vouches
//! for ([`TrustedSlot`]). So the other files need no `unsafe`. Three rules keep it so, and the callers
//! in this crate with them: a slot goes back to the slots that it is from; no second `Slot` for the same
//! slot is kept when it does; and the class of a slot says what it holds.
//!
//! A *linked* slot also is on a list of its group: the unit behind its header holds the links.
//! Scrub entries are linked, and in [`Mode::Individual`](crate::Mode::Individual) every slot is.

use core::mem::size_of;
use core::ptr::NonNull;

use crate::arena::{
    Arena, CHUNK_CLASSES, ChunkLists, Grant, NOTHING, Space, UNIT, chunk_class, chunk_units,
};
use crate::class::{CLASSES, Classes, MEMORY, SCRUB};
use crate::group::GroupId;
use crate::handle::RawHandle;

/// The head of a slot: one unit, written and read as one word.
///
/// Bits 0 to 31 are the slot's generation, odd while it is in use and even while it is free;
/// then follow, a byte each, its class and the free list that it belongs to.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Header(u64);

impl Header {
    #[inline]
    const fn new(class: u8, list: u8) -> Self {
        Header((list as u64) << 40 | (class as u64) << 32 | FIRST_GENERATION as u64)
    }

    #[inline]
    pub(crate) const fn generation(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) const fn class(self) -> u8 {
        (self.0 >> 32) as u8
    }

    #[inline]
    const fn list(self) -> u8 {
        (self.0 >> 40) as u8
    }

    /// The header at the next generation.
    #[inline]
    const fn next(self) -> Self {
        Header(self.0 + 1)
    }
}

/// Links of a linked slot.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Links {
    next: u32,
    previous: u32,
}

const _: () = assert!(size_of::<Header>() == UNIT && size_of::<Links>() == UNIT);

/// Sizes of small extents: 32, 48, 64, 96, … 4096 bytes, header included.
const SMALL: u8 = 15;
/// Free lists of extents: the small sizes, then one per class of chunks.
const EXTENTS: usize = SMALL as usize + CHUNK_CLASSES;
/// All free lists.
const LISTS: usize = CLASSES + EXTENTS;
/// The largest slot that shares its chunk with others, in units.
pub(crate) const SMALL_MAX: u32 = small_units(SMALL - 1);
/// A group's chunks double in size up to this class (1 MiB).
const CHUNK_MAX: u8 = 10;
/// First generation of a slot.
const FIRST_GENERATION: u32 = 1;
/// A free slot that has come this far is not used again.
const LAST_GENERATION: u32 = u32::MAX - 1;

const fn small_units(size: u8) -> u32 {
    let bytes = if size.is_multiple_of(2) {
        32 << (size / 2)
    } else {
        48 << (size / 2)
    };
    bytes / UNIT as u32
}

/// The free list for extents of `units`, and the units of its slots; `None` if such an extent
/// gets a chunk of its own.
pub(crate) fn small_extent(units: u32) -> Option<(u8, u32)> {
    (0..SMALL)
        .find(|&size| small_units(size) >= units)
        .map(|size| (CLASSES as u8 + size, small_units(size)))
}

/// The free list for extents that have a chunk of `class` of their own.
pub(crate) const fn large_extent(class: u8) -> u8 {
    CLASSES as u8 + SMALL + class
}

/// Units in front of what a slot holds.
pub(crate) const HEAD: u32 = 1;
/// The same of a linked slot: its header and its links.
pub(crate) const LINKED_HEAD: u32 = 2;

/// A slot in use.
#[derive(Debug)]
pub(crate) struct Slot {
    space: Space,
    at: u32,
    header: Header,
}

impl Slot {
    /// Returns the class of what the slot holds.
    #[inline]
    pub(crate) const fn class(&self) -> u8 {
        self.header.class()
    }

    /// Returns the name of the slot, which is one of `group`.
    #[inline]
    pub(crate) const fn handle(&self, group: GroupId) -> RawHandle {
        RawHandle::new(group, self.at, self.header.generation())
    }

    /// Reads the object; `None` if it is no `T`. `classes` are those of the groups that own the slot.
    #[inline]
    pub(crate) fn object<'a, T: 'static>(&self, head: u32, classes: &'a Classes) -> Option<&'a T> {
        // SAFETY: the slot is in use and holds a `T` behind its head, by its class. The reference
        // borrows from the groups by their classes, and everything that writes to slots needs the
        // groups mutably.
        classes
            .holds::<T>(self.class())
            .then(|| unsafe { self.space.at::<T>(self.at + head).as_ref() })
    }

    /// Reads the object, to change it; `None` if it is no `T`. `classes` are those of the groups that
    /// own the slot.
    #[inline]
    pub(crate) fn object_mut<'a, T: 'static>(
        &self,
        head: u32,
        classes: &'a mut Classes,
    ) -> Option<&'a mut T> {
        // SAFETY: as in `object`; the mutable borrow makes the reference the only one.
        classes
            .holds::<T>(self.class())
            .then(|| unsafe { self.space.at::<T>(self.at + head).as_mut() })
    }

    /// Moves the object out; `None` if it is no `T`. The slot is to be given back then.
    #[inline]
    pub(crate) fn take_object<T: 'static>(self, head: u32, classes: &Classes) -> Option<(T, Self)> {
        if !classes.holds::<T>(self.class()) {
            return None;
        }
        // SAFETY: the slot is in use and holds a `T`, which is not read again: the slot's generation
        // moves on when it is given back.
        let value = unsafe { self.space.at::<T>(self.at + head).read() };
        Some((value, self))
    }
}

/// The name of an object's slot that an embedder vouches for.
#[derive(Debug, Clone, Copy)]
pub struct TrustedSlot {
    group: GroupId,
    at: u32,
}

impl TrustedSlot {
    /// Names the slot `slot` of `group`.
    ///
    /// # Safety
    /// `slot` is what [`Handle::slot`](crate::Handle::slot) returned for an object of this group that
    /// has not been freed since.
    pub const unsafe fn new(group: GroupId, slot: u32) -> Self {
        TrustedSlot { group, at: slot }
    }

    pub(crate) const fn group(self) -> GroupId {
        self.group
    }
}

/// In front of the bytes of an extent.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ExtentHeader {
    pub(crate) len: u32,
    /// If the extent has a chunk of its own: how many pages of it are charged.
    pub(crate) pages: u32,
}

const _: () = assert!(size_of::<ExtentHeader>() == UNIT);

/// A list of linked slots in use, of one group.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct SlotList {
    head: u32,
}

impl SlotList {
    /// The list of none.
    pub(crate) const EMPTY: SlotList = SlotList { head: NOTHING };

    /// Returns whether no slot is on the list.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NOTHING
    }

    /// Puts a linked slot that is on no list in front of this one.
    #[inline]
    pub(crate) fn push(&mut self, slot: &Slot) {
        let Slot { space, at, .. } = *slot;
        // SAFETY: this slot and those on the list are linked slots in use of this space, which have
        // their links in the second unit.
        unsafe {
            space.write(
                at + 1,
                Links {
                    next: self.head,
                    previous: NOTHING,
                },
            );
            if self.head != NOTHING {
                let second: Links = space.read(self.head + 1);
                space.write(
                    self.head + 1,
                    Links {
                        previous: at,
                        ..second
                    },
                );
            }
        }
        self.head = at;
    }

    /// Takes a slot off the list that it is on.
    #[inline]
    pub(crate) fn remove(&mut self, slot: &Slot) {
        let Slot { space, at, .. } = *slot;
        // SAFETY: the slots on the list have their links in the second unit.
        unsafe {
            let links: Links = space.read(at + 1);
            if links.next != NOTHING {
                let next: Links = space.read(links.next + 1);
                space.write(
                    links.next + 1,
                    Links {
                        previous: links.previous,
                        ..next
                    },
                );
            }
            if links.previous == NOTHING {
                self.head = links.next;
            } else {
                let previous: Links = space.read(links.previous + 1);
                space.write(
                    links.previous + 1,
                    Links {
                        next: links.next,
                        ..previous
                    },
                );
            }
        }
    }

    /// Takes the first slot off the list, which lies in `space`; `None` if it is empty.
    #[inline]
    pub(crate) fn pop(&mut self, space: Space) -> Option<Slot> {
        if self.is_empty() {
            return None;
        }
        let at = self.head;
        // SAFETY: the slots on the list are in use, and so have a header.
        let header = unsafe { space.read(at) };
        let slot = Slot { space, at, header };
        self.remove(&slot);
        Some(slot)
    }
}

/// The slots of one group, or of all groups in [`Mode::Individual`](crate::Mode::Individual).
///
/// Invariant: `bump .. end` and all lists lie in chunks that `space` granted to these slots.
///
/// Laid out as written: what handing out a slot needs comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slots {
    space: Space,
    /// The part of the current chunk that was not handed out yet.
    bump: u32,
    end: u32,
    /// End of the untouched part of a recycled chunk, or `NOTHING`.
    untouched: u32,
    chunk: u32,
    /// Class of the next chunk to ask for.
    next: u8,
    /// All ones if `bump .. end` was never handed out by an ended group, else zero.
    fresh: u64,
    free: [u32; LISTS],
    chunks: ChunkLists,
}

impl Slots {
    pub(crate) fn new(space: Space) -> Self {
        Slots {
            space,
            bump: NOTHING,
            end: NOTHING,
            untouched: NOTHING,
            chunk: NOTHING,
            next: 0,
            fresh: 0,
            chunks: [NOTHING; CHUNK_CLASSES],
            free: [NOTHING; LISTS],
        }
    }

    #[inline]
    pub(crate) const fn space(&self) -> Space {
        self.space
    }

    /// All ones if slots handed out now lie in memory that no group had before, else zero.
    #[inline]
    pub(crate) const fn fresh(&self) -> u64 {
        self.fresh
    }

    /// Takes a slot that was given back to `list`.
    #[inline]
    pub(crate) fn recycle(&mut self, list: u8) -> Option<Slot> {
        let head = &mut self.free[usize::from(list)];
        let at = *head;
        if at == NOTHING {
            return None;
        }
        // SAFETY: a slot on a free list has a header, and a link in its second unit.
        unsafe {
            *head = self.space.read(at + 1);
            let header = self.space.read::<Header>(at).next();
            self.space.write(at, header);
            Some(Slot {
                space: self.space,
                at,
                header,
            })
        }
    }

    /// Takes a slot from `list`, or hands out a new one; `None` if the arena is full.
    #[inline]
    pub(crate) fn take(
        &mut self,
        arena: &mut Arena,
        units: u32,
        class: u8,
        list: u8,
    ) -> Option<Slot> {
        self.recycle(list).or_else(|| {
            (self.has_room(units) || self.go_on(units) || self.grow(arena, units))
                .then(|| self.carve(units, class, list))
        })
    }

    /// Returns whether the current chunk has room for a slot of `units`.
    #[inline]
    pub(crate) const fn has_room(&self, units: u32) -> bool {
        self.end - self.bump >= units
    }

    /// Hands out a new slot; there must be room.
    #[inline]
    pub(crate) fn carve(&mut self, units: u32, class: u8, list: u8) -> Slot {
        assert!(self.has_room(units), "carved without room");
        let at = self.bump;
        self.bump += units;
        self.open(at, class, list)
    }

    #[inline]
    fn open(&mut self, at: u32, class: u8, list: u8) -> Slot {
        let (space, header) = (self.space, Header::new(class, list));
        // SAFETY: `at` was just taken from a chunk of these slots, so nothing else is there.
        unsafe { space.write(at, header) };
        Slot { space, at, header }
    }

    /// Continues with the untouched part of a recycled chunk, if that makes room.
    pub(crate) fn go_on(&mut self, units: u32) -> bool {
        if self.untouched == NOTHING || self.untouched - self.bump < units {
            return false;
        }
        self.end = core::mem::replace(&mut self.untouched, NOTHING);
        self.fresh = !0;
        true
    }

    /// Gets a chunk with room for a slot of `units`; returns whether it did. What was left of the
    /// current chunk is given up.
    pub(crate) fn grow(&mut self, arena: &mut Arena, units: u32) -> bool {
        let Some(least) = chunk_class(units) else {
            return false;
        };
        let Some(grant) = arena.grant(self.next.max(least), least) else {
            return false;
        };
        self.leave(arena);
        arena.adopt(&mut self.chunks, &grant, grant.touched);
        self.next = (self.next + 1).min(CHUNK_MAX);
        self.chunk = grant.chunk;
        self.bump = grant.chunk + 1;
        if grant.is_fresh() {
            self.fresh = !0;
            self.end = grant.end();
            self.untouched = NOTHING;
        } else {
            self.fresh = 0;
            self.end = grant.touched;
            self.untouched = grant.end();
        }
        if !self.has_room(units) {
            // A recycled chunk of which little was used; the rest has room, by its class.
            self.go_on(units);
        }
        true
    }

    /// Notes in the current chunk how much of it was handed out.
    fn leave(&mut self, arena: &Arena) {
        if self.chunk != NOTHING {
            // SAFETY: the current chunk is one of this arena's grants.
            unsafe { arena.touch(self.chunk, self.bump) };
        }
    }

    /// Gets a chunk for a single slot of `units`.
    pub(crate) fn grant_large(&mut self, arena: &mut Arena, units: u32) -> Option<Grant> {
        let class = chunk_class(units)?;
        let grant = arena.grant(class, class)?;
        arena.adopt(
            &mut self.chunks,
            &grant,
            grant.touched.max(grant.chunk + 1 + units),
        );
        Some(grant)
    }

    /// Returns how many pages are charged for the large extent that was freed last from `list`;
    /// `None` if none was.
    pub(crate) fn charged_pages(&self, list: u8) -> Option<u32> {
        let at = self.free[usize::from(list)];
        // SAFETY: slots on the lists of large extents held an extent. Of its header a free slot
        // overwrites the length at most, see `give_back`.
        (at != NOTHING).then(|| unsafe { self.space.read::<ExtentHeader>(at + HEAD) }.pages)
    }

    /// Records that `units` of a slot that has a chunk of its own have been handed out, and says how
    /// many had been before.
    pub(crate) fn touch_large(&self, arena: &Arena, slot: &Slot, units: u32) -> u32 {
        // SAFETY: the slot is the only one of its chunk, whose header is in front of it.
        unsafe { arena.touch(slot.at - 1, slot.at + units) - slot.at }
    }

    /// Opens the single slot of a chunk.
    pub(crate) fn open_large(&mut self, grant: &Grant, class: u8) -> Slot {
        self.open(grant.chunk + 1, class, large_extent(grant.class))
    }

    /// Returns the slot that `handle` names, if it is in use. The handle's group is the one of these
    /// slots, and is alive.
    #[inline]
    pub(crate) fn find(&self, handle: RawHandle) -> Option<Slot> {
        let (space, at) = (self.space, handle.slot());
        // SAFETY: handles are made by `Slot::handle` only, so the handle is of a slot of this very
        // group, which is alive. A group keeps its slots until it ends (and the shared slab for
        // ever), and they keep their headers.
        let header: Header = unsafe { space.read(at) };
        if header.generation() != handle.generation() {
            return None;
        }
        Some(Slot { space, at, header })
    }

    /// Returns the slot that an embedder vouches for. The group of `name` is the one of these slots,
    /// and is alive.
    pub(crate) fn trust(&self, name: TrustedSlot) -> Slot {
        let (space, at) = (self.space, name.at);
        // SAFETY: what `TrustedSlot::new` was promised: a slot in use of this very group.
        let header = unsafe { space.read(at) };
        Slot { space, at, header }
    }

    /// Puts a slot on the free list that it belongs to; every handle to it is stale from now on, and
    /// nothing may refer to what it holds.
    ///
    /// A slot whose generations are used up is given up instead: it goes with its chunk.
    #[inline]
    pub(crate) fn give_back(&mut self, slot: Slot) {
        let Slot { space, at, header } = slot;
        let header = header.next();
        // SAFETY: the slot was in use and is not any more, so that its second unit is free for the
        // link. References to what it held borrow from the groups, which are borrowed mutably here.
        unsafe {
            space.write(at, header);
            if header.generation() < LAST_GENERATION {
                let head = &mut self.free[usize::from(header.list())];
                space.write(at + 1, *head);
                *head = at;
            }
        }
    }

    /// Writes the object of a slot that was just taken with room for a `T` of its class.
    #[inline]
    pub(crate) fn write_object<T>(&mut self, slot: &Slot, head: u32, value: T) {
        // SAFETY: the slot has room for a `T` behind its head, and nothing else is kept there.
        unsafe { slot.space.write(slot.at + head, value) };
    }

    /// Writes the link of a scrub entry that was just taken with room for it.
    #[inline]
    pub(crate) fn write_link<L: Copy>(&mut self, entry: &Slot, link: L) {
        assert!(entry.class() == SCRUB, "no scrub entry");
        // SAFETY: the entry has room for the link behind its head, and nothing else is kept there.
        unsafe { entry.space.write(entry.at + LINKED_HEAD, link) };
    }

    /// Reads the link of a scrub entry of these, which are slots of groups with links `L`.
    #[inline]
    pub(crate) fn read_link<L: Copy>(&self, entry: &Slot) -> L {
        assert!(entry.class() == SCRUB, "no scrub entry");
        // SAFETY: the entry has a link behind its head; groups have links of one type.
        unsafe { entry.space.read(entry.at + LINKED_HEAD) }
    }

    /// Makes an extent of zeros in a slot that was just taken with room for its header and bytes.
    pub(crate) fn write_extent(
        &mut self,
        slot: &Slot,
        head: u32,
        header: ExtentHeader,
        zeroed: bool,
    ) {
        assert!(slot.class() == MEMORY, "no extent");
        let Slot { space, at, .. } = *slot;
        // SAFETY: the slot has room for both headers and the bytes, and nothing else is kept there.
        unsafe {
            space.write(at + head, header);
            if !zeroed {
                space
                    .at::<u8>(at + head + 1)
                    .write_bytes(0, header.len as usize);
            }
        }
    }

    /// Reads the bytes of an extent in a slot of these.
    pub(crate) fn extent(&self, slot: &Slot, head: u32) -> &[u8] {
        let (start, len) = extent_parts(slot, head);
        // SAFETY: `len` bytes at `start` are this extent's, initialised when it was made. The slice
        // borrows from `self`, and everything that writes to slots needs them mutably.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// Reads the bytes of an extent in a slot of these, to change them.
    pub(crate) fn extent_mut(&mut self, slot: &Slot, head: u32) -> &mut [u8] {
        let (start, len) = extent_parts(slot, head);
        // SAFETY: as in `extent`; the mutable borrow of `self` makes the slice the only one.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Gives all chunks back to the arena: constant time per class of chunks.
    pub(crate) fn dissolve(&mut self, arena: &mut Arena) {
        self.leave(arena);
        arena.splice(&mut self.chunks);
    }
}

/// Where the bytes of an extent are, and how many.
fn extent_parts(slot: &Slot, head: u32) -> (NonNull<u8>, usize) {
    assert!(slot.class() == MEMORY, "no extent");
    let Slot { space, at, .. } = *slot;
    // SAFETY: a slot of this class holds an extent, with its header and its bytes behind the head.
    unsafe {
        let header: ExtentHeader = space.read(at + head);
        (space.at(at + head + 1), header.len as usize)
    }
}

/// Units that `bytes` take.
pub(crate) const fn units_of(bytes: usize) -> u32 {
    bytes.div_ceil(UNIT) as u32
}

const _: () = assert!(
    SMALL_MAX < chunk_units(CHUNK_MAX) && LISTS <= 256,
    "lists fit in a byte"
);

#[cfg(test)]
mod tests {
    use super::{SMALL, SMALL_MAX, small_extent, small_units};

    #[test]
    fn small_sizes_grow_by_at_most_half_and_end_at_a_page() {
        for size in 1..SMALL {
            let (before, units) = (small_units(size - 1), small_units(size));
            assert!(
                before < units && units * 2 <= before * 3 + 1,
                "{before} to {units}"
            );
        }
        assert_eq!(SMALL_MAX, 512);
        assert!(small_extent(SMALL_MAX).is_some() && small_extent(SMALL_MAX + 1).is_none());
    }
}
