//! One number for how isolated two workloads are from each other: the metric that LockScope §8
//! asks for, made of how much they share and what that costs.
//!
//! # Definition
//! The *exposure* of a workload to another one is the share of its time that it loses to the
//! other's use of the locks that they share, in seconds per second. For each shared lock it has
//! two parts.
//!
//! *Waiting*: what was measured, or what is to be expected, whichever is more. Expected is how
//! often the lock is found taken and for how long still: acquisitions per second, times the share
//! of time that the other one holds it, times the mean of its holds. (An acquisition comes at a
//! random moment of the other's holds; what then remains of one is as long as a whole one if their
//! lengths are memoryless, and less if they are even.) Readers do not wait for readers. Measured
//! waits count in proportion to the other's part of the acquisitions: the rest was waiting for
//! itself.
//!
//! *Moving*: a lock that two processors take in turns moves between their caches, wait or no wait,
//! at most as often as the one takes it that takes it less often; [`MOVE_NS`] each time.
//!
//! The exposure of the pair is the larger one of the two directions, and the **score** is
//! `-log10` of it: nines of isolation. With a score of 2 a workload loses a hundredth of its time
//! to the other one, with 4 a ten-thousandth. [`MOST`] is the most: below that nothing can be told,
//! and it is what workloads get that share nothing.
//!
//! # Why so
//! - Sharing alone does not order platforms: two locks shared a million times a second isolate
//!   less than twenty that are shared once (LockScope table 5 has counts and rates side by side for
//!   that reason).
//! - Measured waits alone call two workloads isolated that merely did not meet, on two processors
//!   or in a short run. What is expected does not depend on luck.
//! - It is monotone: a further shared lock, a longer hold, a longer wait or more acquisitions by
//!   the other one never raise the score. And it is in units of what a user loses, so that it can be compared with
//!   what `interfere` measures.
//!
//! A trace of the contended mode has measured waits only: its score is an upper bound.

use serde::Serialize;

use crate::sharing::{Acquisitions, Lock, Usage, locks};
use crate::trace::{Mode, Trace};

/// What it costs to take a lock that another processor took last, in nanoseconds: a cache line
/// that moves between cores of one socket.
pub const MOVE_NS: f64 = 100.0;

/// The most that a score can be.
pub const MOST: f64 = 9.0;

/// How isolated the workloads of a trace are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    /// What the workloads are called.
    pub name: String,
    /// What they ran on.
    pub platform: String,
    /// Nines of isolation, from 0 to [`MOST`].
    pub score: f64,
    /// Whether the recording saw anything to say so by: one without a lock did not, and one that saw
    /// waits only did not if there were none for a shared lock.
    pub measured: bool,
    /// Whether it is an upper bound only, because the recording saw waits and nothing else.
    pub upper_bound: bool,
    /// What the score is made of: for each direction.
    pub exposures: Vec<Exposure>,
    /// The locks that cost most, and what each one costs, in the direction that counts.
    pub worst: Vec<(String, f64)>,
}

/// What a workload loses to another one, in seconds per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exposure {
    /// The workload that loses.
    pub of: String,
    /// The workload that it loses to.
    pub to: String,
    /// By waiting.
    pub waiting: f64,
    /// By moving locks between caches.
    pub moving: f64,
}

impl Exposure {
    /// Both parts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.waiting + self.moving
    }
}

impl Score {
    /// The score of `trace`: that of its least isolated pair.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let locks: Vec<_> = locks(trace)
            .into_iter()
            .filter(|lock| lock.shared)
            .collect();
        let seconds = (trace.duration_ns as f64 / 1e9).max(1e-9);
        let named: Vec<_> = (0u8..=u8::MAX).zip(&trace.workloads).collect();
        let mut exposures = Vec::new();
        let mut worst = Vec::new();
        let mut most = 0.0;
        for (one, of) in &named {
            for (two, to) in named.iter().filter(|(two, _)| two != one) {
                let costs = locks
                    .iter()
                    .filter_map(|lock| cost(lock, *one, *two, seconds));
                let costs: Vec<_> = costs.collect();
                let exposure = Exposure {
                    of: of.name.clone(),
                    to: to.name.clone(),
                    waiting: costs.iter().map(|cost| cost.waiting).sum(),
                    moving: costs.iter().map(|cost| cost.moving).sum(),
                };
                if exposure.total() > most {
                    most = exposure.total();
                    worst = ranked(&costs);
                }
                exposures.push(exposure);
            }
        }
        Self {
            name: trace.name.clone(),
            platform: trace.platform.clone(),
            score: nines(most),
            measured: match trace.mode {
                Mode::Full => !trace.uses.is_empty(),
                Mode::Contended => most > 0.0,
            },
            upper_bound: trace.mode == Mode::Contended,
            exposures,
            worst,
        }
    }
}

/// `-log10`, between 0 and [`MOST`].
fn nines(exposure: f64) -> f64 {
    (-exposure.log10()).clamp(0.0, MOST)
}

/// What one lock costs in one direction.
struct Cost<'a> {
    name: &'a str,
    waiting: f64,
    moving: f64,
}

fn cost(lock: &Lock, of: u8, to: u8, seconds: f64) -> Option<Cost<'_>> {
    let (mine, theirs) = (lock.by.get(&of)?, lock.by.get(&to)?);
    let (my, their) = (mine.acquired() as f64, theirs.acquired() as f64);
    let measured = mine.wait_ns as f64 / 1e9 / seconds * (their / (my + their).max(1.0));
    let moves = my.min(their) / seconds;
    Some(Cost {
        name: &lock.name,
        waiting: expected(mine, theirs, seconds).max(measured),
        moving: moves * MOVE_NS / 1e9,
    })
}

/// Seconds per second that `mine` is expected to wait for `theirs`.
fn expected(mine: &Usage, theirs: &Usage, seconds: f64) -> f64 {
    let wait = |acquired: u64, holds: &Acquisitions| {
        let held = holds.hold_ns as f64 / 1e9;
        let mean = held / (holds.held as f64).max(1.0);
        acquired as f64 / seconds * (held / seconds).min(1.0) * mean
    };
    wait(mine.acquired(), &theirs.exclusive) + wait(mine.exclusive.acquired, &theirs.shared)
}

/// The ten names that cost most.
fn ranked(costs: &[Cost<'_>]) -> Vec<(String, f64)> {
    let mut sums = std::collections::BTreeMap::<&str, f64>::new();
    for cost in costs {
        *sums.entry(cost.name).or_default() += cost.waiting + cost.moving;
    }
    let mut ranked: Vec<_> = sums
        .into_iter()
        .map(|(name, cost)| (name.to_owned(), cost))
        .collect();
    ranked.sort_by(|one, two| two.1.total_cmp(&one.1));
    ranked.truncate(10);
    ranked
}
