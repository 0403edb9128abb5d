//! The urgency of a tenant's wake-ups, as other threads see it.
//!
//! The waking thread decides whether a wake-up preempts the running task, and it cannot ask the
//! scheduler. Under fixed priorities it need not. Under earliest deadline first it must know the
//! tenant's deadline after the wake-up. The rule of constant-bandwidth servers (Abeni and Buttazzo)
//! determines it: the last deadline or, if that has passed, one a period from now. So a tenant
//! publishes its deadline when it blocks.
//!
//! The deadline of a server only moves to later instants, so that the published one is never too
//! late: a wake-up may preempt in vain, but is never missed.

use crate::clock::monotonic_ns;
use crate::deferral::Deferral;
use leasehold_crossing::{Owner, Urgency, Urgent};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The urgency of one tenant, and whether its wake-ups are deferred. Clones share both.
#[derive(Debug, Clone)]
pub(crate) struct WakePriority {
    rank: Rank,
    owner: Owner,
    deferral: Arc<Deferral>,
}

#[derive(Debug, Clone)]
enum Rank {
    /// Always as urgent as this.
    Fixed(Urgency),
    /// The urgency follows from its deadline.
    Deadline(Arc<PublishedDeadline>),
}

/// The deadline of a tenant's budget, as other threads know it.
#[derive(Debug)]
pub(crate) struct PublishedDeadline {
    /// The deadline that the tenant published when it blocked, ns.
    last: AtomicU64,
    period: u64,
}

impl WakePriority {
    /// Returns the wake priority of a tenant with a constant urgency.
    pub(crate) fn fixed(urgency: Urgency, owner: Owner) -> Self {
        Self::new(Rank::Fixed(urgency), owner)
    }

    /// Returns the wake priority of a tenant with a first deadline and a period, ns.
    pub(crate) fn by_deadline(first: u64, period: u64, owner: Owner) -> Self {
        let deadline = PublishedDeadline {
            last: AtomicU64::new(first),
            period,
        };
        Self::new(Rank::Deadline(Arc::new(deadline)), owner)
    }

    fn new(rank: Rank, owner: Owner) -> Self {
        Self {
            rank,
            owner,
            deferral: Arc::default(),
        }
    }

    /// The urgency, if it is always the same.
    pub(crate) const fn always(&self) -> Option<Urgency> {
        match self.rank {
            Rank::Fixed(urgency) => Some(urgency),
            Rank::Deadline(_) => None,
        }
    }

    /// Its deadline as other threads know it, if it has one.
    pub(crate) fn deadline(&self) -> Option<&PublishedDeadline> {
        match &self.rank {
            Rank::Fixed(_) => None,
            Rank::Deadline(deadline) => Some(deadline),
        }
    }

    /// The deferral of its wake-ups while it has no budget.
    pub(crate) fn deferral(&self) -> &Deferral {
        &self.deferral
    }

    fn urgency_at(&self, now: impl FnOnce() -> u64) -> Urgency {
        match &self.rank {
            Rank::Fixed(urgency) => *urgency,
            Rank::Deadline(deadline) => {
                let (now, last) = (now(), deadline.last.load(Ordering::Relaxed));
                let next = if last > now {
                    last
                } else {
                    now + deadline.period
                };
                Urgency::of_deadline(next)
            }
        }
    }
}

impl PublishedDeadline {
    /// Publishes the deadline with which the tenant blocks.
    pub(crate) fn publish(&self, deadline: u64) {
        self.last.store(deadline, Ordering::Relaxed);
    }
}

impl Urgent for WakePriority {
    fn urgency(&self) -> Urgency {
        self.urgency_at(monotonic_ns)
    }

    fn owner(&self) -> Owner {
        self.owner
    }

    fn now(&self) -> u64 {
        monotonic_ns()
    }

    fn defers(&self, execution: u64) -> bool {
        self.deferral.keep(execution)
    }
}

#[cfg(test)]
mod tests {
    use super::WakePriority;
    use leasehold_crossing::{Owner, Urgency};

    #[test]
    fn a_deadline_that_has_passed_is_a_period_from_now() {
        let wake_priority = WakePriority::by_deadline(100, 30, Owner::new(1));
        let at = |now| wake_priority.urgency_at(|| now);
        assert_eq!(at(99), Urgency::of_deadline(100));
        assert_eq!(at(100), Urgency::of_deadline(130));
        assert_eq!(at(500), Urgency::of_deadline(530));
        wake_priority.deadline().expect("it has one").publish(600);
        assert_eq!(at(500), Urgency::of_deadline(600));
    }
}
