//! The processor reservations that a cell has promised, and whether it can promise one more.
//!
//! The admission test (SPR §III-G) takes longer the more reservations there are, so it runs on the
//! thread of whoever asks, never on the cell's. The cell holds a [`Promise`] for as long as it
//! keeps the reservation; giving it back is dropping it, so that no lock is taken on the cell's
//! thread.

use leasehold_reserve::admission::{Overhead, fits};
use leasehold_reserve::{Contract, Order};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a cell has promised.
#[derive(Debug)]
pub(crate) struct Promises {
    order: Order,
    /// What scheduling takes here.
    overhead: Overhead,
    /// What is reserved for the ends of background tenants, while there is room for it.
    ends: Option<Contract>,
    ends_fit: Arc<AtomicBool>,
    /// Those whose promise is gone count no more.
    kept: Mutex<Vec<(Contract, Weak<()>)>>,
}

/// That a reservation can be kept, until it is dropped.
#[derive(Debug)]
pub(crate) struct Promise(#[expect(dead_code, reason = "held to be dropped")] Arc<()>);

impl Promises {
    /// Nothing has been promised yet. `ends_fit` is told whether what is reserved for `ends` can be kept
    /// beside what is promised: they give way to tenants.
    pub(crate) fn new(
        order: Order,
        overhead: Overhead,
        ends: Option<Contract>,
        ends_fit: Arc<AtomicBool>,
    ) -> Self {
        Self {
            order,
            overhead,
            ends,
            ends_fit,
            kept: Mutex::default(),
        }
    }

    /// Promises a reservation, unless it could not be kept beside the others, or they beside it.
    /// Costs what [`fits`] does.
    pub(crate) fn make(&self, contract: Contract) -> Option<Promise> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, promise)| promise.strong_count() > 0);
        let others = kept.iter().map(|(contract, _)| *contract);
        let all = others.chain([contract]);
        let (background, mut all): (Vec<_>, Vec<_>) = all.partition(Contract::is_background);
        let background = background.into_iter().max_by_key(Contract::longest_step);
        all.extend(background);
        if !fits(&self.overhead.charged(&all), self.order) {
            return None;
        }
        // An end takes steps of the tenant that ends.
        let step = background.map_or(0, |background| background.longest_step());
        all.extend(self.ends.map(|ends| ends.with_longest_step(step)));
        let ends_fit = fits(&self.overhead.charged(&all), self.order);
        self.ends_fit.store(ends_fit, Relaxed);
        let promise = Arc::new(());
        kept.push((contract, Arc::downgrade(&promise)));
        Some(Promise(promise))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, AtomicBool, Promises, Relaxed};
    use leasehold_reserve::admission::Overhead;
    use leasehold_reserve::{Contract, Order, Priority};

    #[test]
    fn faults_in_the_background_need_room_in_every_response_once_for_all() {
        let promises = Promises::new(
            Order::FixedPriority,
            Overhead::default(),
            None,
            Arc::default(),
        );
        let urgent = Contract::new(6_000_000, 10_000_000).expect("a contract");
        let _urgent = promises.make(urgent.with_priority(Priority(1)));
        let paging = [3_000_000, 4_000_000].map(|step| promises.make(Contract::background(step)));
        assert!(paging.iter().all(Option::is_some), "one of them at a time");
        assert!(promises.make(Contract::background(4_000_001)).is_none());
        let more = Contract::new(1, 10_000_000).expect("a contract");
        assert!(promises.make(more.with_priority(Priority(2))).is_none());
        drop(paging);
        assert!(promises.make(more.with_priority(Priority(2))).is_some());
    }

    #[test]
    fn what_scheduling_takes_is_promised_to_none() {
        let promises = |per_preemption| {
            let overhead = Overhead { per_preemption };
            Promises::new(Order::FixedPriority, overhead, None, Arc::default())
        };
        let [first, second] = [1, 2].map(|priority| {
            let contract = Contract::new(4_950_000, 10_000_000).expect("a contract");
            contract.with_priority(Priority(priority))
        });
        // An overrun of either at the end of its budget, and what has begun when they become ready.
        for (overhead, fits) in [(33_333, true), (33_334, false)] {
            let promises = promises(overhead);
            let kept = promises.make(first);
            assert!(kept.is_some());
            assert_eq!(promises.make(second).is_some(), fits, "{overhead}");
        }
    }

    #[test]
    fn what_is_reserved_for_ends_gives_way_to_tenants() {
        let ends = Contract::new(1_000_000, 20_000_000).expect("a contract");
        let fit = Arc::new(AtomicBool::new(true));
        let promises = Promises::new(
            Order::EarliestDeadline,
            Overhead::default(),
            Some(ends),
            fit.clone(),
        );
        let contract = |budget| Contract::new(budget, 10_000_000).expect("a contract");
        let kept = promises.make(contract(9_500_000));
        assert!(kept.is_some() && fit.load(Relaxed));
        let more = promises.make(contract(1));
        assert!(more.is_some() && !fit.load(Relaxed));
        drop(kept);
        let background = promises.make(Contract::background(0));
        assert!(background.is_some() && fit.load(Relaxed));
    }

    #[test]
    fn what_was_given_back_can_be_promised_again() {
        let promises = Promises::new(
            Order::FixedPriority,
            Overhead::default(),
            None,
            Arc::default(),
        );
        let most_of_it = Contract::new(6_000_000, 10_000_000).expect("a contract");
        let first = promises.make(most_of_it);
        assert!(first.is_some());
        assert!(promises.make(most_of_it).is_none(), "there is one already");
        drop(first);
        assert!(promises.make(most_of_it).is_some());
    }
}
