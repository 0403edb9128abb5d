//! The bound on the time from a kill until everything is taken back: the formula, and each of its
//! parts.
//!
//! The clock starts in [`TenantHandle::kill`](crate::TenantHandle::kill). With `L` for the longest host
//! step of any tenant of the cell, the tenant runs no more after
//!
//! ```text
//! E = L + RETRY + P + K(n) + H
//! ```
//!
//! * `L`: the cell's thread looks for messages between two steps ([`steps`](crate::steps)). *Calibrated.*
//! * `RETRY`, [`RETRY_NS`]: a signal that meets a guest between its code and the host's, or in a host
//!   call, comes again after this time at the latest. *Enforced.*
//! * `P`: from the signal to the scheduler. *Calibrated*, at its 99th percentile.
//! * `K(n) = (20·(n − 1) + 1) · k`: `n` kills are asked for at once, and each takes `k` at most.
//!   Kills wait for kills only, and get a twentieth of the time while reservations are ready
//!   ([`kills_within`]). The controller determines `n`. *Enforced* but for `k`, which is *calibrated*
//!   ([`Profile::kill_ns`](crate::profile::Profile::kill_ns)) and checked: [`Cell::control`](crate::Cell::control) has
//!   the longest.
//! * `H`: the host's own interrupts, and the time for which it stops a virtual machine, meet a kill once. *Calibrated*, at its
//!   99.99th percentile ([`Profile::added_ns`](crate::profile::Profile::added_ns)).
//!
//! Everything is returned after `E + S(C)`, where `S` is the longest time in which a reservation supplies
//! `C` ([`reclaimed_within`](leasehold_reserve::admission::reclaimed_within)): the tenant's own, and its
//! reclamation budget; or, for a background tenant, the cell's [for ends](reservation_for_ends), and the sum of
//! the reclamation budgets of the background tenants whose end was asked for before, and its own.

use crate::control_share::kills_within;
use leasehold_preempt::RETRY_NS;
use leasehold_reserve::admission::{Overhead, Verdict, fits};
use leasehold_reserve::{Contract, Order, Priority};

/// Budgets and periods that are tried for the reservation for ends, ns: the largest share first.
const ENDS_SHARES: [(u64, u64); 5] = [
    (4_000_000, 20_000_000),
    (2_000_000, 20_000_000),
    (1_000_000, 20_000_000),
    (1_000_000, 50_000_000),
    (1_000_000, 100_000_000),
];

/// Non-preemptive regions that are tried for it, ns: the shortest first.
const ENDS_REGIONS: [u64; 4] = [100_000, 250_000, 500_000, 1_000_000];

/// The default reservation for the ends of background tenants: 1 ms in every 20 ms, below all
/// tenants that have a reservation, in regions of 500 µs.
pub(crate) fn ends_contract() -> Contract {
    ends(1_000_000, 20_000_000, 500_000)
}

/// The reservation for ends with this budget, period and non-preemptive region, ns. Only a region bounds
/// how often a server of the lowest priority is preempted. Its budget comes back in one piece, since a
/// dispatch is paid for each.
fn ends(budget: u64, period: u64, region: u64) -> Contract {
    Contract::new(budget, period)
        .and_then(|contract| contract.with_replenishments(1)?.with_nonpreemptive(region))
        .unwrap_or_else(|_| Contract::background(0))
        .with_priority(Priority(0))
}

/// The reservation for the ends of background tenants that can be kept beside what else is reserved
/// (`others`, what is in the background included), where the steps of an end take `longest_step_ns` at the
/// most: the largest share of which scheduling leaves half or more, in the shortest regions for which it
/// does. `None` if there is no such share.
///
/// Cost: that of up to 20 admission tests.
pub fn reservation_for_ends(
    others: &[Contract],
    longest_step_ns: u64,
    order: Order,
    overhead: Overhead,
) -> Option<Contract> {
    let mut all = others.to_vec();
    for (budget, period) in ENDS_SHARES {
        for region in ENDS_REGIONS.into_iter().filter(|region| *region <= budget) {
            let contract = ends(budget, period, region).with_longest_step(longest_step_ns);
            all.push(contract);
            let useful = overhead
                .losses(&all, order)
                .last()
                .and_then(|loss| loss.useful);
            let is_kept = useful.is_some_and(|useful| useful >= budget / 2)
                && fits(&overhead.charged(&all), order);
            all.pop();
            if is_kept {
                return Some(contract);
            }
        }
    }
    None
}

