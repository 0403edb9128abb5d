//! Lease files as commands read them, and their contracts for the scheduler.

use crate::exit::Failure;
use crate::output::say;
use crate::overhead::{HostSteps, HostTime};
use crate::transit::mebibytes;
use leasehold_cell::memory::{HeldMemory, Swap};
use leasehold_cell::profile::Profile;
use leasehold_cell::{Held, KillDelay, PLACES, RealtimeLimit, kill_bound, reservation_for_ends};
use leasehold_lease::{ByteSize, Cpu, Lease, LeaseFile, Nanoseconds, Restart, TenantSpec};
use leasehold_pager::PAGE;
use leasehold_reserve::admission::admit;
use leasehold_reserve::{Contract, Order};
use std::path::Path;

/// Loads the lease file at `path`.
pub(crate) fn load(path: &Path) -> Result<LeaseFile, Failure> {
    if !path.exists() {
        return Err(Failure::Missing(format!(
            "no such lease file: {}",
            path.display()
        )));
    }
    LeaseFile::load(path).map_err(|error| Failure::Configuration(error.to_string()))
}

/// Refuses a tenant that answers requests, for a command that hands it none.
///
/// # Errors
/// When its lease has an `http` table.
pub(crate) fn without_requests(path: &Path, tenant: &TenantSpec) -> Result<(), Failure> {
    match tenant.http {
        None => Ok(()),
        Some(_) => Err(Failure::Configuration(format!(
            "{}: tenant.{}.http: only `leasehold serve` starts tenants that answer requests",
            path.display(),
            tenant.name
        ))),
    }
}

/// Whether there is a place for every tenant, before any of them takes one.
///
/// # Errors
/// What was found, and what is allowed.
pub(crate) fn check_size(path: &Path, file: &LeaseFile) -> Result<(), String> {
    match file.tenants.len() {
        0..=PLACES => Ok(()),
        found => Err(format!(
            "{}: tenant: found {found} tables [tenant.NAME]; allowed: at most {PLACES} on one cell",
            path.display()
        )),
    }
}

/// Checks that the directories of a tenant are there.
///
/// # Errors
/// The first that is not.
pub(crate) fn check_directories(tenant: &TenantSpec) -> Result<(), Failure> {
    match tenant
        .dirs
        .iter()
        .find(|directory| !directory.host.is_dir())
    {
        None => Ok(()),
        Some(missing) => Err(Failure::Missing(format!(
            "tenant.{}.dirs: {}: {}",
            tenant.name,
            match missing.host.exists() {
                true => "not a directory",
                false => "no such directory",
            },
            missing.host.display()
        ))),
    }
}

/// Says of a tenant that its lease has it started again, for a command that starts it once.
pub(crate) fn starts_once(tenant: &TenantSpec, command: &str) {
    if tenant.restart == Restart::OnFailure {
        say!(
            "leasehold: tenant.{}.restart: found \"on-failure\", which `leasehold {command}` does not do: it is started \
             once; `leasehold serve`, and `up --socket`, start it again",
            tenant.name
        );
    }
}

/// The reclamation budget of a tenant whose lease does not state one: what a lease has by default, and what
/// this profile charges for all the linear memory that the lease allows.
pub(crate) fn default_budget(lease: &Lease, profile: &Profile) -> Nanoseconds {
    let page = match lease.memory.paging {
        Some(_) => Held::PagedPage,
        None => Held::MemoryPage,
    };
    let pages = lease.memory.limit().get().div_ceil(PAGE);
    let pages_ns = u128::from(pages) * u128::from(profile.charge_ps(page)) / 1_000;
    let pages_ns = u64::try_from(pages_ns).unwrap_or(u64::MAX);
    let budget = Lease::default().reclaim.budget.get();
    Nanoseconds::new(budget.saturating_add(pages_ns)).unwrap_or(Nanoseconds::MAX)
}

/// The contract that a lease states.
pub(crate) fn contract(cpu: Cpu) -> Contract {
    leasehold_cell::contract(&cpu)
}

