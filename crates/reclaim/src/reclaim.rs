//! Ending a group: in bulk, in bounded steps.
//!
//! 1. **Mark**: every handle into the group and the groups below it is stale.
//! 2. **Sever**: what its scrub entries name is severed, one by one.
//! 3. **Release**: records and memory can be used again: *slot reusable*.
//! 4. **Discard**: an arena that grew beyond what is kept resident was switched for a clean one,
//!    and gives its pages back in slices: *pages returned*.
//!
//! Ending a root takes one step for 1 and one for 3, for any number of objects and groups. Ending a
//! child alone visits the groups below it in 1 and 3. In
//! [`Mode::Individual`](crate::Mode::Individual), 3 visits every object as well.

use crate::backing::Backing;
use crate::class::{CHILD, RESIDUE};
use crate::cost::{Mode, PAGE};
use crate::group::{GroupId, NIL};
use crate::groups::Groups;

/// Pages that one slice of clean-up gives back.
pub const SLICE: usize = 64;

/// Severs what scrub entries name.
///
/// Implemented for closures `FnMut(&mut Groups<B, L>, L)`. It may use the groups freely; the
/// group that is ending is stale for it already.
pub trait Sever<B: Backing, L: Copy> {
    /// Severs one link. The entry is off its list already.
    fn sever(&mut self, groups: &mut Groups<B, L>, link: L);

    /// Called for every object that [`Mode::Individual`](crate::Mode::Individual) takes back.
    fn release(&mut self, class: &'static str) {
        let _ = class;
    }
}

impl<B: Backing, L: Copy, F: FnMut(&mut Groups<B, L>, L)> Sever<B, L> for F {
    fn sever(&mut self, groups: &mut Groups<B, L>, link: L) {
        self(groups, link);
    }
}

/// How far a reclamation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The group's memory is not reusable yet.
    Working,
    /// Everything can be used again; pages are still to be given back.
    Reusable,
    /// Nothing is left to do.
    Done,
}

/// The result of a reclamation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Outcome {
    /// Units of work until everything was reusable: one for each mark, severed entry, visited
    /// group or object, and release.
    pub steps: u64,
    /// Scrub entries severed.
    pub scrubbed: u64,
    /// Groups ended.
    pub groups: u64,
    /// Objects taken back one by one.
    pub objects: u64,
    /// Pages that stay resident for the next group.
    pub pages_kept: u64,
    /// Pages given back by this reclamation (pages that never were resident included).
    pub pages_discarded: u64,
    /// Slices that they were given back in.
    pub slices: u64,
}

/// A record, as long as its generation does not change.
#[derive(Debug, Clone, Copy)]
struct RecordKey {
    index: u32,
    generation: u32,
}

impl RecordKey {
    fn of<B: Backing, L: Copy>(groups: &Groups<B, L>, index: u32) -> Self {
        RecordKey {
            index,
            generation: groups.table.generation(index),
        }
    }

    fn holds<B: Backing, L: Copy>(self, groups: &Groups<B, L>) -> bool {
        groups.table.generation(self.index) == self.generation
    }
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Making the groups below a child stale, parents first; `up` on the way back.
    Mark { at: RecordKey, up: bool },
    /// Taking groups apart one by one, children first.
    Unwind { at: RecordKey },
    /// Severing the scrub entries of a root's tree, then releasing it as a whole.
    Sever,
    /// Giving the pages of a switched arena back.
    Discard { arena: u32, turn: u32 },
    /// Nothing left to do.
    Done,
}

/// A reclamation in progress.
///
/// If it is dropped before [`Progress::Reusable`], the group's memory and budget are not used again
/// until its root ends. Nothing of the group can be reached in either case.
#[derive(Debug)]
#[must_use = "a group that is only marked keeps its memory"]
pub struct Reclaim {
    top: RecordKey,
    root: RecordKey,
    phase: Phase,
    outcome: Outcome,
}

