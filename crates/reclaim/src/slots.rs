//! Slots: how a group hands out the memory of its chunks.
//!
//! A slot is a header of one unit and what it holds. A slot that was given back stays with its
//! group and its free list: one list per class of objects and per size of extents, so that a
//! recycled slot has always been charged what its next use costs.
//!
//! A *linked* slot also is on a list of its group: the unit behind its header holds the links.
//! Scrub entries are linked, and in [`Mode::Individual`](crate::Mode::Individual) every slot is.

use core::mem::size_of;

use crate::arena::{
    Arena, CHUNK_CLASSES, ChunkLists, Grant, NOTHING, Space, UNIT, chunk_class, chunk_units,
};
use crate::class::CLASSES;

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

/// A slot in use: its place and its generation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) at: u32,
    pub(crate) generation: u32,
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
    /// What of the current chunk was not handed out yet.
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
                at,
                generation: header.generation(),
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
        // SAFETY: `at` was just taken from a chunk of these slots, so nothing else is there.
        unsafe { self.space.write(at, Header::new(class, list)) };
        Slot {
            at,
            generation: FIRST_GENERATION,
        }
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

    /// The slot that [`recycle`](Self::recycle) would take.
    pub(crate) fn peek(&self, list: u8) -> Option<u32> {
        Some(self.free[usize::from(list)]).filter(|&at| at != NOTHING)
    }

    /// Opens the single slot of a chunk.
    pub(crate) fn open_large(&mut self, grant: &Grant, class: u8) -> Slot {
        self.open(grant.chunk + 1, class, large_extent(grant.class))
    }

    /// Puts a slot on the free list it belongs to; every handle to it is stale from now on.
    ///
    /// A slot whose generations are used up is given up instead: it goes with its chunk.
    ///
    /// # Safety
    /// `at` must be a slot in use of these slots, and nothing may refer to what it holds.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, at: u32) {
        // SAFETY: a slot in use has a header; its contents are dead, so its second unit is free for
        // the link.
        unsafe {
            let header = self.space.read::<Header>(at).next();
            self.space.write(at, header);
            if header.generation() < LAST_GENERATION {
                let head = &mut self.free[usize::from(header.list())];
                self.space.write(at + 1, *head);
                *head = at;
            }
        }
    }

    /// Gives all chunks back to the arena: constant time per class of chunks.
    pub(crate) fn dissolve(&mut self, arena: &mut Arena) {
        self.leave(arena);
        arena.splice(&mut self.chunks);
    }

    /// Puts a linked slot in front of the list that starts at `head`.
    ///
    /// # Safety
    /// `at` must be a linked slot in use of this space that is on no list, and `head` must
    /// start a list of such slots.
    #[inline]
    pub(crate) unsafe fn link(space: Space, head: &mut u32, at: u32) {
        // SAFETY: linked slots have their links in the second unit.
        unsafe {
            space.write(
                at + 1,
                Links {
                    next: *head,
                    previous: NOTHING,
                },
            );
            if *head != NOTHING {
                let second: Links = space.read(*head + 1);
                space.write(
                    *head + 1,
                    Links {
                        previous: at,
                        ..second
                    },
                );
            }
        }
        *head = at;
    }

    /// Takes a linked slot off the list that starts at `head`.
    ///
    /// # Safety
    /// `at` must be a linked slot in use of this space that is on the list.
    #[inline]
    pub(crate) unsafe fn unlink(space: Space, head: &mut u32, at: u32) {
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
                *head = links.next;
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
