//! One number for how isolated two workloads are from each other: the metric that LockScope §8
//! asks for, made of how much they share and what that costs.
//!
//! # Definition
//! The *exposure* of a workload to another one is the share of its time that it loses to the
//! other's use of the locks that they share. For each shared lock it loses, per second of its own
//! work, by:
//!
//! *Waiting*: how often the lock is found taken and for how long still: acquisitions per second,
//! times the share of time that the other one holds it, times the mean of its holds. (An acquisition
//! comes at a random moment of the other's holds; what then remains of one is as long as a whole one
//! if their lengths are memoryless, and less if they are even.) Readers do not wait for readers.
//! Where fewer than half of the other's holds were measured, it is the measured waits, if they are
//! more. They count in proportion to the other's part of the acquisitions: the rest was waiting for
//! itself.
//!
//! *Moving*: a lock that two processors take in turns moves between their caches, wait or no wait,
//! at most as often as the one takes it that takes it less often, for [`Trace::move_ns`] each time, or
//! [`MOVE_NS`] where that was not measured.
//!
//! A second of a workload's own work is one in which it is neither traced nor beside the other one
//! ([`Workload::own_ns`]); where that was not measured, one in which it does not wait for the other one.
//! What a workload loses for each such second makes its *slowdown*: 1.5 if it loses half a second. That is
//! beside another one at its full pace. What is predicted of two that slow each other is
//! [`Exposure::together`], which is less.
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
//!   what is measured ([`Agreement`](crate::Agreement)).
//!
//! A trace of the contended mode has measured waits only: its score is an upper bound.

use serde::Serialize;

use crate::sharing::{Acquisitions, Lock, Usage, locks};
use crate::together::{Loss, together};
use crate::trace::{Mode, Trace, Workload, WorkloadId};

/// What it costs to take a lock that another processor took last, in nanoseconds, where it was not
/// measured: a cache line that moves between cores of one socket.
pub const MOVE_NS: f64 = 100.0;

/// The share of a recording that a workload's own work takes at least: several threads can wait for more than
/// it lasts.
const LEAST: f64 = 0.02;

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
    /// How many times as long as alone it takes for its work beside the other one at its full pace: an
    /// upper bound.
    pub slowdown: f64,
    /// How many times as long as alone it takes for its work beside the other one, which it slows in turn:
    /// what is predicted.
    pub together: f64,
}

impl Exposure {
    fn of(of: &Side<'_>, to: &Side<'_>, costs: &[Cost<'_>]) -> Self {
        let waiting: f64 = costs.iter().map(|cost| cost.waiting).sum();
        let moving: f64 = costs.iter().map(|cost| cost.moving).sum();
        let slowdown = 1.0 + waiting + moving;
        Self {
            of: of.name.to_owned(),
            to: to.name.to_owned(),
            waiting: waiting / slowdown,
            moving: moving / slowdown,
            slowdown,
            together: slowdown,
        }
    }

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
        Self::of_locks(trace, &shared(trace))
    }

