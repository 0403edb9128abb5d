//! How the requests of a tenant ended and what they used at the front, counted on the I/O thread and
//! read by others. No counter takes a lock, and all of them together are of fixed size.

use crate::access::Outcome;
use crate::latency::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The requests of a tenant since it is known.
pub(crate) struct Usage {
    outcomes: [AtomicU64; Outcome::COUNT],
    answered: Histogram,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    processor_ns: AtomicU64,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self {
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            answered: Histogram::new(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            processor_ns: AtomicU64::new(0),
        }
    }

    /// A request is over, this long after its head.
    pub(crate) fn ended(&self, outcome: Outcome, elapsed: Duration) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
        if outcome == Outcome::Answered {
            self.answered.record(elapsed);
        }
    }

    /// Bytes of a request's body came from a client.
    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of a response's body go to a client.
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The I/O thread used processor time on the tenant's behalf, ns.
    pub(crate) fn used(&self, ns: u64) {
        self.processor_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    pub(crate) const fn answered(&self) -> &Histogram {
        &self.answered
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn processor_ns(&self) -> u64 {
        self.processor_ns.load(Ordering::Relaxed)
    }
}
