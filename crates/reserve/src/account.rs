//! The accounts of one sporadic server, to be used without the scheduler.

use crate::contract::{Contract, Nanos};
use crate::replenishment_queue::{Replenishment, ReplenishmentQueue, Watch};
use crate::sporadic::Sporadic;

/// The available budget of one sporadic server and its replenishments (SPR Alg. 1 to 3). It serves
/// schedulers that order their tasks in another way, and measurements of a batch of replenishments.
///
/// Instants must not decrease from call to call. Nothing allocates.
#[derive(Debug, Clone)]
pub struct SporadicAccount {
    sporadic: Sporadic,
    queue: ReplenishmentQueue,
}

impl SporadicAccount {
    /// The accounts of `contract`, with its whole budget available from `now` on. Its priority
    /// and policy do not matter.
    pub fn new(contract: &Contract, now: Nanos) -> Self {
        SporadicAccount {
            sporadic: Sporadic::new(contract),
            queue: ReplenishmentQueue::new(contract.replenishments(), now, contract.budget()),
        }
    }

    /// Accounts for `ran` nanoseconds of execution (Alg. 1 lines 1 to 4). O(S).
    #[inline]
    pub fn charge(&mut self, ran: Nanos) {
        self.sporadic
            .charge(&mut self.queue, ran, &mut Watch::Nothing);
    }

    /// Suspends the server, which has nothing to run at `now` (Alg. 1 lines 10 to 13). O(1).
    #[inline]
    pub fn suspend(&mut self, now: Nanos) {
        self.sporadic
            .suspend(&mut self.queue, now, &mut Watch::Nothing);
    }

    /// Resumes the server at `now`, with something to run since `at` (Alg. 3 lines 1 to 5). Returns
    /// how many replenishments were merged. O(S); O(1) if all are due.
    #[inline]
    pub fn resume(&mut self, at: Nanos, now: Nanos) -> u32 {
        self.sporadic
            .resume(&mut self.queue, at, now, &mut Watch::Nothing)
    }

    /// Processes due replenishments of a ready server (Alg. 3 lines 1 to 3). Returns how many were
    /// merged. O(S); O(1) if all are due.
    #[inline]
    pub fn replenish(&mut self, now: Nanos) -> u32 {
        self.sporadic
            .replenish(&mut self.queue, now, &mut Watch::Nothing)
    }

    /// Returns whether there is budget at `now`.
    #[inline]
    pub fn is_available(&self, now: Nanos) -> bool {
        self.queue.head().at <= now
    }

    /// Returns the instant of depletion under continuous execution from `now`, including
    /// replenishments until then (Alg. 2 lines 1 to 4); `u64::MAX`: never. O(S).
    #[inline]
    pub fn depletion(&self, now: Nanos) -> Nanos {
        self.sporadic.depletion(&self.queue, now)
    }

    /// Returns the budget that is available at `now`. O(S).
    pub fn left(&self, now: Nanos) -> Nanos {
        self.sporadic.left(&self.queue, now)
    }

    /// Returns the overrun, which is subtracted from the next replenishment.
    pub fn overrun(&self, now: Nanos) -> Nanos {
        self.sporadic.overrun(&self.queue, now)
    }

    /// The replenishment queue, earliest first. The amounts add up to the budget.
    pub fn replenishments(&self) -> impl Iterator<Item = Replenishment> {
        self.queue.entries()
    }
}
