//! Processor time of helper threads for a server is charged to its budget, or to its time slices in
//! the background.

mod common;

use common::contract;
use leasehold_reserve::{
    Config, Nanos, Order, Policy, Refused, Scheduler, ServerId, Shielding, State, TaskId,
};
use proptest::prelude::{Strategy, any, prop, prop_assert, proptest};

const SHIELDINGS: [Shielding; 2] = [Shielding::Eager, Shielding::Shielded];

fn scheduler(shielding: Shielding, order: Order) -> Scheduler {
    Scheduler::new(Config {
        order,
        ..common::config(shielding)
    })
}

/// Adds a server of 20 in every 100 with a task that always runs, awake.
fn busy(scheduler: &mut Scheduler, policy: Policy) -> (ServerId, TaskId) {
    let contract = contract(20, 100, 1).with_policy(policy);
    let server = scheduler.add_server(&contract, 0).unwrap();
    let task = scheduler.add_task(server).unwrap();
    scheduler.wake(task, 0).unwrap();
    (server, task)
}

#[test]
fn the_budget_of_the_server_that_runs_ends_earlier_by_what_it_is_charged() {
    for (shielding, policy) in SHIELDINGS
        .into_iter()
        .flat_map(|shielding| [Policy::Sporadic, Policy::Deferrable].map(|it| (shielding, it)))
    {
        let mut scheduler = scheduler(shielding, Order::FixedPriority);
        let (server, task) = busy(&mut scheduler, policy);
        assert_eq!(scheduler.schedule(0).timer, Some(20));
        scheduler.charge(server, 5, 10).unwrap();
        let decision = scheduler.schedule(10);
        assert_eq!((decision.run, decision.timer), (Some(task), Some(15)));
        assert_eq!(scheduler.supply(server).unwrap().used, 15);
        // The rest at once, and three of the next budget.
        scheduler.charge(server, 8, 10).unwrap();
        let decision = scheduler.schedule(10);
        assert_eq!((decision.run, decision.timer), (None, Some(100)));
        assert_eq!(scheduler.state(server), Ok(State::Depleted));
        assert_eq!(scheduler.overrun(server), Ok(3));
        let decision = scheduler.schedule(100);
        assert_eq!((decision.run, decision.timer), (Some(task), Some(117)));
    }
}

#[test]
fn a_constant_bandwidth_server_waits_a_period_for_each_budget_that_it_is_charged() {
    let mut scheduler = scheduler(Shielding::Shielded, Order::EarliestDeadline);
    let (server, task) = busy(&mut scheduler, Policy::Sporadic);
    scheduler.schedule(0);
    scheduler.charge(server, 35, 10).unwrap();
    assert_eq!(scheduler.schedule(10).timer, Some(200));
    let decision = scheduler.schedule(200);
    assert_eq!((decision.run, decision.timer), (Some(task), Some(215)));
}

#[test]
fn what_a_server_is_charged_while_it_sleeps_comes_back_a_period_after_that() {
    for shielding in SHIELDINGS {
        let mut scheduler = scheduler(shielding, Order::FixedPriority);
        let (server, task) = busy(&mut scheduler, Policy::Sporadic);
        scheduler.block(task, 0, None).unwrap();
        scheduler.schedule(0);
        // It has been idle for long: nothing is free because of that.
        scheduler.charge(server, 12, 1_000).unwrap();
        assert_eq!(scheduler.budget_left(server, 1_050), Ok(8));
        assert_eq!(scheduler.budget_left(server, 1_100), Ok(20));
        scheduler.charge(server, 30, 1_050).unwrap();
        scheduler.wake(task, 1_060).unwrap();
        let decision = scheduler.schedule(1_060);
        assert_eq!(decision.run, None);
        assert_eq!(scheduler.supply(server).unwrap().used, 42);
    }
}

