//! The guarantees of servers whose replenishments are joined while they run.

mod common;

use common::world::{self, Load, loads};
use common::{Machine, config, contract};
use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Priority, Refused, ServerId, Shielding,
};
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};

const HORIZON: Nanos = 3_000;
const SHIELDINGS: [Shielding; 2] = [Shielding::Eager, Shielding::Shielded];

fn entries(machine: &Machine, server: ServerId) -> Vec<(Nanos, Nanos)> {
    let entries = machine.scheduler.replenishments(server).unwrap();
    entries.map(|entry| (entry.at, entry.amount)).collect()
}

#[test]
fn what_is_pending_comes_with_the_last_and_what_is_available_stays() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (server, task) = machine.server("a", contract(20, 40, 1));
    for (from, to) in [(0, 5), (10, 12), (20, 21)] {
        machine.run_to(from);
        machine.wake(task);
        machine.run_to(to);
        machine.block(task, None);
    }
    machine
        .scheduler
        .join_replenishments(server, 2, machine.now)
        .unwrap();
    machine.schedule();
    assert_eq!(entries(&machine, server), [(21, 12), (60, 8)]);
    // From now on it has no more than two.
    let kept = machine.scheduler.contract(server).unwrap();
    assert_eq!((kept.budget(), kept.replenishments()), (20, 2));
    machine.wake(task);
    machine.run_to(100);
    let runs = [(0, 5), (10, 12), (20, 33), (60, 80)];
    assert_eq!(machine.slices, runs.map(|(from, to)| (from, to, "a")));
}

#[test]
fn only_a_sporadic_server_with_more_has_something_to_join() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let deferrable = contract(20, 40, 1).with_policy(Policy::Deferrable);
    let single = contract(20, 40, 1).with_replenishments(1).unwrap();
    for terms in [deferrable, single] {
        let (server, _) = machine.server("a", terms);
        let joined = machine.scheduler.join_replenishments(server, 2, 0);
        assert_eq!(joined, Ok(()));
        assert_eq!(machine.scheduler.contract(server), Ok(terms));
    }
    let background = machine.scheduler.add_background(1).unwrap();
    let refused = machine.scheduler.join_replenishments(background, 2, 0);
    assert_eq!(refused, Err(Refused::Background));
}

fn joins() -> impl Strategy<Value = Vec<(Nanos, usize, u32)>> {
    prop::collection::vec((0..HORIZON, any::<usize>(), 0..9u32), 0..12)
}

fn top(contract: Contract) -> Contract {
    contract
        .with_priority(Priority(9))
        .with_policy(Policy::Sporadic)
        .with_replenishments(64)
        .unwrap()
        .with_nonpreemptive(0)
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_invariants_of_a_scheduler_survive_joins(load in loads(), joins in joins()) {
        let load = Load { joins, ..load };
        for order in [Order::FixedPriority, Order::EarliestDeadline] {
            for shielding in SHIELDINGS {
                let config = Config { order, ..world::config(shielding) };
                let (scheduler, history) = world::run(&load, config, HORIZON, |scheduler, servers, _| {
                    for &server in servers {
                        let contract = scheduler.contract(server).unwrap();
                        let entries = || scheduler.replenishments(server).unwrap();
                        if entries().next().is_some() {
                            let total: Nanos = entries().map(|entry| entry.amount).sum();
                            assert_eq!(total, contract.budget());
                            assert!(entries().count() <= contract.replenishments() as usize);
                        }
                    }
                });
                if shielding == Shielding::Shielded {
                    for decision in &history.decisions {
                        assert!(decision.touched.is_some_and(|it| it <= 2) && decision.timeouts <= 1);
                    }
                    if order == Order::FixedPriority {
                        for (at, switched) in &history.fired {
                            assert!(switched, "the timer at {at} did not switch");
                        }
                    }
                }
                let used: Nanos = history
                    .servers
                    .iter()
                    .map(|&server| scheduler.supply(server).unwrap().used)
                    .sum();
                assert!(used <= HORIZON);
            }
        }
    }

    #[test]
    fn no_window_gets_more_than_the_budget_whatever_is_joined(load in loads(), joins in joins()) {
        let mut load = load;
        for tenant in &mut load.tenants {
            tenant.contract = tenant.contract.with_nonpreemptive(0).unwrap();
        }
        let contract = top(load.tenants[0].contract);
        load.tenants[0].contract = contract;
        load.joins = joins.into_iter().map(|(at, _, most)| (at, 0, most)).collect();
        for shielding in SHIELDINGS {
            let (_, history) = world::run(&load, world::config(shielding), HORIZON, |_, _, _| {});
            for from in (0..HORIZON - contract.period()).step_by(3) {
                let supply = history.supply(0, from, from + contract.period());
                assert!(supply <= contract.budget(), "{supply} from {from} on");
            }
        }
    }
}
