//! All reclamation groups of one cell: opening groups, charging them, and taking slots.

use alloc::vec::Vec;

use crate::arena::Arena;
use crate::backing::Backing;
use crate::budget::{Budget, Refused};
use crate::class::{CHILD, CHUNK, Class, Classes, MEMORY, ROOT, Resource, SCRUB};
use crate::cost::{Config, CostModel, Mode};
use crate::group::{GroupId, NIL, Record, Table};
use crate::nanos::{Nanos, Picos};
use crate::slots::{Slot, Slots};

/// All reclamation groups of one cell.
///
/// Single-threaded by construction (neither `Send` nor `Sync`): a cell owns its groups, and no
/// operation takes a lock. `B` provides arenas; `L` is what a scrub entry says must be severed.
///
/// Every operation is refused with [`Refused::Stale`], or answered with `None`, when the group
/// has ended. Unless it says otherwise, an operation takes constant time.
#[derive(Debug)]
pub struct Groups<B: Backing, L: Copy> {
    pub(crate) config: Config,
    pub(crate) costs: CostModel,
    pub(crate) backing: B,
    pub(crate) classes: Classes,
    pub(crate) table: Table,
    pub(crate) arenas: Vec<Arena>,
    /// Arenas without a group, clean or kept resident; the last one is the warmest.
    pub(crate) idle: Vec<u32>,
    /// Arenas that were switched out and wait for clean-up.
    pub(crate) switched: Vec<u32>,
    /// In `Mode::Individual`: the slab of all groups.
    pub(crate) slab: Option<Slots>,
    pub(crate) link: core::marker::PhantomData<fn(L) -> L>,
}

/// The cost of a slot if its memory is new: units of a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Price {
    pub(crate) class: u8,
    pub(crate) units: u64,
}

impl<B: Backing, L: Copy> Groups<B, L> {
    /// Bytes of one group's record in the record table.
    pub const RECORD_BYTES: usize = core::mem::size_of::<Record>();

    /// Makes an empty table of groups.
    ///
    /// Allocates the record table for `config.max_groups` at once, and room to know as many arenas: no step moves a table that has
    /// become too small. Arenas are reserved when root groups are opened.
    ///
    /// # Panics
    /// If 4,096 `Groups` exist in this process, or the record table cannot be allocated.
    pub fn new(config: Config, costs: CostModel, backing: B) -> Self {
        let table = Table::new(config.max_groups);
        let arenas = config.max_groups as usize;
        Groups {
            config,
            costs,
            backing,
            classes: Classes::new(table.instance(), &costs),
            table,
            arenas: Vec::with_capacity(arenas),
            idle: Vec::with_capacity(arenas),
            switched: Vec::with_capacity(arenas),
            slab: None,
            link: core::marker::PhantomData,
        }
    }

