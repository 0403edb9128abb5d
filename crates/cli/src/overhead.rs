//! What one preemption takes from a tenant, and how we know.

use leasehold_cell::profile::Profile;
use leasehold_lease::Nanoseconds;
use leasehold_reserve::admission::Overhead;
use std::fmt;

/// What is assumed of a host that was not calibrated: above the 99th percentile that was measured
/// from timer to scheduler in a virtual machine, 41 us.
const ASSUMED: Nanoseconds = Nanoseconds::new(50_000).expect("50 us is in range");

/// The `O^pre` of SPR eq. (2), and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreemptionOverhead {
    /// The user says so.
    Given(Nanoseconds),
    /// It was measured on this host.
    Calibrated(Nanoseconds),
    /// Nothing is known of this host.
    Assumed,
}

impl PreemptionOverhead {
    /// What the user says, or else what the profile does.
    pub(crate) fn of(given: Option<Nanoseconds>, profile: Option<&Profile>) -> Self {
        if let Some(time) = given {
            return Self::Given(time);
        }
        profile
            .and_then(|profile| profile.preemption.as_ref())
            .and_then(|costs| Nanoseconds::new(costs.per_preemption_ns()))
            .map_or(Self::Assumed, Self::Calibrated)
    }

    pub(crate) const fn time(self) -> Nanoseconds {
        match self {
            Self::Given(time) | Self::Calibrated(time) => time,
            Self::Assumed => ASSUMED,
        }
    }

    /// For the admission test.
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
            Self::Assumed => "assumed",
        }
    }
}

impl fmt::Display for PreemptionOverhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = crate::report::nanos(self.time().get());
        match self {
            Self::Given(_) => write!(f, "{time} (as given)"),
            Self::Calibrated(_) => write!(f, "{time} (p99, calibrated on this host)"),
            Self::Assumed => write!(
                f,
                "{time} (assumed: `leasehold calibrate` measures this host)"
            ),
        }
    }
}
