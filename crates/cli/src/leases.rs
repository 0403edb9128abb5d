//! Lease files as commands read them, and what they mean to the scheduler.

use crate::exit::Failure;
use crate::overhead::HostSteps;
use leasehold_cell::memory::{HeldMemory, Swap};
use leasehold_lease::{ByteSize, Cpu, LeaseFile, TenantSpec};
use leasehold_pager::PAGE;
use leasehold_reserve::Contract;
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

/// The contract that a lease states.
pub(crate) fn contract(cpu: Cpu) -> Contract {
    leasehold_cell::contract(&cpu)
}

/// What the tenants of a file ask of the processor, for the admission test.
pub(crate) struct Claims {
    /// Of each tenant, its reservation.
    pub(crate) reserved: Vec<Option<Contract>>,
    /// The longest host step of a background tenant.
    background: Option<Contract>,
}

/// What these tenants ask of the processor, with host steps as long as that.
pub(crate) fn claims(tenants: &[TenantSpec], steps: &HostSteps) -> Claims {
    let claim = |tenant: &TenantSpec| leasehold_cell::claim(&tenant.lease, steps.longest(tenant).1);
    let is_reserved = |tenant: &TenantSpec| tenant.lease.cpu.is_some();
    // One of them at a time is in a step.
    let background = tenants.iter().filter(|tenant| !is_reserved(tenant));
    Claims {
        reserved: tenants
            .iter()
            .map(|tenant| is_reserved(tenant).then(|| claim(tenant)))
            .collect(),
        background: background.map(claim).max_by_key(Contract::longest_step),
    }
}

impl Claims {
    /// The reservations in the order of the file, and behind them what is in the background.
    pub(crate) fn all(&self) -> Vec<Contract> {
        let reserved = self.reserved.iter().copied().flatten();
        reserved.chain(self.background).collect()
    }
}

/// The order that a lease file states.
pub(crate) fn order(order: leasehold_lease::Order) -> leasehold_reserve::Order {
    match order {
        leasehold_lease::Order::FixedPriority => leasehold_reserve::Order::FixedPriority,
        leasehold_lease::Order::EarliestDeadline => leasehold_reserve::Order::EarliestDeadline,
    }
}

/// What the cell of these tenants holds of the host's memory: what `stated` says, for all of them, or
/// what those that page reserve. `None` if that is nothing.
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
