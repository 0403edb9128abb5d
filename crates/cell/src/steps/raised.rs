//! Rows whose steps have turned out longer than calibrated.
//!
//! A row's bound is a quantile that was measured. When the steps of a cell exceed it more often than is stated
//! (the [sequential test](Drift) that ends are put to), the row is raised by a quarter: tenants that are admitted
//! from then on and reach it have the longer step. What admission said of those before stays as it is. A row falls
//! only by calibrating again.

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

    /// The last of so many steps was too long; true if the row is to be raised.
    pub(crate) fn exceeded(&mut self, steps: u64) -> bool {
        self.drift.within(steps.saturating_sub(self.at + 1));
        self.at = steps;
        self.drift.observe(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{RaisedSteps, RowDrift};
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
            "rows do not fall"
        );
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
