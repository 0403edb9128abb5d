//! A tenant as the front knows it.

use crate::access::Outcome;
use crate::latency::{Distribution, Latency};
use crate::place::Places;
use crate::usage::Usage;
use leasehold_exchange::{ExchangeLimits, Lane, UnderWay};
use leasehold_io_thread::Share;
use leasehold_lease::{Cpu, Http};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A tenant that answers requests: its limits, and its lane while it runs.
pub struct Site {
    name: String,
    limits: ExchangeLimits,
    timeout: Duration,
    server_timing: bool,
    places: Arc<Places>,
    lane: Mutex<Option<Arc<Lane>>>,
    share: Share,
    /// It outlives a change of the tenant's limits.
    usage: Arc<Usage>,
}

/// How the requests of a tenant ended, by [`Outcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts([u64; Outcome::COUNT]);

/// The requests of a tenant at one time, since the tenant is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteSnapshot {
    /// The tenant's name.
    pub name: String,
    /// How its requests ended.
    pub outcomes: Counts,
    /// How long those took that were answered.
    pub answered: Distribution,
    /// Those that wait for it.
    pub waiting: u64,
    /// Those that are under way, without those that wait.
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
    /// With a reservation it has as large a part of the I/O thread's time.
    pub fn new(name: &str, http: &Http, cpu: Option<&Cpu>) -> Arc<Self> {
        Self::with(name, http, cpu, Arc::new(Usage::new()))
    }

    /// The same tenant with other limits, and without a lane: requests of both are counted together.
    pub fn changed(&self, http: &Http, cpu: Option<&Cpu>) -> Arc<Self> {
        Self::with(&self.name, http, cpu, self.usage.clone())
    }

    fn with(name: &str, http: &Http, cpu: Option<&Cpu>, usage: Arc<Usage>) -> Arc<Self> {
        let reserving = |cpu: &Cpu| Share::reserving(cpu.budget().get(), cpu.period().get());
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
            places: Places::new(
                u64::from(http.concurrency) + u64::from(http.queue),
                http.timeout.into(),
            ),
            lane: Mutex::new(None),
            share: cpu.map(reserving).unwrap_or_default(),
            usage,
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
        Counts::new(|outcome| self.usage.of(outcome))
    }

    /// How long those took that were answered.
    pub fn latency(&self) -> Latency {
        self.usage.answered().read().summary()
    }

    /// How many requests wait for it now, and how many others are under way.
    pub fn load(&self) -> (u64, u64) {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.as_ref().map_or((0, 0), |lane| {
            let waiting = lane.len() as u64;
            (waiting, lane.under_way().saturating_sub(waiting))
        })
    }

    /// Its requests at this time. Allocates for the distribution of their times.
    pub fn snapshot(&self) -> SiteSnapshot {
        let (waiting, active) = self.load();
        SiteSnapshot {
            name: self.name.clone(),
            outcomes: self.counts(),
            answered: self.usage.answered().read(),
            waiting,
            active,
            received_bytes: self.usage.received_bytes(),
            sent_bytes: self.usage.sent_bytes(),
            processor_ns: self.usage.processor_ns(),
        }
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Counts a request in the lane, if there is one: what replaces the lane sees it from then on.
    pub(crate) fn enter(&self) -> Option<UnderWay> {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.as_ref().map(Lane::enter)
    }

    /// Its exchanges' places in the host's memory.
    pub(crate) const fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Its share of the I/O thread.
    pub(crate) const fn share(&self) -> &Share {
        &self.share
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
}