    /// Registers a class of objects: a fresh slot is charged `ps` picoseconds.
    ///
    /// `ps` is the slot's share of giving its page back and whatever else an object of the class
    /// costs in bulk; the slot takes 8 bytes more than `T`.
    ///
    /// `T` must not need drop, since nothing visits it when its group ends, must be aligned to
    /// at most 8 bytes and take at most [`OBJECT_MAX`](crate::OBJECT_MAX) bytes: this is checked
    /// at compile time.
    ///
    /// ```compile_fail
    /// # use leasehold_reclaim::{Class, Groups, HeapBacking};
    /// fn cannot(groups: &mut Groups<HeapBacking, ()>) -> Class<String> {
    ///     groups.register("text", 100) // String needs drop
    /// }
    /// # fn main() { let _ = cannot as fn(&mut _) -> _; }
    /// ```
    ///
    /// # Panics
    /// If [`MAX_CLASSES`](crate::MAX_CLASSES) classes are registered already.
    pub fn register<T: 'static>(&mut self, name: &'static str, ps: u64) -> Class<T> {
        const {
            assert!(
                !core::mem::needs_drop::<T>(),
                "an object in an arena is never dropped"
            );
            assert!(
                core::mem::align_of::<T>() <= 8,
                "objects are aligned to 8 bytes"
            );
            assert!(
                core::mem::size_of::<T>() <= crate::object::OBJECT_MAX,
                "object too large"
            );
        }
        self.classes.register(name, ps)
    }

    /// Registers a class of things held elsewhere, at `ps` picoseconds a unit.
    ///
    /// # Panics
    /// If [`MAX_CLASSES`](crate::MAX_CLASSES) classes are registered already.
    pub fn register_resource(&mut self, name: &'static str, ps: u64) -> Resource {
        self.classes.register_resource(name, ps)
    }

    /// Opens a top-level group with an arena of its own.
    ///
    /// Charges [`CostModel::root_ps`] to the new group.
    ///
    /// # Errors
    /// [`Refused::Budget`] if the budget does not cover the root itself,
    /// [`Refused::TooManyGroups`], and [`Refused::Memory`] if no arena is idle and none can be
    /// reserved.
    pub fn open_root(&mut self, budget: Nanos) -> Result<GroupId, Refused> {
        let mut budget = Budget::new(budget.to_picos());
        let ps = budget.admit(Some(self.costs.root_ps))?;
        if !self.table.has_room() {
            return Err(Refused::TooManyGroups);
        }
        let arena = match self.config.mode {
            Mode::Grouped => self.take_arena()?,
            Mode::Individual => self.shared_slab()?,
        };
        budget.spend(ps);
        let space = self.arenas[arena as usize].space();
        let index = self.table.open_root(arena, space, budget);
        let record = self.table.at_mut(index);
        record.count(&mut self.arenas[arena as usize], ROOT, 1);
        Ok(record.id())
    }

    /// Limits the memory of a root's arena, from which its objects and those of all groups below it are, to
    /// `bytes`; none of it is taken back for that. With individual reclamation there is one slab for all roots,
    /// and no limit.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn limit_root(&mut self, root: GroupId, bytes: u64) -> Result<(), Refused> {
        let index = self.table.alive(root).ok_or(Refused::Stale)?;
        if self.config.mode == Mode::Grouped {
            self.arenas[self.table.at(index).arena as usize].limit(bytes);
        }
        Ok(())
    }

    /// Opens a group below `parent`, with a budget carved from the parent's.
    ///
    /// Takes `budget` and [`CostModel::group_ps`] from what the parent has left; both come back
    /// when the child ends, except for what the pages it touched still cost.
    ///
    /// # Errors
    /// [`Refused::Stale`], [`Refused::Budget`] and [`Refused::TooManyGroups`].
    pub fn open_child(&mut self, parent: GroupId, budget: Nanos) -> Result<GroupId, Refused> {
        let above = self.table.alive(parent).ok_or(Refused::Stale)?;
        let carved = budget.to_picos();
        let group_ps = self.costs.group_ps;
        self.table
            .at(above)
            .budget
            .admit(carved.0.checked_add(group_ps))?;
        if !self.table.has_room() {
            return Err(Refused::TooManyGroups);
        }
        let record = self.table.at_mut(above);
        record.budget.spend(group_ps);
        record.budget.carve(carved.0);
        let arena = &mut self.arenas[record.arena as usize];
        record.count(arena, CHILD, 1);
        let index = self.table.open_child(above, Budget::new(carved));
        Ok(self.table.at(index).id())
    }

    /// Returns whether the group has not ended.
    #[inline]
    pub fn is_alive(&self, group: GroupId) -> bool {
        self.table.alive(group).is_some()
    }

    /// The root of the group's tree.
    pub fn root_of(&self, group: GroupId) -> Option<GroupId> {
        self.table
            .living(self.table.at(self.table.alive(group)?).root)
    }

    /// The group that this one was opened below; `None` for a root, and while the parent is
    /// ending.
    pub fn parent_of(&self, group: GroupId) -> Option<GroupId> {
        match self.table.at(self.table.alive(group)?).parent {
            NIL => None,
            parent => self.table.living(parent),
        }
    }

    /// Charges `n` units of a resource to the group. Touches the group's own record only.
    ///
    /// # Errors
    /// [`Refused::Stale`] and [`Refused::Budget`].
    ///
    /// # Panics
    /// If the resource was registered with another `Groups`.
    #[inline]
    pub fn charge(&mut self, group: GroupId, resource: Resource, n: u64) -> Result<(), Refused> {
        let index = self.table.alive(group).ok_or(Refused::Stale)?;
        let class = self.classes.resource(resource);
        let ps = self.classes.ps(class).checked_mul(n);
        let record = self.table.at_mut(index);
        let ps = record.budget.admit(ps)?;
        record.count(&mut self.arenas[record.arena as usize], class, n);
        record.budget.spend(ps);
        Ok(())
    }

    /// The charge for a unit of a resource, in picoseconds.
    ///
    /// # Panics
    /// If the resource was registered with another `Groups`.
    #[inline]
    pub fn price_ps(&self, resource: Resource) -> u64 {
        self.classes.ps(self.classes.resource(resource))
    }

    /// Takes back the charge for `n` units of a resource, or for as many as are charged. Does
    /// nothing if the group has ended.
    ///
    /// # Panics
    /// If the resource was registered with another `Groups`.
    #[inline]
    pub fn refund(&mut self, group: GroupId, resource: Resource, n: u64) {
        let class = self.classes.resource(resource);
        if let Some(index) = self.table.alive(group) {
            let ps = self.classes.ps(class);
            let record = self.table.at_mut(index);
            let n = n.min(record.tally().of(class));
            record.discount(&mut self.arenas[record.arena as usize], class, n);
            record.budget.refund(n * ps);
        }
    }

    /// The budget that the group has left; `None` if it has ended.
    #[inline]
    pub fn left(&self, group: GroupId) -> Option<Picos> {
        let index = self.table.alive(group)?;
        Some(Picos(self.table.at(index).budget.left()))
    }

    /// The set-up.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The cost model.
    pub const fn costs(&self) -> &CostModel {
        &self.costs
    }

    /// Returns an arena for a new root group: the one used last, or a new one.
    fn take_arena(&mut self) -> Result<u32, Refused> {
        match self.idle.pop() {
            Some(arena) => Ok(arena),
            None => self.reserve_arena(),
        }
    }

    fn reserve_arena(&mut self) -> Result<u32, Refused> {
        let bytes = self.config.arena_size();
        let arena = Arena::reserve(&mut self.backing, bytes).ok_or(Refused::Memory)?;
        self.arenas.push(arena);
        Ok(self.arenas.len() as u32 - 1)
    }

    /// The arena of the shared slab.
    fn shared_slab(&mut self) -> Result<u32, Refused> {
        if self.slab.is_none() {
            let arena = self.reserve_arena()?;
            self.slab = Some(Slots::new(self.arenas[arena as usize].space()));
        }
        // The slab's arena is the only one in this mode.
        Ok(0)
    }

    /// Takes a slot of `units` for the group, recycled from `list` or new. A new one is charged
    /// `price`; in both cases `fixed` picoseconds must fit as well, which the caller charges.
    #[inline]
    pub(crate) fn take_slot(
        &mut self,
        index: u32,
        list: u8,
        class: u8,
        units: u32,
        price: Price,
        fixed: u64,
    ) -> Result<Slot, Refused> {
        let record = self.table.at_mut(index);
        if fixed > 0 {
            record.budget.admit(Some(fixed))?;
        }
        if let Some(slab) = &mut self.slab {
            let slot = slab
                .take(&mut self.arenas[0], units, class, list)
                .ok_or(Refused::Memory)?;
            // Scrub entries are on a list of their own.
            if class != SCRUB {
                record.own(&slot);
            }
            return Ok(slot);
        }
        if let Some(slot) = record.slots.recycle(list) {
            return Ok(slot);
        }
        let ps = self.classes.ps(price.class).saturating_mul(price.units);
        let whole = ps.saturating_add(fixed);
        let arena = &mut self.arenas[record.arena as usize];
        if !record.slots.has_room(units) {
            record.make_room(arena, units, whole, self.costs.chunk_ps)?;
        } else {
            record.budget.admit(Some(whole))?;
        }
        let slot = record.slots.carve(units, class, list);
        record.spend(arena, price, ps);
        Ok(slot)
    }

    /// The slots that the group's objects come from.
    #[inline]
    pub(crate) fn slots_of(&mut self, index: u32) -> &mut Slots {
        match &mut self.slab {
            Some(slab) => slab,
            None => &mut self.table.at_mut(index).slots,
        }
    }

    /// Price of `bytes` of memory that hold no class's objects.
    pub(crate) const fn memory_price(bytes: usize) -> Price {
        Price {
            class: MEMORY,
            units: bytes.div_ceil(crate::class::GRANULE) as u64,
        }
    }
}

