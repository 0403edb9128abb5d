//! A tenant as the front knows it.

use crate::access::Outcome;
use crate::latency::Latency;
use crate::usage::Usage;
use leasehold_exchange::{ExchangeLimits, Lane};
use leasehold_lease::Http;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A tenant that answers requests: its limits, and its lane while it runs.
pub struct Site {
    name: String,
    limits: ExchangeLimits,
    timeout: Duration,
    server_timing: bool,
    lane: Mutex<Option<Arc<Lane>>>,
    outcomes: [AtomicU64; Outcome::COUNT],
    usage: Usage,
}

/// How the requests of a tenant ended, by [`Outcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts([u64; Outcome::COUNT]);

/// A tenant's requests at one time: how they ended, and what they used since the tenant is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteSnapshot {
    /// The tenant's name.
    pub name: String,
    /// How its requests ended.
    pub outcomes: Counts,
    /// How long those took that were given to it.
    pub latency: Latency,
    /// Those that wait for it.
    pub waiting: u64,
    /// Those that it works on.
    pub active: u64,
    /// Bytes of requests' bodies that came from clients.
    pub received_bytes: u64,
    /// Bytes of responses' bodies that went to clients.
    pub sent_bytes: u64,
    /// Processor time of the I/O thread on its behalf, ns.
    pub processor_ns: u64,
}

impl Counts {
    /// Counts of outcomes.
    pub fn new(count: impl Fn(Outcome) -> u64) -> Self {
        Self(Outcome::ALL.map(count))
    }

    /// How many ended so.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// How many there were.
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Site {
    /// The tenant of this name, which is not running yet.
    pub fn new(name: &str, http: &Http) -> Arc<Self> {
        // Both are at most 16 MiB.
        let bytes = |size: leasehold_lease::ByteSize| u32::try_from(size.get()).unwrap_or(u32::MAX);
        Arc::new(Self {
            name: name.to_owned(),
            limits: ExchangeLimits {
                head_bytes: bytes(http.head),
                window_bytes: bytes(http.window),
            },
            timeout: http.timeout.into(),
            server_timing: http.server_timing,
            lane: Mutex::new(None),
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            usage: Usage::new(),
        })
    }

    /// The tenant's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// From now on requests go into this lane; with `None` they are answered with 503.
    pub fn set_lane(&self, lane: Option<Arc<Lane>>) {
        *self.lane.lock().unwrap_or_else(PoisonError::into_inner) = lane;
    }

    /// How its requests ended so far.
    pub fn counts(&self) -> Counts {
        Counts(std::array::from_fn(|at| {
            self.outcomes[at].load(Ordering::Relaxed)
        }))
    }

    /// Its requests at this time. Locks nothing that a request does for longer than it takes to
    /// clone a reference; allocates for the histogram.
    pub fn snapshot(&self) -> SiteSnapshot {
        let used = self.usage.read();
        let waiting = self.lane().map_or(0, |lane| lane.len() as u64);
        SiteSnapshot {
            name: self.name.clone(),
            outcomes: self.counts(),
            latency: used.latency,
            waiting,
            active: used.under_way.saturating_sub(waiting),
            received_bytes: used.received_bytes,
            sent_bytes: used.sent_bytes,
            processor_ns: used.processor_ns,
        }
    }

    pub(crate) const fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(crate) fn lane(&self) -> Option<Arc<Lane>> {
        self.lane
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) const fn limits(&self) -> ExchangeLimits {
        self.limits
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) const fn server_timing(&self) -> bool {
        self.server_timing
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}
