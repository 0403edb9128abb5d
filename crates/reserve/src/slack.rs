//! Slack: unreserved processor time, and reserved time that was not used.

use crate::contract::{Contract, INSTANT_MAX, Nanos};
use crate::id::NEVER;
use crate::scheduler::Scheduler;

/// Parts of a whole processor in which shares are counted.
const BILLION: u128 = 1_000_000_000;

/// Processor time to spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slack {
    /// Of every 10⁹ nanoseconds, how many are not reserved now; zero if more are reserved than
    /// there are. Shares are rounded up, so this is never too much.
    pub unreserved_ppb: u64,
    /// How much of what was reserved from the scheduler's start on was not used: the sum of all
    /// contracts' shares over the time that they held, without what their servers ran.
    pub unused: Nanos,
    /// The time from now on for which no reservation runs unless an event wakes one of its tasks;
    /// `u64::MAX`: for ever.
    pub idle_for: Nanos,
}

/// The reserved time so far, and the used part of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ledger {
    /// The sum of the shares that are reserved now, in parts per billion.
    reserved: u128,
    /// What was reserved until `until`, in parts per billion of a nanosecond.
    promised: u128,
    until: Nanos,
    /// What reservations ran.
    pub(crate) used: Nanos,
}

/// A contract's share of the processor in parts per billion, rounded up.
fn share(contract: &Contract) -> u128 {
    (u128::from(contract.budget()) * BILLION).div_ceil(u128::from(contract.period()))
}

impl Ledger {
    fn settle(&mut self, now: Nanos) {
        self.promised = self.promised_at(now);
        self.until = self.until.max(now);
    }

    fn promised_at(&self, now: Nanos) -> u128 {
        self.promised + self.reserved * u128::from(now.saturating_sub(self.until))
    }

    /// Records that a contract holds from `now` on.
    pub(crate) fn admit(&mut self, contract: &Contract, now: Nanos) {
        self.settle(now);
        self.reserved += share(contract);
    }

    /// A contract that was admitted ends.
    pub(crate) fn retire(&mut self, contract: &Contract, now: Nanos) {
        self.settle(now);
        self.reserved -= share(contract);
    }
}

impl Scheduler {
    /// Returns the next instant at which a reservation can run without an event. It may be too
    /// early for the eager scheduler, whose timers do not name their servers.
    fn next_timeout(&self) -> Nanos {
        match &self.timers {
            None => self.pending.earliest(),
            Some(timers) => timers.earliest(),
        }
    }

    /// Returns the slack as of the last event. O(1).
    pub fn slack(&self, now: Nanos) -> Slack {
        let now = now.clamp(self.billing.now(), INSTANT_MAX);
        let ledger = &self.ledger;
        let unused = (ledger.promised_at(now) / BILLION).saturating_sub(u128::from(ledger.used));
        let idle_for = match (self.ready.first(), self.next_timeout()) {
            (Some(_), _) => 0,
            (None, NEVER) => NEVER,
            (None, next) => next.saturating_sub(now),
        };
        Slack {
            unreserved_ppb: BILLION.saturating_sub(ledger.reserved) as u64,
            unused: unused as Nanos,
            idle_for,
        }
    }
}