impl Record {
    /// Makes room for a slot of `units` in the current chunk, or gets and charges another;
    /// `whole` is charged afterwards and must fit beside it.
    #[cold]
    #[inline(never)]
    fn make_room(
        &mut self,
        arena: &mut Arena,
        units: u32,
        whole: u64,
        chunk_ps: u64,
    ) -> Result<(), Refused> {
        self.budget.admit(Some(whole))?;
        if self.slots.go_on(units) {
            return Ok(());
        }
        self.budget.admit(whole.checked_add(chunk_ps))?;
        if !self.slots.grow(arena, units) {
            return Err(Refused::Memory);
        }
        self.spend(
            arena,
            Price {
                class: CHUNK,
                units: 1,
            },
            chunk_ps,
        );
        Ok(())
    }

    /// Puts a slot of the shared slab that was just taken on the group's list.
    #[inline]
    pub(crate) fn own(&mut self, slot: &Slot) {
        self.owned.push(slot);
    }

    /// Charges for memory; the budget admitted `ps`.
    #[inline]
    pub(crate) fn spend(&mut self, arena: &mut Arena, price: Price, ps: u64) {
        self.count(arena, price.class, price.units);
        self.budget.spend(ps);
        self.budget.settle(ps & self.slots.fresh());
    }

    /// Returns whether the group has scrub entries.
    pub(crate) const fn is_scrubbed(&self) -> bool {
        !self.scrub.is_empty()
    }
}

