//! What the score predicts of longer holds: of one lock, by one workload.
//!
//! There is no second model. The numbers of the trace are changed as if each hold of the lock had been longer,
//! and the changed trace is scored: the difference is the prediction.
//!
//! A lock that is held while this one is, is held for longer as well. A trace does not say which locks are
//! nested, so the prediction leaves that out.

use serde::Serialize;

use crate::score::{Score, cost_of_locks};
use crate::sharing::{Lock, Usage, locks};
use crate::slope::Slope;
use crate::trace::{Class, Trace, Use, WorkloadId};

/// A lock that one workload may hold for longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// Its address.
    pub lock: u64,
    /// Which lock at that address.
    pub generation: u32,
    /// The object and field that it is.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Whether the other workload takes it as well.
    pub shared: bool,
    /// What it costs the other workload, in seconds for each second of its own work.
    pub cost: f64,
    /// How often the workload takes it, as recorded.
    pub acquired: u64,
}

impl Candidate {
    /// Returns the locks whose holds by the workload `by` can be made longer: those that it used in more than half of
    /// the recording, and mostly released itself. Shared ones come first, by what they cost the workload `of`;
    /// then those that `by` alone takes, by how often.
    #[must_use]
    pub fn all(trace: &Trace, of: WorkloadId, by: WorkloadId) -> Vec<Self> {
        let costs = cost_of_locks(trace, of, by);
        let cost = |lock: &Lock| {
            let found = costs.iter().find(|(address, generation, _)| {
                (*address, *generation) == (lock.address, lock.generation)
            });
            found.map_or(0.0, |(_, _, cost)| *cost)
        };
        let candidates = locks(trace).into_iter().filter_map(|lock| {
            let usage = lock.by.get(&by.0)?;
            let others = lock.by.contains_key(&of.0);
            // A lock that both took, but never at the same time, is neither.
            let fits = lasts(usage, trace) && is_released(usage) && lock.shared == others;
            fits.then(|| Self {
                lock: lock.address,
                generation: lock.generation,
                class: lock.class,
                shared: lock.shared,
                cost: cost(&lock),
                acquired: usage.acquired(),
                name: lock.name.clone(),
            })
        });
        let mut candidates: Vec<_> = candidates.collect();
        candidates.sort_by(|one, two| {
            let by_cost = two.cost.total_cmp(&one.cost);
            let by_share = two.shared.cmp(&one.shared);
            by_share.then(by_cost).then(two.acquired.cmp(&one.acquired))
        });
        candidates
    }
}

/// Whether the lock was used in more than half of the recording, and so will be used again.
fn lasts(usage: &Usage, trace: &Trace) -> bool {
    usage.last_ns.saturating_sub(usage.first_ns) > trace.duration_ns / 2
}

/// Whether most of its holds ended where a function that releases locks can be probed.
fn is_released(usage: &Usage) -> bool {
    usage.held().saturating_mul(2) > usage.acquired()
}

/// What is predicted for each microsecond that holds are longer by, in parts of the time of a round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Predicted {
    /// How much longer the other workload takes, beside the one that is delayed.
    pub of: f64,
    /// How much longer the delayed workload takes.
    pub by: f64,
    /// How much the cost of this lock alone grows for the other workload, if the delayed one were at its full
    /// pace.
    pub of_this_lock: f64,
}

impl Predicted {
    /// Predicts from `trace` what delays of `delays_ns` on average for each hold of `candidate` do.
    #[must_use]
    pub fn of(
        trace: &Trace,
        candidate: &Candidate,
        of: WorkloadId,
        by: WorkloadId,
        delays_ns: &[f64],
    ) -> Self {
        let now = Times::of(trace, candidate, of, by);
        let later = delays_ns.iter().map(|&delay_ns| {
            let changed = prolonged(trace, candidate, by, delay_ns);
            (delay_ns / 1e3, Times::of(&changed, candidate, of, by))
        });
        let later: Vec<_> = later.collect();
        let slope = |of: &dyn Fn(&Times) -> f64| {
            let points: Vec<_> = later.iter().map(|(us, then)| (*us, of(then))).collect();
            Slope::through(&points)
        };
        Self {
            of: slope(&|then| then.of / now.of - 1.0),
            by: slope(&|then| then.by / now.by - 1.0),
            of_this_lock: slope(&|then| then.cost - now.cost),
        }
    }
}

/// What is predicted of one trace.
struct Times {
    /// The time that each takes for its work beside the other one.
    of: f64,
    by: f64,
    /// What the lock costs.
    cost: f64,
}

impl Times {
    fn of(trace: &Trace, candidate: &Candidate, of: WorkloadId, by: WorkloadId) -> Self {
        let score = Score::of(trace);
        let workload = |id: WorkloadId| &trace.workloads[usize::from(id.0)];
        let time = |id: WorkloadId, other: WorkloadId| {
            let mut exposures = score.exposures.iter();
            let exposure = exposures.find(|exposure| {
                exposure.of == workload(id).name && exposure.to == workload(other).name
            });
            own_ns(trace, id) as f64 * exposure.map_or(1.0, |exposure| exposure.together)
        };
        let costs = cost_of_locks(trace, of, by);
        let cost = costs.iter().find(|(address, generation, _)| {
            (*address, *generation) == (candidate.lock, candidate.generation)
        });
        Self {
            of: time(of, by),
            by: time(by, of),
            cost: cost.map_or(0.0, |(_, _, cost)| *cost),
        }
    }
}

