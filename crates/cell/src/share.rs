//! Limits the total that a top-level tenant and its descendants may take of resources that a budget
//! does not bound sufficiently.
//!
//! Time to give a place in a pool back is in the reclamation budget; the places themselves are
//! finite, and a tenant with a large budget must not take the last one. And a lease limits table
//! elements and the host's memory as it limits linear memory: in total, whatever number of programs
//! they are spread over.

use crate::meter::{Held, Shared};
use leasehold_kernel::Errno;
use leasehold_lease::Memory;
use leasehold_pager::PAGE;
use leasehold_reclaim::GroupId;
use std::collections::BTreeMap;

/// Why a share was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Short {
    /// The tenant has ended.
    Gone,
    /// The share is too small: the size that would be enough.
    Of(Shared, u64),
}

impl From<Short> for Errno {
    fn from(short: Short) -> Self {
        match short {
            Short::Gone => Self::Gone,
            Short::Of(..) => Self::Limit,
        }
    }
}

/// An amount of which `taken` is in use.
#[derive(Debug, Clone, Copy)]
struct Share {
    most: u64,
    taken: u64,
}

/// The shares of one top-level tenant.
#[derive(Debug)]
struct Tree {
    places: Share,
    /// Places that no other tenant can take.
    promised: u64,
    table_elements: Share,
    host_pages: Share,
}

impl Tree {
    /// Of the promised places, those that it does not have yet.
    fn unmet(&self) -> u64 {
        self.promised.saturating_sub(self.places.taken)
    }

    fn share(&mut self, shared: Shared) -> &mut Share {
        match shared {
            Shared::Places => &mut self.places,
            Shared::TableElements => &mut self.table_elements,
            Shared::HostPages => &mut self.host_pages,
        }
    }
}

/// Most places of a tenant, regardless of the cell's number: as many of its executions may wait for
/// one object, and are woken in one step. A step that woke 250 took 32 µs in the kernel and 49 µs
/// in the scheduler.
const MOST_PLACES: u64 = 256;

/// Most places that a tenant is promised.
const MOST_PROMISED: u64 = 32;

/// Places with which a top-level tenant begins. They are never refused here: what is started is for the
/// embedder to say, whatever others were promised.
const BEGINNING: u64 = 2;

/// The shares of all top-level tenants, by their groups.
///
/// Of the places of a cell, three quarters are promised, to as many tenants as there are enough for. The last
/// quarter is for tenants that come later: a tenant that has as many as a promise already takes none of it. So tenants
/// that take all that they are given leave to each other one the tasks that it was promised.
#[derive(Debug)]
pub(crate) struct Shares {
    places: u64,
    most_places: u64,
    /// Places that a tenant is promised while there are any to promise.
    promise: u64,
    /// Promises to all tenants.
    promised: u64,
    /// Places that tenants have.
    taken: u64,
    /// Promised places that tenants do not have yet.
    unmet: u64,
    trees: BTreeMap<GroupId, Tree>,
}

impl Shares {
    /// Of the `places`, none is taken yet. A tenant may have a quarter of them, and not more than [`MOST_PLACES`].
    pub(crate) fn new(places: usize) -> Self {
        let places = places as u64;
        Self {
            places,
            most_places: (places / 4).clamp(1, MOST_PLACES),
            promise: (places / 32).clamp(1, MOST_PROMISED),
            promised: 0,
            taken: 0,
            unmet: 0,
            trees: BTreeMap::new(),
        }
    }

    /// A top-level tenant begins with what its lease allows.
    pub(crate) fn open(&mut self, root: GroupId, lease: &Memory) {
        let share = |most| Share { most, taken: 0 };
        let all = self.promised + self.promise;
        // What others have cannot be promised any more.
        let is_free = self.taken + self.unmet + self.promise <= self.places;
        let promised = match all <= self.places / 4 * 3 && is_free {
            true => self.promise,
            false => 0,
        };
        self.promised += promised;
        self.unmet += promised;
        let tree = Tree {
            places: share(self.most_places),
            promised,
            table_elements: share(lease.table_elements),
            host_pages: share(lease.host_limit().get() / PAGE),
        };
        self.trees.insert(root, tree);
    }

    /// Takes the shares that `n` of a class need, for the tenant whose top-level group is `root`.
    ///
    /// # Errors
    /// When that is more than its share; nothing has changed then.
    pub(crate) fn take(&mut self, root: GroupId, held: Held, n: u64) -> Result<(), Short> {
        let tree = self.trees.get_mut(&root).ok_or(Short::Gone)?;
        let takes = held.takes();
        let before = tree.unmet();
        for &(shared, each) in takes {
            let share = tree.share(shared);
            let more = each.saturating_mul(n);
            let enough = more.saturating_add(share.taken);
            if enough > share.most {
                return Err(Short::Of(shared, enough));
            }
            if shared == Shared::Places {
                let of_others = self.unmet - before;
                let to_come = match enough <= self.promise {
                    true => 0,
                    false => self.places / 4,
                };
                let is_promised = enough <= tree.promised.max(BEGINNING);
                if !is_promised && self.taken + more + of_others + to_come > self.places {
                    return Err(Short::Of(shared, enough));
                }
            }
        }
        for &(shared, each) in takes {
            tree.share(shared).taken += each * n;
            if shared == Shared::Places {
                self.taken += each * n;
            }
        }
        self.unmet = self.unmet - before + tree.unmet();
        Ok(())
    }

