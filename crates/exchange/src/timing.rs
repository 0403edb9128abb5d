//! How long an exchange waited for its tenant, and how long the guest worked for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What an exchange took so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// From being made to being taken by the tenant; `None` while it waits.
    pub queued: Option<Duration>,
    /// Processor time of the guest, as the cell counted it.
    pub guest: Duration,
}

/// The clock of an exchange, which both halves share.
pub(crate) struct Clock {
    made: Instant,
    /// One more than the nanoseconds in the queue; 0 while it waits.
    queued: AtomicU64,
    guest: AtomicU64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            made: Instant::now(),
            queued: AtomicU64::new(0),
            guest: AtomicU64::new(0),
        }
    }

    /// The exchange leaves its queue.
    pub(crate) fn taken(&self) {
        let waited = u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX - 1);
        self.queued.store(waited + 1, Ordering::Relaxed);
    }

    pub(crate) fn add_guest(&self, ns: u64) {
        self.guest.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Timing {
        let queued = self.queued.load(Ordering::Relaxed).checked_sub(1);
        Timing {
            queued: queued.map(Duration::from_nanos),
            guest: Duration::from_nanos(self.guest.load(Ordering::Relaxed)),
        }
    }
}
