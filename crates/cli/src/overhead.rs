//! The cost of one preemption, the duration of a fault of a paging tenant, and the sources of both.

use leasehold_cell::Outlines;
use leasehold_cell::engine_config::BACKTRACE_NS;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::profile::{ASSUMED_FAULT_NS, Latency, Profile, TransferCosts};
use leasehold_cell::steps::{Reach, RowBounds, RowId};
use leasehold_lease::{Nanoseconds, TenantSpec};
use leasehold_reserve::admission::Overhead;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// The assumption for a host without calibration: above the 99th percentile that was measured from
/// timer to scheduler in a virtual machine, 41 us.
const ASSUMED_PREEMPTION: Nanoseconds = Nanoseconds::new(50_000).expect("50 us is in range");

/// The assumption for a disk without a measurement.
const ASSUMED_FAULT: Nanoseconds = Nanoseconds::new(ASSUMED_FAULT_NS).expect("1 ms is in range");

/// A time that the admission test uses, and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostTime {
    /// Stated by the user.
    Given(Nanoseconds),
    /// Measured on this host.
    Calibrated(Nanoseconds),
    /// Assumed, without a measurement.
    Assumed(Nanoseconds),
}

impl HostTime {
    /// Returns the `O^pre` of SPR eq. (2): stated by the user, or else from the profile.
    pub(crate) fn of_preemption(given: Option<Nanoseconds>, profile: Option<&Profile>) -> Self {
        let costs = profile.and_then(|profile| profile.preemption.as_ref());
        let measured = costs.map(|costs| costs.per_preemption_ns());
        Self::of(given, measured, ASSUMED_PREEMPTION)
    }

    /// Returns the duration of a paging tenant's fault, from the same sources.
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

/// The longest host steps of tenants: a tenant can hold the processor for so long while another one
/// is ready.
#[derive(Debug, Clone)]
pub(crate) struct HostSteps {
    /// Of each tenant, by its name.
    longest: HashMap<String, LongestStep>,
    fault: HostTime,
    /// How long the cell takes to obey a kill, ns.
    kill_ns: u64,
    /// What the host itself may add to that, ns.
    added_ns: u64,
    /// Why traps cannot have a backtrace, if a tenant is in the way.
    no_backtraces: Option<String>,
}

/// The share of a reclamation budget that the walk for a backtrace may take at the most: one in so many.
const BACKTRACE_SHARE: u64 = 10;

/// Why the traps of this tenant can have no backtrace; `None` if they can, or if its program cannot be read.
///
/// Each execution is charged for a walk over its stack, so that tasks would soon be refused; and a budget that hardly
/// pays for one is needed for other things.
fn refuses_backtraces(tenant: &TenantSpec, reach: Option<&Reach>) -> Option<String> {
    let name = &tenant.name;
    if reach.is_some_and(Reach::starts_others) {
        return Some(format!(
            "tenant {name} can start tasks or child tenants, and each would take {} of its budget more",
            Nanoseconds::new(BACKTRACE_NS)?
        ));
    }
    let least = Nanoseconds::new(BACKTRACE_SHARE * BACKTRACE_NS)?;
    let budget = tenant.lease.reclaim.budget;
    (budget < least).then(|| {
        format!("the `reclaim.budget` of tenant {name} is {budget}; allowed with backtraces: {least} or more")
    })
}

/// The longest host step of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LongestStep {
    /// The row.
    pub(crate) row: RowId,
    /// How long it may be, ns.
    pub(crate) ns: u64,
    /// Whether the tenant's program was read. If not, it is the longest that any program reaches.
    pub(crate) is_of_program: bool,
}

impl HostSteps {
    /// The longest steps of these tenants, as the profile has them: those that their programs reach.
    /// Each program is looked at once; of one that cannot be read, any is assumed. `mechanism` is that of their cell.
    pub(crate) fn of(
        mechanism: Mechanism,
        tenants: &[TenantSpec],
        fault: HostTime,
        profile: Option<&Profile>,
        outlines: &Outlines,
    ) -> Self {
        Self::raised_as((mechanism, None), tenants, fault, profile, outlines)
    }

    /// The same, with rows that are raised as those of a cell are.
    pub(crate) fn raised_as(
        (mechanism, raised): (Mechanism, Option<&RowBounds>),
        tenants: &[TenantSpec],
        fault: HostTime,
        profile: Option<&Profile>,
        outlines: &Outlines,
    ) -> Self {
        let mut profile = profile.cloned().unwrap_or_else(Profile::free);
        profile.transfer = Some(transfer(fault.time().get()));
        let mut bounds = RowBounds::calibrated(&profile).preempted_by(mechanism);
        if let Some(raised) = raised {
            bounds = bounds.raised_as(raised);
        }
        let mut reaches: HashMap<(&Path, bool), Option<Reach>> = HashMap::new();
        let mut known = HashMap::new();
        let any = Reach::any();
        let mut longest = HashMap::new();
        let mut no_backtraces = None;
        for tenant in tenants {
            let path = tenant.component.as_path();
            let program = (path, tenant.http.is_some());
            let (memory, reclaim) = (&tenant.lease.memory, &tenant.lease.reclaim);
            // Nothing else of a lease matters.
            let key = (
                program,
                memory.paging.is_some(),
                memory.stack,
                reclaim.call_bytes,
            );
            let step = *known.entry(key).or_insert_with(|| {
                let look = || outlines.reach(path, program.1);
                let reach = reaches.entry(program).or_insert_with(look);
                let of = reach.as_ref().unwrap_or(&any);
                let (row, ns) = of.longest_under(&bounds, &tenant.lease);
                LongestStep {
                    row,
                    ns,
                    is_of_program: reach.is_some(),
                }
            });
            longest.insert(tenant.name.clone(), step);
            let reach = reaches.get(&program).and_then(Option::as_ref);
            no_backtraces = no_backtraces.or_else(|| refuses_backtraces(tenant, reach));
        }
        Self {
            longest,
            fault,
            kill_ns: profile.kill_ns(),
            added_ns: profile.added_ns(),
            no_backtraces,
        }
    }

    /// Why traps cannot have a backtrace; `None` if they can.
    pub(crate) fn no_backtraces(&self) -> Option<&str> {
        self.no_backtraces.as_deref()
    }

    /// The same on a cell that names the functions on the stack of a trap.
    pub(crate) fn with_backtraces(mut self) -> Self {
        for step in self.longest.values_mut() {
            if step.ns < BACKTRACE_NS {
                step.ns = BACKTRACE_NS;
                step.row = RowId::find("engine", "trap").unwrap_or(step.row);
            }
        }
        self
    }

    /// The longest step of one of the tenants.
    pub(crate) fn longest(&self, tenant: &TenantSpec) -> LongestStep {
        self.longest[&tenant.name]
    }

    /// How long the cell takes to obey a kill, ns.
    pub(crate) const fn kill_ns(&self) -> u64 {
        self.kill_ns
    }

    /// What the host itself may add to a kill, ns.
    pub(crate) const fn added_ns(&self) -> u64 {
        self.added_ns
    }

    /// How long a fault takes.
    pub(crate) const fn fault(&self) -> HostTime {
        self.fault
    }
}

/// A transfer that makes a fault take so long, ns.
fn transfer(fault_ns: u64) -> TransferCosts {
    TransferCosts {
        read: Latency::of(vec![fault_ns]),
        write: Latency::of(Vec::new()),
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
