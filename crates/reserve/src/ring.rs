//! The replenishment queue of a sporadic server: a ring of `(t, b)` (SPR §IV-A, fig. 8).
//!
//! The head is the budget that can be used from its time on; the others are what comes back
//! later, sorted by time. Nothing enters or leaves the ring but by a change of contract: the
//! amounts in it always add up to the budget. That makes the most frequent batch cheap: when the
//! last entry is due, all are, and together they are the whole budget.

use crate::contract::{Nanos, REPLENISHMENTS_MAX};
use crate::id::Index;
use crate::timers::Timers;

/// Places of a ring, of which it uses as many as its capacity, rounded up to a power of two.
pub(crate) const SLOTS: usize = REPLENISHMENTS_MAX as usize;

/// An entry of a replenishment queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replenishment {
    /// The instant from which it can be used.
    pub at: Nanos,
    /// How much budget it is.
    pub amount: Nanos,
}

/// Who is told where replenishments are pending.
#[derive(Debug)]
pub(crate) enum Watch<'a> {
    /// The shielded scheduler does not need to know.
    Nobody,
    /// The eager scheduler has a timer for each of a server's.
    Timers(&'a mut Timers, Index),
}

impl Watch<'_> {
    /// The replenishment in `slot` is pending until `at`.
    #[inline]
    pub(crate) fn pending(&mut self, slot: u32, at: Nanos) {
        if let Watch::Timers(timers, server) = self {
            timers.set_replenishment(*server, slot, at);
        }
    }

    /// No replenishment is pending in `slot` any more.
    #[inline]
    pub(crate) fn gone(&mut self, slot: u32) {
        if let Watch::Timers(timers, server) = self {
            timers.cancel_replenishment(*server, slot);
        }
    }

    #[inline]
    const fn is_anybody(&self) -> bool {
        matches!(self, Watch::Timers(..))
    }
}

/// Invariants: `1 ≤ len ≤ capacity`; times do not decrease from the head on; the amounts are
/// positive and add up to `total`.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    head: u32,
    len: u32,
    capacity: u32,
    mask: u32,
    total: Nanos,
    slots: [Replenishment; SLOTS],
}

impl Ring {
    /// A ring with the whole budget available from `at` on (SPR fig. 8a).
    pub(crate) const fn new(capacity: u32, at: Nanos, budget: Nanos) -> Self {
        Ring {
            head: 0,
            len: 1,
            capacity,
            mask: capacity.next_power_of_two() - 1,
            total: budget,
            slots: [Replenishment { at, amount: budget }; SLOTS],
        }
    }

    /// Where the `i`-th entry from the head on is. The second operation changes nothing, since
    /// the mask is below `SLOTS`; it tells the compiler so.
    #[inline]
    const fn slot(&self, i: u32) -> usize {
        ((self.head + i) & self.mask) as usize % SLOTS
    }

    /// The `i`-th entry from the head on.
    #[inline]
    pub(crate) const fn entry(&self, i: u32) -> Replenishment {
        self.slots[self.slot(i)]
    }

    #[inline]
    pub(crate) const fn head(&self) -> Replenishment {
        self.entry(0)
    }

    #[inline]
    pub(crate) const fn last(&self) -> Replenishment {
        self.entry(self.len - 1)
    }

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// The sum of all entries: the budget of the contract.
    #[inline]
    pub(crate) const fn total(&self) -> Nanos {
        self.total
    }

    /// The head was used up: it comes back at `back` (SPR Alg. 1 lines 3 and 4, fig. 8b).
    ///
    /// The head leaves before its replenishment enters, where the paper has it the other way
    /// round: so a full ring has room for it and nothing needs to be postponed.
    #[inline]
    pub(crate) fn recycle_head(&mut self, back: Nanos, watch: &mut Watch<'_>) {
        let amount = self.head().amount;
        watch.gone(self.slot(0) as u32);
        self.head = (self.head + 1) & self.mask;
        self.len -= 1;
        self.push(Replenishment { at: back, amount }, watch);
    }

    /// Splits `used` off the head, to come back at `back` (SPR Alg. 1 lines 11 and 12). `used`
    /// must be less than the head's amount.
    #[inline]
    pub(crate) fn split_head(&mut self, used: Nanos, back: Nanos, watch: &mut Watch<'_>) {
        debug_assert!(0 < used && used < self.head().amount);
        let head = self.slot(0);
        self.slots[head].amount -= used;
        self.push(
            Replenishment {
                at: back,
                amount: used,
            },
            watch,
        );
    }

    /// Queues a replenishment. If the ring is full, the last one is postponed to it and takes
    /// its amount in (Stanovich et al., SPR §IV-A); if the last one has the same time, nothing
    /// is lost by that, and it happens too.
    fn push(&mut self, new: Replenishment, watch: &mut Watch<'_>) {
        if self.len > 0 {
            let last = self.slot(self.len - 1);
            let entry = &mut self.slots[last];
            if entry.at >= new.at || self.len == self.capacity {
                // Times never decrease; after a change to a shorter period they would.
                entry.at = entry.at.max(new.at);
                entry.amount += new.amount;
                watch.pending(last as u32, entry.at);
                return;
            }
        }
        let slot = self.slot(self.len);
        self.slots[slot] = new;
        self.len += 1;
        watch.pending(slot as u32, new.at);
    }

