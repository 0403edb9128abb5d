//! The record table: the groups and their tree.
//!
//! A record lives as long as the table; a group is a record at an odd generation. A child is
//! alive if its own generation and its root's both match: ending a root thus ends all its
//! descendants with one increment, and their records go back to the free list as one list.

use alloc::vec::Vec;

use crate::arena::{Arena, Space};
use crate::budget::Budget;
use crate::instance::{INDEX_BITS, Instance};
use crate::slots::{SlotList, Slots};
use crate::tally::Tally;

/// Names a reclamation group: a record, and the generation that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// Record index and number of the instance.
    group: u32,
    generation: u32,
}

impl GroupId {
    #[inline]
    const fn index(self) -> u32 {
        self.group & ((1 << INDEX_BITS) - 1)
    }

    /// Ended groups have an even generation, and no identifier outside has one.
    const fn has_ended(self) -> bool {
        self.generation.is_multiple_of(2)
    }
}

/// No record.
pub(crate) const NIL: u32 = u32::MAX;
/// Most records a table can have.
pub(crate) const RECORDS_MAX: u32 = (1 << INDEX_BITS) - 1;
/// A record is not used again beyond this generation.
const LAST_GENERATION: u32 = u32::MAX - 8;

/// One reclamation group.
///
/// Laid out as written: looking an object up reads the first cache line, making one the first
/// three and its tally, and ending a root the first two.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Record {
    id: GroupId,
    /// The root of its tree; a root's own index.
    pub(crate) root: u32,
    /// The root's generation when the group was opened.
    root_generation: u32,
    /// The arena of the root, or the shared slab.
    pub(crate) arena: u32,
    /// First scrub entry.
    pub(crate) scrub: SlotList,
    /// In a root: the first group of its tree with scrub entries.
    pub(crate) scrubbed: u32,
    /// In `Mode::Individual`: first object of the group.
    pub(crate) owned: SlotList,
    pub(crate) budget: Budget,

    /// In a free record whose descendants are free with it: the next free one after them.
    pub(crate) parent: u32,
    pub(crate) first_child: u32,
    next_sibling: u32,
    previous_sibling: u32,
    /// In a root, and after it has ended: first and last of its descendants. In a descendant: its
    /// neighbours on that list. In any other free record: the next free one.
    next: u32,
    previous: u32,
    /// In a root: how many descendants there are.
    members: u32,
    /// Neighbours on the list of groups with scrub entries.
    scrubbed_next: u32,
    scrubbed_previous: u32,

    pub(crate) slots: Slots,
    tally: Tally,
}

impl Record {
    fn new(
        id: GroupId,
        root: u32,
        root_generation: u32,
        arena: u32,
        space: Space,
        budget: Budget,
    ) -> Self {
        Record {
            id,
            root,
            root_generation,
            arena,
            budget,
            slots: Slots::new(space),
            tally: Tally::NONE,
            parent: NIL,
            first_child: NIL,
            next_sibling: NIL,
            previous_sibling: NIL,
            next: NIL,
            previous: NIL,
            members: 0,
            scrub: SlotList::EMPTY,
            scrubbed: NIL,
            scrubbed_next: NIL,
            scrubbed_previous: NIL,
            owned: SlotList::EMPTY,
        }
    }

    pub(crate) const fn id(&self) -> GroupId {
        self.id
    }

    pub(crate) const fn members(&self) -> u32 {
        self.members
    }

    const fn is_root(&self) -> bool {
        self.id.index() == self.root
    }

    /// Units charged to the group itself.
    pub(crate) const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts units that are charged to the group: on its own tally, and on its arena's if it
    /// lies below the root.
    #[inline]
    pub(crate) const fn count(&mut self, arena: &mut Arena, class: u8, units: u64) {
        self.tally.add(class, units);
        if !self.is_root() {
            arena.below.add(class, units);
        }
    }

