//! The budget of a server, by its policy.

use crate::bandwidth::Bandwidth;
use crate::config::Order;
use crate::contract::{Contract, Nanos, Policy};
use crate::deferrable::Deferrable;
use crate::id::NEVER;
use crate::replenishment_queue::{ReplenishmentQueue, Watch};
use crate::sporadic::Sporadic;

/// The accounts of a server. The replenishment queue of a sporadic server is kept outside and
/// passed to the methods; the other policies ignore it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Budget {
    Sporadic(Sporadic),
    Deferrable(Deferrable),
    Bandwidth(Bandwidth),
    /// A background server's.
    Unlimited,
}

/// The position of a pending replenishment of a policy without a queue.
const PERIODIC: u32 = 0;

impl Budget {
    pub(crate) const fn new(contract: &Contract, order: Order, now: Nanos) -> Self {
        match (order, contract.policy()) {
            (Order::EarliestDeadline, _) => Budget::Bandwidth(Bandwidth::new(contract, now)),
            (_, Policy::Sporadic) => Budget::Sporadic(Sporadic::new(contract)),
            (_, Policy::Deferrable) => Budget::Deferrable(Deferrable::new(contract, now)),
        }
    }

    /// Returns whether there is budget at `now`.
    #[inline]
    pub(crate) fn is_available(&self, queue: &ReplenishmentQueue, now: Nanos) -> bool {
        self.available_at(queue) <= now
    }

    /// Returns the instant of the next budget, or an instant since which there is budget.
    #[inline]
    pub(crate) fn available_at(&self, queue: &ReplenishmentQueue) -> Nanos {
        match self {
            Budget::Sporadic(_) => queue.head().at,
            Budget::Deferrable(deferrable) => deferrable.available_at(),
            Budget::Bandwidth(bandwidth) => bandwidth.available_at(),
            Budget::Unlimited => 0,
        }
    }

    /// Returns the overrun, which is subtracted from the next replenishment.
    #[inline]
    pub(crate) fn overrun(&self, queue: &ReplenishmentQueue, now: Nanos) -> Nanos {
        match self {
            Budget::Sporadic(sporadic) => sporadic.overrun(queue, now),
            Budget::Deferrable(deferrable) => deferrable.overrun(),
            Budget::Bandwidth(bandwidth) => bandwidth.overrun(),
            Budget::Unlimited => 0,
        }
    }

    /// Returns the largest use beyond the replenished budget at any instant of execution from
    /// `from` to `to`.
    #[cold]
    pub(crate) fn longest_overrun(
        &self,
        queue: &ReplenishmentQueue,
        from: Nanos,
        to: Nanos,
    ) -> Nanos {
        match self {
            Budget::Sporadic(sporadic) => sporadic.longest_overrun(queue, from, to),
            Budget::Deferrable(deferrable) => deferrable.longest_overrun(from, to),
            Budget::Bandwidth(bandwidth) => bandwidth.longest_overrun(from, to),
            Budget::Unlimited => 0,
        }
    }

    /// Returns the budget that is available at `now`.
    pub(crate) fn left(&self, queue: &ReplenishmentQueue, now: Nanos) -> Nanos {
        match self {
            Budget::Sporadic(sporadic) => sporadic.left(queue, now),
            Budget::Deferrable(deferrable) => deferrable.left(now),
            Budget::Bandwidth(bandwidth) => bandwidth.left(),
            Budget::Unlimited => NEVER,
        }
    }

