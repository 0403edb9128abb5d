//! Arenas: one address range each, cut into chunks that are granted to the groups of one tree.
//!
//! Everything in an arena is named by its distance from the start in units of 8 bytes, so that
//! links fit in 32 bits. Unit 0 is never handed out and stands for *nothing*.
//!
//! This file and `slots.rs` are where memory is read and written raw: chunks here, slots there. All
//! other files use what they hand out.

use core::mem::size_of;
use core::ptr::NonNull;

use crate::backing::Backing;
use crate::cost::PAGE;
use crate::tally::Tally;

/// Bytes of a unit.
pub(crate) const UNIT: usize = 8;
/// The unit that is never handed out.
pub(crate) const NOTHING: u32 = 0;
/// Where the first chunk starts: its first slot, one unit further, then begins a cache line.
const FIRST: u32 = 7;

/// Chunks are 2^10 ..= 2^31 bytes; class 0 is the smallest.
pub(crate) const CHUNK_CLASSES: usize = 22;
const CHUNK_MIN: usize = 10;

/// Units of a chunk of `class`.
pub(crate) const fn chunk_units(class: u8) -> u32 {
    1 << (CHUNK_MIN - UNIT.trailing_zeros() as usize + class as usize)
}

/// The smallest class of chunks that have room for `units` behind their header.
pub(crate) fn chunk_class(units: u32) -> Option<u8> {
    (0..CHUNK_CLASSES as u8).find(|&class| chunk_units(class) > units)
}

/// Pages that `units` take.
pub(crate) const fn pages_of(units: u32) -> u32 {
    (units as usize * UNIT).div_ceil(PAGE) as u32
}

/// The memory of an arena.
///
/// `Copy`, because a group keeps it beside its identifier: looking an object up then reads the
/// record and the object, nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space(NonNull<u8>);

impl Space {
    /// Pointer to what lies at unit `at`.
    ///
    /// # Safety
    /// `at` must lie inside the reserved range that this space is the start of.
    #[inline]
    pub(crate) unsafe fn at<T>(self, at: u32) -> NonNull<T> {
        const {
            assert!(
                core::mem::align_of::<T>() <= UNIT,
                "alignment beyond 8 bytes"
            )
        };
        // SAFETY: inside the range, says the caller.
        unsafe { self.0.add(at as usize * UNIT).cast() }
    }

    /// # Safety
    /// A `T` must have been written at unit `at` since the range was reserved, and no other use
    /// been made of the place since.
    #[inline]
    pub(crate) unsafe fn read<T: Copy>(self, at: u32) -> T {
        // SAFETY: as the caller says.
        unsafe { self.at::<T>(at).read() }
    }

    /// # Safety
    /// The range must have room for a `T` at unit `at`, and nothing else may be kept there.
    #[inline]
    pub(crate) unsafe fn write<T>(self, at: u32, value: T) {
        // SAFETY: as the caller says.
        unsafe { self.at::<T>(at).write(value) }
    }
}

/// The head of a chunk: one unit, in front of its slots.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ChunkHeader {
    /// The next chunk on the list that this one is on.
    next: u32,
    /// End of the part that was ever handed out; what lies beyond was never touched.
    touched: u32,
}

const _: () = assert!(size_of::<ChunkHeader>() == UNIT);

/// A chunk given to a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    /// Its first unit, which holds its header.
    pub(crate) chunk: u32,
    pub(crate) class: u8,
    /// End of the part that ended groups have handed out before: their charge for it remains
    /// with their parent.
    pub(crate) touched: u32,
    /// The memory beyond `touched` is known to read as zero.
    pub(crate) zeroed: bool,
}

impl Grant {
    /// End of the chunk.
    pub(crate) const fn end(&self) -> u32 {
        self.chunk + chunk_units(self.class)
    }

    /// Returns whether the chunk was never used before.
    pub(crate) const fn is_fresh(&self) -> bool {
        self.touched == self.chunk + 1
    }

    /// How many pages, counted from its first slot, ended groups have touched.
    pub(crate) const fn touched_pages(&self) -> u32 {
        pages_of(self.touched - self.chunk - 1)
    }
}

/// The chunks of a group: for each class a circular list, of which the last is kept, so that
/// the whole list is given back in constant time.
pub(crate) type ChunkLists = [u32; CHUNK_CLASSES];

/// One address range and what of it is granted.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Arena {
    space: Space,
    /// Units of the range.
    units: u32,
    /// Units that its present root may have, not more than the range has.
    limit: u32,
    /// First unit that was not granted since the arena was last taken.
    bump: u32,
    /// Units from here on are not resident and read as zero.
    dirty: u32,
    /// Incremented when the arena is switched out and when it is clean again.
    pub(crate) turn: u32,
    /// Its place among the arenas that wait for clean-up.
    pub(crate) place: usize,
    /// Chunks given back by ended groups, by class.
    free: ChunkLists,
    /// Units charged to all groups below the root: its tree's account needs no look at them.
    /// Without meaning for the shared slab, which has many roots.
    pub(crate) below: Tally,
}

impl Arena {
    /// Reserves a clean arena of `bytes`; `None` if the backing has no room.
    pub(crate) fn reserve(backing: &mut impl Backing, bytes: usize) -> Option<Self> {
        Some(Arena {
            space: Space(backing.reserve(bytes)?),
            units: (bytes / UNIT) as u32,
            limit: (bytes / UNIT) as u32,
            bump: FIRST,
            dirty: 0,
            free: [NOTHING; CHUNK_CLASSES],
            turn: 0,
            place: 0,
            below: Tally::NONE,
        })
    }

