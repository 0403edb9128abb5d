//! The replenishment queue of a sporadic server: a ring of `(t, b)` (SPR §IV-A, fig. 8).
//!
//! The head is the budget that is available from its time on; the others are later replenishments,
//! sorted by time. Nothing enters or leaves the queue: the amounts in it
//! always add up to the budget. That makes the most frequent batch cheap: when the last entry is
//! due, all are, and together they are the whole budget.

use crate::contract::{Nanos, REPLENISHMENTS_MAX};
use crate::eager_timers::Timers;
use crate::id::Index;

/// Places of a queue, of which it uses as many as its capacity, rounded up to a power of two.
pub(crate) const RING: usize = REPLENISHMENTS_MAX as usize;

/// An entry of a replenishment queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replenishment {
    /// The instant from which it can be used.
    pub at: Nanos,
    /// How much budget it is.
    pub amount: Nanos,
}

/// The observer of pending replenishments.
#[derive(Debug)]
pub(crate) enum Watch<'a> {
    /// The shielded scheduler does not need to know.
    Nothing,
    /// The eager scheduler has a timer for each of a server's.
    Timers(&'a mut Timers, Index),
}

impl Watch<'_> {
    /// The replenishment at `position` of the ring is pending until `at`.
    #[inline]
    pub(crate) fn pending(&mut self, position: u32, at: Nanos) {
        if let Watch::Timers(timers, server) = self {
            timers.set_replenishment(*server, position, at);
        }
    }

    /// Removes the pending replenishment at `position`.
    #[inline]
    pub(crate) fn gone(&mut self, position: u32) {
        if let Watch::Timers(timers, server) = self {
            timers.cancel_replenishment(*server, position);
        }
    }

    #[inline]
    const fn is_any_left(&self) -> bool {
        matches!(self, Watch::Timers(..))
    }
}

/// Invariants: `1 ≤ len ≤ capacity`; times do not decrease from the head on; the amounts are
/// positive and add up to `total`.
///
/// Laid out as written: what is used most shares its cache line with the first entries.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct ReplenishmentQueue {
    head: u32,
    len: u32,
    capacity: u32,
    mask: u32,
    total: Nanos,
    ring: [Replenishment; RING],
}

impl ReplenishmentQueue {
    /// A queue with the whole budget available from `at` on (SPR fig. 8a).
    pub(crate) const fn new(capacity: u32, at: Nanos, budget: Nanos) -> Self {
        ReplenishmentQueue {
            head: 0,
            len: 1,
            capacity,
            mask: capacity.next_power_of_two() - 1,
            total: budget,
            ring: [Replenishment { at, amount: budget }; RING],
        }
    }

    /// A queue of the given entries, of which there is one at least and whose times must not
    /// decrease. Entries without room postpone the last.
    pub(crate) fn of(capacity: u32, mut entries: impl Iterator<Item = Replenishment>) -> Self {
        let first = entries.next().expect("a budget is not zero");
        let mut queue = ReplenishmentQueue::new(capacity, first.at, first.amount);
        for entry in entries {
            queue.total += entry.amount;
            queue.push(entry, &mut Watch::Nothing);
        }
        queue
    }

    /// Where the `i`-th entry from the head on is. The second operation changes nothing, since
    /// the mask is below `RING`; it tells the compiler so.
    #[inline]
    const fn position(&self, i: u32) -> usize {
        ((self.head + i) & self.mask) as usize % RING
    }

