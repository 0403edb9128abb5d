//! Rows whose steps have turned out longer than calibrated.
//!
//! A row's bound is a quantile that was measured. When the steps of a cell exceed it more often
//! than stated (by the same [sequential test](Drift) as for ends), the row is raised by a quarter.
//! Tenants that are admitted from then on and reach the row have the longer step. The admission of
//! earlier tenants stays valid. A row is lowered again after [`TRIAL`] consecutive steps within a
//! lower bound, but never below the calibrated one. A disturbance of some seconds therefore does
//! not raise bounds for ever.

use crate::drift::Drift;

/// Steps of which none may be longer than a lower bound before the row falls to it: with a confidence of 95 %,
/// no more than one in 10,000 is.
pub(crate) const TRIAL: u64 = 29_956;

/// The lowest bound that a row can have, raised some times or never, that is no less than what its
/// steps took; all in ns.
pub(crate) fn lowest_bound(calibrated_ns: u64, longest_ns: u64) -> u64 {
    let mut bound_ns = calibrated_ns.max(1);
    while bound_ns < longest_ns {
        match raised_from(bound_ns, calibrated_ns) {
            higher if higher > bound_ns => bound_ns = higher,
            _ => break,
        }
    }
    bound_ns
}

/// The largest factor by which a row is raised: a longer step is an error of measurement.
const HIGHEST: u64 = 64;

/// The next higher bound of a row that was calibrated as this: a quarter more, or the highest.
pub(crate) fn raised_from(bound_ns: u64, calibrated_ns: u64) -> u64 {
    let highest_ns = calibrated_ns.max(1).saturating_mul(HIGHEST);
    let higher_ns = bound_ns.saturating_add(bound_ns.div_ceil(4));
    higher_ns.min(highest_ns)
}

/// Whether the steps of one row are too long too often.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowDrift {
    drift: Drift,
    /// How many steps there were when one was too long last.
    at: u64,
}

impl RowDrift {
    pub(crate) const NEW: Self = Self {
        drift: Drift::NEW,
        at: 0,
    };

    /// Records that the last of `steps` steps was too long; returns true if the row is to be
    /// raised.
    pub(crate) fn exceeded(&mut self, steps: u64) -> bool {
        self.drift.within(steps.saturating_sub(self.at + 1));
        self.at = steps;
        self.drift.observe(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{RowDrift, TRIAL, lowest_bound, raised_from};
    use crate::confidence::larger_allowed;
    use crate::drift::{CONFIDENCE, ONE_IN};

    #[test]
    fn a_row_that_is_exceeded_as_often_as_is_stated_is_not_raised() {
        let mut drift = RowDrift::NEW;
        let raised = (1..1_000_u64).filter(|nth| drift.exceeded(nth * 10_000));
        assert_eq!(raised.count(), 0);
    }

    #[test]
    fn a_row_that_is_exceeded_often_is_raised_and_begins_anew() {
        let mut drift = RowDrift::NEW;
        let raised = |drift: &mut RowDrift, from: u64| {
            (1..=4)
                .filter(|nth| drift.exceeded(from + nth * 50))
                .count()
        };
        assert_eq!(raised(&mut drift, 0), 1);
        assert_eq!(raised(&mut drift, 10_000), 1);
    }

    #[test]
    fn a_trial_is_as_long_as_its_confidence_needs() {
        assert_eq!(larger_allowed(TRIAL, ONE_IN, CONFIDENCE), Some(0));
        assert_eq!(larger_allowed(TRIAL - 1, ONE_IN, CONFIDENCE), None);
    }

    #[test]
    fn a_row_falls_to_a_bound_that_raising_reaches() {
        assert_eq!(lowest_bound(100_000, 0), 100_000);
        assert_eq!(
            lowest_bound(100_000, 100_001),
            raised_from(100_000, 100_000)
        );
        assert_eq!(lowest_bound(100_000, 125_000), 125_000);
        assert_eq!(lowest_bound(0, 1), 1);
    }

    #[test]
    fn a_row_has_a_highest_bound() {
        let mut bound_ns = 100_000;
        for _ in 0..100 {
            bound_ns = raised_from(bound_ns, 100_000);
        }
        assert_eq!(bound_ns, 6_400_000);
        assert_eq!(lowest_bound(100_000, u64::MAX), 6_400_000);
    }
}
