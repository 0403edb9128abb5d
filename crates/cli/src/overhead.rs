//! What one preemption takes from a tenant, how long a fault of a tenant that pages holds the
//! processor, and how we know.

use leasehold_cell::profile::{ASSUMED_FAULT_NS, Profile};
use leasehold_cell::steps::{Reach, RowId};
use leasehold_lease::{Nanoseconds, TenantSpec};
use leasehold_reserve::admission::Overhead;
use std::fmt;

/// What is assumed of a host that was not calibrated: above the 99th percentile that was measured
/// from timer to scheduler in a virtual machine, 41 us.
const ASSUMED_PREEMPTION: Nanoseconds = Nanoseconds::new(50_000).expect("50 us is in range");

/// What is assumed of a disk that was not measured.
const ASSUMED_FAULT: Nanoseconds = Nanoseconds::new(ASSUMED_FAULT_NS).expect("1 ms is in range");

/// A time that the admission test counts on, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostTime {
    /// The user says so.
    Given(Nanoseconds),
    /// It was measured on this host.
    Calibrated(Nanoseconds),
    /// Nothing is known of this host.
    Assumed(Nanoseconds),
}

impl HostTime {
    /// The `O^pre` of SPR eq. (2): what the user says, or else what the profile does.
    pub(crate) fn of_preemption(given: Option<Nanoseconds>, profile: Option<&Profile>) -> Self {
        let costs = profile.and_then(|profile| profile.preemption.as_ref());
        let measured = costs.map(|costs| costs.per_preemption_ns());
        Self::of(given, measured, ASSUMED_PREEMPTION)
    }

    /// How long a fault of a tenant that pages takes: likewise.
    pub(crate) fn of_fault(given: Option<Nanoseconds>, profile: Option<&Profile>) -> Self {
        let costs = profile.and_then(|profile| profile.transfer.as_ref());
        let measured = costs.map(|costs| costs.per_fault_ns());
        Self::of(given, measured, ASSUMED_FAULT)
    }

    fn of(given: Option<Nanoseconds>, measured: Option<u64>, assumed: Nanoseconds) -> Self {
        let measured = measured.and_then(Nanoseconds::new).map(Self::Calibrated);
        let given = given.map(Self::Given);
        given.or(measured).unwrap_or(Self::Assumed(assumed))
    }

    pub(crate) const fn time(self) -> Nanoseconds {
        match self {
            Self::Given(time) | Self::Calibrated(time) | Self::Assumed(time) => time,
        }
    }

    /// As overhead, for the admission test.
    pub(crate) const fn overhead(self) -> Overhead {
        Overhead {
            per_preemption: self.time().get(),
        }
    }

    /// Where it comes from, for programs.
    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::Given(_) => "given",
            Self::Calibrated(_) => "calibrated",
            Self::Assumed(_) => "assumed",
        }
    }
}

/// The longest host steps of tenants: for so long one holds the processor although another wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostSteps {
    /// The longest of a tenant that does not page.
    step: (RowId, u64),
    fault: HostTime,
    /// The row of a fault.
    faulting: RowId,
}

impl HostSteps {
    /// The longest steps of any program, as the profile has them.
    pub(crate) fn of(fault: HostTime, profile: Option<&Profile>) -> Self {
        let free = Profile::free();
        let profile = profile.unwrap_or(&free);
        let reach = Reach::any();
        Self {
            step: reach.longest(profile, false),
            fault,
            faulting: reach.longest(profile, true).0,
        }
    }

    /// The longest step of a tenant, ns, and its row.
    pub(crate) fn longest(&self, tenant: &TenantSpec) -> (RowId, u64) {
        let fault = self.fault.time().get();
        if tenant.lease.memory.paging.is_some() && fault > self.step.1 {
            (self.faulting, fault)
        } else {
            self.step
        }
    }

    /// How long a fault takes.
    pub(crate) const fn fault(&self) -> HostTime {
        self.fault
    }
}

impl fmt::Display for HostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = crate::report::nanos(self.time().get());
        match self {
            Self::Given(_) => write!(f, "{time} (as given)"),
            Self::Calibrated(_) => write!(f, "{time} (p99, calibrated on this host)"),
            Self::Assumed(_) => write!(
                f,
                "{time} (assumed: `leasehold calibrate` measures this host)"
            ),
        }
    }
}
