//! The budget of a server, by its policy.

use crate::bandwidth::Bandwidth;
use crate::config::Order;
use crate::contract::{Contract, Nanos, Policy};
use crate::deferrable::Deferrable;
use crate::id::NEVER;
use crate::ring::{Ring, Watch};
use crate::sporadic::Sporadic;

/// The accounts of a server. The replenishment queue of a sporadic server is kept beside it,
/// and given to whatever may need it; the others ignore it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Budget {
    Sporadic(Sporadic),
    Deferrable(Deferrable),
    Bandwidth(Bandwidth),
    /// A background server's.
    Unlimited,
}

/// Where a budget's replenishment is pending that is not in a ring.
const PERIODIC: u32 = 0;

impl Budget {
    pub(crate) const fn new(contract: &Contract, order: Order, now: Nanos) -> Self {
        match (order, contract.policy()) {
            (Order::EarliestDeadline, _) => Budget::Bandwidth(Bandwidth::new(contract, now)),
            (_, Policy::Sporadic) => Budget::Sporadic(Sporadic::new(contract)),
            (_, Policy::Deferrable) => Budget::Deferrable(Deferrable::new(contract, now)),
        }
    }

    /// Says whether there is budget at `now`.
    #[inline]
    pub(crate) fn is_available(&self, ring: &Ring, now: Nanos) -> bool {
        self.available_at(ring) <= now
    }

    /// When there will be budget, or some instant since which there is.
    #[inline]
    pub(crate) fn available_at(&self, ring: &Ring) -> Nanos {
        match self {
            Budget::Sporadic(_) => ring.head().at,
            Budget::Deferrable(deferrable) => deferrable.available_at(),
            Budget::Bandwidth(bandwidth) => bandwidth.available_at(),
            Budget::Unlimited => 0,
        }
    }

    /// What was used beyond the budget, and is taken from the next.
    #[inline]
    pub(crate) fn overrun(&self, ring: &Ring, now: Nanos) -> Nanos {
        match self {
            Budget::Sporadic(sporadic) => sporadic.overrun(ring, now),
            Budget::Deferrable(deferrable) => deferrable.overrun(),
            Budget::Bandwidth(bandwidth) => bandwidth.overrun(),
            Budget::Unlimited => 0,
        }
    }

    /// The most that is used beyond what has come back, at any instant of execution from `from` to `to`.
    #[cold]
    pub(crate) fn longest_overrun(&self, ring: &Ring, from: Nanos, to: Nanos) -> Nanos {
        match self {
            Budget::Sporadic(sporadic) => sporadic.longest_overrun(ring, from, to),
            Budget::Deferrable(deferrable) => deferrable.longest_overrun(from, to),
            Budget::Bandwidth(bandwidth) => bandwidth.longest_overrun(from, to),
            Budget::Unlimited => 0,
        }
    }

    /// What could be used at `now`.
    pub(crate) fn left(&self, ring: &Ring, now: Nanos) -> Nanos {
        match self {
            Budget::Sporadic(sporadic) => sporadic.left(ring, now),
            Budget::Deferrable(deferrable) => deferrable.left(now),
            Budget::Bandwidth(bandwidth) => bandwidth.left(),
            Budget::Unlimited => NEVER,
        }
    }

    /// When the next replenishment after `now` comes due.
    pub(crate) fn next_replenishment(&self, ring: &Ring, now: Nanos) -> Option<Nanos> {
        match self {
            Budget::Sporadic(_) => ring.entries().map(|entry| entry.at).find(|&at| at > now),
            Budget::Deferrable(deferrable) => Some(deferrable.boundary_after(now)),
            Budget::Bandwidth(bandwidth) => {
                Some(bandwidth.available_at()).filter(|&available| available > now)
            }
            Budget::Unlimited => None,
        }
    }

    /// Accounts for execution from `from` to `to`, and for what came back by `now`, which is later
    /// if somebody else pays for the rest; returns how many replenishments passed.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        ring: &mut Ring,
        (from, to): (Nanos, Nanos),
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Sporadic(sporadic) => {
                sporadic.charge(ring, to - from, watch);
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
        ring: &mut Ring,
        time: Nanos,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Deferrable(deferrable) => {
                deferrable.charge_more(time);
                0
            }
            _ => self.charge(ring, (now, now + time), now, watch),
        }
    }

    /// The server has nothing to run any more.
    #[inline]
    pub(crate) fn suspend(&mut self, ring: &mut Ring, now: Nanos, watch: &mut Watch<'_>) {
        if let Budget::Sporadic(sporadic) = self {
            sporadic.suspend(ring, now, watch);
        }
    }

    /// The server has something to run again, since `at`; returns how many replenishments were
    /// processed.
    #[inline]
    pub(crate) fn resume(
        &mut self,
        ring: &mut Ring,
        at: Nanos,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u64 {
        match self {
            Budget::Sporadic(sporadic) => u64::from(sporadic.resume(ring, at, now, watch)),
            Budget::Deferrable(_) => self.replenish(ring, now, watch),
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
    pub(crate) fn replenish(&mut self, ring: &mut Ring, now: Nanos, watch: &mut Watch<'_>) -> u64 {
        match self {
            Budget::Sporadic(sporadic) => u64::from(sporadic.replenish(ring, now, watch)),
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

    /// The timer of a replenishment fired that does not end a depletion. Sporadic servers note
    /// nothing then: what is due is found when it is used.
    pub(crate) fn note_due(&mut self, ring: &mut Ring, now: Nanos, watch: &mut Watch<'_>) -> u64 {
        match self {
            Budget::Sporadic(_) => 1,
            _ => self.replenish(ring, now, watch),
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

    /// Sees to it that every replenishment is watched that is pending, those that are due
    /// included if the server still waits for them.
    pub(crate) fn watch_all(
        &self,
        ring: &Ring,
        now: Nanos,
        is_depleted: bool,
        watch: &mut Watch<'_>,
    ) {
        match self {
            Budget::Sporadic(_) => ring.watch_all(now, is_depleted, watch),
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

    /// Lets the periods of a deferrable server pass that ended while it was ready and did not
    /// run; returns how many. A sporadic server's queue is left alone then.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Nanos) -> u64 {
        match self {
            Budget::Deferrable(deferrable) => deferrable.roll(now),
            _ => 0,
        }
    }

    /// When the budget ends if the server runs from now on, early replenishments included: also
    /// those that come due while the interrupt for its end would last. That interrupt would find
    /// budget and switch to nobody (SPR §III-B); what is used meanwhile is an overrun, as it would
    /// be during the interrupt.
    #[inline]
    pub(crate) fn depletion(&self, ring: &Ring, now: Nanos, interrupt: Nanos) -> Nanos {
        match self {
            // Everything `interrupt` later: then what comes due by its end is there.
            Budget::Sporadic(sporadic) => match sporadic.depletion(ring, now + interrupt) {
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
