//! What one top-level tenant and its descendants may take in total of things that a budget does
//! not bound enough.
//!
//! Time to give a place in a pool back is in the reclamation budget; the places themselves are
//! finite, and a tenant with a large budget must not take the last one. And a lease limits table
//! elements as it limits memory: in total, whatever number of programs they are spread over.

use leasehold_kernel::Errno;
use leasehold_reclaim::GroupId;
use std::collections::HashMap;

/// What is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    /// Places in the pools of memories and stacks.
    Places,
    /// Elements of tables.
    TableElements,
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
}

impl Tree {
    fn share(&mut self, shared: Shared) -> &mut Share {
        match shared {
            Shared::Places => &mut self.places,
            Shared::TableElements => &mut self.table_elements,
        }
    }
}

/// The shares of all top-level tenants, by their groups.
#[derive(Debug)]
pub(crate) struct Shares {
    most_places: u64,
    trees: HashMap<GroupId, Tree>,
}

impl Shares {
    /// Nobody has taken any of the `places`; a quarter of them is the most that one may.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            most_places: (places as u64 / 4).max(1),
            trees: HashMap::new(),
        }
    }

    /// A top-level tenant begins; its lease allows `table_elements`.
    pub(crate) fn open(&mut self, root: GroupId, table_elements: u64) {
        let share = |most| Share { most, taken: 0 };
        let tree = Tree {
            places: share(self.most_places),
            table_elements: share(table_elements),
        };
        self.trees.insert(root, tree);
    }

    /// Takes `n` for the tenant whose top-level group is `root`.
    ///
    /// # Errors
    /// [`Errno::Limit`] when that is more than its share; nothing has changed then.
    pub(crate) fn take(&mut self, root: GroupId, shared: Shared, n: u64) -> Result<(), Errno> {
        let tree = self.trees.get_mut(&root).ok_or(Errno::Gone)?;
        let share = tree.share(shared);
        if n > share.most - share.taken {
            return Err(Errno::Limit);
        }
        share.taken += n;
        Ok(())
    }

    /// Puts `n` back; nothing happens once the tenant has ended.
    pub(crate) fn give(&mut self, root: GroupId, shared: Shared, n: u64) {
        if let Some(tree) = self.trees.get_mut(&root) {
            let share = tree.share(shared);
            share.taken = share.taken.saturating_sub(n);
        }
    }

    /// The tenant has ended: its places are the pools' to clean.
    pub(crate) fn forget(&mut self, root: GroupId) {
        self.trees.remove(&root);
    }
}
