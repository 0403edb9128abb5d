//! Upper bounds of quantiles, with a stated confidence.
//!
//! A quantile that is read off a sample is as likely too small as too large. A bound is therefore
//! read off a higher order statistic: one that is an upper bound of the true quantile with the
//! stated confidence, whatever the distribution. (The number of larger values is binomial.)

use serde::{Deserialize, Serialize};

/// An upper bound of a quantile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantileBound {
    /// One value in `one_in` is larger than the true quantile.
    pub one_in: u64,
    /// The probability that the bound is no lower than the true quantile.
    pub confidence: f64,
    /// The number of measurements.
    pub samples: u64,
    /// The bound.
    pub ratio: f64,
}

/// Returns how many of `samples` measurements may exceed an order statistic that bounds the
/// quantile (exceeded by one in `one_in`) with this confidence. `None` if there are too few
/// measurements for any bound.
pub(crate) fn larger_allowed(samples: u64, one_in: u64, confidence: f64) -> Option<u64> {
    let share = 1.0 / one_in.max(2) as f64;
    let (n, doubt) = (samples as f64, 1.0 - confidence);
    let expected = n * share;
    // Beyond this, the sum below would begin with zero, and the normal distribution is as good.
    if expected > 500.0 {
        let deviation = (expected * (1.0 - share)).sqrt();
        return Some((expected - z_of(doubt) * deviation - 1.0).floor().max(0.0) as u64);
    }
    // The probability that exactly `larger` are larger, and that so many or fewer are.
    let mut exactly = (n * (-share).ln_1p()).exp();
    let mut at_most = exactly;
    if at_most > doubt {
        return None;
    }
    let mut larger = 0;
    loop {
        let next = larger as f64;
        exactly *= (n - next) / (next + 1.0) * share / (1.0 - share);
        at_most += exactly;
        if at_most > doubt || larger >= samples {
            return Some(larger);
        }
        larger += 1;
    }
}

/// The distance below the mean, in standard deviations, of the normal distribution's quantile with
/// this probability (Abramowitz and Stegun 26.2.23; to within 0.00045).
fn z_of(probability: f64) -> f64 {
    let t = (-2.0 * probability.clamp(1e-12, 0.5).ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - numerator / denominator
}

/// Returns the upper bound, with this confidence, of the quantile that one in `one_in` of the
/// sorted values exceeds. With too few values it is the largest one.
pub(crate) fn bound_of_sorted(sorted: &[u64], one_in: u64, confidence: f64) -> u64 {
    let larger = larger_allowed(sorted.len() as u64, one_in, confidence).unwrap_or(0);
    let larger = usize::try_from(larger).unwrap_or(usize::MAX);
    sorted.iter().rev().nth(larger).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{bound_of_sorted, larger_allowed};
    use leasehold_reserve::simulate::SplitMix;

    #[test]
    fn there_must_be_enough_measurements() {
        // ln 0.05 ÷ ln 0.9999: the rule of three.
        let needed = 29_956;
        assert_eq!(larger_allowed(needed, 10_000, 0.95), Some(0));
        assert_eq!(larger_allowed(needed - 1, 10_000, 0.95), None);
    }

    #[test]
    fn tables_of_the_binomial_distribution_agree() {
        // P(Bin(10, ½) ≤ 1) = 0.0107, P(≤ 2) = 0.0547.
        assert_eq!(larger_allowed(10, 2, 0.95), Some(1));
        assert_eq!(larger_allowed(10, 2, 0.94), Some(2));
        // Of 100,000, ten are expected; P(Poisson(10) ≤ 4) = 0.029, P(≤ 5) = 0.067.
        assert_eq!(larger_allowed(100_000, 10_000, 0.95), Some(4));
    }

    #[test]
    fn the_sum_and_the_normal_distribution_meet() {
        let one_in = 1_000;
        let below = larger_allowed(499_000, one_in, 0.95).expect("enough");
        let above = larger_allowed(501_000, one_in, 0.95).expect("enough");
        assert!(above.abs_diff(below) <= 4, "{below} {above}");
    }

    #[test]
    fn a_bound_is_one_as_often_as_it_says() {
        let mut random = SplitMix::new(1);
        let (trials, one_in) = (2_000, 100);
        let held = (0..trials).filter(|_| {
            let mut values: Vec<u64> = (0..1_000).map(|_| random.below(1_000_000)).collect();
            values.sort_unstable();
            // The true quantile is 990,000.
            bound_of_sorted(&values, one_in, 0.95) >= 990_000
        });
        let held = held.count();
        assert!(held >= trials * 94 / 100, "{held} of {trials}");
        assert!(held < trials, "and not by being absurdly high");
    }
}
