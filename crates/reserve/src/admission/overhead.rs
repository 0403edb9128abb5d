//! The overhead of scheduling: in a budget (SPR eq. 2), and in the response times of the other
//! servers (eq. 1).
//!
//! The scheduler charges every interrupt and every dispatch to a server, those that wake the idle processor or
//! interrupt the background to the server that they are for. Let `O` be the most that an interrupt and a dispatch
//! cost:
//!
//! * A server pays `O` for being dispatched, `O` for each time that it is preempted, and `O` when it
//!   stops: for the interrupt at the end of its budget or its own call, and for the dispatch of the
//!   server that it had preempted, or of none.
//! * The payment at its stop may exceed its budget. The overrun is subtracted from the next budget,
//!   so that in any window a server takes at most one `O` more than its request bound.
//! * A server that becomes ready waits for an interrupt and a dispatch that have begun, which
//!   another server or no server pays. A region of a server of lower priority begins after its
//!   dispatch.
//!
//! So overhead enters eq. (1) as a [step](Contract::longest_step) does: `O` for each server of the
//! same or a higher priority, and once as blocking.

use alloc::vec::Vec;

use crate::config::Order;
use crate::contract::{Contract, Nanos, Policy};

/// `O^pre` of SPR §III-G: the most that one preemption costs: a timer interrupt, a scheduler
/// invocation and a context switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overhead {
    /// In nanoseconds.
    pub per_preemption: Nanos,
}

/// The overhead of a server in one period in which it is always ready.
///
/// Overhead is charged to the budgets of the servers that take part in a switch. Eq. (1) therefore
/// holds for budgets, and the loss tells how much of a budget remains useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Involuntary preemptions of the server in one period; `None`: no contract bounds them.
    pub preemptions: Option<u64>,
    /// `L`: their cost, and that of one dispatch and one stop per period.
    pub lost: Option<Nanos>,
    /// `b − L`: the useful budget; zero if the overhead takes all of it.
    pub useful: Option<Nanos>,
}

/// The payments of a server in every period besides preemptions: for its first dispatch and for its
/// stop.
pub(super) const DISPATCH_AND_STOP: u64 = 2;

impl Loss {
    /// Whether it may take all of the budget of a contract, which then promises nothing. Where nothing bounds the preemptions, only
    /// what is lost without any is counted.
    #[must_use]
    pub fn takes_all_of(&self, contract: &Contract, overhead: Overhead) -> bool {
        let least = overhead.per_preemption.saturating_mul(DISPATCH_AND_STOP);
        contract.budget() <= self.lost.unwrap_or(least)
    }

    /// The time that one preemption takes, if their number is bounded.
    pub(super) fn each(&self) -> Option<Nanos> {
        Some(self.lost? / self.preemptions?.saturating_add(DISPATCH_AND_STOP))
    }
}

impl Overhead {
    /// Returns the contracts with this overhead for eq. (1): their steps are longer by it, and a
    /// background contract is appended if there is none. Without overhead, returns the contracts
    /// unchanged.
    ///
    /// [`fits`](super::fits) expects these contracts; all else computes them itself. For it an appended contract is one
    /// of the set: it fits unless the steps and budgets of all add up to its period, which is the
    /// [longest](crate::PERIOD_MAX).
    #[must_use]
    pub fn charged(self, contracts: &[Contract]) -> Vec<Contract> {
        let mut charged = Vec::from(contracts);
        if self.per_preemption == 0 {
            return charged;
        }
        for contract in &mut charged {
            let step = contract.longest_step().saturating_add(self.per_preemption);
            *contract = contract.with_longest_step(step);
        }
        if !contracts.iter().any(Contract::is_background) {
            charged.push(Contract::background(self.per_preemption));
        }
        charged
    }

    /// The loss of every contract, in the order given. Cost: `n log n`, and below servers that
    /// track a single replenishment, `n` times the number of their priorities.
    ///
    /// `L = (preemptions + 2) · O`: the paper's eq. (2), and `O` for stopping. Preemptions per period
    /// are bounded by the least of
    ///
    /// * `⌈b/η⌉ − 1`, if `η > 0` (SPR §III-F);
    /// * zero, if no server has a higher priority (servers of the same priority do not preempt each
    ///   other);
    /// * `Σ (⌈p/p_h⌉ + 1)` over the servers `h` of higher priority, if all of them are sporadic and
    ///   track a single replenishment: once such a server has run, it has no budget until a period
    ///   after its activation, so it preempts once a period. The additional one is for a deferred
    ///   activation.
    ///
    /// Without any of these there is no bound: a server may suspend itself arbitrarily often after
    /// arbitrarily short executions, and preempts at each wake-up (attack A3).
    ///
    /// *Limits.* As in the paper, a budget is taken to be in one piece at the start of a period. A
    /// tenant that blocks splits its sporadic budget into up to `S` pieces, and is dispatched for
    /// each. The tenant itself causes this loss, and that of switches between its tasks.
    #[must_use]
    pub fn losses(self, contracts: &[Contract], order: Order) -> Vec<Loss> {
        let rivals = Rivals::of(contracts, order);
        let loss = |contract| self.loss(contract, rivals.preemptions(contract));
        contracts.iter().map(loss).collect()
    }

