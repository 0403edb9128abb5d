//! What the requests of a tenant used at the front, counted on the I/O thread and read by others.

use crate::latency::{Histogram, Latency};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the requests of a tenant used, since it is known.
pub(crate) struct Usage {
    latency: Histogram,
    given: AtomicU64,
    over: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    processor_ns: AtomicU64,
}

/// What was counted at one time.
pub(crate) struct Read {
    pub(crate) latency: Latency,
    /// Requests that were given to the tenant and are not over.
    pub(crate) under_way: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) processor_ns: u64,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self {
            latency: Histogram::new(),
            given: AtomicU64::new(0),
            over: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            processor_ns: AtomicU64::new(0),
        }
    }

    /// A request was given to the tenant.
    pub(crate) fn given(&self) {
        self.given.fetch_add(1, Ordering::Relaxed);
    }

    /// A request that was given to the tenant is over, this long after its head.
    pub(crate) fn over(&self, elapsed: Duration) {
        self.over.fetch_add(1, Ordering::Relaxed);
        self.latency.record(elapsed);
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

    /// O(1), with an allocation for the histogram.
    pub(crate) fn read(&self) -> Read {
        // What only grows behind the other is read first.
        let over = self.over.load(Ordering::Relaxed);
        Read {
            latency: self.latency.read(),
            under_way: self.given.load(Ordering::Relaxed).saturating_sub(over),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            processor_ns: self.processor_ns.load(Ordering::Relaxed),
        }
    }
}
