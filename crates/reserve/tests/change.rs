//! The guarantees of contracts that change under running servers.

mod common;

use common::world::{self, Load, Tenant, busy, contracts, loads, policies};
use common::{Machine, config, contract};
use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Priority, Refused, Shielding, State,
};
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};

const HORIZON: Nanos = 3_000;
const SHIELDINGS: [Shielding; 2] = [Shielding::Eager, Shielding::Shielded];

#[test]
fn a_smaller_budget_takes_what_is_pending_latest_first() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (server, task) = machine.server("a", contract(20, 40, 1));
    machine.wake(task);
    machine.run_to(5);
    machine.block(task, None);
    machine.run_to(10);
    machine.wake(task);
    machine.run_to(12);
    // 5 units come back at 40; 2 of the 15 others are used.
    machine
        .scheduler
        .change_server(server, &contract(14, 40, 1), 12)
        .unwrap();
    machine.schedule();
    let entries = |machine: &Machine| {
        let entries = machine.scheduler.replenishments(server).unwrap();
        entries
            .map(|entry| (entry.at, entry.amount))
            .collect::<Vec<_>>()
    };
    assert_eq!(entries(&machine), [(12, 13), (40, 1)]);
    // A larger budget is there when a period has passed.
    machine
        .scheduler
        .change_server(server, &contract(19, 30, 1), 12)
        .unwrap();
    machine.schedule();
    assert_eq!(entries(&machine), [(12, 13), (40, 1), (42, 5)]);
    machine.run_to(30);
    assert_eq!(machine.scheduler.state(server), Ok(State::Depleted));
}

#[test]
fn a_more_important_server_runs_at_once() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (_, a) = machine.server("a", contract(50, 100, 2));
    let (server, b) = machine.server("b", contract(50, 100, 1));
    machine.wake(a);
    machine.wake(b);
    machine.run_to(10);
    machine
        .scheduler
        .change_server(server, &contract(50, 100, 3), 10)
        .unwrap();
    assert_eq!(machine.schedule().run, Some(b));
    let background = machine.scheduler.add_background(1).unwrap();
    let refused = machine
        .scheduler
        .change_server(background, &contract(1, 2, 0), 10);
    assert_eq!(refused, Err(Refused::Background));
}

#[test]
fn a_deferrable_server_gains_nothing_by_changing_between_two_contracts_of_one_share() {
    let deferrable = |budget, period| contract(budget, period, 1).with_policy(Policy::Deferrable);
    let (large, small) = (deferrable(10, 100), deferrable(1, 10));
    for shielding in SHIELDINGS {
        let mut machine = Machine::new(config(shielding));
        let (server, task) = machine.server("a", large);
        machine.wake(task);
        while machine.now < 1_000 {
            machine.run_to(machine.now + 1);
            // Whenever its budget is used up it has the other contract for a moment.
            if machine.scheduler.state(server) == Ok(State::Depleted) {
                for contract in [small, large] {
                    let now = machine.now;
                    let scheduler = &mut machine.scheduler;
                    scheduler.change_server(server, &contract, now).unwrap();
                    machine.schedule();
                    machine.run_to(now + 1);
                }
            }
        }
        let used = machine.scheduler.supply(server).unwrap().used;
        assert!(used <= 110, "{shielding:?}: {used} of 1,000");
    }
}

#[test]
fn a_larger_deferrable_budget_comes_a_period_after_what_the_old_contract_promised() {
    let deferrable = |budget, period| contract(budget, period, 1).with_policy(Policy::Deferrable);
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (server, task) = machine.server("a", deferrable(2, 20));
    machine.wake(task);
    machine.run_to(5);
    machine
        .scheduler
        .change_server(server, &deferrable(10, 30), 5)
        .unwrap();
    machine.schedule();
    machine.run_to(100);
    let runs = [(0, 2, "a"), (20, 22, "a"), (50, 60, "a"), (80, 90, "a")];
    assert_eq!(machine.slices, runs);
    assert!(machine.idle_fires.is_empty());
}

fn changes() -> impl Strategy<Value = Vec<(Nanos, usize, Contract)>> {
    prop::collection::vec((0..HORIZON, any::<usize>(), contracts()), 0..12)
}

fn top(contract: Contract, policy: Policy) -> Contract {
    contract
        .with_priority(Priority(9))
        .with_policy(policy)
        .with_replenishments(64)
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_invariants_of_a_scheduler_survive_changes(load in loads(), changes in changes()) {
        let load = Load { changes, ..load };
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
    fn no_window_gets_more_than_the_larger_of_the_contracts_around_it(
        load in loads(), changes in changes(), policy in policies(),
    ) {
        // A deferrable server may have one budget at the end of a period, and the next.
        let budgets = match policy {
            Policy::Sporadic => 1,
            Policy::Deferrable => 2,
        };
        let mut load = load;
        for tenant in &mut load.tenants {
            tenant.contract = tenant.contract.with_nonpreemptive(0).unwrap();
        }
        load.tenants[0].contract = top(load.tenants[0].contract, policy);
        load.changes = changes
            .into_iter()
            .map(|(at, _, contract)| (at, 0, top(contract, policy)))
            .collect();
        load.changes.sort_by_key(|change| change.0);
        // From when to when which contract held.
        let mut held = vec![(0, HORIZON, load.tenants[0].contract)];
        for &(at, _, contract) in &load.changes {
            held.last_mut().unwrap().1 = at;
            held.push((at, HORIZON, contract));
        }
        for shielding in SHIELDINGS {
            let (_, history) = world::run(&load, world::config(shielding), HORIZON, |_, _, _| {});
            let most = |from: Nanos, to: Nanos| {
                let around = held.iter().filter(move |held| held.0 <= to && held.1 >= from);
                around.map(|held| held.2.budget()).max().unwrap()
            };
            let shortest = held.iter().map(|held| held.2.period()).min().unwrap();
            for from in (0..HORIZON).step_by(3) {
                let supply = history.supply(0, from, from + shortest);
                assert!(supply <= budgets * most(from, from + shortest), "{supply} from {from} on");
            }
            for &(start, end, contract) in &held {
                for from in (start..end.saturating_sub(contract.period())).step_by(3) {
                    let supply = history.supply(0, from, from + contract.period());
                    assert!(supply <= budgets * contract.budget(), "{supply} from {from} on");
                }
            }
        }
    }

    #[test]
    fn the_smallest_budget_is_there_in_every_longest_period_however_often_it_changes(
        first in contracts(), changes in changes(), policy in policies(),
    ) {
        let load = Load {
            tenants: vec![Tenant { contract: top(first, policy), programs: vec![busy()] }],
            background: Vec::new(),
            events: Vec::new(),
            changes: changes.into_iter().map(|(at, _, new)| (at, 0, top(new, policy))).collect(),
            latencies: Vec::new(),
            interrupt: 0,
            redispatch: 0,
        };
        let all = || load.changes.iter().map(|change| change.2).chain([top(first, policy)]);
        let least = all().map(|contract| contract.budget()).min().unwrap();
        let longest = all().map(|contract| contract.period()).max().unwrap();
        for shielding in SHIELDINGS {
            let (_, history) = world::run(&load, world::config(shielding), HORIZON, |_, _, _| {});
            for from in (0..HORIZON - longest).step_by(3) {
                let supply = history.supply(0, from, from + longest);
                assert!(supply >= least, "{supply} of {least} from {from} on");
            }
        }
    }
}