/// The processor claims of a file's tenants, for the admission test.
pub(crate) struct Claims {
    /// Of each tenant, its reservation.
    pub(crate) reserved: Vec<Option<Contract>>,
    /// The longest host step of a background tenant.
    background: Option<Contract>,
}

/// Returns the processor claims of these tenants, with their longest host steps.
pub(crate) fn claims(tenants: &[TenantSpec], steps: &HostSteps) -> Claims {
    let claim =
        |tenant: &TenantSpec| leasehold_cell::claim(&tenant.lease, steps.longest(tenant).ns);
    let is_reserved = |tenant: &TenantSpec| tenant.lease.cpu.is_some();
    // One of them at a time is in a step.
    let background = tenants.iter().filter(|tenant| !is_reserved(tenant));
    let background = background.map(claim);
    let background = background.max_by_key(Contract::longest_step);
    Claims {
        reserved: tenants
            .iter()
            .map(|tenant| is_reserved(tenant).then(|| claim(tenant)))
            .collect(),
        background,
    }
}

impl Claims {
    /// The reservations in the order of the file, and behind them what is in the background.
    pub(crate) fn all(&self) -> Vec<Contract> {
        let reserved = self.reserved.iter().copied().flatten();
        reserved.chain(self.background).collect()
    }
}

/// Returns the host's limit on a cell with real-time priority, if these reservations may exceed it.
pub(crate) fn stopped_by_host(contracts: &[Contract]) -> Option<RealtimeLimit> {
    RealtimeLimit::of_host().filter(|limit| !limit.allows(contracts))
}

/// How long the end of each tenant takes at most, all of them killed at once: see
/// [`kill_bound`](leasehold_cell::kill_bound).
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndBound {
    /// The time until nothing of it runs, ns.
    pub(crate) effect_ns: u64,
    /// Until everything was returned, ns; `None` where nothing bounds it.
    pub(crate) returned_ns: Option<u64>,
}

/// The ends of a cell's tenants.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The bounds on the ends of the tenants, in their order.
    pub(crate) bounds: Vec<EndBound>,
    /// The reservation for the ends of background tenants; `None` if there is no room for it beside
    /// the reservations.
    pub(crate) reservation: Option<Contract>,
}

impl Ends {
    /// Chooses the reservation for the ends of those tenants that have none, and bounds all ends.
    pub(crate) fn of(
        tenants: &[TenantSpec],
        steps: &HostSteps,
        preemption: HostTime,
        order: Order,
    ) -> Self {
        let claims = claims(tenants, steps);
        let all = claims.all();
        let reservation = claims.background.and_then(|background| {
            let step = background.longest_step();
            reservation_for_ends(&all, step, order, preemption.overhead())
        });
        let room = |ends: &Contract| {
            let with: Vec<Contract> = all.iter().copied().chain([*ends]).collect();
            stopped_by_host(&with).is_none() || stopped_by_host(&all).is_some()
        };
        let reservation = reservation.filter(room);
        Self::with(tenants, steps, preemption, order, reservation)
    }

