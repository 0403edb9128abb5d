//! Ends of tenants, counted since the node began: a snapshot has the last ones only.

use crate::view::{End, ExitKind};
use std::collections::BTreeMap;

/// The upper bounds of the ratios' buckets.
pub(super) const RATIOS: [f64; 14] = [
    0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0,
];

/// Ratios, counted by bucket.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ratios {
    /// Ratios at most the bound and above the bound before it; the last bucket has no bound.
    pub(super) buckets: [u64; RATIOS.len() + 1],
    pub(super) sum: f64,
}

impl Ratios {
    fn add(&mut self, part_ns: u64, whole_ns: u64) {
        if whole_ns == 0 {
            return;
        }
        let ratio = part_ns as f64 / whole_ns as f64;
        let bucket = RATIOS.partition_point(|bound| *bound < ratio);
        self.buckets[bucket] += 1;
        self.sum += ratio;
    }
}

/// The ends of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OfTenant {
    pub(super) exits: BTreeMap<&'static str, u64>,
    pub(super) bounds_broken: u64,
    pub(super) predictions_broken: u64,
}

/// All ends since the node began, and those of the tenants that it knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ends {
    pub(super) tenants: BTreeMap<String, OfTenant>,
    /// The processor time of ends, as a part of what was charged.
    pub(super) measured: Ratios,
    /// The wall time of ends, as a part of their bound.
    pub(super) wall: Ratios,
}

pub(super) const fn exit_name(kind: ExitKind) -> &'static str {
    match kind {
        ExitKind::Code => "code",
        ExitKind::Killed => "killed",
        ExitKind::Trap => "trap",
        ExitKind::Lease => "lease",
        ExitKind::Memory => "memory",
    }
}

impl Ends {
    /// Counts an end.
    pub fn add(&mut self, end: &End) {
        self.measured.add(end.measured_ns, end.predicted_ns);
        if let Some(bound) = end.bound_ns {
            self.wall.add(end.wall_ns, bound);
        }
        let tenant = self.tenants.entry(end.tenant.clone()).or_default();
        *tenant.exits.entry(exit_name(end.exit.kind)).or_default() += 1;
        tenant.bounds_broken += u64::from(end.within_bound == Some(false));
        tenant.predictions_broken += u64::from(end.measured_ns > end.predicted_ns);
    }

    /// Forgets a tenant that is not known any more: labels are bounded by the tenants that are.
    pub fn forget(&mut self, tenant: &str) {
        self.tenants.remove(tenant);
    }
}