    fn loss(self, contract: &Contract, rivals: Option<u64>) -> Loss {
        let region = contract.nonpreemptive();
        let regions = (region > 0).then(|| contract.budget().div_ceil(region) - 1);
        let preemptions = [rivals, regions].into_iter().flatten().min();
        let lost = preemptions.map(|n| {
            n.saturating_add(DISPATCH_AND_STOP)
                .saturating_mul(self.per_preemption)
        });
        Loss {
            preemptions,
            lost,
            useful: lost.map(|lost| contract.budget().saturating_sub(lost)),
        }
    }
}

/// The servers that can preempt others, and the bounds on how often.
struct Rivals {
    order: Order,
    servers: usize,
    /// Priorities and periods of the servers that preempt once a period at most, by priority.
    single: Vec<(u8, Nanos)>,
    /// The highest priority of a server without a bound on how often it preempts.
    unbounded: Option<u8>,
    /// The highest priority of all.
    highest: Option<u8>,
}

impl Rivals {
    fn of(contracts: &[Contract], order: Order) -> Self {
        let is_single = |c: &&Contract| c.policy() == Policy::Sporadic && c.replenishments() == 1;
        let priority = |c: &Contract| c.priority().0;
        let single = contracts.iter().filter(is_single);
        let mut single: Vec<_> = single.map(|c| (priority(c), c.period())).collect();
        single.sort_unstable();
        let unbounded = contracts.iter().filter(|c| !is_single(c));
        Self {
            order,
            servers: contracts.len(),
            single,
            unbounded: unbounded.map(priority).max(),
            highest: contracts.iter().map(priority).max(),
        }
    }

    fn preemptions(&self, contract: &Contract) -> Option<u64> {
        let own = contract.priority().0;
        match self.order {
            // Any server that wakes can have an earlier deadline.
            Order::EarliestDeadline => (self.servers == 1).then_some(0),
            Order::FixedPriority if self.highest <= Some(own) => Some(0),
            Order::FixedPriority if self.unbounded > Some(own) => None,
            Order::FixedPriority => {
                let above = self
                    .single
                    .partition_point(|(priority, _)| *priority <= own);
                let times = |&(_, period): &(u8, Nanos)| contract.period().div_ceil(period) + 1;
                let times = self.single[above..].iter().map(times);
                Some(times.fold(0, u64::saturating_add))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Loss, Overhead};
    use crate::config::Order;
    use crate::contract::{Contract, Policy, Priority};

    const OVERHEAD: Overhead = Overhead { per_preemption: 5 };

    fn contract(budget: u64, period: u64, priority: u8) -> Contract {
        Contract::new(budget, period)
            .unwrap()
            .with_priority(Priority(priority))
    }

    fn of_last(contracts: &[Contract]) -> Loss {
        *OVERHEAD
            .losses(contracts, Order::FixedPriority)
            .last()
            .unwrap()
    }

    #[test]
    fn a_region_bounds_the_loss_as_in_eq_2() {
        // SPR fig. 6: a budget of 10 in regions of 6 is preempted once.
        let last = contract(10, 60, 1).with_nonpreemptive(6).unwrap();
        let loss = of_last(&[contract(10, 30, 3), last]);
        let expected = Loss {
            preemptions: Some(1),
            lost: Some(15),
            useful: Some(0),
        };
        assert_eq!(loss, expected);
    }

    #[test]
    fn without_a_region_nothing_bounds_the_loss_below_others() {
        let loss = of_last(&[contract(10, 30, 3), contract(10, 60, 1)]);
        assert_eq!(
            loss,
            Loss {
                preemptions: None,
                lost: None,
                useful: None
            }
        );
        let deferrable = contract(10, 30, 3).with_replenishments(1).unwrap();
        let deferrable = deferrable.with_policy(Policy::Deferrable);
        assert_eq!(
            of_last(&[deferrable, contract(10, 60, 1)]).preemptions,
            None
        );
    }

    #[test]
    fn no_server_preempts_the_highest_priority() {
        let loss = of_last(&[contract(10, 30, 3), contract(20, 60, 3)]);
        assert_eq!(
            loss,
            Loss {
                preemptions: Some(0),
                lost: Some(10),
                useful: Some(10)
            }
        );
    }

    #[test]
    fn a_server_with_one_replenishment_preempts_once_a_period() {
        let above = contract(10, 30, 3).with_replenishments(1).unwrap();
        assert_eq!(of_last(&[above, contract(20, 60, 1)]).preemptions, Some(3));
        // One more of equal priority changes nothing, one of any other kind everything.
        let set = [above, contract(1, 60, 1), contract(20, 60, 1)];
        assert_eq!(of_last(&set).preemptions, Some(3));
        let set = [above, contract(1, 60, 2), contract(20, 60, 1)];
        assert_eq!(of_last(&set).preemptions, None);
    }

    #[test]
    fn under_earliest_deadline_only_a_region_bounds_the_loss() {
        let last = contract(10, 60, 9).with_nonpreemptive(5).unwrap();
        let set = [contract(1, 30, 3), contract(10, 60, 9), last];
        let losses = OVERHEAD.losses(&set, Order::EarliestDeadline);
        assert_eq!(losses[1].preemptions, None);
        assert_eq!(losses[2].preemptions, Some(1));
        let alone = OVERHEAD.losses(&set[..1], Order::EarliestDeadline);
        assert_eq!(alone[0].preemptions, Some(0));
    }
}
