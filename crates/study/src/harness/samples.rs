//! Samples of a measurement: quantiles, medians with their spread, and the order of arms.

use hdrhistogram::Histogram;
use serde_json::Value;

use crate::harness::random::Random;

/// Whole-numbered samples, kept as a histogram with a resolution of one in a thousand, so that
/// millions of them cost a few tens of kilobytes. Smallest and largest are exact.
///
/// There is no quantile of nothing: an empty set answers `None`, which a row shows as `null`
/// rather than as a measured zero.
#[derive(Debug, Clone)]
pub struct Samples {
    histogram: Histogram<u64>,
    largest: Option<u64>,
}

impl Default for Samples {
    fn default() -> Self {
        Self::new()
    }
}

impl Samples {
    /// No samples yet.
    pub fn new() -> Self {
        Self {
            histogram: Histogram::new(3).expect("three significant digits are supported"),
            largest: None,
        }
    }

    /// Adds one sample. Amortised constant cost; the histogram grows to the largest value.
    pub fn record(&mut self, value: u64) {
        // A histogram that resizes itself refuses a value only if its table cannot be indexed,
        // which three significant digits never reach on a 64-bit machine.
        self.histogram
            .record(value)
            .expect("a resizing histogram takes every value");
        self.largest = self.largest.max(Some(value));
    }

    /// Adds all samples of another set.
    pub fn add(&mut self, other: &Self) {
        // Both resize themselves; see `record`.
        self.histogram
            .add(&other.histogram)
            .expect("a resizing histogram takes every value");
        self.largest = self.largest.max(other.largest);
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The smallest value that at least `q` (0 to 1) of the samples do not exceed.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        // The histogram answers with the upper end of a bucket, which may lie above the largest.
        self.largest
            .map(|largest| self.histogram.value_at_quantile(q).min(largest))
    }

    /// The median.
    pub fn p50(&self) -> Option<u64> {
        self.quantile(0.5)
    }

    /// The 99th percentile.
    pub fn p99(&self) -> Option<u64> {
        self.quantile(0.99)
    }

    /// The largest sample, exactly.
    pub fn max(&self) -> Option<u64> {
        self.largest
    }

    /// The `q` quantile of these samples over that of `base`.
    pub fn ratio_to(&self, base: &Self, q: f64) -> Option<f64> {
        let base = base.quantile(q).filter(|base| *base > 0)?;
        Some(self.quantile(q)? as f64 / base as f64)
    }
}

impl Extend<u64> for Samples {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, values: I) {
        for value in values {
            self.record(value);
        }
    }
}

impl FromIterator<u64> for Samples {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut samples = Self::new();
        samples.extend(values);
        samples
    }
}

/// A median with the 5th and 95th percentile, as the error bars of the papers show them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The 95th percentile.
    pub p95: f64,
}

impl Spread {
    /// The spread of `values`, exactly, or `None` if there are none. For ratios and other values
    /// that are not whole, and of which there are few: sorts them.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |q: f64| values[(q * last as f64).round() as usize];
        Some(Self {
            median: at(0.5),
            p5: at(0.05),
            p95: at(0.95),
        })
    }

    /// The spread of whole-numbered samples.
    pub fn of_samples(samples: &Samples) -> Option<Self> {
        Some(Self {
            median: samples.p50()? as f64,
            p5: samples.quantile(0.05)? as f64,
            p95: samples.quantile(0.95)? as f64,
        })
    }
}

/// A ratio as rows give it: four decimals, `null` if there is none.
pub fn ratio_value(ratio: Option<f64>) -> Value {
    ratio.map(|ratio| (ratio * 1e4).round() / 1e4).into()
}

/// The order in which to take turns at `arms` alternatives that are to be compared: every round has
/// each arm once, in an order of its own. Slow drift of the machine (heat, other guests of its
/// hypervisor) then affects all arms alike. So does the state that an arm leaves for the next (a
/// warm or a cold cache): each arm follows every other equally often, and itself as rarely as any
/// does. In an order that runs forth and back, the arms at its ends would follow themselves half of
/// the time.
///
/// The order is the same in every run.
pub fn interleaved(arms: usize, rounds: usize) -> impl Iterator<Item = usize> {
    let mut random = Random::new(arms as u64);
    let mut order: Vec<usize> = (0..arms).collect();
    (0..rounds).flat_map(move |_| {
        // Fisher and Yates's shuffle: all orders are equally likely.
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        order.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::{Samples, Spread, interleaved, ratio_value};
    use serde_json::{Value, json};

    #[test]
    fn nothing_has_no_quantile() {
        let none = Samples::new();
        assert_eq!((none.p50(), none.p99(), none.max()), (None, None, None));
        assert_eq!(none.ratio_to(&Samples::from_iter([1]), 0.5), None);
        assert_eq!(
            Samples::from_iter([1]).ratio_to(&Samples::from_iter([0]), 0.5),
            None
        );
        assert_eq!(Spread::of([]), None);
        assert_eq!(ratio_value(None), Value::Null);
    }

    #[test]
    fn quantiles_are_within_a_thousandth_and_the_largest_is_exact() {
        let samples: Samples = (1..=100_000u64).collect();
        let within = |value: Option<u64>, exact: f64| {
            let value = value.expect("there are samples") as f64;
            assert!((value / exact - 1.0).abs() <= 1e-3, "{value} for {exact}");
        };
        within(samples.p50(), 50_000.0);
        within(samples.p99(), 99_000.0);
        assert_eq!(samples.max(), Some(100_000));
        assert_eq!(samples.quantile(1.0), Some(100_000));
        assert_eq!(Samples::from_iter([u64::MAX]).max(), Some(u64::MAX));
    }

    #[test]
    fn spread_of_a_skewed_set_is_not_symmetric() {
        let spread = Spread::of((0..=100).map(|n| f64::from(n * n))).expect("not empty");
        assert_eq!(
            spread,
            Spread {
                median: 2500.0,
                p5: 25.0,
                p95: 9025.0
            }
        );
    }

    #[test]
    fn every_round_has_each_arm_once() {
        let order: Vec<usize> = interleaved(5, 100).collect();
        for round in order.chunks(5) {
            let mut arms = round.to_vec();
            arms.sort_unstable();
            assert_eq!(arms, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn no_arm_follows_another_more_often_than_the_others_do() {
        let rounds = 30_000;
        let order: Vec<usize> = interleaved(3, rounds).collect();
        for arm in 0..3 {
            // Within a round it follows each of the others with 1/3, at its start itself too.
            let after = |other| {
                let pairs = order.windows(2).filter(|pair| **pair == [other, arm]);
                pairs.count() as f64 / rounds as f64
            };
            assert!((after(arm) - 1.0 / 9.0).abs() < 0.01);
            for other in (0..3).filter(|other| *other != arm) {
                assert!((after(other) - 4.0 / 9.0).abs() < 0.01);
            }
        }
    }

    #[test]
    fn ratios_are_rounded_for_rows() {
        assert_eq!(ratio_value(Some(1.049_96)), json!(1.05));
    }
}