impl<B: Backing, L: Copy> Drop for Groups<B, L> {
    fn drop(&mut self) {
        for arena in self.arenas.drain(..) {
            arena.release(&mut self.backing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Groups;
    use crate::{Config, CostModel, HeapBacking, Mode, Nanos};
    use alloc::vec::Vec;

    #[test]
    fn no_table_of_groups_is_moved_when_root_groups_are_opened() {
        let config = Config {
            arena_bytes: 64 << 10,
            keep_resident: 0,
            mode: Mode::Grouped,
            max_groups: 100,
        };
        let costs = CostModel {
            root_ps: 1,
            group_ps: 1,
            scrub_ps: 1,
            chunk_ps: 1,
            page_ps: 1,
        };
        let mut groups: Groups<_, ()> = Groups::new(config, costs, HeapBacking);
        let arenas = groups.arenas.as_ptr();
        let opened: Vec<_> = (0..100)
            .map(|_| groups.open_root(Nanos(1_000_000)).expect("opened"))
            .collect();
        assert!(
            groups.open_root(Nanos(1_000_000)).is_err(),
            "there is no room for more"
        );
        for group in opened {
            groups.reclaim(group, &mut |_: &mut _, _| {});
        }
        let room = |list: &Vec<u32>| list.capacity() >= 100;
        assert_eq!(groups.arenas.as_ptr(), arenas);
        assert!(room(&groups.idle) && room(&groups.switched));
    }
}