/// The causes of delay for the effect of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillDelay {
    /// The longest host step of any tenant of the cell, ns.
    pub longest_step_ns: u64,
    /// From a signal to the scheduler, ns.
    pub preemption_ns: u64,
    /// Kills that are asked for at once, this one included.
    pub kills: u64,
    /// How long the cell takes to obey one of them, ns.
    pub kill_ns: u64,
    /// What the host itself may add, ns.
    pub host_ns: u64,
}

impl KillDelay {
    /// Returns the longest time from the kill until no instruction of the tenant can run, ns.
    pub const fn effect_ns(&self) -> u64 {
        self.longest_step_ns
            .saturating_add(RETRY_NS)
            .saturating_add(self.preemption_ns)
            .saturating_add(kills_within(self.kills, self.kill_ns))
            .saturating_add(self.host_ns)
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
    use super::{KillDelay, RETRY_NS, ends_contract, kill_bound, reservation_for_ends};
    use leasehold_reserve::admission::{Overhead, admit};
    use leasehold_reserve::{Contract, Order, Priority};

    #[test]
    fn the_bound_is_the_sum_of_its_parts() {
        let delay = KillDelay {
            longest_step_ns: 70_000,
            preemption_ns: 30_000,
            kills: 3,
            kill_ns: 10_000,
            host_ns: 5_000,
        };
        let effect = 70_000 + RETRY_NS + 30_000 + 41 * 10_000 + 5_000;
        assert_eq!(delay.effect_ns(), effect);
        let (order, ends) = (Order::EarliestDeadline, ends_contract());
        let report = admit(&[ends], order, Overhead::default());
        // Two whole budgets: 19 ms until there is budget, then one period, and the response to the last.
        let bound = kill_bound(&delay, order, (&ends, &report.servers[0]), 2_000_000);
        assert_eq!(bound, Some(effect + 19_000_000 + 20_000_000 + 20_000_000));
    }

    const OVERHEAD: Overhead = Overhead {
        per_preemption: 130_000,
    };
    const STEP: u64 = 100_000;

    #[test]
    fn ends_beside_ordinary_reservations_are_bounded_in_either_order() {
        for order in [Order::FixedPriority, Order::EarliestDeadline] {
            for budgets in [&[2_000_000][..], &[2_000_000; 3], &[]] {
                let reserved = (1..).zip(budgets).map(|(priority, budget)| {
                    let contract = Contract::new(*budget, 10_000_000).expect("a contract");
                    let contract = contract.with_priority(Priority(priority));
                    contract.with_longest_step(STEP)
                });
                let background = Contract::background(STEP);
                let mut all: Vec<_> = reserved.chain([background]).collect();
                let ends = reservation_for_ends(&all, STEP, order, OVERHEAD).expect("room");
                all.push(ends);
                let report = admit(&all, order, OVERHEAD);
                assert!(report.schedulable());
                let verdict = report.servers.last().expect("that of ends");
                let within = verdict.served_within(&ends, order, 10_000_000);
                assert!(
                    within < Some(1_000_000_000),
                    "{order:?} {ends:?}: {within:?}"
                );
            }
        }
    }

    #[test]
    fn the_regions_of_ends_are_as_short_as_scheduling_allows() {
        let order = Order::FixedPriority;
        let above = Contract::new(1_000_000, 10_000_000).expect("a contract");
        let above = [above.with_priority(Priority(1))];
        let region = |per_preemption| {
            let overhead = Overhead { per_preemption };
            let ends = reservation_for_ends(&above, STEP, order, overhead);
            ends.map(|ends| ends.nonpreemptive())
        };
        assert_eq!(region(10_000), Some(100_000));
        assert_eq!(region(130_000), Some(500_000));
        assert_eq!(region(2_000_000), None);
    }

    #[test]
    fn where_reservations_leave_little_room_ends_have_less_and_where_none_nothing() {
        let share = |budget| {
            let contract = Contract::new(budget, 20_000_000).expect("a contract");
            let contract = contract.with_priority(Priority(1));
            reservation_for_ends(&[contract], STEP, Order::FixedPriority, OVERHEAD)
        };
        let budgets = [10_000_000, 17_000_000, 18_800_000, 19_500_000].map(share);
        let budgets = budgets.map(|ends| ends.map(|ends| (ends.budget(), ends.period())));
        let expected = [
            Some((4_000_000, 20_000_000)),
            Some((2_000_000, 20_000_000)),
            Some((1_000_000, 50_000_000)),
            None,
        ];
        assert_eq!(budgets, expected);
    }
}