    /// How many places a tenant has been promised and does not have: no other tenant can take them.
    pub(crate) fn promised(&self, root: GroupId) -> u64 {
        self.trees.get(&root).map_or(0, Tree::unmet)
    }

    /// Returns the shares that `n` of a class took; does nothing once the tenant has ended.
    pub(crate) fn give(&mut self, root: GroupId, held: Held, n: u64) {
        if let Some(tree) = self.trees.get_mut(&root) {
            let before = (tree.places.taken, tree.unmet());
            for &(shared, each) in held.takes() {
                let share = tree.share(shared);
                share.taken = share.taken.saturating_sub(each * n);
            }
            self.taken = self.taken - before.0 + tree.places.taken;
            self.unmet = self.unmet - before.1 + tree.unmet();
        }
    }

    /// The tenant has ended: its places are the pools' to clean.
    pub(crate) fn forget(&mut self, root: GroupId) {
        if let Some(tree) = self.trees.remove(&root) {
            self.taken -= tree.places.taken;
            self.unmet -= tree.unmet();
            self.promised -= tree.promised;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BEGINNING, MOST_PLACES, MOST_PROMISED, Shares, Short};
    use crate::meter::{Held, Shared};
    use leasehold_lease::Memory;
    use leasehold_reclaim::{Config, CostModel, GroupId, Groups, HeapBacking, Mode, Nanos};
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn a_tenant_has_a_quarter_of_a_cells_places_and_no_more_than_one_step_wakes() {
        let most = [1, 4, 100, 1024, 1 << 20].map(|places| Shares::new(places).most_places);
        assert_eq!(most, [1, 1, 25, MOST_PLACES, MOST_PLACES]);
    }

    /// Names of as many top-level groups.
    fn roots(count: usize) -> Vec<GroupId> {
        let config = Config {
            arena_bytes: 64 << 10,
            keep_resident: 64 << 10,
            mode: Mode::Grouped,
            max_groups: count as u32,
        };
        let costs = CostModel {
            root_ps: 0,
            group_ps: 0,
            scrub_ps: 0,
            chunk_ps: 0,
            page_ps: 0,
        };
        let mut groups = Groups::<_, ()>::new(config, costs, HeapBacking);
        (0..count)
            .map(|_| groups.open_root(Nanos(1)).expect("room"))
            .collect()
    }

    fn is_place(short: Short) -> bool {
        matches!(short, Short::Of(Shared::Places, _))
    }

    #[test]
    fn tenants_that_take_all_places_leave_others_what_they_were_promised() {
        let roots = roots(12);
        let mut shares = Shares::new(1024);
        let (neighbour, hostile) = (roots[0], &roots[1..9]);
        shares.open(neighbour, &Memory::default());
        for root in hostile {
            shares.open(*root, &Memory::default());
            while shares.take(*root, Held::Memory, 1).is_ok() {}
        }
        // What began before them, and what begins after them.
        for root in [neighbour].iter().chain(&roots[9..12]) {
            if *root != neighbour {
                shares.open(*root, &Memory::default());
            }
            let taken = (0..MOST_PROMISED).filter(|_| shares.take(*root, Held::Memory, 1).is_ok());
            assert_eq!(taken.count() as u64, MOST_PROMISED);
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Open(usize),
        Take(usize, u64),
        Give(usize, u64),
        Forget(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        (any::<u8>(), 0..12usize, 1..40u64).prop_map(|(kind, root, n)| match kind % 8 {
            0 => Step::Open(root),
            1..=4 => Step::Take(root, n),
            5 | 6 => Step::Give(root, n),
            _ => Step::Forget(root),
        })
    }

    proptest! {
        #[test]
        fn a_promised_place_is_always_there_and_no_place_is_given_twice(
            places in 1usize..600,
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let roots = roots(12);
            let mut shares = Shares::new(places);
            let mut held = [None::<u64>; 12];
            for step in steps {
                match step {
                    Step::Open(at) if held[at].is_none() => {
                        shares.open(roots[at], &Memory::default());
                        held[at] = Some(0);
                    }
                    Step::Take(at, n) => {
                        let Some(own) = held[at] else { continue };
                        let promised = shares.trees[&roots[at]].promised.max(BEGINNING);
                        match shares.take(roots[at], Held::Memory, n) {
                            Ok(()) => {
                                held[at] = Some(own + n);
                                let is_room = shares.taken + shares.unmet <= places as u64;
                                prop_assert!(is_room || own + n <= promised);
                            }
                            Err(short) => prop_assert!(
                                is_place(short) && (own + n > promised || own + n > shares.most_places)
                            ),
                        }
                    }
                    Step::Give(at, n) => {
                        let Some(own) = held[at] else { continue };
                        let n = n.min(own);
                        shares.give(roots[at], Held::Memory, n);
                        held[at] = Some(own - n);
                    }
                    Step::Forget(at) => {
                        shares.forget(roots[at]);
                        held[at] = None;
                    }
                    Step::Open(_) => {}
                }
                let all: u64 = held.iter().flatten().sum();
                prop_assert_eq!(shares.taken, all);
                let unmet = shares.trees.values().map(|tree| tree.unmet());
                prop_assert_eq!(shares.unmet, unmet.sum::<u64>());
            }
        }
    }
}
