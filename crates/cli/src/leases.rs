//! Lease files as commands read them, and what they mean to the scheduler.

use crate::exit::Failure;
use leasehold_lease::{Cpu, LeaseFile};
use leasehold_reserve::{Contract, Priority};
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
    let policy = match cpu.policy() {
        leasehold_lease::Policy::Sporadic => leasehold_reserve::Policy::Sporadic,
        leasehold_lease::Policy::Deferrable => leasehold_reserve::Policy::Deferrable,
    };
    let nonpreemptive = cpu.nonpreemptive().map_or(0, |length| length.get());
    Contract::new(cpu.budget().get(), cpu.period().get())
        .and_then(|contract| contract.with_nonpreemptive(nonpreemptive))
        .and_then(|contract| contract.with_replenishments(cpu.replenishments().into()))
        .expect("a lease is at least as strict as a contract")
        .with_priority(Priority(cpu.priority()))
        .with_policy(policy)
        .with_slice(cpu.slice().get())
}

/// The order that a lease file states.
pub(crate) fn order(order: leasehold_lease::Order) -> leasehold_reserve::Order {
    match order {
        leasehold_lease::Order::FixedPriority => leasehold_reserve::Order::FixedPriority,
        leasehold_lease::Order::EarliestDeadline => leasehold_reserve::Order::EarliestDeadline,
    }
}
