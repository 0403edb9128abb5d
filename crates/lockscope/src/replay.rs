//! What to do about it: a trace replayed as if each workload had something for itself.
//!
//! The locks that go with a [`Separation`] are then no longer shared, and the trace is scored without them. That says nothing of
//! what the separation itself costs, nor of locks that it adds: a second recording does, of the workloads separated so.

use serde::Serialize;

use crate::score::Score;
use crate::separation::Separation;
use crate::sharing::{Usage, locks};
use crate::trace::Trace;

/// A trace, as if each workload had something for itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Replay {
    /// What it would have.
    pub separation: Separation,
    /// Locks that would no longer be shared.
    pub locks: u64,
    /// Their acquisitions, per second of the recording.
    pub per_second: f64,
    /// Nines of isolation with this alone.
    pub score: f64,
    /// Nines of isolation with this and with everything cheaper.
    pub with_cheaper: f64,
}

/// A part of what is lost that is worth a separation.
const WORTH: f64 = 0.5;

impl Replay {
    /// One for each separation that makes a difference, the cheapest first. The last one is a kernel, if anything is left to it.
    #[must_use]
    pub fn all(trace: &Trace) -> Vec<Self> {
        let shared: Vec<_> = locks(trace)
            .into_iter()
            .filter(|lock| lock.shared)
            .collect();
        let mut separations: Vec<_> = shared.iter().map(|lock| lock.separation).collect();
        separations.sort_unstable();
        separations.dedup();
        let seconds = (trace.duration_ns as f64 / 1e9).max(1e-9);
        let score = |is_left: &dyn Fn(Separation) -> bool| {
            let left = shared.iter().filter(|lock| is_left(lock.separation));
            Score::of_locks(trace, &left.cloned().collect::<Vec<_>>()).score
        };
        let replay = |separation| {
            let parted = shared.iter().filter(|lock| lock.separation == separation);
            let taken = parted.clone().flat_map(|lock| lock.by.values());
            Self {
                separation,
                locks: parted.count() as u64,
                per_second: taken.map(Usage::acquired).fold(0, u64::saturating_add) as f64
                    / seconds,
                // A kernel of its own has everything else of its own.
                score: score(&|left| left != separation && separation != Separation::Kernel),
                with_cheaper: score(&|left| left > separation),
            }
        };
        separations.into_iter().map(replay).collect()
    }

    /// The cheapest that takes half of what is lost away, of the `replays` of a trace with this `score`.
    #[must_use]
    pub fn cheapest(replays: &[Self], score: f64) -> Option<Cheapest> {
        let enough = score - WORTH.log10();
        let found = replays
            .iter()
            .find(|replay| replay.score.max(replay.with_cheaper) >= enough)?;
        Some(Cheapest {
            separation: found.separation,
            with_cheaper: found.score < enough,
        })
    }
}

/// A separation that is worth what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cheapest {
    /// What each workload needs for itself.
    pub separation: Separation,
    /// Whether it is not enough alone, but takes everything cheaper as well.
    pub with_cheaper: bool,
}
