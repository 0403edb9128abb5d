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
use std::collections::HashMap;

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
    table_elements: Share,
    host_pages: Share,
}

impl Tree {
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

/// The shares of all top-level tenants, by their groups.
#[derive(Debug)]
pub(crate) struct Shares {
    most_places: u64,
    trees: HashMap<GroupId, Tree>,
}

impl Shares {
    /// Of the `places`, none is taken yet. A tenant may have a quarter of them, and not more than [`MOST_PLACES`].
    pub(crate) fn new(places: usize) -> Self {
        Self {
            most_places: (places as u64 / 4).clamp(1, MOST_PLACES),
            trees: HashMap::new(),
        }
    }

    /// A top-level tenant begins with what its lease allows.
    pub(crate) fn open(&mut self, root: GroupId, lease: &Memory) {
        let share = |most| Share { most, taken: 0 };
        let tree = Tree {
            places: share(self.most_places),
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
        for &(shared, each) in takes {
            let share = tree.share(shared);
            let enough = each.saturating_mul(n).saturating_add(share.taken);
            if enough > share.most {
                return Err(Short::Of(shared, enough));
            }
        }
        for &(shared, each) in takes {
            tree.share(shared).taken += each * n;
        }
        Ok(())
    }

    /// Returns the shares that `n` of a class took; does nothing once the tenant has ended.
    pub(crate) fn give(&mut self, root: GroupId, held: Held, n: u64) {
        if let Some(tree) = self.trees.get_mut(&root) {
            for &(shared, each) in held.takes() {
                let share = tree.share(shared);
                share.taken = share.taken.saturating_sub(each * n);
            }
        }
    }

    /// The tenant has ended: its places are the pools' to clean.
    pub(crate) fn forget(&mut self, root: GroupId) {
        self.trees.remove(&root);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_PLACES, Shares};

    #[test]
    fn a_tenant_has_a_quarter_of_a_cells_places_and_no_more_than_one_step_wakes() {
        let most = [1, 4, 100, 1024, 1 << 20].map(|places| Shares::new(places).most_places);
        assert_eq!(most, [1, 1, 25, MOST_PLACES, MOST_PLACES]);
    }
}