    /// Makes one entry of all that are due, at the time of the last of them (SPR Alg. 3 lines 1
    /// to 3, fig. 8c); returns how many were taken in.
    #[inline]
    pub(crate) fn merge_due(&mut self, now: Nanos, watch: &mut Watch<'_>) -> u32 {
        let before = self.len;
        if self.last().at <= now {
            // All are due, and all together are the budget.
            self.drop_front(self.len - 1, self.total, watch);
            return before - 1;
        }
        if self.head().at > now {
            // Nothing is due, and there may be no other entry to look at.
            return 0;
        }
        let mut amount = self.head().amount;
        let mut due = 0;
        // The head is due and the last entry is not, so this stops.
        while self.entry(due + 1).at <= now {
            due += 1;
            amount += self.entry(due).amount;
        }
        self.drop_front(due, amount, watch);
        due
    }

    /// Lets go of the first `count` entries; the next becomes the head, with `amount`.
    #[inline]
    fn drop_front(&mut self, count: u32, amount: Nanos, watch: &mut Watch<'_>) {
        if watch.is_anybody() {
            for i in 0..count {
                watch.gone(self.slot(i) as u32);
            }
        }
        self.head = (self.head + count) & self.mask;
        self.len -= count;
        let head = self.slot(0);
        self.slots[head].amount = amount;
    }

    /// Moves the head to a later time, up to that of the next entry.
    #[inline]
    pub(crate) fn delay_head(&mut self, at: Nanos) {
        debug_assert!(at >= self.head().at && (self.len == 1 || at <= self.entry(1).at));
        let head = self.slot(0);
        self.slots[head].at = at;
    }

    /// Moves all entries to later times.
    pub(crate) fn delay_all(&mut self, by: Nanos, watch: &mut Watch<'_>) {
        for i in 0..self.len {
            let slot = self.slot(i);
            self.slots[slot].at = self.slots[slot].at.saturating_add(by);
            watch.pending(slot as u32, self.slots[slot].at);
        }
    }

    /// The entries, from the head on.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Replenishment> {
        (0..self.len).map(|i| self.entry(i))
    }

    /// Panics unless the invariants hold.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        assert!(1 <= self.len && self.len <= self.capacity);
        assert!(self.entries().all(|entry| entry.amount > 0));
        assert_eq!(
            self.entries().map(|entry| entry.amount).sum::<Nanos>(),
            self.total
        );
        assert!((1..self.len).all(|i| self.entry(i - 1).at <= self.entry(i).at));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{Replenishment, Ring, Watch};

    fn ring(capacity: u32, entries: &[(u64, u64)]) -> Ring {
        let total = entries.iter().map(|entry| entry.1).sum();
        let mut ring = Ring::new(capacity, entries[0].0, total);
        // What is not the head's is split off it, to come back when it says.
        for &(at, amount) in &entries[1..] {
            ring.split_head(amount, at, &mut Watch::Nobody);
        }
        ring.check();
        ring
    }

    fn entries(ring: &Ring) -> Vec<(u64, u64)> {
        ring.check();
        ring.entries()
            .map(|Replenishment { at, amount }| (at, amount))
            .collect()
    }

    #[test]
    fn fig_8a_at_first_the_whole_budget_is_there() {
        assert_eq!(entries(&Ring::new(4, 7, 20)), [(7, 20)]);
    }

    #[test]
    fn fig_8b_a_used_head_comes_back_a_period_later() {
        let mut ring = ring(4, &[(10, 5), (20, 6), (30, 9)]);
        ring.recycle_head(10 + 40, &mut Watch::Nobody);
        assert_eq!(entries(&ring), [(20, 6), (30, 9), (50, 5)]);
    }

    #[test]
    fn fig_8c_what_is_due_becomes_one_entry_at_the_time_of_the_last() {
        let mut some = ring(4, &[(10, 5), (20, 6), (30, 9), (50, 2)]);
        assert_eq!(some.merge_due(35, &mut Watch::Nobody), 2);
        assert_eq!(entries(&some), [(30, 20), (50, 2)]);
        let mut all = ring(4, &[(10, 5), (20, 6), (30, 9), (50, 2)]);
        assert_eq!(all.merge_due(50, &mut Watch::Nobody), 3);
        assert_eq!(entries(&all), [(50, 22)]);
        let mut none = ring(4, &[(10, 5), (20, 6)]);
        assert_eq!(none.merge_due(9, &mut Watch::Nobody), 0);
        assert_eq!(entries(&none), [(10, 5), (20, 6)]);
    }

    #[test]
    fn a_full_ring_postpones_its_last_entry() {
        let mut full = ring(2, &[(10, 5), (20, 6)]);
        full.split_head(2, 50, &mut Watch::Nobody);
        assert_eq!(entries(&full), [(10, 3), (50, 8)]);
        // With room for one entry, what is left of the head waits too.
        let mut single = ring(1, &[(10, 5)]);
        single.split_head(2, 50, &mut Watch::Nobody);
        assert_eq!(entries(&single), [(50, 5)]);
    }
}