    /// Gives the range back to `backing`, which it was reserved from.
    pub(crate) fn release(self, backing: &mut impl Backing) {
        let bytes = self.units as usize * UNIT;
        // SAFETY: the range was reserved with these bytes, and `self` goes. References into it borrow
        // from the groups that own the arena, so there are none left.
        unsafe { backing.release(self.space.0, bytes) };
    }

    pub(crate) const fn space(&self) -> Space {
        self.space
    }

    /// Pages that may be resident.
    pub(crate) const fn dirty_pages(&self) -> usize {
        pages_of(self.dirty) as usize
    }

    /// Grants a chunk of class `wanted`, or of another class not below `least`; `None` if there
    /// is none, with nothing changed. Work: at most two looks per class.
    pub(crate) fn grant(&mut self, wanted: u8, least: u8) -> Option<Grant> {
        let classes = CHUNK_CLASSES as u8;
        self.reuse(wanted)
            .or_else(|| self.extend(wanted))
            .or_else(|| (wanted + 1..classes).find_map(|class| self.reuse(class)))
            .or_else(|| {
                (least..wanted)
                    .rev()
                    .find_map(|class| self.reuse(class).or_else(|| self.extend(class)))
            })
    }

    fn reuse(&mut self, class: u8) -> Option<Grant> {
        let head = &mut self.free[usize::from(class)];
        let chunk = *head;
        if chunk == NOTHING {
            return None;
        }
        // SAFETY: only chunks of this arena get on its lists, and their headers are kept while
        // they are there.
        let header: ChunkHeader = unsafe { self.space.read(chunk) };
        *head = header.next;
        Some(Grant {
            chunk,
            class,
            touched: header.touched,
            zeroed: false,
        })
    }

    fn extend(&mut self, class: u8) -> Option<Grant> {
        let chunk = self.bump;
        if self.limit.saturating_sub(chunk) < chunk_units(class) {
            return None;
        }
        self.bump = chunk + chunk_units(class);
        Some(Grant {
            chunk,
            class,
            touched: chunk + 1,
            zeroed: chunk >= self.dirty,
        })
    }

    /// Puts a granted chunk on its group's list, with its handed-out part ending at `touched`.
    pub(crate) fn adopt(&self, lists: &mut ChunkLists, grant: &Grant, touched: u32) {
        let last = &mut lists[usize::from(grant.class)];
        // SAFETY: the chunk was just granted, so its first unit is free for its header; `last`
        // is a chunk of the same group and arena, with a header.
        unsafe {
            let next = if *last == NOTHING {
                grant.chunk
            } else {
                let header: ChunkHeader = self.space.read(*last);
                self.space.write(
                    *last,
                    ChunkHeader {
                        next: grant.chunk,
                        ..header
                    },
                );
                header.next
            };
            self.space.write(grant.chunk, ChunkHeader { next, touched });
        }
        *last = grant.chunk;
    }

    /// Records that the part of `chunk` in front of `end` has been handed out, and says where that
    /// part ended before.
    ///
    /// # Safety
    /// `chunk` must be a granted chunk of this arena.
    pub(crate) unsafe fn touch(&self, chunk: u32, end: u32) -> u32 {
        // SAFETY: granted chunks have a header.
        unsafe {
            let header: ChunkHeader = self.space.read(chunk);
            let touched = header.touched.max(end);
            self.space.write(chunk, ChunkHeader { touched, ..header });
            header.touched
        }
    }

    /// Takes the chunks of an ended group back: constant time per class, whatever their number.
    pub(crate) fn splice(&mut self, lists: &mut ChunkLists) {
        for (last, free) in lists.iter_mut().zip(&mut self.free) {
            if *last != NOTHING {
                // SAFETY: the last chunk of a group's list has a header.
                unsafe {
                    let header: ChunkHeader = self.space.read(*last);
                    self.space.write(
                        *last,
                        ChunkHeader {
                            next: *free,
                            ..header
                        },
                    );
                    *free = header.next;
                }
                *last = NOTHING;
            }
        }
    }

    /// Grants no more than `bytes` from here on, whatever the range has, until everything is taken back.
    pub(crate) fn limit(&mut self, bytes: u64) {
        let units = u32::try_from(bytes / UNIT as u64).unwrap_or(u32::MAX);
        self.limit = units.min(self.units);
    }

    /// Takes everything back at once, and returns how many pages may be resident.
    pub(crate) fn reset(&mut self) -> usize {
        if self.bump > FIRST {
            self.dirty = self.dirty.max(self.bump);
        }
        self.bump = FIRST;
        self.limit = self.units;
        self.free = [NOTHING; CHUNK_CLASSES];
        self.below = Tally::NONE;
        self.dirty_pages()
    }

    /// Gives up to `pages` pages of the end of the resident part back to `backing`, which the arena
    /// was reserved from, and returns how many it gave. No group may use the arena.
    pub(crate) fn discard(&mut self, backing: &mut impl Backing, pages: usize) -> usize {
        assert!(self.bump == FIRST, "an arena in use");
        let resident = self.dirty_pages();
        let kept = resident - pages.min(resident);
        self.dirty = (kept * PAGE / UNIT) as u32;
        let pages = resident - kept;
        // SAFETY: all `resident` pages are inside the range, and no group has granted units in it, so
        // that nothing refers to them.
        unsafe { backing.discard(self.space.0.add(kept * PAGE), pages * PAGE) };
        pages
    }
}