    /// Returns a tenant without a bound on its end, which has one among `others` of the same tenants.
    pub(crate) fn unbounded<'a>(
        &self,
        others: &Self,
        tenants: &'a [TenantSpec],
    ) -> Option<&'a TenantSpec> {
        let bounds = self.bounds.iter().zip(&others.bounds);
        let (_, tenant) = bounds
            .zip(tenants)
            .find(|((here, there), _)| here.returned_ns.is_none() && there.returned_ns.is_some())?;
        Some(tenant)
    }

    /// The same with this reservation.
    pub(crate) fn with(
        tenants: &[TenantSpec],
        steps: &HostSteps,
        preemption: HostTime,
        order: Order,
        reservation: Option<Contract>,
    ) -> Self {
        let claims = claims(tenants, steps);
        let delay = KillDelay {
            longest_step_ns: tenants
                .iter()
                .map(|tenant| steps.longest(tenant).ns)
                .max()
                .unwrap_or(0),
            preemption_ns: preemption.time().get(),
            kills: tenants.len() as u64,
            kill_ns: steps.kill_ns(),
            host_ns: steps.added_ns(),
        };
        let mut all = claims.all();
        // It is one more that the others have to share the processor with.
        all.extend(reservation);
        let report = admit(&all, order, preemption.overhead());
        let ends = reservation.as_ref().zip(report.servers.last());
        let reclaim = |tenant: &TenantSpec| tenant.lease.reclaim.budget.get();
        let background = tenants.iter().filter(|tenant| tenant.lease.cpu.is_none());
        let all_background = background.map(reclaim).fold(0, u64::saturating_add);
        let mut reserved = report.servers.iter();
        let bound = |(tenant, contract): (&TenantSpec, &Option<Contract>)| {
            let (supply, reclaim) = match contract {
                Some(contract) => (Some(contract).zip(reserved.next()), reclaim(tenant)),
                None => (ends, all_background),
            };
            EndBound {
                effect_ns: delay.effect_ns(),
                returned_ns: supply.and_then(|supply| kill_bound(&delay, order, supply, reclaim)),
            }
        };
        Self {
            bounds: tenants.iter().zip(&claims.reserved).map(bound).collect(),
            reservation,
        }
    }
}

/// Bytes of a swap file that take a second on a fast disk.
const LONG: u64 = 1 << 30;

/// Tells of a cell that is to hold this that its start takes long, if its swap file does.
pub(crate) fn tell_of_swap(held: Option<&HeldMemory>) {
    let swap = held.and_then(|held| held.swap.as_ref());
    if let Some(swap) = swap.filter(|swap| swap.bytes >= LONG) {
        say!(
            "leasehold: writing the swap file {}: {}",
            swap.path.display(),
            mebibytes(swap.bytes)
        );
    }
}

/// The order that a lease file states.
pub(crate) fn order(order: leasehold_lease::Order) -> Order {
    match order {
        leasehold_lease::Order::FixedPriority => Order::FixedPriority,
        leasehold_lease::Order::EarliestDeadline => Order::EarliestDeadline,
    }
}

/// Returns the host memory that the cell of these tenants holds: `stated`, for all of them, or the
/// reservations of paging tenants. `None` if that is nothing.
pub(crate) fn held_memory(tenants: &[TenantSpec], stated: Option<ByteSize>) -> Option<HeldMemory> {
    let memory = || tenants.iter().map(|tenant| &tenant.lease.memory);
    let paging = || memory().filter_map(|memory| Some((memory, memory.paging?)));
    let frames = |size: ByteSize| size.get().next_multiple_of(PAGE);
    let reserved = paging().map(|(memory, _)| frames(memory.reserve)).sum();
    let swapped = paging()
        .map(|(_, paging)| leasehold_cell::memory::swap_for(paging.limit))
        .sum();
    let bytes = stated.map_or(reserved, ByteSize::get);
    let path = tenants.iter().find_map(|tenant| tenant.swap.clone());
    (bytes > 0).then(|| HeldMemory {
        bytes,
        for_all: stated.is_some(),
        swap: path.map(|path| Swap {
            path,
            bytes: swapped,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::default_budget;
    use leasehold_cell::Held;
    use leasehold_cell::profile::Profile;
    use leasehold_lease::{ByteSize, Lease};

    #[test]
    fn the_default_budget_pays_for_all_the_memory_that_the_lease_allows() {
        let mut profile = Profile::free();
        let page = Held::MemoryPage.name().to_owned();
        profile.median_ps.held.insert(page, 325_000);
        for mib in [1, 1024, 4096] {
            let mut lease = Lease::default();
            lease.memory.reserve = ByteSize::new(mib << 20).expect("in range");
            let pages_ns = (mib << 8) * profile.charge_ps(Held::MemoryPage) / 1_000;
            let rest_ns = default_budget(&lease, &profile).get() - pages_ns;
            assert_eq!(rest_ns, Lease::default().reclaim.budget.get(), "{mib}");
        }
    }
}
