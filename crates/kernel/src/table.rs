//! Capability tables: a tree of fixed fan-out in the tenant's own group.
//!
//! A table starts as one leaf and gets a new root when it is full, so that a lookup takes as
//! many steps as the table is high (at most three above the leaf), and growing copies nothing.
//! Leaves are small, so that a tenant with few capabilities is; nodes are wide.

use leasehold_abi::Errno;
use leasehold_reclaim::{Backing, Class, GroupId, Handle, RawHandle};

use crate::capability::{
    Capability, CapabilityKey, Cell, Content, INDEX_BITS, LEAF, LEAF_BITS, Leaf, Selector,
};
use crate::link::Objects;
use crate::refusal::errno;

/// Bits of an index that each node resolves.
const NODE_BITS: u32 = 7;
/// Children of a node.
pub(crate) const NODE: usize = 1 << NODE_BITS;
/// How many capabilities a table can hold.
pub(crate) const CAPACITY: u32 = 1 << INDEX_BITS;

/// An inner level of a table.
#[derive(Debug)]
pub(crate) struct Node {
    children: [Option<RawHandle>; NODE],
}

/// The classes of a table's parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableClasses {
    pub(crate) leaf: Class<Leaf>,
    pub(crate) node: Class<Node>,
}

/// The root of a tenant's capability table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    root: RawHandle,
    /// The last leaf.
    tip: Handle<Leaf>,
    /// Places that there are leaves for.
    room: u32,
    /// Inner levels above the leaves.
    height: u32,
    /// The first place that was never taken.
    next: u32,
    /// The place that was vacated last.
    vacant: Option<u32>,
}

/// A place that can be taken without further allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vacancy {
    leaf: Handle<Leaf>,
    index: u32,
}

impl Table {
    /// An empty table.
    pub(crate) fn new<B: Backing>(
        groups: &mut Objects<B>,
        group: GroupId,
        classes: TableClasses,
    ) -> Result<Table, Errno> {
        let tip = groups
            .alloc(group, classes.leaf, Leaf::VACANT)
            .map_err(errno)?;
        Ok(Table {
            root: tip.raw(),
            tip,
            room: LEAF as u32,
            height: 0,
            next: 0,
            vacant: None,
        })
    }

    /// First index beyond all that were ever taken.
    pub(crate) const fn end(&self) -> u32 {
        self.next
    }

    /// Finds a place for a capability; `None` if the table must [grow](Self::grow) first.
    #[inline]
    pub(crate) fn vacancy<B: Backing>(&self, groups: &Objects<B>) -> Option<Vacancy> {
        if let Some(index) = self.vacant {
            return Some(Vacancy {
                leaf: self.leaf(groups, index)?,
                index,
            });
        }
        (self.next < self.room).then_some(Vacancy {
            leaf: self.tip,
            index: self.next,
        })
    }

    /// Takes a place that was never taken, if no other is vacant and there is a leaf for it. To
    /// be [filled](fill), or [left](Self::leave_fresh).
    #[inline]
    pub(crate) fn take_fresh(&mut self) -> Option<Vacancy> {
        if self.vacant.is_some() || self.next >= self.room {
            return None;
        }
        self.next += 1;
        Some(Vacancy {
            leaf: self.tip,
            index: self.next - 1,
        })
    }

    /// Undoes the last [`take_fresh`](Self::take_fresh).
    #[inline]
    pub(crate) const fn leave_fresh(&mut self) {
        self.next -= 1;
    }

    /// How many parts the next [`grow`](Self::grow) allocates: leaves (always one) and nodes.
    pub(crate) fn growth(&self) -> u32 {
        if self.room >= self.span() {
            // A new root, and a path below it.
            return 1 + self.height + 1;
        }
        // As many nodes as there are levels, above the leaf, that start anew with this index.
        let mut nodes = 0;
        while nodes + 1 < self.height && self.room.is_multiple_of(1 << bits_below(nodes + 1)) {
            nodes += 1;
        }
        1 + nodes
    }

    /// Adds a leaf for the places from `room` on.
    ///
    /// On refusal the table is as before, except that inner levels may have been added.
    pub(crate) fn grow<B: Backing>(
        &mut self,
        groups: &mut Objects<B>,
        group: GroupId,
        classes: TableClasses,
    ) -> Result<(), Errno> {
        let index = self.room;
        if index >= CAPACITY {
            return Err(Errno::TableFull);
        }
        if index >= self.span() {
            let mut root = Node {
                children: [None; NODE],
            };
            root.children[0] = Some(self.root);
            self.root = groups
                .alloc(group, classes.node, root)
                .map_err(errno)?
                .raw();
            self.height += 1;
        }
        let mut at = Handle::<Node>::from_raw(self.root);
        for level in (1..self.height).rev() {
            let slot = slot_at(index, level);
            let child = groups.get(at).ok_or(Errno::Gone)?.children[slot];
            at = match child {
                Some(child) => Handle::from_raw(child),
                None => {
                    let node = Node {
                        children: [None; NODE],
                    };
                    let node = groups.alloc(group, classes.node, node).map_err(errno)?;
                    groups.get_mut(at).ok_or(Errno::Gone)?.children[slot] = Some(node.raw());
                    node
                }
            };
        }
        let leaf = groups
            .alloc(group, classes.leaf, Leaf::VACANT)
            .map_err(errno)?;
        groups.get_mut(at).ok_or(Errno::Gone)?.children[slot_at(index, 0)] = Some(leaf.raw());
        self.tip = leaf;
        self.room += LEAF as u32;
        Ok(())
    }

