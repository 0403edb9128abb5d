//! The outcome of an admission test, server by server.

use alloc::vec::Vec;

use super::overhead::{DISPATCH_AND_STOP, Loss, Overhead};
use super::reclamation::{pieces, reclaimed_within, while_ending};
use super::responses;
use super::utilisation::Utilisation;
use crate::config::Order;
use crate::contract::{Contract, Nanos, Policy};

/// The outcome of the admission test for a set of contracts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// One for each contract, in the order given.
    pub servers: Vec<Verdict>,
    /// The utilisation of all contracts.
    pub utilisation: Utilisation,
}

impl Report {
    /// Whether every server gets its budget in every period, regardless of the others.
    #[must_use]
    pub fn schedulable(&self) -> bool {
        self.servers.iter().all(Verdict::schedulable)
    }
}

/// The outcome of the admission test for one contract of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The time from its replenishment within which a whole budget is served, if the server is
    /// always ready: a solution of eq. (1), or the period under earliest deadline first. `None`: it
    /// may take longer than a period, so the contract cannot be kept. Under deadlines, and with
    /// overhead, it only holds in a [set that fits](Report::schedulable): a late server causes
    /// dispatches that no budget contains.
    pub response: Option<Nanos>,
    /// The rest of the period after the response time.
    pub slack: Option<Nanos>,
    /// The cost of preemptions in the budget.
    pub loss: Loss,
    /// The utilisation of this server.
    pub utilisation: Utilisation,
}

impl Verdict {
    /// Whether this server gets its budget in every period, regardless of the others.
    #[must_use]
    pub fn schedulable(&self) -> bool {
        self.response.is_some()
    }

    /// As [`reclaimed_within`], for `reclaim` nanoseconds of useful work. It adds the cost of
    /// preemptions in each of the needed periods, a dispatch and a stop for each piece of its
    /// budget, and a [step](Contract::longest_step) that the tenant may have begun at the end of a
    /// budget. `None` if the overhead or the time is unbounded.
    #[must_use]
    pub fn reclaimed_within(
        &self,
        contract: &Contract,
        order: Order,
        reclaim: Nanos,
    ) -> Option<Nanos> {
        let (lost, each) = (self.loss.lost?, self.loss.each()?);
        let others = (u64::from(pieces(contract, order)) - 1) * DISPATCH_AND_STOP;
        let lost = lost.checked_add(each.checked_mul(others)?)?;
        let useful = contract.budget().checked_sub(lost).filter(|&n| n > 0)?;
        // The tenant's last budget may be overrun by a step and by the cost of stopping.
        let reclaim = reclaim
            .checked_add(contract.longest_step())?
            .checked_add(each)?;
        let lost = lost.checked_mul(reclaim.div_ceil(useful))?;
        reclaimed_within(contract, order, self.response?, reclaim.checked_add(lost)?)
    }
}

impl Verdict {
    /// Returns the longest time until a server with a work queue, such as the one for ends of
    /// background tenants, has done `work` nanoseconds: all that is queued at an instant, including
    /// the rest of the present piece. Like [`reclaimed_within`](Self::reclaimed_within) it includes
    /// overhead, and assumes that earlier work has depleted the budget.
    ///
    /// `None` if nothing bounds it: nothing bounds how often the server is preempted (give it the
    /// highest priority or a non-preemptive region), scheduling takes all of its budget, or the server is
    /// sporadic and tracks more than two replenishments, so that its budget may come back in pieces that
    /// are too small.
    ///
    /// ```
    /// use leasehold_reserve::admission::{Overhead, admit};
    /// use leasehold_reserve::{Contract, Order, Priority};
    ///
    /// // 1 ms in every 10 ms, above all others, where a preemption takes 50 µs.
    /// let ends = Contract::new(1_000_000, 10_000_000)?
    ///     .with_replenishments(1)?
    ///     .with_priority(Priority(255));
    /// let order = Order::FixedPriority;
    /// let report = admit(&[ends], order, Overhead { per_preemption: 50_000 });
    /// // 900 µs are useful in a period: three of them, after one until its budget comes back.
    /// let within = report.servers[0].served_within(&ends, order, 2_000_000);
    /// assert!(within.is_some_and(|time| time < 40_000_000));
    /// # Ok::<(), leasehold_reserve::ContractError>(())
    /// ```
    #[must_use]
    pub fn served_within(&self, contract: &Contract, order: Order, work: Nanos) -> Option<Nanos> {
        let is_whole = while_ending(contract) == *contract || order == Order::EarliestDeadline;
        self.reclaimed_within(contract, order, work)
            .filter(|_| is_whole || contract.policy() == Policy::Deferrable)
    }
}

