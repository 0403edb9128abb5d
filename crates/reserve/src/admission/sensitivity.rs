//! Sensitivity analysis: the largest values of a reservation, and the values with which a
//! reservation would fit.
//!
//! All answers are found by halving an interval, which is right because the tests are monotone:
//!
//! * A longer *region* enlarges `I` or `B` of others and nothing else. (Steps stay as they are.)
//! * A longer *period* lowers the request bound, and loosens the server's own limit. (Under
//!   earliest deadline first it also makes the server's region count for those whose periods it
//!   exceeds; the search goes from one such period to the next.)
//! * A larger *budget* raises the request bound of a sporadic server. That of a deferrable one can
//!   fall, where the second of two budgets in a row begins later, but the solution of eq. (1) does
//!   not: let `b < b′`, and let `R′` solve it for `b′`. If the number of budgets requested is not
//!   larger for `b`, `R′` solves it for `b`. Otherwise `b + kp < R′ ≤ b′ + kp` for some `k`, where
//!   the server requests `k + 1` budgets; the rest of the right-hand side, `C`, then is at most
//!   `b′ + kp − (k + 1)b′ = k(p − b′)`, and `x = b + kp < R′` solves it for `b`, since
//!   `C + (k + 1)b ≤ k(p − b′) + (k + 1)b ≤ b + kp`.
//!
//! A reservation of which preemptions may take everything is not admitted either. What they take is not monotone, so a value
//! that was found is an answer only if it leaves something to every server that it is to fit with. But for rounding, no more is left of a
//! smaller budget than the largest that fits, or in a longer period than the shortest; and less with a shorter region, except for none.

use alloc::vec::Vec;

use super::deadline::{LongerRegions, all_steps};
use super::fits_with;
use super::overhead::Overhead;
use super::response_time::{Alone, MANY};
use super::utilisation::Utilisation;
use crate::config::Order;
use crate::contract::{Contract, Nanos, PERIOD_MAX};

/// The limits of one reservation's parameters, each with everything else unchanged, within which
/// *all* of a set fit. `None`: no value of this parameter alone makes them fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// The largest budget.
    pub budget: Option<Nanos>,
    /// The shortest period.
    pub period: Option<Nanos>,
    /// The longest non-preemptive region; zero is a value.
    pub nonpreemptive: Option<Nanos>,
}

/// The changes, in its own contract or in those of others, with which one reservation *itself*
/// fits, regardless of whether the others do. `None`: no value of this parameter alone is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// The largest budget.
    pub budget: Option<Nanos>,
    /// The shortest period.
    pub period: Option<Nanos>,
    /// The longest non-preemptive region that others may have: those of lower priority, or those
    /// of longer periods under earliest deadline first.
    pub blocking: Option<Nanos>,
    /// The largest part of their budgets that all others may have, in thousandths, less than all; a
    /// region that is longer than what is left of a budget becomes as short.
    pub others: Option<u32>,
}

/// Thousandths of a whole.
const WHOLE: u64 = 1_000;

/// The headroom of the server at `index`: within it [`admit`](super::admit) finds that all can be kept, `allowed` says that they
/// may, and none is [useless](super::Loss::takes_all_of).
///
/// `allowed` is asked of all contracts, and must be monotone as the test is: what it allows, it allows with a smaller budget, a longer
/// period, or a shorter region, too.
///
/// Cost: some hundred times [`fits`](super::fits). (Under earliest deadline first, the shortest
/// period of a server with a region may take as many more as there are periods.) A set that takes
/// too much effort counts as one that does not fit.
///
/// # Panics
///
/// There is no contract at `index`.
#[must_use]
pub fn headroom(
    contracts: &[Contract],
    order: Order,
    overhead: Overhead,
    index: usize,
    allowed: impl Fn(&[Contract]) -> bool,
) -> Headroom {
    let charged = overhead.charged(contracts);
    let own = charged[index];
    let (budget, period, region) = (own.budget(), own.period(), own.nonpreemptive());
    let with = |budget, period, region| {
        let mut set = charged.clone();
        set[index] = changed(&own, budget, period, region);
        set
    };
    let fits = |budget, period, region| {
        let set = with(budget, period, region);
        fits_with(&set, order, MANY) && allowed(&set[..contracts.len()])
    };
    let promises = |budget, period, region| {
        let set = with(budget, period, region);
        let losses = overhead.losses(&set[..contracts.len()], order);
        let mut servers = set.iter().zip(losses);
        servers.all(|(server, loss)| server.is_background() || !loss.takes_all_of(server, overhead))
    };
    // Without a region the shortest period is searched for from the budget on; with one, from the
    // given bound on.
    let least = smallest(budget - 1, PERIOD_MAX, |period| fits(budget, period, 0));
    let shortest = least.and_then(|least| {
        pieces(&charged, order, index, least)
            .windows(2)
            .find_map(|ends| smallest(ends[0], ends[1], |period| fits(budget, period, region)))
    });
    let most = largest(region.max(1), period, |budget| fits(budget, period, region));
    let longest = largest(0, budget, |region| fits(budget, period, region));
    Headroom {
        budget: most.filter(|&budget| promises(budget, period, region)),
        period: shortest.filter(|&period| promises(budget, period, region)),
        nonpreemptive: longest.and_then(|longest| {
            let mut regions = [longest, 0].into_iter();
            regions.find(|&region| promises(budget, period, region))
        }),
    }
}

