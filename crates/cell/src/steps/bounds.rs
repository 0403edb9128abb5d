//! How long a step of each row may be: what was calibrated, or what a cell has raised it to.
//!
//! The bounds are looked up by place, and made once for a cell or an admission: a start of a tenant compares those of all
//! rows that its program reaches, some hundred of a component. A profile has them by name.

use super::table::{RowId, TABLE};
use crate::profile::Profile;
use leasehold_preempt::Mechanism;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long a guest takes to leave the frames on a byte of its stack, ns: twice what an exception takes that passes the smallest
/// ones, 0.28 us for 100 bytes. Stated, and not calibrated. Programs are rewritten to look at the epoch while they return and where they
/// catch, so that what stays a step is less: the engine's walk of a few frames. The price is an upper bound of that, which was not lowered.
const LEAVING_NS: u64 = 5;

/// The bounds of all rows on this host: raised by a cell's thread, read where tenants are admitted.
#[derive(Debug)]
pub struct RowBounds {
    calibrated_ns: [u64; TABLE.len()],
    fault_ns: u64,
    /// How long a guest takes to leave the frames on a byte of its stack in one step, ns.
    leaving_ns: u64,
    /// Zero for a row that was not raised.
    raised_ns: [AtomicU64; TABLE.len()],
}

impl RowBounds {
    /// The bounds that a profile has, of which none was raised. Costs some 100 µs.
    pub fn calibrated(profile: &Profile) -> Self {
        let mut calibrated_ns = [0; TABLE.len()];
        for row in RowId::all() {
            calibrated_ns[usize::from(row.0)] = profile.longest_step_ns(row);
        }
        Self {
            calibrated_ns,
            fault_ns: profile.longest_fault_ns(),
            leaving_ns: 0,
            raised_ns: [const { AtomicU64::new(0) }; TABLE.len()],
        }
    }

    /// These on a cell whose guests are preempted so. With epochs one that leaves many frames, by returning or by an exception,
    /// does so in one step.
    #[must_use]
    pub fn preempted_by(mut self, mechanism: Mechanism) -> Self {
        self.leaving_ns = match mechanism {
            Mechanism::Epochs => LEAVING_NS,
            _ => 0,
        };
        self
    }

    /// These, with rows that are raised where those of `other` are now.
    #[must_use]
    pub fn raised_as(self, other: &Self) -> Self {
        for row in RowId::all() {
            if let Some(ns) = other.raised(row) {
                self.raise(row.counted_as(), ns);
            }
        }
        self
    }

    /// How long a step of a row may be for tenants that are admitted now, ns.
    pub fn ns(&self, row: RowId) -> u64 {
        self.calibrated_ns(row)
            .max(self.raised(row).unwrap_or_default())
    }

    /// How long a fault of a tenant that pages may be, ns.
    pub const fn fault_ns(&self) -> u64 {
        self.fault_ns
    }

    /// How long a guest may take to leave all frames of its stack without being preempted, ns.
    pub(super) const fn leaving_ns(&self, stack_bytes: u64) -> u64 {
        self.leaving_ns.saturating_mul(stack_bytes)
    }

    pub(super) const fn calibrated_ns(&self, row: RowId) -> u64 {
        self.calibrated_ns[row.0 as usize]
    }

    /// How long a step of a row may be, ns, if it was raised.
    pub(super) fn raised(&self, row: RowId) -> Option<u64> {
        let ns = self.raised_ns[usize::from(row.counted_as().0)].load(Relaxed);
        (ns > 0).then_some(ns)
    }

    pub(super) fn raise(&self, row: RowId, ns: u64) {
        self.raised_ns[usize::from(row.0)].fetch_max(ns, Relaxed);
    }

    /// Lowers a row: to so many ns, or to what was calibrated.
    pub(super) fn lower(&self, row: RowId, ns: Option<u64>) {
        self.raised_ns[usize::from(row.0)].store(ns.unwrap_or(0), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::RowBounds;
    use crate::profile::Profile;
    use crate::steps::{CEILING_NS, Reach, RowId};
    use leasehold_lease::Lease;
    use leasehold_preempt::Mechanism;

    #[test]
    fn bounds_are_raised_as_others_are() {
        let profile = Profile::free();
        let (cell, row) = (
            RowBounds::calibrated(&profile),
            RowId::find("engine", "instantiate"),
        );
        let row = row.expect("a row");
        cell.raise(row, 125_000);
        let raised = RowBounds::calibrated(&profile).raised_as(&cell);
        assert_eq!(raised.raised(row), Some(125_000));
        assert!(RowId::all().all(|row| raised.raised(row) == cell.raised(row)));
    }

    #[test]
    fn rows_that_are_counted_as_another_are_raised_with_it() {
        let bounds = RowBounds::calibrated(&Profile::free());
        let row = |name| RowId::find("engine", name).expect("a row");
        bounds.raise(row("instantiate"), 125_000);
        assert_eq!(bounds.raised(row("instantiate")), Some(125_000));
        assert_eq!(bounds.raised(row("data segments")), Some(125_000));
        assert_eq!(bounds.raised(row("store drop")), None);
        bounds.raise(row("instantiate"), 1);
        assert_eq!(
            bounds.raised(row("instantiate")),
            Some(125_000),
            "raising lowers nothing"
        );
    }

    #[test]
    fn with_epochs_tenants_are_admitted_with_the_time_in_which_all_frames_of_their_stacks_are_left()
    {
        let bounds = RowBounds::calibrated(&Profile::free()).preempted_by(Mechanism::Epochs);
        let mut lease = Lease::default();
        let mut longest = |stack: &str| {
            lease.memory.stack = stack.parse().expect("a size");
            Reach::any().longest_under(&bounds, &lease)
        };
        let row = RowId::find("engine", "trap").expect("a row");
        let (of, ns) = longest("64MiB");
        assert_eq!((of, ns / 100_000_000), (row, 3));
        assert!((1_500_000..10_000_000).contains(&longest("512KiB").1));
    }

    #[test]
    fn tenants_are_admitted_with_the_rows_that_were_raised() {
        let bounds = RowBounds::calibrated(&Profile::free());
        let longest = || Reach::any().longest_under(&bounds, &Lease::default());
        assert_eq!(longest().1, CEILING_NS);
        let row = RowId::find("engine", "store drop").expect("a row");
        bounds.raise(row, 125_000);
        assert_eq!(longest(), (row, 125_000));
    }
}