    /// The `i`-th entry from the head on.
    #[inline]
    pub(crate) const fn entry(&self, i: u32) -> Replenishment {
        self.ring[self.position(i)]
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

    /// Recycles the depleted head, which is replenished at `back` (SPR Alg. 1 lines 3 and 4, fig.
    /// 8b).
    ///
    /// The head leaves before its replenishment enters, unlike in the paper, so that a full queue
    /// has room for it and nothing is postponed.
    #[inline]
    pub(crate) fn recycle_head(&mut self, back: Nanos, watch: &mut Watch<'_>) {
        let amount = self.head().amount;
        watch.gone(self.position(0) as u32);
        self.head = (self.head + 1) & self.mask;
        self.len -= 1;
        self.push(Replenishment { at: back, amount }, watch);
    }

    /// Splits `used` off the head, to come back at `back` (SPR Alg. 1 lines 11 and 12). `used`
    /// must be less than the head's amount.
    #[inline]
    pub(crate) fn split_head(&mut self, used: Nanos, back: Nanos, watch: &mut Watch<'_>) {
        debug_assert!(0 < used && used < self.head().amount);
        let head = self.position(0);
        self.ring[head].amount -= used;
        self.push(
            Replenishment {
                at: back,
                amount: used,
            },
            watch,
        );
    }

    /// Queues a replenishment. If the queue is full, the last one is postponed to it and takes
    /// its amount in (Stanovich et al., SPR §IV-A); if the last one has the same time, nothing
    /// is lost by that, and it happens too.
    fn push(&mut self, new: Replenishment, watch: &mut Watch<'_>) {
        if self.len > 0 {
            let last = self.position(self.len - 1);
            let entry = &mut self.ring[last];
            if entry.at >= new.at || self.len == self.capacity {
                // Times never decrease.
                entry.at = entry.at.max(new.at);
                entry.amount += new.amount;
                watch.pending(last as u32, entry.at);
                return;
            }
        }
        let position = self.position(self.len);
        self.ring[position] = new;
        self.len += 1;
        watch.pending(position as u32, new.at);
    }

    /// Merges all due entries into one, at the time of the last of them (SPR Alg. 3 lines 1 to 3,
    /// fig. 8c); returns how many were merged.
    #[inline]
    pub(crate) fn merge_due(&mut self, now: Nanos, watch: &mut Watch<'_>) -> u32 {
        if self.last().at <= now {
            // All are due, and all together are the budget.
            let taken_in = self.len - 1;
            self.drop_front(taken_in, self.total, watch);
            return taken_in;
        }
        let due = self.count_due(now);
        if due <= 1 {
            return 0;
        }
        // Whichever of the two parts is shorter says how much is due.
        let amount = if 2 * due <= self.len {
            self.sum(0, due)
        } else {
            self.total - self.sum(due, self.len)
        };
        self.drop_front(due - 1, amount, watch);
        due - 1
    }

    /// How many entries are due: they are sorted by time.
    #[inline]
    fn count_due(&self, now: Nanos) -> u32 {
        let (mut due, mut rest) = (0, self.len);
        while rest > 0 {
            let half = rest / 2;
            if self.entry(due + half).at <= now {
                due += half + 1;
                rest -= half + 1;
            } else {
                rest = half;
            }
        }
        due
    }

    /// The amounts of the entries `from .. to`.
    #[inline]
    fn sum(&self, from: u32, to: u32) -> Nanos {
        (from..to).map(|i| self.entry(i).amount).sum()
    }

    /// Lets go of the first `count` entries; the next becomes the head, with `amount`.
    #[inline]
    fn drop_front(&mut self, count: u32, amount: Nanos, watch: &mut Watch<'_>) {
        if watch.is_any_left() {
            for i in 0..count {
                watch.gone(self.position(i) as u32);
            }
        }
        self.head = (self.head + count) & self.mask;
        self.len -= count;
        let head = self.position(0);
        self.ring[head].amount = amount;
    }

    /// Moves the head to a later time, up to that of the next entry.
    #[inline]
    pub(crate) fn delay_head(&mut self, at: Nanos) {
        debug_assert!(at >= self.head().at && (self.len == 1 || at <= self.entry(1).at));
        let head = self.position(0);
        self.ring[head].at = at;
    }

    /// Moves the due entries to later times, but not beyond `now`. O(S).
    #[cold]
    pub(crate) fn delay_due(&mut self, by: Nanos, now: Nanos) {
        for i in 0..self.len {
            let position = self.position(i);
            let at = self.ring[position].at;
            if at > now {
                break;
            }
            self.ring[position].at = at.saturating_add(by).min(now);
        }
    }

    /// Moves the entries that are not due to earlier times, but not before `now`. O(S).
    #[cold]
    pub(crate) fn advance_pending(&mut self, by: Nanos, now: Nanos, watch: &mut Watch<'_>) {
        for i in 0..self.len {
            let position = self.position(i);
            let at = &mut self.ring[position].at;
            if *at > now {
                *at = at.saturating_sub(by).max(now);
                watch.pending(position as u32, *at);
            }
        }
    }

    /// Moves all entries to later times.
    pub(crate) fn delay_all(&mut self, by: Nanos, watch: &mut Watch<'_>) {
        for i in 0..self.len {
            let position = self.position(i);
            self.ring[position].at = self.ring[position].at.saturating_add(by);
            watch.pending(position as u32, self.ring[position].at);
        }
    }

    /// Reports all pending entries to `watch`, and also the due ones if `all`.
    pub(crate) fn watch_all(&self, now: Nanos, all: bool, watch: &mut Watch<'_>) {
        for i in 0..self.len {
            let at = self.entry(i).at;
            if all || at > now {
                watch.pending(self.position(i) as u32, at);
            }
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

    use super::{Replenishment, ReplenishmentQueue, Watch};

    fn queue(capacity: u32, entries: &[(u64, u64)]) -> ReplenishmentQueue {
        let entries = entries
            .iter()
            .map(|&(at, amount)| Replenishment { at, amount });
        let queue = ReplenishmentQueue::of(capacity, entries);
        queue.check();
        queue
    }

    fn entries(queue: &ReplenishmentQueue) -> Vec<(u64, u64)> {
        queue.check();
        queue
            .entries()
            .map(|Replenishment { at, amount }| (at, amount))
            .collect()
    }

    #[test]
    fn fig_8a_at_first_the_whole_budget_is_there() {
        assert_eq!(entries(&ReplenishmentQueue::new(4, 7, 20)), [(7, 20)]);
    }

    #[test]
    fn fig_8b_a_used_head_comes_back_a_period_later() {
        let mut queue = queue(4, &[(10, 5), (20, 6), (30, 9)]);
        queue.recycle_head(10 + 40, &mut Watch::Nothing);
        assert_eq!(entries(&queue), [(20, 6), (30, 9), (50, 5)]);
    }

    #[test]
    fn fig_8c_what_is_due_becomes_one_entry_at_the_time_of_the_last() {
        let mut some = queue(4, &[(10, 5), (20, 6), (30, 9), (50, 2)]);
        assert_eq!(some.merge_due(35, &mut Watch::Nothing), 2);
        assert_eq!(entries(&some), [(30, 20), (50, 2)]);
        let mut all = queue(4, &[(10, 5), (20, 6), (30, 9), (50, 2)]);
        assert_eq!(all.merge_due(50, &mut Watch::Nothing), 3);
        assert_eq!(entries(&all), [(50, 22)]);
        let mut none = queue(4, &[(10, 5), (20, 6)]);
        assert_eq!(none.merge_due(9, &mut Watch::Nothing), 0);
        assert_eq!(entries(&none), [(10, 5), (20, 6)]);
    }

    #[test]
    fn a_full_queue_postpones_its_last_entry() {
        let mut full = queue(2, &[(10, 5), (20, 6)]);
        full.split_head(2, 50, &mut Watch::Nothing);
        assert_eq!(entries(&full), [(10, 3), (50, 8)]);
        // With room for one entry, what is left of the head waits too.
        let mut single = queue(1, &[(10, 5)]);
        single.split_head(2, 50, &mut Watch::Nothing);
        assert_eq!(entries(&single), [(50, 5)]);
    }
}