/// The shortfall of the server at `index`, which may as well fit. With it the server itself can be kept, and is not
/// [useless](super::Loss::takes_all_of).
///
/// Cost: `n log n`, and some hundred searches for one response time.
///
/// # Panics
///
/// There is no contract at `index`.
#[must_use]
pub fn shortfall(
    contracts: &[Contract],
    order: Order,
    overhead: Overhead,
    index: usize,
) -> Shortfall {
    let charged = overhead.charged(contracts);
    let found = match order {
        Order::FixedPriority => shortfall_of_priority(&charged, index),
        Order::EarliestDeadline => shortfall_of_deadline(&charged, index),
    };
    let own = contracts[index];
    let promises = |budget: Nanos, period| {
        let mut set = Vec::from(contracts);
        set[index] = changed(&own, budget, period, own.nonpreemptive().min(budget));
        let loss = overhead.losses(&set, order).swap_remove(index);
        !loss.takes_all_of(&set[index], overhead)
    };
    // What others give up leaves as many preemptions as there are.
    let as_it_is = promises(own.budget(), own.period());
    Shortfall {
        budget: found
            .budget
            .filter(|&budget| promises(budget, own.period())),
        period: found
            .period
            .filter(|&period| promises(own.budget(), period)),
        blocking: found.blocking.filter(|_| as_it_is),
        others: found.others.filter(|_| as_it_is),
    }
}

fn shortfall_of_priority(contracts: &[Contract], index: usize) -> Shortfall {
    let (own, alone) = (&contracts[index], Alone::among(contracts, index));
    let waits = alone.blocking.saturating_add(alone.steps);
    // Budget and blocking are one sum in eq. (1): how large may it be?
    let sum = largest(1, own.period(), |sum| alone.fits(sum, own.period()));
    let beside = |part: Nanos| sum.and_then(|sum| sum.checked_sub(part));
    Shortfall {
        budget: beside(waits).filter(|budget| *budget > 0),
        period: alone.response(own.budget().saturating_add(waits)),
        blocking: beside(
            own.budget()
                .saturating_add(alone.steps)
                .saturating_add(alone.blocking_step),
        ),
        others: others(contracts, index, |set| {
            let alone = Alone::among(set, index);
            let waits = alone.blocking.saturating_add(alone.steps);
            alone.fits(own.budget().saturating_add(waits), own.period())
        }),
    }
}

/// The largest part of their budgets that all but the one at `index` may have for it to fit, in
/// thousandths. Smaller budgets are as monotone as one is (see the [module](self)).
fn others(contracts: &[Contract], index: usize, fits: impl Fn(&[Contract]) -> bool) -> Option<u32> {
    let part = largest(1, WHOLE - 1, |part| {
        let of_others = contracts.iter().enumerate().map(|(other, contract)| {
            if other == index || contract.is_background() {
                return *contract;
            }
            let budget = u128::from(contract.budget()) * u128::from(part) / u128::from(WHOLE);
            let budget = u64::try_from(budget).unwrap_or(u64::MAX).max(1);
            let region = contract.nonpreemptive().min(budget);
            changed(contract, budget, contract.period(), region)
        });
        fits(&of_others.collect::<Vec<_>>())
    });
    part.and_then(|part| u32::try_from(part).ok())
}

fn shortfall_of_deadline(contracts: &[Contract], index: usize) -> Shortfall {
    let own = &contracts[index];
    let beside_others = BesideOthers::of(contracts, index);
    let enough = |period| beside_others.budget(period) >= Some(own.budget());
    Shortfall {
        budget: beside_others
            .budget(own.period())
            .filter(|budget| *budget > 0),
        period: smallest(own.budget() - 1, PERIOD_MAX, enough),
        blocking: beside_others.left(own.budget(), own.period()),
        others: others(contracts, index, |set| {
            BesideOthers::of(set, index).budget(own.period()) >= Some(own.budget())
        }),
    }
}

/// The time of a period that all others leave to the server at an index, under earliest deadline
/// first.
struct BesideOthers {
    shares: Utilisation,
    longer: LongerRegions,
    steps: Nanos,
}

