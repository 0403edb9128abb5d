//! Lease files as commands read them, and what they mean to the scheduler.

use crate::exit::Failure;
use leasehold_lease::{Cpu, LeaseFile};
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

/// The order that a lease file states.
pub(crate) fn order(order: leasehold_lease::Order) -> leasehold_reserve::Order {
    match order {
        leasehold_lease::Order::FixedPriority => leasehold_reserve::Order::FixedPriority,
        leasehold_lease::Order::EarliestDeadline => leasehold_reserve::Order::EarliestDeadline,
    }
}