    /// Accounts for execution from `from` to `to`, and for replenishments until `now`, which is
    /// later if another server pays for the rest. Returns how many replenishments passed.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        queue: &mut ReplenishmentQueue,
        (from, to): (Nanos, Nanos),
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Sporadic(sporadic) => {
                sporadic.charge(queue, to - from, watch);
                0
            }
            Budget::Deferrable(deferrable) => {
                let passed = deferrable.charge(from, to) + deferrable.roll(now);
                if passed > 0 {
                    watch.pending(PERIODIC, deferrable.boundary_after(now));
                }
                passed
            }
            Budget::Bandwidth(bandwidth) => {
                let passed = bandwidth.charge(to - from, now);
                watch_throttled(bandwidth, now, watch);
                passed
            }
            Budget::Unlimited => 0,
        }
    }

    /// Accounts for `time` beside what was executed until now; returns how many replenishments
    /// passed.
    #[inline]
    pub(crate) fn charge_more(
        &mut self,
        queue: &mut ReplenishmentQueue,
        time: Nanos,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Deferrable(deferrable) => {
                deferrable.charge_more(time);
                0
            }
            _ => self.charge(queue, (now, now + time), now, watch),
        }
    }

    /// Suspends the server, which has nothing to run.
    #[inline]
    pub(crate) fn suspend(
        &mut self,
        queue: &mut ReplenishmentQueue,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) {
        if let Budget::Sporadic(sporadic) = self {
            sporadic.suspend(queue, now, watch);
        }
    }

    /// Resumes the server, with something to run since `at`; returns how many replenishments were
    /// processed.
    #[inline]
    pub(crate) fn resume(
        &mut self,
        queue: &mut ReplenishmentQueue,
        at: Nanos,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Sporadic(sporadic) => u64::from(sporadic.resume(queue, at, now, watch)),
            Budget::Deferrable(_) => self.replenish(queue, now, watch),
            Budget::Bandwidth(bandwidth) => {
                let replenished = bandwidth.resume(at, now);
                watch_throttled(bandwidth, now, watch);
                replenished
            }
            Budget::Unlimited => 0,
        }
    }

    /// Processes the replenishments that are due; returns how many.
    #[inline]
    pub(crate) fn replenish(
        &mut self,
        queue: &mut ReplenishmentQueue,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Sporadic(sporadic) => u64::from(sporadic.replenish(queue, now, watch)),
            Budget::Deferrable(deferrable) => {
                let passed = deferrable.roll(now);
                // Also when none passed: the timer of one that had been caught up with was spent.
                watch.pending(PERIODIC, deferrable.boundary_after(now));
                passed
            }
            Budget::Bandwidth(bandwidth) => {
                let replenished = bandwidth.replenish(now);
                watch_throttled(bandwidth, now, watch);
                replenished
            }
            Budget::Unlimited => 0,
        }
    }

    /// Records that the timer of a replenishment fired without ending a depletion. Sporadic servers
    /// ignore it: due replenishments are found when they are used.
    pub(crate) fn note_due(
        &mut self,
        queue: &mut ReplenishmentQueue,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Sporadic(_) => 1,
            _ => self.replenish(queue, now, watch),
        }
    }

    /// The deadline of a constant-bandwidth server.
    #[inline]
    pub(crate) const fn deadline(&self) -> Option<Nanos> {
        match self {
            Budget::Bandwidth(bandwidth) => Some(bandwidth.deadline()),
            _ => None,
        }
    }

    /// The deadline that a constant-bandwidth server will have when its timeout at `at` has been
    /// processed.
    #[inline]
    pub(crate) fn deadline_at(&self, at: Nanos, is_activation: bool) -> Option<Nanos> {
        match self {
            Budget::Bandwidth(bandwidth) => Some(bandwidth.deadline_at(at, is_activation)),
            _ => None,
        }
    }

    /// Watches every pending replenishment, including due ones if the server still waits for them.
    pub(crate) fn watch_all(
        &self,
        queue: &ReplenishmentQueue,
        now: Nanos,
        is_depleted: bool,
        watch: &mut Watch<'_>,
    ) {
        match self {
            Budget::Sporadic(_) => queue.watch_all(now, is_depleted, watch),
            Budget::Deferrable(deferrable) => {
                watch.pending(PERIODIC, deferrable.boundary_after(now));
            }
            Budget::Bandwidth(bandwidth) if is_depleted => {
                watch.pending(PERIODIC, bandwidth.available_at());
            }
            Budget::Bandwidth(bandwidth) => watch_throttled(bandwidth, now, watch),
            Budget::Unlimited => {}
        }
    }

    /// Processes the periods of a deferrable server that ended while it was ready and did not run;
    /// returns how many. Leaves a sporadic server's queue unchanged.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Nanos) -> u64 {
        match self {
            Budget::Deferrable(deferrable) => deferrable.roll(now),
            _ => 0,
        }
    }

    /// Excludes `time`, in which the processor worked for no task, from the wait of a
    /// [sporadic](Sporadic::forgo) server. The others gain nothing by having waited.
    pub(crate) fn forgo(&mut self, queue: &mut ReplenishmentQueue, time: Nanos, now: Nanos) {
        if let Budget::Sporadic(sporadic) = self {
            sporadic.forgo(queue, time, now);
        }
    }

    /// Returns whether a [sporadic](Sporadic::forgo) server's replenishments were put off, and not given back.
    #[inline]
    pub(crate) const fn is_put_off(&self) -> bool {
        match self {
            Budget::Sporadic(sporadic) => sporadic.is_put_off(),
            _ => false,
        }
    }

    /// Gives back what was put off, at an instant at which no server has both a task and budget.
    pub(crate) fn give_back(
        &mut self,
        queue: &mut ReplenishmentQueue,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) {
        if let Budget::Sporadic(sporadic) = self {
            sporadic.give_back(queue, now, watch);
        }
    }

    /// Returns the instant of depletion if the server runs from now on, with early replenishments,
    /// including those that become due during the interrupt of the depletion itself. That interrupt
    /// would find budget and switch to no server (SPR §III-B). The time used meanwhile is an
    /// overrun, as it would be during the interrupt.
    #[inline]
    pub(crate) fn depletion(
        &self,
        queue: &ReplenishmentQueue,
        now: Nanos,
        interrupt: Nanos,
    ) -> Nanos {
        match self {
            // Everything `interrupt` later: then what comes due by its end is there.
            Budget::Sporadic(sporadic) => match sporadic.depletion(queue, now + interrupt) {
                NEVER => NEVER,
                end => end - interrupt,
            },
            Budget::Deferrable(deferrable) => deferrable.depletion(now, interrupt),
            Budget::Bandwidth(bandwidth) => bandwidth.depletion(now),
            Budget::Unlimited => NEVER,
        }
    }
}

/// A constant-bandwidth server has a replenishment pending while it is throttled.
#[inline]
fn watch_throttled(bandwidth: &Bandwidth, now: Nanos, watch: &mut Watch<'_>) {
    let available = bandwidth.available_at();
    if available > now {
        watch.pending(PERIODIC, available);
    } else {
        watch.gone(PERIODIC);
    }
}
