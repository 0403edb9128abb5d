//! What a longer hold of one lock costs, measured and predicted: causal isolation.
//!
//! A hold of one workload is made longer by a known time, and rounds of both workloads are timed. What the other
//! one takes longer, for each microsecond, is the measured derivative of their isolation by that lock.

use serde::Serialize;

use crate::agreement::kendall;
use crate::prolonged::{Candidate, Predicted};
use crate::slope::Slope;

/// What a round may be measured longer that no delay reaches, in parts of it: the signs of a few blocks agree by chance now
/// and then.
const NOISE: f64 = 0.01;

/// What was measured with one delay.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct DelayPoint {
    /// The delay that was asked for, in nanoseconds.
    pub asked_ns: u64,
    /// How many holds it was given to.
    pub holds: u64,
    /// How long the program took for each of these, on average, in nanoseconds.
    pub mean_ns: f64,
    /// For how long both ran, in nanoseconds.
    pub ran_ns: u64,
    /// What a round takes, in milliseconds: of the workload that may wait, and of the one that is delayed.
    pub round_ms: [f64; 2],
}

/// One turn: no delay, and each of the delays.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DelayBlock {
    /// Without a delay; the program is there.
    pub none: DelayPoint,
    /// With each of them.
    pub delayed: Vec<DelayPoint>,
}

impl DelayBlock {
    /// For each delay: by how many microseconds each hold was longer, and how much longer a round of workload number
    /// `index` was, in parts of a round.
    fn points(&self, index: usize) -> Vec<(f64, f64)> {
        let longer = |point: &DelayPoint| {
            let us = (point.mean_ns - self.none.mean_ns) / 1e3;
            (us, point.round_ms[index] / self.none.round_ms[index] - 1.0)
        };
        self.delayed.iter().map(longer).collect()
    }
}

/// What a delay of one lock turned out to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// It slows the other workload, in every block and by more than the noise: through this lock one disturbs the other.
    Channel,
    /// It slows the workload that is delayed, and not the other one: not a channel.
    DelayedOnly,
    /// It slows neither, by more than the measurement tells.
    Neither,
}

/// One lock: what was measured and what is predicted, in parts of a round for each microsecond.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    /// Which lock.
    pub lock: Candidate,
    /// How often the delayed workload held it in a second, without a delay.
    pub holds_per_second: f64,
    /// How much longer the other workload takes.
    pub measured: Slope,
    /// How much longer the delayed workload itself takes.
    pub own: Slope,
    /// What the score predicts.
    pub predicted: Predicted,
    /// What that means.
    pub finding: Finding,
    /// What a round takes without the program, in milliseconds.
    pub untouched_ms: [f64; 2],
    /// All that was measured.
    pub blocks: Vec<DelayBlock>,
}

impl Cause {
    /// Evaluates the `blocks`; `predict` is given the mean delays in nanoseconds.
    #[must_use]
    pub fn of(
        lock: Candidate,
        untouched_ms: [f64; 2],
        blocks: Vec<DelayBlock>,
        predict: impl Fn(&Candidate, &[f64]) -> Predicted,
    ) -> Self {
        let slope = |index| {
            let points = blocks.iter().map(|block| block.points(index));
            Slope::of(&points.collect::<Vec<_>>())
        };
        let [measured, own] = [slope(0), slope(1)];
        let means_ns = means_ns(&blocks);
        let longest_us = means_ns.iter().copied().fold(0.0, f64::max) / 1e3;
        let is_felt = |slope: &Slope| slope.grows() && slope.all * longest_us > NOISE;
        let none = blocks.iter().map(|block| &block.none);
        let (holds, ran_ns) = none.fold((0, 0), |(holds, ran_ns), point| {
            (holds + point.holds, ran_ns + point.ran_ns)
        });
        Self {
            holds_per_second: holds as f64 / (ran_ns.max(1) as f64 / 1e9),
            predicted: predict(&lock, &means_ns),
            finding: match (is_felt(&measured), is_felt(&own)) {
                (true, _) => Finding::Channel,
                (false, true) => Finding::DelayedOnly,
                (false, false) => Finding::Neither,
            },
            lock,
            measured,
            own,
            untouched_ms,
            blocks,
        }
    }

    /// How many times the predicted slowdown is the measured one, of a channel that both take: of the others the score
    /// predicts none.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let is_told = self.finding == Finding::Channel && self.lock.shared;
        is_told.then(|| self.predicted.of / self.measured.all)
    }
}