impl Reclaim {
    /// The work done so far.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Does up to `limit` units of work (at least one), or gives one slice of pages back.
    ///
    /// A unit is constant time, apart from what `sever` does. If the group's root begins to end
    /// in between, that reclamation takes the rest over and this one is done.
    pub fn step<B: Backing, L: Copy>(
        &mut self,
        groups: &mut Groups<B, L>,
        sever: &mut (impl Sever<B, L> + ?Sized),
        limit: u32,
    ) -> Progress {
        if let Phase::Discard { arena, turn } = self.phase {
            self.discard(groups, arena, turn);
        }
        let mut rest = limit.max(1);
        while rest > 0 && self.is_working() {
            // Severing may have ended the root, which has taken over then.
            if !(self.top.holds(groups) && self.root.holds(groups)) {
                self.phase = Phase::Done;
                break;
            }
            match self.phase {
                Phase::Mark { at, up } => self.mark(groups, at, up),
                Phase::Unwind { at } => self.unwind(groups, sever, at),
                Phase::Sever => self.sever(groups, sever),
                Phase::Discard { .. } | Phase::Done => {}
            }
            self.outcome.steps += 1;
            rest -= 1;
        }
        match self.phase {
            Phase::Discard { .. } => Progress::Reusable,
            Phase::Done => Progress::Done,
            _ => Progress::Working,
        }
    }

    const fn is_working(&self) -> bool {
        !matches!(self.phase, Phase::Discard { .. } | Phase::Done)
    }

    fn mark<B: Backing, L: Copy>(&mut self, groups: &mut Groups<B, L>, at: RecordKey, up: bool) {
        // Another reclamation may have released the place: start again, marks are kept.
        let (index, up) = if at.holds(groups) {
            (at.index, up)
        } else {
            (self.top.index, false)
        };
        if !up {
            groups.table.mark(index);
        }
        let record = groups.table.at(index);
        let (next, up) = if !up && record.first_child != NIL {
            (record.first_child, false)
        } else if index == self.top.index {
            self.phase = Phase::Unwind { at: self.top };
            return;
        } else {
            match groups.table.sibling(index) {
                NIL => (record.parent, true),
                sibling => (sibling, false),
            }
        };
        self.phase = Phase::Mark {
            at: RecordKey::of(groups, next),
            up,
        };
    }

    fn unwind<B: Backing, L: Copy>(
        &mut self,
        groups: &mut Groups<B, L>,
        sever: &mut (impl Sever<B, L> + ?Sized),
        at: RecordKey,
    ) {
        let index = if at.holds(groups) {
            at.index
        } else {
            self.top.index
        };
        let record = groups.table.at(index);
        let (child, parent) = (record.first_child, record.parent);
        if child != NIL {
            self.phase = Phase::Unwind {
                at: RecordKey::of(groups, child),
            };
        } else if let Some(link) = groups.pop_entry(index) {
            self.outcome.scrubbed += 1;
            sever.sever(groups, link);
        } else if let Some(class) = groups.pop_object(index) {
            self.outcome.objects += 1;
            sever.release(class);
        } else {
            self.outcome.groups += 1;
            if index == self.top.index {
                self.phase = Phase::Done;
            } else {
                self.phase = Phase::Unwind {
                    at: RecordKey::of(groups, parent),
                };
            }
            if parent == NIL {
                groups.table.release_root(index);
            } else {
                groups.release_child(index, parent);
            }
        }
    }

    fn sever<B: Backing, L: Copy>(
        &mut self,
        groups: &mut Groups<B, L>,
        sever: &mut (impl Sever<B, L> + ?Sized),
    ) {
        let root = groups.table.at(self.root.index);
        let (scrubbed, members, arena) = (root.scrubbed, root.members(), root.arena);
        if scrubbed != NIL {
            if let Some(link) = groups.pop_entry(scrubbed) {
                self.outcome.scrubbed += 1;
                sever.sever(groups, link);
            }
            return;
        }
        self.outcome.groups += 1 + u64::from(members);
        groups.table.release_root(self.root.index);
        let pages = groups.arenas[arena as usize].reset();
        if pages * PAGE <= groups.config.keep_resident {
            self.outcome.pages_kept = pages as u64;
            groups.idle.push(arena);
            self.phase = Phase::Done;
        } else {
            let turn = groups.switch_out(arena);
            self.phase = Phase::Discard { arena, turn };
        }
    }

