//! What may stay resident in ranges that are kept warm: a share for each keeper.
//!
//! Were it first come, first served, keepers that are asked for nothing more would hold what those that came later need.
//! So a keeper may have as much as there is, divided by the keepers that have any then. A keeper that came before others
//! gives nothing back: *n* of them have `1 + ln n` times what there is for one at the most.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address_range::PAGE;

/// An owner of ranges without a user that show what its next user wants: a number that the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keeper(pub u64);

/// Bytes that may stay resident, and what keepers have of them.
#[derive(Debug)]
pub(crate) struct WarmRoom {
    bytes: usize,
    /// Those of keepers that have any. Taken for some nanoseconds by the thread of the cell, which is alone.
    held: Mutex<HashMap<Keeper, usize>>,
}

/// Bytes that a keeper has resident in a range, until this is dropped.
#[derive(Debug)]
pub(crate) struct Resident {
    keeper: Keeper,
    bytes: usize,
    room: Arc<WarmRoom>,
}

impl WarmRoom {
    /// So many bytes for one keeper, of which some hundred may come without an allocation.
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            held: Mutex::new(HashMap::with_capacity(512)),
        })
    }

    /// Gives a keeper as much of `wanted` bytes as its share has left, in whole pages.
    pub(crate) fn take(self: &Arc<Self>, keeper: Keeper, wanted: usize) -> Resident {
        let mut held = self.held();
        let own = held.get(&keeper).copied().unwrap_or(0);
        let others = held.len() - usize::from(own > 0);
        let share = self.bytes / (others + 1);
        let bytes = wanted.min(share.saturating_sub(own)) / PAGE * PAGE;
        if bytes > 0 {
            *held.entry(keeper).or_insert(0) += bytes;
        }
        drop(held);
        Resident {
            keeper,
            bytes,
            room: self.clone(),
        }
    }

    /// What all keepers have, bytes.
    pub(crate) fn taken(&self) -> usize {
        self.held().values().sum()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Keeper, usize>> {
        // Every update leaves the sums right.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resident {
    /// How many.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        if let Entry::Occupied(mut held) = self.room.held().entry(self.keeper) {
            *held.get_mut() -= self.bytes;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Keeper, Resident, WarmRoom};
    use crate::address_range::PAGE;
    use std::sync::Arc;

    const BYTES: usize = 120 * PAGE;

    /// What a keeper gets that takes page after page.
    fn fill(room: &Arc<WarmRoom>, keeper: u64) -> Vec<Resident> {
        let pages = std::iter::repeat_with(|| room.take(Keeper(keeper), PAGE));
        pages.take_while(|page| page.bytes() > 0).collect()
    }

    #[test]
    fn a_keeper_has_its_share_however_much_others_have() {
        let room = WarmRoom::new(BYTES);
        let shares: Vec<_> = (0..6).map(|keeper| fill(&room, keeper)).collect();
        let pages: Vec<_> = shares.iter().map(Vec::len).collect();
        assert_eq!(pages, [120, 60, 40, 30, 24, 20]);
        let bound = BYTES as f64 * (1.0 + 6.0_f64.ln());
        assert!(room.taken() as f64 <= bound, "{} of {bound}", room.taken());
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_a_keeper_without_any_counts_no_more() {
        let room = WarmRoom::new(BYTES);
        let one = fill(&room, 1);
        let mut two = fill(&room, 2);
        assert_eq!(two.len(), 60);
        two.truncate(50);
        two.extend(fill(&room, 2));
        assert_eq!(two.len(), 60);
        drop(one);
        two.extend(fill(&room, 2));
        assert_eq!((two.len(), room.taken()), (120, BYTES));
        drop(two);
        assert_eq!(room.taken(), 0);
        assert_eq!(room.take(Keeper(3), 5 * PAGE + 1).bytes(), 5 * PAGE);
    }
}
