//! Rows whose steps have turned out longer than calibrated.
//!
//! A row's bound is a quantile that was measured. When the steps of a cell exceed it more often
//! than stated (by the same [sequential test](Drift) as for ends), the row is raised by a quarter.
//! Tenants that are admitted from then on and reach the row have the longer step. The admission of
//! earlier tenants stays valid. A row is lowered again after [`TRIAL`] consecutive steps within a
//! lower bound, but never below the calibrated one. A disturbance of some seconds therefore does
//! not raise bounds for ever.

use super::table::{RowId, TABLE};
use crate::drift::Drift;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The raised rows of a cell: written by its thread, read where tenants are admitted.
#[derive(Debug)]
pub struct RaisedSteps([AtomicU64; TABLE.len()]);

impl Default for RaisedSteps {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; TABLE.len()])
    }
}

impl RaisedSteps {
    /// How long a step of a row may be, ns, if it was raised.
    pub fn of(&self, row: RowId) -> Option<u64> {
        let ns = self.0[usize::from(row.counted_as().0)].load(Relaxed);
        (ns > 0).then_some(ns)
    }

    pub(crate) fn raise(&self, row: RowId, ns: u64) {
        self.0[usize::from(row.0)].fetch_max(ns, Relaxed);
    }

    /// Lowers a row: to so many ns, or to what was calibrated.
    pub(crate) fn lower(&self, row: RowId, ns: Option<u64>) {
        self.0[usize::from(row.0)].store(ns.unwrap_or(0), Relaxed);
    }
}

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
    use super::{RaisedSteps, RowDrift, TRIAL, lowest_bound, raised_from};
    use crate::confidence::larger_allowed;
    use crate::drift::{CONFIDENCE, ONE_IN};
    use crate::profile::Profile;
    use crate::steps::{CEILING_NS, Reach, RowId};
    use leasehold_lease::Lease;

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
    fn rows_that_are_counted_as_another_are_raised_with_it() {
        let raised = RaisedSteps::default();
        let row = |name| RowId::find("engine", name).expect("a row");
        raised.raise(row("instantiate"), 125_000);
        assert_eq!(raised.of(row("instantiate")), Some(125_000));
        assert_eq!(raised.of(row("data segments")), Some(125_000));
        assert_eq!(raised.of(row("store drop")), None);
        raised.raise(row("instantiate"), 1);
        assert_eq!(
            raised.of(row("instantiate")),
            Some(125_000),
            "raising lowers nothing"
        );
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

    #[test]
    fn tenants_are_admitted_with_the_rows_that_were_raised() {
        let raised = RaisedSteps::default();
        let longest = |raised: &RaisedSteps| {
            Reach::any().longest_raised(&Profile::free(), raised, &Lease::default())
        };
        assert_eq!(longest(&raised).1, CEILING_NS);
        let row = RowId::find("engine", "store drop").expect("a row");
        raised.raise(row, 125_000);
        assert_eq!(longest(&raised), (row, 125_000));
    }
}