    /// Places that the table can have at its height.
    fn span(&self) -> u32 {
        1 << bits_below(self.height)
    }

    /// The leaf of a place below [`end`](Self::end).
    #[inline]
    fn leaf<B: Backing>(&self, groups: &Objects<B>, index: u32) -> Option<Handle<Leaf>> {
        let mut at = self.root;
        for level in (0..self.height).rev() {
            at = groups.get(Handle::<Node>::from_raw(at))?.children[slot_at(index, level)]?;
        }
        Some(Handle::from_raw(at))
    }

    /// Records that a vacancy was filled; `following` is what [`fill`] returned.
    #[inline]
    pub(crate) fn filled(&mut self, vacancy: Vacancy, following: Option<u32>) {
        if vacancy.index == self.next {
            self.next += 1;
        } else {
            self.vacant = following;
        }
    }

    /// Takes the capability out of the table; its place can be taken again.
    pub(crate) fn vacate<B: Backing>(
        &mut self,
        groups: &mut Objects<B>,
        key: CapabilityKey,
        index: u32,
    ) -> Option<Capability> {
        let cell = cell_mut(groups, key)?;
        let Content::Taken(capability) = cell.content else {
            return None;
        };
        cell.generation += 1;
        // A place whose generations are used up is never taken again: a reference to an earlier
        // capability must not become valid once more.
        let reusable = cell.generation < u32::MAX;
        cell.content = Content::Vacant(if reusable { self.vacant } else { None });
        if reusable {
            self.vacant = Some(index);
        }
        Some(capability)
    }

    /// The capability that `selector` names.
    #[inline]
    pub(crate) fn find<'a, B: Backing>(
        &self,
        groups: &'a Objects<B>,
        selector: Selector,
    ) -> Result<(CapabilityKey, &'a Capability), Errno> {
        let (key, capability) = self
            .at(groups, selector.index())
            .ok_or(Errno::BadSelector)?;
        if selector.is_of(key.generation) {
            Ok((key, capability))
        } else {
            Err(Errno::BadSelector)
        }
    }

    /// The capability at an index, if there is one.
    #[inline]
    pub(crate) fn at<'a, B: Backing>(
        &self,
        groups: &'a Objects<B>,
        index: u32,
    ) -> Option<(CapabilityKey, &'a Capability)> {
        if index >= self.next {
            return None;
        }
        let leaf = self.leaf(groups, index)?;
        let position = position(index);
        let Cell {
            generation,
            content,
        } = &groups.get(leaf)?.cells[position];
        let Content::Taken(capability) = content else {
            return None;
        };
        Some((
            CapabilityKey {
                leaf,
                position: position as u8,
                generation: *generation,
            },
            capability,
        ))
    }
}

/// Puts a capability into a place found by [`Table::vacancy`]; returns its selector and the next
/// vacant place.
#[inline]
pub(crate) fn fill<B: Backing>(
    groups: &mut Objects<B>,
    vacancy: Vacancy,
    capability: Capability,
) -> Option<(Selector, Option<u32>)> {
    let cell = &mut groups.get_mut(vacancy.leaf)?.cells[position(vacancy.index)];
    let Content::Vacant(following) = cell.content else {
        return None;
    };
    cell.content = Content::Taken(capability);
    Some((Selector::new(vacancy.index, cell.generation), following))
}

/// The capability at a place in any table, unless it was dropped or its tenant has ended.
#[inline]
pub(crate) fn capability<B: Backing>(
    groups: &Objects<B>,
    key: CapabilityKey,
) -> Option<&Capability> {
    let cell = &groups.get(key.leaf)?.cells[usize::from(key.position)];
    match &cell.content {
        Content::Taken(capability) if cell.generation == key.generation => Some(capability),
        _ => None,
    }
}

/// Like [`capability`], to be changed.
pub(crate) fn capability_mut<B: Backing>(
    groups: &mut Objects<B>,
    key: CapabilityKey,
) -> Option<&mut Capability> {
    match &mut cell_mut(groups, key)?.content {
        Content::Taken(capability) => Some(capability),
        Content::Vacant(_) => None,
    }
}

fn cell_mut<B: Backing>(groups: &mut Objects<B>, key: CapabilityKey) -> Option<&mut Cell> {
    let cell = &mut groups.get_mut(key.leaf)?.cells[usize::from(key.position)];
    (cell.generation == key.generation).then_some(cell)
}

/// Place of an index in its leaf.
#[inline]
const fn position(index: u32) -> usize {
    index as usize % LEAF
}

/// Bits that one child of a node at `level` resolves.
#[inline]
const fn bits_below(level: u32) -> u32 {
    LEAF_BITS + NODE_BITS * level
}

/// Which child of a node leads to an index; the nodes right above the leaves are level 0.
#[inline]
const fn slot_at(index: u32, level: u32) -> usize {
    (index >> bits_below(level)) as usize % NODE
}