#[test]
fn a_preempted_server_that_is_charged_its_budget_does_not_come_back_before_there_is_more() {
    for shielding in SHIELDINGS {
        let mut scheduler = scheduler(shielding, Order::FixedPriority);
        let (low, _) = busy(&mut scheduler, Policy::Sporadic);
        let high = scheduler.add_server(&contract(50, 100, 2), 0).unwrap();
        let task = scheduler.add_task(high).unwrap();
        scheduler.schedule(0);
        scheduler.wake(task, 5).unwrap();
        scheduler.schedule(5);
        scheduler.charge(low, 15, 8).unwrap();
        assert_eq!(scheduler.state(low), Ok(State::Depleted));
        scheduler.block(task, 10, None).unwrap();
        let decision = scheduler.schedule(10);
        assert_eq!((decision.run, decision.timer), (None, Some(100)));
    }
}

#[test]
fn a_background_server_has_shorter_slices_until_it_has_made_up_for_its_helpers() {
    let mut scheduler = scheduler(Shielding::Shielded, Order::FixedPriority);
    let [helped, other] = [0, 1].map(|_| {
        let server = scheduler.add_background(80).unwrap();
        let task = scheduler.add_task(server).unwrap();
        scheduler.wake(task, 0).unwrap();
        (server, task)
    });
    scheduler.charge(helped.0, 100, 0).unwrap();
    let mut now = 0;
    let mut slices = Vec::new();
    for _ in 0..8 {
        let decision = scheduler.schedule(now);
        let end = decision.timer.expect("they take turns");
        slices.push((decision.run == Some(helped.1), end - now));
        now = end;
    }
    let lengths = |of_helped: bool| -> Vec<Nanos> {
        let of = slices.iter().filter(|slice| slice.0 == of_helped);
        of.map(|slice| slice.1).collect()
    };
    // 70 of the 100, the other 30, then nothing.
    assert_eq!(lengths(true), [10, 50, 80, 80]);
    assert_eq!(lengths(false), [80; 4]);
    assert_eq!(
        scheduler.supply(helped.0).unwrap().used,
        100 + 10 + 50 + 80 + 80
    );
    assert_eq!(scheduler.supply(other.0).unwrap().used, 3 * 80);
}

#[test]
fn a_server_that_was_removed_is_charged_no_more() {
    let mut scheduler = scheduler(Shielding::Shielded, Order::FixedPriority);
    let (server, _) = busy(&mut scheduler, Policy::Sporadic);
    scheduler.remove_server(server, 5).unwrap();
    assert_eq!(scheduler.charge(server, 1, 6), Err(Refused::Stale));
}

/// How long a task runs or sleeps, and how much its helpers do meanwhile.
fn steps() -> impl Strategy<Value = Vec<(Nanos, Nanos, Nanos)>> {
    prop::collection::vec((1..30u64, 1..80u64, 0..40u64), 1..60)
}

proptest! {
    #[test]
    fn a_task_runs_only_on_what_its_helpers_have_left_of_its_budgets(
        steps in steps(), is_deferrable in any::<bool>(), by_deadline in any::<bool>(),
    ) {
        let order = if by_deadline { Order::EarliestDeadline } else { Order::FixedPriority };
        let mut scheduler = scheduler(Shielding::Shielded, order);
        let policy = if is_deferrable { Policy::Deferrable } else { Policy::Sporadic };
        let (server, task) = busy(&mut scheduler, policy);
        let mut last = scheduler.schedule(0);
        let mut now = 0;
        for (run, sleep, help) in steps {
            let until = now + run;
            while now < until {
                let next = last.timer.map_or(until, |timer| timer.min(until));
                let ran = last.run.is_some();
                now = next;
                last = scheduler.schedule(now);
                // A deadline lies up to a period ahead of the budget that it is for.
                let budgets = now.div_ceil(100) + u64::from(by_deadline);
                let used = scheduler.supply(server).unwrap().used;
                prop_assert!(!ran || used <= 20 * budgets, "{used} at {now}");
            }
            scheduler.charge(server, help, now).unwrap();
            scheduler.block(task, now, Some(now + sleep)).unwrap();
            last = scheduler.schedule(now);
        }
    }
}