    fn discard<B: Backing, L: Copy>(&mut self, groups: &mut Groups<B, L>, arena: u32, turn: u32) {
        let waits = |groups: &Groups<B, L>| groups.arenas[arena as usize].turn == turn;
        if waits(groups) {
            self.outcome.pages_discarded += groups.discard(arena, SLICE) as u64;
            self.outcome.slices += 1;
        }
        // `clean_step` may have done the rest.
        if !waits(groups) {
            self.phase = Phase::Done;
        }
    }
}

impl<B: Backing, L: Copy> Groups<B, L> {
    /// Begins to end a group: it is stale at once. `None` if it has ended already.
    pub fn begin_reclaim(&mut self, group: GroupId) -> Option<Reclaim> {
        let index = self.table.alive(group)?;
        self.table.mark(index);
        let record = self.table.at(index);
        let is_root = record.root == index;
        let (top, root) = (RecordKey::of(self, index), RecordKey::of(self, record.root));
        let phase = match self.config.mode {
            Mode::Grouped if is_root => Phase::Sever,
            // The groups below a root went stale with it.
            Mode::Individual if is_root => Phase::Unwind { at: top },
            _ => Phase::Mark { at: top, up: false },
        };
        let outcome = Outcome {
            steps: u64::from(is_root),
            ..Outcome::default()
        };
        Some(Reclaim {
            top,
            root,
            phase,
            outcome,
        })
    }

    /// Ends a group and everything below it, pages returned included. Does nothing if it has
    /// ended already.
    ///
    /// Work: for a root, its tree's scrub entries and its arena's pages beyond
    /// [`Config::keep_resident`](crate::Config::keep_resident); for a child alone, the groups
    /// below it and their scrub entries.
    pub fn reclaim(&mut self, group: GroupId, sever: &mut (impl Sever<B, L> + ?Sized)) -> Outcome {
        let Some(mut reclaim) = self.begin_reclaim(group) else {
            return Outcome::default();
        };
        while reclaim.step(self, sever, u32::MAX) != Progress::Done {}
        reclaim.outcome
    }

    /// Gives up to `pages` pages of switched arenas back, and returns how many are left.
    pub fn clean_step(&mut self, pages: usize) -> usize {
        if let Some(&arena) = self.switched.last() {
            self.discard(arena, pages);
        }
        self.switched
            .iter()
            .map(|&arena| self.arenas[arena as usize].dirty_pages())
            .sum()
    }

    /// Sets an arena aside for clean-up; returns the turn that lasts until it is clean.
    fn switch_out(&mut self, arena: u32) -> u32 {
        let waiting = &mut self.arenas[arena as usize];
        waiting.place = self.switched.len();
        waiting.turn = waiting.turn.wrapping_add(1);
        self.switched.push(arena);
        waiting.turn
    }

    /// Gives up to `pages` pages of a waiting arena back, and returns how many it gave.
    fn discard(&mut self, arena: u32, pages: usize) -> usize {
        let waiting = &mut self.arenas[arena as usize];
        let pages = waiting.discard(&mut self.backing, pages);
        if waiting.dirty_pages() == 0 {
            waiting.turn = waiting.turn.wrapping_add(1);
            let place = waiting.place;
            self.switched.swap_remove(place);
            if let Some(&moved) = self.switched.get(place) {
                self.arenas[moved as usize].place = place;
            }
            self.idle.push(arena);
        }
        pages
    }

    /// Gives the memory of a childless, scrubbed group back to its arena, its record to the
    /// table, and its budget to its parent.
    fn release_child(&mut self, index: u32, parent: u32) {
        let record = self.table.at_mut(index);
        if self.slab.is_none() {
            record
                .slots
                .dissolve(&mut self.arenas[record.arena as usize]);
        }
        let (budget, tally) = (record.budget, *record.tally());
        let arena = &mut self.arenas[record.arena as usize];
        arena.below.part(&tally);
        let above = self.table.at_mut(parent);
        above.budget.rejoin(&budget);
        above.budget.refund(self.costs.group_ps);
        above.discount(arena, CHILD, 1);
        above.count(arena, RESIDUE, budget.resident());
        self.table.release_child(index);
    }
}
