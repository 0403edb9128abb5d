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
    /// By every second block and by the others: two measurements of the same, if there are two blocks.
    pub halves: Option<(f64, f64)>,
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
                let blocks: Vec<_> = measured.blocks.iter().map(longer).collect();
                let every_second = |first| blocks.iter().skip(first).step_by(2).copied().collect();
                let halves =
                    (blocks.len() > 1).then(|| (middle(every_second(0)), middle(every_second(1))));
                let least = blocks.iter().copied().fold(f64::INFINITY, f64::min);
                let most = blocks.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                Self {
                    name: measured.name.clone(),
                    platform: measured.platform.clone(),
                    of: exposure.of.clone(),
                    predicted: exposure.together - 1.0,
                    measured: middle(blocks),
                    range: (least, most),
                    halves,
                }
            })
            .collect()
    }

    /// Whether more was measured than `noise` in the middle, and something in every block.
    #[must_use]
    pub fn is_above(&self, noise: f64) -> bool {
        self.measured > noise && self.range.0 > 0.0
    }

    /// Whether every block of one of the two lost more than every block of the other one.
    fn is_apart_from(&self, other: &Self) -> bool {
        self.range.0 > other.range.1 || other.range.0 > self.range.1
    }

    /// How many times too large or too small the predicted slowdown is, of those measured above noise.
    fn factor(&self) -> f64 {
        let ratio = self.predicted.max(1e-9) / self.measured;
        ratio.max(1.0 / ratio)
    }
}

/// The median of some numbers: of an even number of them the upper one.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// How well predictions agree with measurements.
///
/// What loses next to nothing is ordered by chance, also by another measurement of the same. So [`tau_again`](Self::tau_again) stands beside [`tau`](Self::tau), and
/// [`tau_apart`](Self::tau_apart) is of what the measurement itself tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Agreement {
    /// How many directions of pairs.
    pub pairs: usize,
    /// Kendall's tau-b: 1 if what is predicted to lose more always does, 0 if prediction says nothing.
    pub tau: f64,
    /// Kendall's tau-b of a half of the measurement with the other half, if all pairs have two.
    pub tau_again: Option<f64>,
    /// How many combinations of two directions the measurement tells apart: every block of one lost more than every block of the
    /// other one.
    pub apart: usize,
    /// Kendall's tau-b of these combinations.
    pub tau_apart: f64,
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
        let values = |pair: &&Pair| (pair.predicted, pair.measured);
        let all: Vec<_> = pairs.iter().collect();
        let above: Vec<_> = pairs.iter().filter(|pair| pair.is_above(noise)).collect();
        let mut factors: Vec<_> = above.iter().map(|pair| pair.factor()).collect();
        factors.sort_by(f64::total_cmp);
        let halves: Option<Vec<_>> = pairs.iter().map(|pair| pair.halves).collect();
        let apart = Order::of(&all, values, |one, two| one.is_apart_from(two));
        Self {
            pairs: pairs.len(),
            tau: Order::of(&all, values, |_, _| true).tau(),
            tau_again: halves.map(|halves| Order::of(&halves, |&both| both, |_, _| true).tau()),
            apart: apart.combinations(),
            tau_apart: apart.tau(),
            above_noise: above.len(),
            tau_above_noise: Order::of(&above, values, |_, _| true).tau(),
            median_factor: factors.get(factors.len() / 2).copied(),
        }
    }
}

/// How two numbers of each item order them, by combinations of two items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Order {
    agree: usize,
    disagree: usize,
    /// The first, or the second, number alone is the same.
    tied: [usize; 2],
    /// Both are.
    same: usize,
}

impl Order {
    /// Of the combinations that are `compared`. O(n²).
    fn of<T>(
        items: &[T],
        values: impl Fn(&T) -> (f64, f64),
        compared: impl Fn(&T, &T) -> bool,
    ) -> Self {
        let mut order = Self::default();
        for (at, item) in items.iter().enumerate() {
            for other in items[at + 1..].iter().filter(|other| compared(item, other)) {
                let (one, two) = (values(item), values(other));
                let counted = match (one.0 == two.0, one.1 == two.1) {
                    (true, true) => &mut order.same,
                    (true, false) => &mut order.tied[0],
                    (false, true) => &mut order.tied[1],
                    (false, false) if (one.0 > two.0) == (one.1 > two.1) => &mut order.agree,
                    (false, false) => &mut order.disagree,
                };
                *counted += 1;
            }
        }
        order
    }

    fn combinations(&self) -> usize {
        self.agree + self.disagree + self.tied[0] + self.tied[1] + self.same
    }

    /// Kendall's tau-b, which counts ties of one side as neither agreement nor disagreement.
    fn tau(&self) -> f64 {
        let untied = self.agree + self.disagree;
        let scale = ((untied + self.tied[0]) as f64 * (untied + self.tied[1]) as f64).sqrt();
        match scale > 0.0 {
            true => (self.agree as f64 - self.disagree as f64) / scale,
            false => 0.0,
        }
    }
}

/// Kendall's tau-b of pairs of numbers.
pub(crate) fn kendall(values: &[(f64, f64)]) -> f64 {
    Order::of(values, |&both| both, |_, _| true).tau()
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Pair, kendall};

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
            halves: Some((measured, measured)),
        }
    }

    #[test]
    fn what_the_measurement_does_not_tell_apart_is_left_out_of_what_it_does() {
        let spread = |predicted, measured: f64, half: f64| Pair {
            range: (measured - half, measured + half),
            halves: Some((measured - half, measured + half)),
            ..pair(predicted, measured)
        };
        // The first two are in the wrong order, by less than their blocks differ.
        let pairs = [
            spread(0.2, 0.10, 0.02),
            spread(0.1, 0.11, 0.02),
            spread(0.9, 0.80, 0.05),
        ];
        let agreement = Agreement::of(&pairs, 0.05);
        assert!((agreement.tau - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((agreement.apart, agreement.tau_apart), (2, 1.0));
        assert_eq!(agreement.tau_again, Some(1.0));
        let once = Pair {
            halves: None,
            ..pairs[0].clone()
        };
        assert_eq!(Agreement::of(&[once], 0.05).tau_again, None);
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
