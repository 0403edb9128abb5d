//! What is reserved for the ends of background tenants.

use crate::clock::monotonic_ns;
use crate::dispatch::{Dispatcher, Share, Work};
use leasehold_reserve::{Contract, Refused, TaskId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Background tenants that are being taken back, and what is reserved for that.
pub(super) struct Ends {
    /// The task of the reservation; `None` without one.
    task: Option<(Share, TaskId)>,
    /// Their keys, in the order in which they ended.
    queue: VecDeque<u64>,
    /// Whether the reservation can be kept beside those of tenants.
    fit: Arc<AtomicBool>,
}

impl Ends {
    /// Sets the reservation up, if there is to be one.
    ///
    /// # Errors
    /// When the cell has no place for it.
    pub(super) fn new(
        contract: Option<&Contract>,
        fit: Arc<AtomicBool>,
        dispatcher: &mut Dispatcher,
    ) -> Result<Self, Refused> {
        let reserve = |contract| {
            let share = dispatcher.share(Some(contract), monotonic_ns())?;
            let task = dispatcher.add(&share, Work::Ends)?;
            Ok((share, task))
        };
        Ok(Self {
            task: contract.map(reserve).transpose()?,
            queue: VecDeque::new(),
            fit,
        })
    }

    /// Appends a background tenant that begins to end, and drops those that are not there any more.
    /// Does nothing without a reservation.
    pub(super) fn append(
        &mut self,
        key: u64,
        is_there: impl Fn(u64) -> bool,
        dispatcher: &mut Dispatcher,
    ) {
        if let Some((_, task)) = &self.task {
            self.queue.retain(|&key| is_there(key));
            self.queue.push_back(key);
            dispatcher.wake(*task, monotonic_ns());
        }
    }

    /// Returns the tenant to be taken back first, while the reservation can be kept.
    pub(super) fn first(&self) -> Option<u64> {
        let fit = self.fit.load(Relaxed);
        self.queue.front().copied().filter(|_| fit)
    }

    /// Removes the first tenant, which has been taken back.
    pub(super) fn remove_first(&mut self) {
        self.queue.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::Ends;
    use crate::config::CellConfig;
    use crate::dispatch::Dispatcher;
    use crate::profile::Profile;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn ends_are_taken_back_in_order_while_the_reservation_can_be_kept() {
        let config = CellConfig::new(Profile::free());
        let mut dispatcher = Dispatcher::new(&config, 8);
        let fit = Arc::new(AtomicBool::new(true));
        let mut ends =
            Ends::new(config.ends.as_ref(), fit.clone(), &mut dispatcher).expect("there is room");
        for key in [3, 1, 2] {
            ends.append(key, |_| true, &mut dispatcher);
        }
        assert_eq!(ends.first(), Some(3));
        fit.store(false, Relaxed);
        assert_eq!(ends.first(), None);
        fit.store(true, Relaxed);
        ends.remove_first();
        ends.append(4, |key| key != 1, &mut dispatcher);
        assert_eq!(ends.first(), Some(2), "1 has gone");
    }

    #[test]
    fn without_a_reservation_no_end_is_queued() {
        let config = CellConfig::new(Profile::free());
        let mut dispatcher = Dispatcher::new(&config, 8);
        let fit = Arc::new(AtomicBool::new(true));
        let mut ends = Ends::new(None, fit, &mut dispatcher).expect("nothing is reserved");
        ends.append(3, |_| true, &mut dispatcher);
        assert_eq!(ends.first(), None);
    }
}
