//! How long after a kill everything has been taken back: the formula, and each of its parts.
//!
//! The clock starts in [`TenantHandle::kill`](crate::TenantHandle::kill). With `L` for the longest host
//! step of any tenant of the cell, the tenant runs no more after
//!
//! ```text
//! E = L + RETRY + P + K(n)
//! ```
//!
//! * `L`: the cell's thread looks for messages between two steps ([`steps`](crate::steps)). *Calibrated.*
//! * `RETRY`, [`RETRY_NS`]: a signal that meets a guest between its code and the host's, or in a host
//!   call, comes again after this time at the latest. *Enforced.*
//! * `P`: from the signal to the scheduler. *Calibrated*, at its 99th percentile.
//! * `K(n) = (20·(n − 1) + 1) · k`: `n` kills are asked for at once, and each takes `k` at most. Kills wait
//!   for kills only, at a twentieth of what reservations want ([`kills_within`]). How many are asked for
//!   at once is the controller's own doing. *Enforced* but for `k`, which is *assumed* ([`KILL_NS`]) and
//!   checked: [`Cell::control`](crate::Cell::control) has the longest.
//!
//! Everything is returned after `E + S(C)`, where `S` is the longest time in which a reservation supplies
//! `C` ([`reclaimed_within`](leasehold_reserve::admission::reclaimed_within)): the tenant's own, and its
//! reclamation budget; or, for a background tenant, the cell's [for ends](ends_contract), and the sum of
//! the reclamation budgets of the background tenants whose end was asked for before, and its own.

use crate::control_share::kills_within;
pub use crate::preempt::RETRY_NS;
use leasehold_reserve::admission::Verdict;
use leasehold_reserve::{Contract, Order, Priority};

/// The longest that the cell takes to obey one kill, ns; assumed.
pub const KILL_NS: u64 = 50_000;

/// What is reserved for the ends of background tenants unless the cell is told otherwise: 1 ms in every
/// 20 ms, below all tenants that have a reservation.
///
/// # Panics
/// Never: it is a contract.
pub fn ends_contract() -> Contract {
    Contract::new(1_000_000, 20_000_000)
        .expect("a budget that is shorter than its period")
        .with_priority(Priority(0))
}

/// What delays the effect of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillDelay {
    /// The longest host step of any tenant of the cell, ns.
    pub longest_step_ns: u64,
    /// From a signal to the scheduler, ns.
    pub preemption_ns: u64,
    /// Kills that are asked for at once, this one included.
    pub kills: u64,
}

impl KillDelay {
    /// The longest time from the kill until no instruction of the tenant can run any more, ns.
    pub const fn effect_ns(&self) -> u64 {
        self.longest_step_ns
            .saturating_add(RETRY_NS)
            .saturating_add(self.preemption_ns)
            .saturating_add(kills_within(self.kills, KILL_NS))
    }
}

/// The longest time from the kill of a tenant until everything was returned, ns, if `contract` is what
/// its end is supplied by, `verdict` what the admission test says of that, and `reclaim_ns` the sum of the
/// reclamation budgets that come first, its own included. `None` if nothing bounds it.
pub fn kill_bound(
    delay: &KillDelay,
    order: Order,
    (contract, verdict): (&Contract, &Verdict),
    reclaim_ns: u64,
) -> Option<u64> {
    let supplied = verdict.reclaimed_within(contract, order, reclaim_ns)?;
    delay.effect_ns().checked_add(supplied)
}

#[cfg(test)]
mod tests {
    use super::{KILL_NS, KillDelay, RETRY_NS, ends_contract, kill_bound};
    use leasehold_reserve::Order;
    use leasehold_reserve::admission::{Overhead, admit};

    #[test]
    fn the_bound_is_the_sum_of_its_parts() {
        let delay = KillDelay {
            longest_step_ns: 70_000,
            preemption_ns: 30_000,
            kills: 3,
        };
        let effect = 70_000 + RETRY_NS + 30_000 + 41 * KILL_NS;
        assert_eq!(delay.effect_ns(), effect);
        let (order, ends) = (Order::EarliestDeadline, ends_contract());
        let report = admit(&[ends], order, Overhead::default());
        // Two whole budgets: 19 ms until there is budget, then one period, and the response to the last.
        let bound = kill_bound(&delay, order, (&ends, &report.servers[0]), 2_000_000);
        assert_eq!(bound, Some(effect + 19_000_000 + 20_000_000 + 20_000_000));
    }
}
