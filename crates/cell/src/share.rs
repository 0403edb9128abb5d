//! Places in the cell's pools, shared fairly: what one top-level tenant and its descendants may
//! take of the memories and stacks that all tenants of the cell share.
//!
//! Time to give a place back is in the reclamation budget; the places themselves are finite, and a
//! tenant with a large budget must not take the last one.

use leasehold_kernel::Errno;
use leasehold_reclaim::GroupId;
use std::collections::HashMap;

/// How many places each top-level tenant has taken.
#[derive(Debug)]
pub(crate) struct Shares {
    most: u64,
    taken: HashMap<GroupId, u64>,
}

impl Shares {
    /// Nobody has taken any of the `places`; a quarter of them is the most that one may.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            most: (places as u64 / 4).max(1),
            taken: HashMap::new(),
        }
    }

    /// Takes `n` places for the tenant whose top-level group is `root`.
    ///
    /// # Errors
    /// [`Errno::Limit`] when that is more than its share; nothing has changed then.
    pub(crate) fn take(&mut self, root: GroupId, n: u64) -> Result<(), Errno> {
        let taken = self.taken.entry(root).or_default();
        if n > self.most - *taken {
            return Err(Errno::Limit);
        }
        *taken += n;
        Ok(())
    }

    /// Puts `n` places back.
    pub(crate) fn give(&mut self, root: GroupId, n: u64) {
        if let Some(taken) = self.taken.get_mut(&root) {
            *taken = taken.saturating_sub(n);
        }
    }

    /// The tenant has ended: its places are the pools' to clean.
    pub(crate) fn forget(&mut self, root: GroupId) {
        self.taken.remove(&root);
    }
}