impl BesideOthers {
    fn of(contracts: &[Contract], index: usize) -> Self {
        let mut others = Vec::from(contracts);
        others.swap_remove(index);
        Self {
            shares: Utilisation::of_all(&others),
            longer: LongerRegions::of(&others),
            steps: all_steps(contracts),
        }
    }

    /// Of a period, less a part of it.
    fn left(&self, part: Nanos, period: Nanos) -> Option<Nanos> {
        let left = self.shares.left_of(period)?;
        left.checked_sub(part.checked_add(self.steps)?)
    }

    /// The largest budget in a period.
    fn budget(&self, period: Nanos) -> Option<Nanos> {
        self.left(self.longer.than(period), period)
    }
}

/// Periods from `least` on between which feasibility grows with the period of the server at
/// `index`: in each interval beyond its lower end, up to its upper end.
fn pieces(contracts: &[Contract], order: Order, index: usize, least: Nanos) -> Vec<Nanos> {
    let mut ends = Vec::from([least - 1, PERIOD_MAX]);
    if order == Order::EarliestDeadline && contracts[index].nonpreemptive() > 0 {
        let others = contracts
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        let periods = others.map(|(_, contract)| contract.period());
        ends.extend(periods.filter(|period| *period >= least));
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

fn changed(contract: &Contract, budget: Nanos, period: Nanos, region: Nanos) -> Contract {
    Contract::new(budget, period)
        .and_then(|new| new.with_nonpreemptive(region))
        .and_then(|new| new.with_replenishments(contract.replenishments()))
        .expect("the intervals searched keep region ≤ budget ≤ period")
        .with_priority(contract.priority())
        .with_policy(contract.policy())
        .with_longest_step(contract.longest_step())
}

/// The largest value of `least..=most` that `holds`, if those that do come before those that do
/// not.
fn largest(least: Nanos, most: Nanos, mut holds: impl FnMut(Nanos) -> bool) -> Option<Nanos> {
    if least > most || !holds(least) {
        return None;
    }
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}

/// The smallest value above `below`, up to `most`, that `holds`, if those that do come after those
/// that do not.
fn smallest(below: Nanos, most: Nanos, mut holds: impl FnMut(Nanos) -> bool) -> Option<Nanos> {
    if below >= most || !holds(most) {
        return None;
    }
    let (mut low, mut high) = (below + 1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::{changed, headroom, shortfall};
    use crate::admission::{Overhead, admit, fits};
    use crate::config::Order;
    use crate::contract::{Contract, Policy, Priority};
    use alloc::vec::Vec;
    use proptest::prelude::{
        Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
    };

    const FREE: Overhead = Overhead { per_preemption: 0 };

    fn contract(budget: u64, period: u64, priority: u8) -> Contract {
        Contract::new(budget, period)
            .unwrap()
            .with_priority(Priority(priority))
    }

    #[test]
    fn a_tenant_that_does_not_fit_is_told_what_would() {
        // SPR Table I: the last gets 10 of every 60 only if its period is 80: 10 + 3 · 10 + 2 · 20.
        let set = [
            contract(10, 30, 3),
            contract(20, 40, 2),
            contract(10, 60, 1),
        ];
        let missing = shortfall(&set, Order::FixedPriority, FREE, 2);
        assert_eq!(
            (missing.budget, missing.period, missing.blocking),
            (None, Some(80), None)
        );
        // Without the one in the middle there is room for 20 more, in budget or in blocking.
        let missing = shortfall(&[set[0], set[2]], Order::FixedPriority, FREE, 1);
        assert_eq!((missing.budget, missing.blocking), (Some(40), Some(30)));
    }

    #[test]
    fn a_tenant_that_no_change_of_its_own_helps_is_told_what_others_must_give_up() {
        // Another server has all of the processor, and could keep seven tenths of it.
        let set = [contract(10_000, 10_000, 2), contract(3_000, 10_000, 1)];
        for order in [Order::FixedPriority, Order::EarliestDeadline] {
            let missing = shortfall(&set, order, FREE, 1);
            assert_eq!((missing.budget, missing.period), (None, None));
            assert_eq!(missing.others, Some(700));
        }
        // It requests all of it: no share of the others is small enough.
        let set = [set[0], contract(10_000, 10_000, 1)];
        assert_eq!(shortfall(&set, Order::FixedPriority, FREE, 1).others, None);
    }

    fn sets() -> impl Strategy<Value = Vec<Contract>> {
        let step = prop_oneof![3 => Just(0_u64), 1 => 1..5_u64];
        let server = (1..8_u64, 0..40_u64, 0..3_u8, any::<bool>(), 0..8_u64, step);
        let server = server.prop_map(|(budget, more, priority, deferrable, region, step)| {
            let policy = if deferrable {
                Policy::Deferrable
            } else {
                Policy::Sporadic
            };
            contract(budget, budget + more, priority)
                .with_policy(policy)
                .with_nonpreemptive(region.min(budget))
                .unwrap()
                .with_longest_step(step)
        });
        proptest::collection::vec(server, 1..5)
    }

    fn orders() -> impl Strategy<Value = Order> {
        prop_oneof![Just(Order::FixedPriority), Just(Order::EarliestDeadline)]
    }

    proptest! {
        #[test]
        fn headroom_is_what_trying_every_value_finds(set in sets(), order in orders()) {
            let own = set[0];
            let (budget, period, region) = (own.budget(), own.period(), own.nonpreemptive());
            let with = |budget, period, region| {
                let mut set = set.clone();
                set[0] = changed(&own, budget, period, region);
                fits(&set, order)
            };
            let room = headroom(&set, order, FREE, 0, |_| true);
            let budgets = region.max(1)..=period;
            prop_assert_eq!(room.budget, budgets.rev().find(|&b| with(b, period, region)));
            let regions = 0..=budget;
            prop_assert_eq!(room.nonpreemptive, regions.rev().find(|&r| with(budget, period, r)));
            let shortest = (budget..3_000).find(|&p| with(budget, p, region));
            prop_assert_eq!(room.period.filter(|p| *p < 3_000), shortest);
        }

        #[test]
        fn advice_is_admitted_where_preemptions_cost_something_and_the_host_has_a_limit(
            set in sets(),
            order in orders(),
            per_preemption in 0..4_u64,
            most in 1..60_u64,
        ) {
            let overhead = Overhead { per_preemption };
            let kept = |set: &[Contract], index: usize| {
                let verdict = admit(set, order, overhead).servers[index];
                verdict.schedulable() && !verdict.loss.takes_all_of(&set[index], overhead)
            };
            let allowed = |set: &[Contract]| set.iter().map(Contract::budget).sum::<u64>() <= most;
            let all = |set: &[Contract]| {
                admit(set, order, overhead).schedulable() && (0..set.len()).all(|at| kept(set, at)) && allowed(set)
            };
            let own = set[0];
            let with = |budget: u64, period, region| {
                let mut set = set.clone();
                set[0] = changed(&own, budget, period, region);
                set
            };
            let (budget, period, region) = (own.budget(), own.period(), own.nonpreemptive());
            let room = headroom(&set, order, overhead, 0, allowed);
            prop_assert!(room.budget.is_none_or(|budget| all(&with(budget, period, region))));
            prop_assert!(room.period.is_none_or(|period| all(&with(budget, period, region))));
            prop_assert!(room.nonpreemptive.is_none_or(|region| all(&with(budget, period, region))));
            if all(&set) {
                prop_assert!(room.budget >= Some(budget) || room.budget.is_none());
                prop_assert!(room.nonpreemptive.is_some());
            }
            let missing = shortfall(&set, order, overhead, 0);
            let fits = |budget: u64, period| kept(&with(budget, period, region.min(budget)), 0);
            prop_assert!(missing.budget.is_none_or(|budget| fits(budget, period)));
            prop_assert!(missing.period.is_none_or(|period| fits(budget, period)));
        }

        #[test]
        fn a_shortfall_made_good_is_one_less_that_does_not_fit(set in sets(), order in orders()) {
            let own = set[0];
            let missing = shortfall(&set, order, FREE, 0);
            let fits_with = |budget, period| {
                let mut set = set.clone();
                let region = own.nonpreemptive().min(budget);
                set[0] = changed(&own, budget, period, region);
                crate::admission::responses(&set, order)[0].is_some()
            };
            if let Some(budget) = missing.budget {
                prop_assert_eq!(fits_with(budget, own.period()), true);
                if budget < own.period() {
                    prop_assert_eq!(fits_with(budget + 1, own.period()), false);
                }
            }
            let others_with = |part: u64| {
                let mut set = set.clone();
                for other in &mut set[1..] {
                    let budget = (other.budget() * part / 1_000).max(1);
                    let region = other.nonpreemptive().min(budget);
                    *other = changed(other, budget, other.period(), region);
                }
                crate::admission::responses(&set, order)[0].is_some()
            };
            let others = missing.others.map_or(0, u64::from);
            prop_assert_eq!(others == 0 || others_with(others), true);
            prop_assert_eq!(others < 999 && others_with(others + 1), false);
            if let Some(period) = missing.period {
                prop_assert_eq!(fits_with(own.budget(), period), true);
                if period > own.budget() {
                    prop_assert_eq!(fits_with(own.budget(), period - 1), false);
                }
            }
        }
    }
}