/// Runs the admission test (SPR §III-G) for all of `contracts` on one processor. Background tenants
/// only matter if they have non-preemptible [steps](Contract::background), since they run only when
/// no server can, and can otherwise be preempted at any time.
///
/// Cost: that of [`response_times`](super::response_times), or `n log n` under earliest deadline
/// first.
#[must_use]
pub fn admit(contracts: &[Contract], order: Order, overhead: Overhead) -> Report {
    let responses = responses(&overhead.charged(contracts), order);
    let losses = overhead.losses(contracts, order);
    let verdict = |((contract, response), loss): ((&Contract, Option<Nanos>), Loss)| Verdict {
        response,
        slack: response.map(|response| contract.period() - response),
        loss,
        utilisation: Utilisation::of(contract),
    };
    Report {
        servers: contracts
            .iter()
            .zip(responses)
            .zip(losses)
            .map(verdict)
            .collect(),
        utilisation: Utilisation::of_all(contracts),
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, admit, responses};
    use crate::admission::{Overhead, fits, headroom, shortfall};
    use crate::config::Order;
    use crate::contract::{Contract, PERIOD_MAX, Policy, Priority};
    use alloc::vec::Vec;
    use proptest::prelude::{Just, Strategy, any, prop_assert, prop_oneof, proptest};

    /// Any contracts at all, of all magnitudes up to the largest.
    fn sets() -> impl Strategy<Value = Vec<Contract>> {
        let time = || {
            let magnitude = (0..=60_u32).prop_flat_map(|bits| 0..=(PERIOD_MAX >> bits));
            prop_oneof![magnitude, Just(1), Just(PERIOD_MAX)]
        };
        let contract = (time(), time(), time(), any::<(u8, bool)>(), 1..=64_u32).prop_map(
            |(one, other, region, (priority, deferrable), replenishments)| {
                let budget = one.min(other).max(1);
                let policy = if deferrable {
                    Policy::Deferrable
                } else {
                    Policy::Sporadic
                };
                Contract::new(budget, one.max(other).max(1))
                    .and_then(|contract| contract.with_nonpreemptive(region.min(budget)))
                    .and_then(|contract| contract.with_replenishments(replenishments))
                    .expect("a contract")
                    .with_priority(Priority(priority))
                    .with_policy(policy)
            },
        );
        proptest::collection::vec(contract, 0..6)
    }

    /// Whether the set fits with the background contract that overhead appends, whose period is the longest: the report
    /// has no verdict of it.
    fn fits_charged(report: &Report, charged: &[Contract], order: Order) -> bool {
        let appended = &responses(charged, order)[report.servers.len()..];
        report.schedulable() && appended.iter().all(Option::is_some)
    }

    #[test]
    fn steps_of_years_leave_no_time_for_the_background_and_the_servers_are_admitted() {
        let contract = |budget, priority| {
            let contract = Contract::new(budget, PERIOD_MAX).expect("a contract");
            contract.with_priority(Priority(priority))
        };
        let deferrable = contract(PERIOD_MAX / 4, 6).with_policy(Policy::Deferrable);
        let set = [contract(1, 7), deferrable];
        let overhead = Overhead {
            per_preemption: PERIOD_MAX / 6 + 1,
        };
        let report = admit(&set, Order::FixedPriority, overhead);
        let charged = overhead.charged(&set);
        assert!(report.schedulable());
        assert!(!fits(&charged, Order::FixedPriority));
        assert!(!fits_charged(&report, &charged, Order::FixedPriority));
    }

    proptest! {
        #[test]
        fn whatever_the_contracts_are_nothing_overflows_and_all_answers_agree(
            set in sets(),
            overhead in prop_oneof![Just(0), 0..5_000_u64, any::<u64>()],
            reclaim in any::<u64>(),
        ) {
            for order in [Order::FixedPriority, Order::EarliestDeadline] {
                let overhead = Overhead { per_preemption: overhead };
                let report = admit(&set, order, overhead);
                let charged = overhead.charged(&set);
                let all = fits_charged(&report, &charged, order);
                prop_assert!(set.is_empty() || all == fits(&charged, order));
                prop_assert!(!report.schedulable() || report.utilisation.fits());
                for (index, (contract, verdict)) in set.iter().zip(&report.servers).enumerate() {
                    let response = verdict.response.unwrap_or(contract.budget());
                    prop_assert!((contract.budget()..=contract.period()).contains(&response));
                    prop_assert!(verdict.loss.useful <= Some(contract.budget()));
                    let time = verdict.reclaimed_within(contract, order, reclaim.max(1));
                    prop_assert!(time.is_none_or(|time| time >= reclaim));
                    let missing = shortfall(&set, order, overhead, index);
                    let enough = missing.budget >= Some(contract.budget());
                    prop_assert!(verdict.schedulable() || !enough);
                }
                if !set.is_empty() {
                    let room = headroom(&set, order, overhead, 0, |_| true);
                    let fits = room.budget >= Some(set[0].budget());
                    prop_assert!(all || !fits);
                }
            }
        }
    }
}
