//! The ready servers and the pending timeouts, in the order that the scheduler was made for.

use crate::config::Order;
use crate::contract::Nanos;
use crate::deadlines::Deadlines;
use crate::heaps::Heaps;
use crate::id::Index;
use crate::runqueue::Runqueue;
use crate::timeouts::Timeouts;
use crate::urgency::Urgency;

/// The only heap of deadlines.
const ONLY: Index = 0;

/// The servers that can run.
#[derive(Debug)]
pub(crate) enum Ready {
    ByPriority(Runqueue),
    ByDeadline(Heaps),
}

impl Ready {
    pub(crate) fn new(order: Order, servers: u32) -> Self {
        match order {
            Order::FixedPriority => Ready::ByPriority(Runqueue::new(servers)),
            Order::EarliestDeadline => Ready::ByDeadline(Heaps::new(1, servers)),
        }
    }

    /// The most urgent one, and how urgent it is.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Urgency, Index)> {
        match self {
            Ready::ByPriority(queue) => queue.first(),
            Ready::ByDeadline(heap) => {
                let (deadline, server) = heap.first(ONLY)?;
                Some((Urgency::of_deadline(deadline), server))
            }
        }
    }

    /// How urgent the most urgent one but `server` is, under deadlines.
    pub(crate) fn first_deadline_but(&self, server: Index) -> Option<Nanos> {
        match self {
            Ready::ByPriority(_) => None,
            Ready::ByDeadline(heap) => heap.first_but(ONLY, server),
        }
    }

    /// Adds a server that is not among them, behind its equals.
    #[inline]
    pub(crate) fn push_back(&mut self, urgency: Urgency, server: Index) {
        match self {
            Ready::ByPriority(queue) => queue.push_back(urgency, server),
            Ready::ByDeadline(heap) => heap.insert(ONLY, server, urgency.deadline()),
        }
    }

    /// Takes a server out.
    #[inline]
    pub(crate) fn remove(&mut self, urgency: Urgency, server: Index) {
        match self {
            Ready::ByPriority(queue) => queue.remove(urgency, server),
            Ready::ByDeadline(heap) => heap.remove(ONLY, server),
        }
    }
}

/// The servers that will be able to run at a known time.
#[derive(Debug)]
pub(crate) enum Pending {
    ByPriority(Timeouts),
    ByDeadline(Deadlines),
}

impl Pending {
    pub(crate) fn new(order: Order, servers: u32, seed: u64) -> Self {
        match order {
            Order::FixedPriority => Pending::ByPriority(Timeouts::new(servers)),
            Order::EarliestDeadline => Pending::ByDeadline(Deadlines::new(servers, seed)),
        }
    }

    /// Sets a server's timeout, in place of the one it may have had.
    #[inline]
    pub(crate) fn set(&mut self, urgency: Urgency, server: Index, at: Nanos) {
        match self {
            Pending::ByPriority(timeouts) => timeouts.set(urgency, server, at),
            Pending::ByDeadline(deadlines) => deadlines.set(urgency, server, at),
        }
    }

    /// Takes a server's timeout out, if it has one.
    #[inline]
    pub(crate) fn remove(&mut self, urgency: Urgency, server: Index) {
        match self {
            Pending::ByPriority(timeouts) => timeouts.remove(urgency, server),
            Pending::ByDeadline(deadlines) => deadlines.remove(server),
        }
    }

    /// The earliest timeout of all; `NEVER` if there is none.
    #[inline]
    pub(crate) fn earliest(&self) -> Nanos {
        match self {
            Pending::ByPriority(timeouts) => timeouts.earliest(),
            Pending::ByDeadline(deadlines) => deadlines.earliest(),
        }
    }

    /// The earliest timeout of a server that will be more urgent than `urgency`: `t_hp` (SPR
    /// Alg. 2 line 6); `NEVER` if there is none.
    #[inline]
    pub(crate) fn earliest_above(&self, urgency: Urgency) -> Nanos {
        match self {
            Pending::ByPriority(timeouts) => timeouts.earliest_above(urgency),
            Pending::ByDeadline(deadlines) => deadlines.earliest_above(urgency),
        }
    }

    /// The most urgent server whose timeout has expired.
    #[inline]
    pub(crate) fn most_urgent_expired(&self, now: Nanos) -> Option<(Urgency, Index)> {
        match self {
            Pending::ByPriority(timeouts) => timeouts.most_urgent_expired(now),
            Pending::ByDeadline(deadlines) => deadlines.most_urgent_expired(now),
        }
    }
}
