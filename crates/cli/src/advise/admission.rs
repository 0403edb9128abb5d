//! Whether `leasehold admit` and `leasehold up` would take an advised lease, alone in its file.

use crate::admission::{Admission, Scheduling};
use crate::leases;
use crate::overhead::{HostSteps, HostTime};
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::profile::Profile;
use leasehold_cell::{Lease, Outlines};
use leasehold_lease::{Order, TenantSpec};

/// The admission test of a lease file with one tenant.
pub(super) struct SoleAdmission {
    profile: Profile,
    preemption: HostTime,
}

impl SoleAdmission {
    /// On the host of this profile.
    pub(super) fn new(profile: Profile, preemption: HostTime) -> Self {
        Self {
            profile,
            preemption,
        }
    }

    /// Why the tenant would not be admitted with this lease; `None` if it would be.
    pub(super) fn refusal(&self, tenant: &TenantSpec, lease: Lease) -> Option<String> {
        let tenants = [TenantSpec {
            lease,
            ..tenant.clone()
        }];
        let fault = HostTime::of_fault(None, Some(&self.profile));
        let steps = HostSteps::of(
            Mechanism::from_environment(),
            &tenants,
            fault,
            Some(&self.profile),
            &Outlines::default(),
        );
        let scheduling = Scheduling {
            // What a file without a `cell` table has.
            order: leases::order(Order::default()),
            overhead: self.preemption.overhead(),
            ends: None,
        };
        Admission::of(&tenants, &steps, scheduling).refusal()
    }
}
