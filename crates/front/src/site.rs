//! A tenant as the front knows it.

use crate::access::Outcome;
use hdrhistogram::Histogram;
use leasehold_exchange::{ExchangeLimits, Lane, UnderWay};
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
    tallies: Arc<Tallies>,
}

/// How the requests of a tenant ended, and how long those that were answered took. They outlive a change
/// of the tenant's limits.
struct Tallies {
    outcomes: [AtomicU64; Outcome::COUNT],
    answered: Mutex<Answered>,
}

struct Answered {
    /// ns, to two digits.
    times: Histogram<u32>,
    sum_ns: u64,
}

/// The shortest and the longest time that are told apart, ns.
const SHORTEST: u64 = 1_000;
const LONGEST: u64 = 3_600_000_000_000;

/// How long requests took that were answered, from their head to the end of the response, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// All together.
    pub sum_ns: u64,
    /// The median, to two digits, as the other quantiles.
    pub p50_ns: u64,
    /// What 90 % did not exceed.
    pub p90_ns: u64,
    /// What 99 % did not exceed.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Tallies {
    fn new() -> Self {
        let times = Histogram::new_with_bounds(SHORTEST, LONGEST, 2).expect("the bounds are apart");
        Self {
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            answered: Mutex::new(Answered { times, sum_ns: 0 }),
        }
    }
}

/// How the requests of a tenant ended, by [`Outcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts([u64; Outcome::COUNT]);

impl Counts {
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
        Self::with(name, http, Arc::new(Tallies::new()))
    }

    /// The same tenant with other limits, and without a lane: requests of both are counted together.
    pub fn changed(&self, http: &Http) -> Arc<Self> {
        Self::with(&self.name, http, self.tallies.clone())
    }

    fn with(name: &str, http: &Http, tallies: Arc<Tallies>) -> Arc<Self> {
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
            tallies,
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
            self.tallies.outcomes[at].load(Ordering::Relaxed)
        }))
    }

    /// How long those took that were answered.
    pub fn latency(&self) -> Latency {
        let answered = self.answered();
        let times = &answered.times;
        Latency {
            count: times.len(),
            sum_ns: answered.sum_ns,
            p50_ns: times.value_at_quantile(0.5),
            p90_ns: times.value_at_quantile(0.9),
            p99_ns: times.value_at_quantile(0.99),
            max_ns: times.max(),
        }
    }

    /// How many requests wait for it now, and how many others are under way.
    pub fn load(&self) -> (u64, u64) {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.as_ref().map_or((0, 0), |lane| {
            let waiting = lane.len() as u64;
            (waiting, lane.under_way().saturating_sub(waiting))
        })
    }

    fn answered(&self) -> std::sync::MutexGuard<'_, Answered> {
        let answered = self.tallies.answered.lock();
        answered.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request in the lane, if there is one: what replaces the lane sees it from then on.
    pub(crate) fn enter(&self) -> Option<UnderWay> {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.as_ref().map(Lane::enter)
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

    pub(crate) fn count(&self, outcome: Outcome, elapsed: Duration) {
        self.tallies.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
        if outcome == Outcome::Answered {
            let ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
            let mut answered = self.answered();
            answered.times.saturating_record(ns);
            answered.sum_ns = answered.sum_ns.saturating_add(ns);
        }
    }
}
