//! The processor reservations that a cell has promised, and whether it can promise one more.
//!
//! The duration of the admission test (SPR §III-G) grows with the number of reservations, so it
//! runs on the caller's thread, never on the cell's. The cell holds a [`Promise`] for as long as it
//! keeps the reservation; giving it back is dropping it, so that no lock is taken on the cell's
//! thread.

use crate::realtime_limit::RealtimeLimit;
use leasehold_reserve::admission::{Overhead, fits};
use leasehold_reserve::{Contract, Order};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The promises of a cell.
#[derive(Debug)]
pub(crate) struct Promises {
    order: Order,
    /// The costs of scheduling here.
    overhead: Overhead,
    /// The reservation for the ends of background tenants, while there is room for it.
    ends: Option<Contract>,
    ends_fit: Arc<AtomicBool>,
    /// The share of the processor that the host leaves the cell's thread, if that has real-time
    /// priority.
    limit: Option<RealtimeLimit>,
    /// Contracts whose promise was dropped do not count.
    kept: Mutex<Vec<(Contract, Weak<()>)>>,
}

/// That a reservation can be kept, until it is dropped.
#[derive(Debug)]
pub(crate) struct Promise(#[expect(dead_code, reason = "held to be dropped")] Arc<()>);

/// Why a reservation is not promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unkept {
    /// With it, one of the reservations could not be kept.
    Together,
    /// The host would stop the cell's thread.
    Host(RealtimeLimit),
}

impl Promises {
    /// Creates an empty set. `ends_fit` tells the cell whether the reservation for `ends` fits
    /// beside the promised ones, which have precedence.
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
            limit: None,
            kept: Mutex::default(),
        }
    }

    /// The same on a thread with real-time priority, of which the host takes the processor beyond `limit`.
    pub(crate) fn with_limit(self, limit: Option<RealtimeLimit>) -> Self {
        Self { limit, ..self }
    }

    /// Promises a reservation. Costs what [`fits`] does.
    ///
    /// # Errors
    /// When one of the reservations could then not be kept, or the host takes too much.
    pub(crate) fn make(&self, contract: Contract) -> Result<Promise, Unkept> {
        let mut kept = self.kept();
        let all = Together::of(kept.iter().map(|(contract, _)| *contract).chain([contract]));
        if !fits(&self.overhead.charged(&all.contracts), self.order) {
            return Err(Unkept::Together);
        }
        if let Some(limit) = self.stops(&all.contracts) {
            return Err(Unkept::Host(limit));
        }
        self.fit_ends(all);
        let promise = Arc::new(());
        kept.push((contract, Arc::downgrade(&promise)));
        Ok(Promise(promise))
    }

    /// Looks whether there is room for the reservation for ends, now that promises have been dropped. Costs what [`fits`]
    /// does.
    pub(crate) fn reconsider_ends(&self) {
        let kept = self.kept();
        self.fit_ends(Together::of(kept.iter().map(|(contract, _)| *contract)));
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Contract, Weak<()>)>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, promise)| promise.strong_count() > 0);
        kept
    }

    fn stops(&self, all: &[Contract]) -> Option<RealtimeLimit> {
        self.limit.filter(|limit| !limit.allows(all))
    }

    fn fit_ends(&self, all: Together) {
        let Together {
            mut contracts,
            background_step,
        } = all;
        // An end takes steps of the tenant that ends.
        contracts.extend(
            self.ends
                .map(|ends| ends.with_longest_step(background_step)),
        );
        let fit = fits(&self.overhead.charged(&contracts), self.order)
            && self.stops(&contracts).is_none();
        self.ends_fit.store(fit, Relaxed);
    }
}

/// Contracts as they are tested: of those in the background, the one with the longest step stands for all.
struct Together {
    contracts: Vec<Contract>,
    background_step: u64,
}

impl Together {
    fn of(all: impl Iterator<Item = Contract>) -> Self {
        let (background, mut contracts): (Vec<_>, Vec<_>) = all.partition(Contract::is_background);
        let background = background.into_iter().max_by_key(Contract::longest_step);
        contracts.extend(background);
        Self {
            contracts,
            background_step: background.map_or(0, |background| background.longest_step()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, AtomicBool, Promises, RealtimeLimit, Relaxed, Unkept};
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
        assert!(paging.iter().all(Result::is_ok), "one of them at a time");
        assert!(promises.make(Contract::background(4_000_001)).is_err());
        let more = Contract::new(1, 10_000_000).expect("a contract");
        assert!(promises.make(more.with_priority(Priority(2))).is_err());
        drop(paging);
        assert!(promises.make(more.with_priority(Priority(2))).is_ok());
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
        // Both can overrun at the end of their budgets, and both can be blocked when they become
        // ready.
        for (overhead, fits) in [(33_333, true), (33_334, false)] {
            let promises = promises(overhead);
            let kept = promises.make(first);
            assert!(kept.is_ok());
            assert_eq!(promises.make(second).is_ok(), fits, "{overhead}");
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
        assert!(kept.is_ok() && fit.load(Relaxed));
        let more = promises.make(contract(1));
        assert!(more.is_ok() && !fit.load(Relaxed));
        drop(kept);
        promises.reconsider_ends();
        assert!(fit.load(Relaxed), "what has gone leaves room");
        let background = promises.make(Contract::background(0));
        assert!(background.is_ok() && fit.load(Relaxed));
    }

    #[test]
    fn what_the_host_takes_is_promised_to_none() {
        let limit = RealtimeLimit::new(930_000_000, 1_000_000_000);
        let fit = Arc::new(AtomicBool::new(true));
        let ends = Contract::new(1_000_000, 20_000_000).expect("a contract");
        let order = Order::EarliestDeadline;
        let promises = Promises::new(order, Overhead::default(), Some(ends), fit.clone());
        let promises = promises.with_limit(Some(limit));
        let contract = |budget| Contract::new(budget, 10_000_000).expect("a contract");
        let most = promises.make(contract(9_200_000));
        assert!(most.is_ok() && !fit.load(Relaxed), "ends give way");
        let more = promises.make(contract(100_001));
        assert_eq!(more.expect_err("too much"), Unkept::Host(limit));
        assert!(promises.make(contract(100_000)).is_ok());
        let beyond = promises.make(contract(800_001));
        assert_eq!(beyond.expect_err("too much"), Unkept::Together);
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
        assert!(first.is_ok());
        assert!(promises.make(most_of_it).is_err(), "there is one already");
        drop(first);
        assert!(promises.make(most_of_it).is_ok());
    }
}