/// How long the work of a workload takes: where that was not measured, how long it ran.
fn own_ns(trace: &Trace, id: WorkloadId) -> u64 {
    let workload = &trace.workloads[usize::from(id.0)];
    let known = [workload.own_ns, workload.ran_ns, trace.duration_ns];
    known.into_iter().find(|ns| *ns != 0).unwrap_or(1)
}

/// The trace as it would be if each hold of `candidate` by the workload `by` were longer by `delay_ns`, and that
/// workload took so much longer for its work.
fn prolonged(trace: &Trace, candidate: &Candidate, by: WorkloadId, delay_ns: f64) -> Trace {
    let mut changed = trace.clone();
    let of_lock = |used: &&mut Use| {
        used.workload == by
            && (used.lock, used.generation) == (candidate.lock, candidate.generation)
    };
    let mut longer_ns = 0;
    for used in changed.uses.iter_mut().filter(of_lock) {
        used.hold_ns = used
            .hold_ns
            .saturating_add((used.held as f64 * delay_ns) as u64);
        longer_ns += (used.acquired as f64 * delay_ns) as u64;
    }
    let own_ns = own_ns(trace, by);
    let workload = &mut changed.workloads[usize::from(by.0)];
    match workload.own_ns {
        0 => workload.ran_ns = own_ns.saturating_add(longer_ns),
        _ => workload.own_ns = own_ns.saturating_add(longer_ns),
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Access, Primitive, Workload};

    const A: WorkloadId = WorkloadId(0);
    const B: WorkloadId = WorkloadId(1);
    const SECOND: u64 = 1_000_000_000;

    /// One second, in which each takes the lock 1,000 times for 10 µs, and b a lock of its own as often.
    fn trace() -> Trace {
        let workload = |name: &str| Workload {
            name: name.into(),
            what: String::new(),
            ran_ns: SECOND,
            own_ns: SECOND,
        };
        let taken = |workload, lock| Use {
            lock,
            workload,
            acquired: 1_000,
            held: 1_000,
            hold_ns: 10_000_000,
            last_ns: SECOND,
            ..Use::default()
        };
        Trace {
            duration_ns: SECOND,
            workloads: vec![workload("a"), workload("b")],
            primitives: vec![Primitive {
                name: "mutex_lock".into(),
                class: Class::Mutex,
                access: Access::Exclusive,
                tries: false,
            }],
            uses: vec![taken(A, 0x10), taken(B, 0x10), taken(B, 0x20)],
            move_ns: Some(0),
            ..Trace::default()
        }
    }

    #[test]
    fn shared_locks_come_before_those_that_only_the_delayed_workload_takes() {
        let all = Candidate::all(&trace(), A, B);
        let found: Vec<_> = all.iter().map(|lock| (lock.lock, lock.shared)).collect();
        assert_eq!(found, [(0x10, true), (0x20, false)]);
        // What a alone takes, b cannot hold for longer.
        assert_eq!(Candidate::all(&trace(), B, A).len(), 1);
    }

    #[test]
    fn a_lock_that_is_gone_before_the_recording_ends_is_no_candidate() {
        let mut short = trace();
        short.uses[2].last_ns = SECOND / 3;
        assert_eq!(Candidate::all(&short, A, B).len(), 1);
        // Nor one whose holds end in code that cannot be probed.
        let mut inlined = trace();
        inlined.uses[1].held = 0;
        assert_eq!(Candidate::all(&inlined, A, B).len(), 1);
    }

    #[test]
    fn a_longer_hold_costs_the_neighbour_what_the_score_says_of_it() {
        let trace = trace();
        let lock = &Candidate::all(&trace, A, B)[0];
        // Each of 1,000 acquisitions finds it taken for a share of h × 1,000, and waits h.
        let waits = |hold: f64, seconds: f64| 1e3 * (1e3 * hold / seconds) * hold;
        let changed = prolonged(&trace, lock, B, 1_000.0);
        assert_eq!(changed.uses[1].hold_ns, 11_000_000);
        assert_eq!(changed.workloads[1].own_ns, SECOND + 1_000_000);
        let predicted = Predicted::of(&trace, lock, A, B, &[1_000.0]);
        let grows = waits(11e-6, 1.001) - waits(10e-6, 1.0);
        assert!((predicted.of_this_lock - grows).abs() < 1e-9);
        assert!(predicted.of > 0.0 && predicted.of <= grows * 1.001);
        // A microsecond for each of 1,000 holds is a thousandth of its second.
        assert!((predicted.by - 1e-3).abs() < 1e-4, "{}", predicted.by);
    }

    #[test]
    fn a_longer_hold_of_a_private_lock_costs_the_neighbour_nothing() {
        let trace = trace();
        let lock = &Candidate::all(&trace, A, B)[1];
        let predicted = Predicted::of(&trace, lock, A, B, &[5_000.0, 20_000.0]);
        // The slower neighbour takes the shared lock less often.
        assert!(predicted.of <= 0.0 && predicted.of > -1e-5);
        assert!((predicted.by - 1e-3).abs() < 1e-4, "{}", predicted.by);
        assert_eq!(predicted.of_this_lock, 0.0);
    }

    #[test]
    fn a_workload_whose_own_time_is_unknown_runs_for_longer() {
        let mut trace = trace();
        trace.workloads[1].own_ns = 0;
        let lock = &Candidate::all(&trace, A, B)[0];
        let changed = prolonged(&trace, lock, B, 2_000.0);
        assert_eq!(changed.workloads[1].own_ns, 0);
        assert_eq!(changed.workloads[1].ran_ns, SECOND + 2_000_000);
    }
}
