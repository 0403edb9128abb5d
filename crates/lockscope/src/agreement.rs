//! Whether scores come true: the slowdown that a trace predicts for each of two workloads, beside the one
//! that was measured without a tracer.

use serde::{Deserialize, Serialize};

use crate::score::Score;
use crate::trace::Trace;

/// Two workloads that were measured in turns beside each other, and each beside a control that takes no
/// locks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// What the pair is called.
    pub name: String,
    /// What they ran on.
    pub platform: String,
    /// One for each turn.
    pub blocks: Vec<Block>,
}

/// One turn: what a round takes, in milliseconds, of the first workload and of the second one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Block {
    /// Beside each other.
    pub together_ms: [f64; 2],
    /// Beside the control.
    pub apart_ms: [f64; 2],
}

/// What one workload loses to another one, in parts of its time beside the control: predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// What the pair is called.
    pub name: String,
    /// What they ran on.
    pub platform: String,
    /// Which of them loses.
    pub of: String,
    /// How much longer it takes beside the other one by what the trace says: 0.1 is a tenth longer.
    pub predicted: f64,
    /// By what was measured: the median of the blocks.
    pub measured: f64,
    /// The smallest and the largest of the blocks.
    pub range: (f64, f64),
}

impl Pair {
    /// Both directions; none of a trace that is not of two workloads, or of nothing measured.
    #[must_use]
    pub fn both(measured: &Measured, trace: &Trace) -> Vec<Self> {
        let score = Score::of(trace);
        if trace.workloads.len() != 2 || measured.blocks.is_empty() {
            return Vec::new();
        }
        let exposures = score.exposures.iter().enumerate();
        exposures
            .map(|(index, exposure)| {
                let longer = |block: &Block| block.together_ms[index] / block.apart_ms[index] - 1.0;
                let mut blocks: Vec<_> = measured.blocks.iter().map(longer).collect();
                blocks.sort_by(f64::total_cmp);
                Self {
                    name: measured.name.clone(),
                    platform: measured.platform.clone(),
                    of: exposure.of.clone(),
                    predicted: exposure.together - 1.0,
                    measured: blocks[blocks.len() / 2],
                    range: (blocks[0], blocks[blocks.len() - 1]),
                }
            })
            .collect()
    }

    /// Whether more was measured than `noise` in the middle, and something in every block.
    #[must_use]
    pub fn is_above(&self, noise: f64) -> bool {
        self.measured > noise && self.range.0 > 0.0
    }

    /// How many times too large or too small the predicted slowdown is, of those measured above noise.
    fn factor(&self) -> f64 {
        let ratio = self.predicted.max(1e-9) / self.measured;
        ratio.max(1.0 / ratio)
    }
}

/// How well predictions agree with measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Agreement {
    /// How many directions of pairs.
    pub pairs: usize,
    /// Kendall's tau-b: 1 if what is predicted to lose more always does, 0 if prediction says nothing.
    pub tau: f64,
    /// How many of them were measured to lose more than the noise.
    pub above_noise: usize,
    /// Of these, Kendall's tau-b.
    pub tau_above_noise: f64,
    /// Of these, how many times too large or too small the prediction is: the median.
    pub median_factor: Option<f64>,
}

impl Agreement {
    /// Of `pairs`; `noise` is what a workload may be measured to lose that loses nothing.
    #[must_use]
    pub fn of(pairs: &[Pair], noise: f64) -> Self {
        let values = |pair: &Pair| (pair.predicted, pair.measured);
        let all: Vec<_> = pairs.iter().map(values).collect();
        let above: Vec<_> = pairs.iter().filter(|pair| pair.is_above(noise)).collect();
        let mut factors: Vec<_> = above.iter().map(|pair| pair.factor()).collect();
        factors.sort_by(f64::total_cmp);
        let values: Vec<_> = above.iter().map(|pair| values(pair)).collect();
        Self {
            pairs: pairs.len(),
            tau: kendall(&all),
            above_noise: above.len(),
            tau_above_noise: kendall(&values),
            median_factor: factors.get(factors.len() / 2).copied(),
        }
    }
}

/// Kendall's tau-b, which counts ties of one side as neither agreement nor disagreement. O(n²).
fn kendall(values: &[(f64, f64)]) -> f64 {
    let (mut agree, mut disagree, mut tied_one, mut tied_two) = (0.0, 0.0, 0.0, 0.0);
    for (at, one) in values.iter().enumerate() {
        for two in &values[at + 1..] {
            match (one.0 == two.0, one.1 == two.1) {
                (true, true) => {}
                (true, false) => tied_one += 1.0,
                (false, true) => tied_two += 1.0,
                (false, false) if (one.0 > two.0) == (one.1 > two.1) => agree += 1.0,
                (false, false) => disagree += 1.0,
            }
        }
    }
    let untied: f64 = agree + disagree;
    let scale = ((untied + tied_one) * (untied + tied_two)).sqrt();
    match scale > 0.0 {
        true => (agree - disagree) / scale,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tau_is_one_for_the_same_order_and_minus_one_for_the_reverse() {
        let same = [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)];
        assert_eq!(kendall(&same), 1.0);
        let reverse = same.map(|(one, two)| (one, -two));
        assert_eq!(kendall(&reverse), -1.0);
        assert_eq!(kendall(&[]), 0.0);
    }

    #[test]
    fn ties_are_neither_agreement_nor_disagreement() {
        // Of six combinations one is tied on one side, and the others agree.
        let values = [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)];
        let expected = 5.0 / (5.0f64 * 6.0).sqrt();
        assert!((kendall(&values) - expected).abs() < 1e-12);
    }

    fn pair(predicted: f64, measured: f64) -> Pair {
        Pair {
            name: String::new(),
            platform: String::new(),
            of: "a".into(),
            predicted,
            measured,
            range: (measured, measured),
        }
    }

    #[test]
    fn the_error_is_a_factor_either_way_of_what_is_above_noise() {
        let pairs = [
            pair(0.4, 0.2),
            pair(0.1, 0.4),
            pair(0.3, 0.3),
            pair(0.0, 0.01),
        ];
        let agreement = Agreement::of(&pairs, 0.05);
        assert_eq!((agreement.pairs, agreement.above_noise), (4, 3));
        assert_eq!(agreement.median_factor, Some(2.0));
    }
}