/// The mean of each delay over the blocks, in nanoseconds, beyond what the program takes without one.
fn means_ns(blocks: &[DelayBlock]) -> Vec<f64> {
    let delays = blocks.first().map_or(0, |block| block.delayed.len());
    let mean = |index: usize| {
        let each = blocks.iter().filter_map(|block| {
            let point = block.delayed.get(index)?;
            Some(point.mean_ns - block.none.mean_ns)
        });
        each.sum::<f64>() / blocks.len() as f64
    };
    (0..delays).map(mean).collect()
}

/// Kendall's tau of predicted against measured slopes over the shared locks, if there are three.
#[must_use]
pub fn tau_of_causes(causes: &[Cause]) -> Option<f64> {
    let shared = causes.iter().filter(|cause| cause.lock.shared);
    let both: Vec<_> = shared
        .map(|cause| (cause.predicted.of, cause.measured.all))
        .collect();
    (both.len() >= 3).then(|| kendall(&both))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Class;

    fn lock(shared: bool) -> Candidate {
        Candidate {
            lock: 0x10,
            generation: 0,
            name: "pipe_inode_info.mutex".into(),
            class: Class::Mutex,
            shared,
            cost: 0.1,
            acquired: 1_000,
        }
    }

    fn point(mean_ns: f64, round_ms: [f64; 2]) -> DelayPoint {
        DelayPoint {
            asked_ns: mean_ns as u64,
            holds: 500,
            mean_ns,
            ran_ns: 500_000_000,
            round_ms,
        }
    }

    /// Rounds of 10 ms; of 5 and 20 µs of delay `a` and `b` times as much of a round.
    fn block(a: f64, b: f64) -> DelayBlock {
        let longer = |us: f64| {
            point(
                us * 1e3 + 100.0,
                [10.0 * (1.0 + a * us), 10.0 * (1.0 + b * us)],
            )
        };
        DelayBlock {
            none: point(100.0, [10.0, 10.0]),
            delayed: vec![longer(5.0), longer(20.0)],
        }
    }

    fn predicted(of: f64) -> Predicted {
        Predicted {
            of,
            by: 0.0,
            of_this_lock: 0.0,
        }
    }

    fn cause(a: f64, b: f64) -> Cause {
        let blocks = vec![block(a, b), block(2.0 * a, b), block(3.0 * a, b)];
        Cause::of(lock(true), [9.0; 2], blocks, |_, _| predicted(0.004))
    }

    #[test]
    fn a_slope_is_the_longer_round_for_each_microsecond_that_was_injected() {
        let cause = cause(0.001, 0.01);
        let near = |found: f64, known: f64| (found - known).abs() < 1e-9;
        assert!(near(cause.measured.all, 0.002), "{:?}", cause.measured);
        assert!(near(cause.measured.least, 0.001) && near(cause.measured.most, 0.003));
        assert!(near(cause.own.all, 0.01));
        assert_eq!(cause.finding, Finding::Channel);
        assert!(near(cause.ratio().expect("a channel"), 2.0));
        assert_eq!(cause.holds_per_second, 1_000.0);
    }

    #[test]
    fn a_lock_whose_delay_slows_its_holder_only_is_not_a_channel() {
        let cause = cause(0.0, 0.01);
        assert_eq!(cause.finding, Finding::DelayedOnly);
        assert_eq!(cause.ratio(), None);
        assert_eq!(self::cause(0.0, 0.0).finding, Finding::Neither);
    }

    #[test]
    fn what_every_block_says_by_less_than_the_noise_is_not_felt() {
        // Of 20 µs the largest of three blocks is 0.6 % longer.
        assert_eq!(cause(0.0001, 0.0001).finding, Finding::Neither);
    }

    #[test]
    fn the_prediction_is_for_what_was_injected_and_not_for_what_was_asked() {
        let blocks = vec![block(0.001, 0.01)];
        let means = std::cell::RefCell::new(Vec::new());
        drop(Cause::of(lock(true), [9.0; 2], blocks, |_, delays| {
            means.borrow_mut().extend_from_slice(delays);
            predicted(0.0)
        }));
        assert_eq!(*means.borrow(), [5_000.0, 20_000.0]);
    }

    #[test]
    fn an_order_takes_three_shared_locks() {
        let of = |measured: f64, known: f64| {
            Cause::of(lock(true), [9.0; 2], vec![block(measured, 0.01)], |_, _| {
                predicted(known)
            })
        };
        let mut causes = vec![of(0.001, 0.002), of(0.002, 0.003)];
        assert_eq!(tau_of_causes(&causes), None);
        causes.push(of(0.004, 0.009));
        assert_eq!(tau_of_causes(&causes), Some(1.0));
        causes[2].lock.shared = false;
        assert_eq!(tau_of_causes(&causes), None);
    }
}