    /// Takes units that are refunded to the group off, where [`count`](Self::count) put them.
    #[inline]
    pub(crate) const fn discount(&mut self, arena: &mut Arena, class: u8, units: u64) {
        self.tally.take(class, units);
        if !self.is_root() {
            arena.below.take(class, units);
        }
    }
}

/// All records of a [`Groups`](crate::Groups).
#[derive(Debug)]
pub(crate) struct Table {
    instance: Instance,
    /// Allocated for `most` records at start; grows without moving.
    records: Vec<Record>,
    most: u32,
    free: u32,
    /// Generation before the first one of a new record.
    base: u32,
}

impl Table {
    pub(crate) fn new(most: u32) -> Self {
        let instance = Instance::take();
        let base = instance.reached;
        let most = most.min(RECORDS_MAX);
        Table {
            instance,
            records: Vec::with_capacity(most as usize),
            most,
            free: NIL,
            base,
        }
    }

    pub(crate) const fn instance(&self) -> u16 {
        self.instance.number()
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> &Record {
        &self.records[index as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Record {
        &mut self.records[index as usize]
    }

    /// Index of a group's record if the group is alive. Work: two comparisons.
    #[inline]
    pub(crate) fn alive(&self, id: GroupId) -> Option<u32> {
        let index = id.index();
        let record = self.records.get(index as usize)?;
        (record.id == id && self.root_lives(record)).then_some(index)
    }

    #[inline]
    fn root_lives(&self, record: &Record) -> bool {
        self.at(record.root).id.generation == record.root_generation
    }

    /// Identifier of a record that may or may not be of a living group.
    pub(crate) fn living(&self, index: u32) -> Option<GroupId> {
        let record = self.records.get(index as usize)?;
        (!record.id.has_ended() && self.root_lives(record)).then_some(record.id)
    }

    /// Returns whether a record can be had.
    pub(crate) fn has_room(&mut self) -> bool {
        // A record whose generations are used up is dropped for good.
        while self.free != NIL && self.at(self.free).id.generation > LAST_GENERATION {
            self.free = self.after_free(self.free);
        }
        self.free != NIL || (self.records.len() as u32) < self.most
    }

    /// The free record after this one, which is about to leave the front of the list.
    fn after_free(&mut self, index: u32) -> u32 {
        let &Record {
            parent: beyond,
            next,
            previous: last,
            members,
            ..
        } = self.at(index);
        if members > 0 {
            // Its descendants are free with it; only now are they joined to the list.
            self.at_mut(last).next = beyond;
        }
        next
    }

    /// Makes a record; there must be room.
    fn open(&mut self, make: impl FnOnce(GroupId, u32) -> Record) -> u32 {
        let index = if self.free != NIL {
            self.free
        } else {
            self.records.len() as u32
        };
        let before = if self.free != NIL {
            self.at(index).id.generation
        } else {
            self.base
        };
        // The next odd generation: groups that ended with their root were not incremented.
        let generation = (before + 1) | 1;
        self.instance.reached = self.instance.reached.max(generation + 1);
        let record = make(
            GroupId {
                group: self.instance.bits() | index,
                generation,
            },
            index,
        );
        if self.free == NIL {
            self.records.push(record);
        } else {
            self.free = self.after_free(index);
            *self.at_mut(index) = record;
        }
        index
    }

    /// Opens a root group over an arena; there must be room.
    pub(crate) fn open_root(&mut self, arena: u32, space: Space, budget: Budget) -> u32 {
        self.open(|id, index| Record::new(id, index, id.generation, arena, space, budget))
    }

    /// Opens a group below a living one; there must be room.
    pub(crate) fn open_child(&mut self, parent: u32, budget: Budget) -> u32 {
        let above = self.at(parent);
        let (root, arena, space) = (above.root, above.arena, above.slots.space());
        let (root_generation, sibling) = (above.root_generation, above.first_child);
        let member = self.at(root).next;
        let child = self.open(|id, _| Record {
            parent,
            next_sibling: sibling,
            next: member,
            ..Record::new(id, root, root_generation, arena, space, budget)
        });
        self.at_mut(parent).first_child = child;
        if sibling != NIL {
            self.at_mut(sibling).previous_sibling = child;
        }
        if member == NIL {
            self.at_mut(root).previous = child;
        } else {
            self.at_mut(member).previous = child;
        }
        let record = self.at_mut(root);
        record.next = child;
        record.members += 1;
        child
    }

    /// Makes every identifier of the group stale. Idempotent.
    pub(crate) fn mark(&mut self, index: u32) {
        let record = self.at_mut(index);
        if !record.id.has_ended() {
            record.id.generation += 1;
        }
    }

    /// Frees the record of a marked child without children and scrub entries.
    pub(crate) fn release_child(&mut self, index: u32) {
        let &Record {
            parent,
            root,
            next_sibling,
            previous_sibling,
            next,
            previous,
            ..
        } = self.at(index);
        if previous_sibling == NIL {
            self.at_mut(parent).first_child = next_sibling;
        } else {
            self.at_mut(previous_sibling).next_sibling = next_sibling;
        }
        if next_sibling != NIL {
            self.at_mut(next_sibling).previous_sibling = previous_sibling;
        }
        if previous == NIL {
            self.at_mut(root).next = next;
        } else {
            self.at_mut(previous).next = next;
        }
        if next == NIL {
            self.at_mut(root).previous = previous;
        } else {
            self.at_mut(next).previous = previous;
        }
        self.at_mut(root).members -= 1;
        self.free_record(index);
    }

    /// Frees the record of a marked root and with it those of all its descendants, however many,
    /// without a look at them.
    pub(crate) fn release_root(&mut self, index: u32) {
        self.free_record(index);
    }

    fn free_record(&mut self, index: u32) {
        let free = self.free;
        let record = self.at_mut(index);
        // Still even, but no longer what a reclamation in progress looks for.
        record.id.generation += 2;
        if record.members > 0 {
            record.parent = free;
        } else {
            record.next = free;
        }
        let reached = record.id.generation;
        self.free = index;
        self.instance.reached = self.instance.reached.max(reached);
    }

    /// Generation of a record: changes when it is opened, marked and freed.
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.at(index).id.generation
    }

    /// The group after `at` among `top` and all groups below it, parents first; `NIL` after the
    /// last.
    pub(crate) fn after(&self, top: u32, mut at: u32) -> u32 {
        let child = self.at(at).first_child;
        if child != NIL {
            return child;
        }
        while at != top {
            let record = self.at(at);
            if record.next_sibling != NIL {
                return record.next_sibling;
            }
            at = record.parent;
        }
        NIL
    }

    /// Next of the group's siblings.
    pub(crate) fn sibling(&self, index: u32) -> u32 {
        self.at(index).next_sibling
    }

    /// Puts a group that got its first scrub entry on its root's list.
    pub(crate) fn enlist(&mut self, index: u32) {
        let root = self.at(index).root;
        let next = core::mem::replace(&mut self.at_mut(root).scrubbed, index);
        let record = self.at_mut(index);
        record.scrubbed_next = next;
        record.scrubbed_previous = NIL;
        if next != NIL {
            self.at_mut(next).scrubbed_previous = index;
        }
    }

    /// Takes a group that lost its last scrub entry off its root's list.
    pub(crate) fn delist(&mut self, index: u32) {
        let &Record {
            root,
            scrubbed_next: next,
            scrubbed_previous: previous,
            ..
        } = self.at(index);
        if previous == NIL {
            self.at_mut(root).scrubbed = next;
        } else {
            self.at_mut(previous).scrubbed_next = next;
        }
        if next != NIL {
            self.at_mut(next).scrubbed_previous = previous;
        }
    }
}