    /// The score of `trace` if its workloads shared these `locks` of it, and no others.
    pub(crate) fn of_locks(trace: &Trace, locks: &[Lock]) -> Self {
        let move_ns = move_ns(trace);
        let sides = sides(trace, locks);
        let mut exposures = Vec::new();
        let mut worst = Vec::new();
        let mut most = 0.0;
        for of in &sides {
            for to in sides.iter().filter(|to| to.id != of.id) {
                let costs = costs(locks, of, to, move_ns);
                let back = self::costs(locks, to, of, move_ns);
                let [slow, _] = together(&loss(&costs), &loss(&back));
                let exposure = Exposure {
                    together: slow,
                    ..Exposure::of(of, to, &costs)
                };
                if exposure.total() > most {
                    most = exposure.total();
                    worst = ranked(&costs, exposure.slowdown);
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

/// What each shared lock costs the workload `of` beside `to` at its full pace, in seconds for each second of its
/// own work: address, generation, cost.
pub(crate) fn cost_of_locks(trace: &Trace, of: WorkloadId, to: WorkloadId) -> Vec<(u64, u32, f64)> {
    let locks = shared(trace);
    let sides = sides(trace, &locks);
    let side = |id: WorkloadId| sides.iter().find(|side| side.id == id.0);
    let (Some(of), Some(to)) = (side(of), side(to)) else {
        return Vec::new();
    };
    let costs = costs(&locks, of, to, move_ns(trace));
    let cost = |cost: &Cost<'_>| {
        (
            cost.lock.address,
            cost.lock.generation,
            cost.waiting + cost.moving,
        )
    };
    costs.iter().map(cost).collect()
}

fn shared(trace: &Trace) -> Vec<Lock> {
    let locks = locks(trace).into_iter();
    locks.filter(|lock| lock.shared).collect()
}

fn move_ns(trace: &Trace) -> f64 {
    trace.move_ns.map_or(MOVE_NS, |ns| ns as f64)
}

fn sides<'a>(trace: &'a Trace, shared: &[Lock]) -> Vec<Side<'a>> {
    (0u8..=u8::MAX)
        .zip(&trace.workloads)
        .map(|(id, workload)| Side::of(id, workload, shared, trace))
        .collect()
}

/// `-log10`, between 0 and [`MOST`].
fn nines(exposure: f64) -> f64 {
    (-exposure.log10()).clamp(0.0, MOST)
}

/// A workload, and how long it would have taken for its work alone and untraced.
struct Side<'a> {
    id: u8,
    name: &'a str,
    seconds: f64,
}

impl<'a> Side<'a> {
    fn of(id: u8, workload: &'a Workload, shared: &[Lock], trace: &Trace) -> Self {
        let ran = match workload.ran_ns {
            0 => trace.duration_ns,
            ran => ran,
        } as f64;
        let waited = shared.iter().filter_map(|lock| {
            let mine = lock.by.get(&id)?;
            let all: f64 = lock.by.values().map(|usage| usage.acquired() as f64).sum();
            let others = all - mine.acquired() as f64;
            Some(mine.wait_ns as f64 * others / all.max(1.0))
        });
        let own = match workload.own_ns {
            0 => (ran - waited.sum::<f64>()).max(ran * LEAST),
            own => own as f64,
        };
        Self {
            id,
            name: &workload.name,
            seconds: own.max(1.0) / 1e9,
        }
    }
}

/// What one lock costs in one direction, in seconds for each second of the workload alone.
struct Cost<'a> {
    lock: &'a Lock,
    waiting: f64,
    moving: f64,
    /// Whether `waiting` is what was measured, and not what is expected.
    measured: bool,
    /// What moving would cost if the lock moved each time that this workload takes it, and each time that
    /// the other one does.
    moves: (f64, f64),
}

fn costs<'a>(locks: &'a [Lock], of: &Side<'_>, to: &Side<'_>, move_ns: f64) -> Vec<Cost<'a>> {
    let costs = locks.iter().filter_map(|lock| cost(lock, of, to, move_ns));
    costs.collect()
}

/// All costs of one direction, by what they depend on.
fn loss(costs: &[Cost<'_>]) -> Loss {
    let waits = |measured| {
        let costs = costs.iter().filter(|cost| cost.measured == measured);
        costs.map(|cost| cost.waiting).sum()
    };
    Loss {
        waited: waits(true),
        expected: waits(false),
        moves: costs.iter().map(|cost| cost.moves).collect(),
    }
}

fn cost<'a>(lock: &'a Lock, of: &Side<'_>, to: &Side<'_>, move_ns: f64) -> Option<Cost<'a>> {
    let (mine, theirs) = (lock.by.get(&of.id)?, lock.by.get(&to.id)?);
    let (my, their) = (mine.acquired() as f64, theirs.acquired() as f64);
    let expected = expected(mine, theirs, of.seconds, to.seconds);
    let measured = mine.wait_ns as f64 / 1e9 / of.seconds * (their / (my + their).max(1.0));
    let takes = |times: f64, side: &Side<'_>| times / side.seconds * move_ns / 1e9;
    let moves = (takes(my, of), takes(their, to));
    let unknown = theirs.held().saturating_mul(2) < theirs.acquired();
    let measured = Some(measured).filter(|measured| unknown && *measured > expected);
    Some(Cost {
        lock,
        waiting: measured.unwrap_or(expected),
        moving: moves.0.min(moves.1),
        measured: measured.is_some(),
        moves,
    })
}

/// Seconds per second that `mine` is expected to wait for `theirs`.
fn expected(mine: &Usage, theirs: &Usage, my_seconds: f64, their_seconds: f64) -> f64 {
    let wait = |acquired: u64, holds: &Acquisitions| {
        let held = holds.hold_ns as f64 / 1e9;
        let mean = held / (holds.held as f64).max(1.0);
        acquired as f64 / my_seconds * (held / their_seconds).min(1.0) * mean
    };
    wait(mine.acquired(), &theirs.exclusive) + wait(mine.exclusive.acquired, &theirs.shared)
}

/// The ten names that cost most.
fn ranked(costs: &[Cost<'_>], slowdown: f64) -> Vec<(String, f64)> {
    let mut sums = std::collections::BTreeMap::<&str, f64>::new();
    for cost in costs {
        *sums.entry(&cost.lock.name).or_default() += (cost.waiting + cost.moving) / slowdown;
    }
    let mut ranked: Vec<_> = sums
        .into_iter()
        .map(|(name, cost)| (name.to_owned(), cost))
        .collect();
    ranked.sort_by(|one, two| two.1.total_cmp(&one.1));
    ranked.truncate(10);
    ranked
}
