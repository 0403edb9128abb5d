//! Charges of a preemption: the preempting server pays for its interrupt, up to the usual cost,
//! and, when it stops, for the dispatch of the preempted server.

mod common;

use common::contract;
use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Scheduler, ServerId, Shielding, TaskId,
};

const INTERRUPT: Nanos = 5;
const WAY_BACK: Nanos = 3;

/// A server of low priority that computes, and one of high priority that sleeps until `wake`.
struct Pair {
    scheduler: Scheduler,
    low: ServerId,
    high: ServerId,
    sleeper: TaskId,
}

impl Pair {
    fn new(shielding: Shielding, policy: Policy, region: Nanos, wake: Nanos) -> Self {
        let mut scheduler = Scheduler::new(common::config(shielding))
            .with_interrupt(INTERRUPT)
            .with_redispatch(WAY_BACK);
        let below = contract(50, 200, 1).with_nonpreemptive(region).unwrap();
        let above = contract(20, 200, 2).with_policy(policy);
        let low = scheduler.add_server(&below, 0).unwrap();
        let high = scheduler.add_server(&above, 0).unwrap();
        let [busy, sleeper] = [low, high].map(|server| scheduler.add_task(server).unwrap());
        scheduler.wake(busy, 0).unwrap();
        scheduler.block(sleeper, 0, Some(wake)).unwrap();
        let decision = scheduler.schedule(0);
        assert_eq!(decision.run, Some(busy));
        assert_eq!(decision.timer, Some(wake.max(region).min(50)));
        Pair {
            scheduler,
            low,
            high,
            sleeper,
        }
    }

    fn used(&self) -> [Nanos; 2] {
        [self.low, self.high].map(|server| self.scheduler.supply(server).unwrap().used)
    }
}

#[test]
fn the_preempting_server_is_charged_from_the_instant_that_its_timer_expires() {
    for policy in [Policy::Sporadic, Policy::Deferrable] {
        let mut pair = Pair::new(Shielding::Shielded, policy, 0, 10);
        let decision = pair.scheduler.schedule(14);
        assert_eq!(decision.run, Some(pair.sleeper));
        assert_eq!(
            pair.used(),
            [10, 0],
            "what is owed is charged with what it runs"
        );
        // It has had four of its 20 already.
        assert_eq!(decision.timer, Some(10 + 20));
        assert_eq!(pair.scheduler.budget_left(pair.high, 16), Ok(20 - 6));
        pair.scheduler.block(pair.sleeper, 17, None).unwrap();
        assert_eq!(pair.used(), [10, 7]);
    }
}

#[test]
fn a_region_that_ends_is_an_interrupt_for_the_server_that_waited() {
    let mut pair = Pair::new(Shielding::Shielded, Policy::Sporadic, 30, 10);
    assert_eq!(pair.scheduler.schedule(33).run, Some(pair.sleeper));
    pair.scheduler.block(pair.sleeper, 34, None).unwrap();
    assert_eq!(pair.used(), [30, 4]);
}

#[test]
fn what_an_interrupt_does_not_take_is_charged_to_the_server_that_it_kept_from_stopping() {
    // A call of the running guest defers the interrupt by 40.
    let mut pair = Pair::new(Shielding::Shielded, Policy::Sporadic, 0, 10);
    pair.scheduler.schedule(50);
    pair.scheduler.block(pair.sleeper, 51, None).unwrap();
    assert_eq!(pair.used(), [50 - INTERRUPT, 1 + INTERRUPT]);
}

#[test]
fn the_end_of_a_budget_is_an_interrupt_for_the_server_that_it_stops() {
    let mut pair = Pair::new(Shielding::Shielded, Policy::Sporadic, 0, 150);
    assert_eq!(pair.scheduler.schedule(0).timer, Some(50));
    assert_eq!(pair.scheduler.schedule(54).run, None);
    assert_eq!(pair.used(), [54 + WAY_BACK, 0]);
}

#[test]
fn waking_an_idle_processor_and_putting_it_to_sleep_is_charged_as_a_preemption_is() {
    let mut pair = Pair::new(Shielding::Shielded, Policy::Sporadic, 0, 150);
    pair.scheduler.schedule(50);
    let low = 50 + WAY_BACK;
    // At 150 its timer expires, and at 153 the scheduler runs.
    assert_eq!(pair.scheduler.schedule(153).run, Some(pair.sleeper));
    pair.scheduler.block(pair.sleeper, 155, Some(156)).unwrap();
    assert_eq!(pair.used(), [low, 5]);
    assert_eq!(pair.scheduler.schedule(155).run, None);
    assert_eq!(pair.used(), [low, 5 + WAY_BACK]);
    // Until 158 it has paid, and for no more than an interrupt takes.
    assert_eq!(pair.scheduler.schedule(170).run, Some(pair.sleeper));
    pair.scheduler.block(pair.sleeper, 171, None).unwrap();
    assert_eq!(pair.used(), [low, 5 + WAY_BACK + INTERRUPT + 1]);
}

#[test]
fn a_storm_of_wake_ups_takes_nothing_from_the_background_beyond_its_budget() {
    let config = Config {
        tasks: 2,
        ..common::config(Shielding::Shielded)
    };
    let mut scheduler = Scheduler::new(config)
        .with_interrupt(INTERRUPT)
        .with_redispatch(WAY_BACK);
    let low = scheduler.add_background(1_000_000).unwrap();
    let high = scheduler.add_server(&contract(100, 1_000, 2), 0).unwrap();
    let [busy, flood] = [low, high].map(|server| scheduler.add_task(server).unwrap());
    scheduler.wake(busy, 0).unwrap();
    scheduler.block(flood, 0, Some(10)).unwrap();
    let (mut now, mut computed) = (0, 0);
    // It sleeps for ten and runs for one; each time the interrupt takes five, and the way back three.
    while now < 10_000 {
        let decision = scheduler.schedule(now);
        assert_eq!(decision.run, Some(busy));
        let from = if now > 0 { now + WAY_BACK } else { now };
        let timer = decision.timer.unwrap();
        computed += timer.saturating_sub(from);
        now = timer.max(from) + INTERRUPT;
        assert_eq!(scheduler.schedule(now).run, Some(flood));
        now += 1;
        scheduler.block(flood, now, Some(now + 10)).unwrap();
    }
    let used = [low, high].map(|server| scheduler.supply(server).unwrap().used);
    assert_eq!(used[0], computed, "it is charged for what it computed");
    // A tenth of the time, and one budget and one preemption more.
    assert!(
        used[1] <= now / 10 + 100 + INTERRUPT + WAY_BACK,
        "{} of {now}",
        used[1]
    );
}

#[test]
fn a_message_that_wakes_the_idle_processor_or_interrupts_the_background_is_charged_as_a_timer_is() {
    for has_background in [false, true] {
        let config = Config {
            tasks: 2,
            ..common::config(Shielding::Shielded)
        };
        let mut scheduler = Scheduler::new(config)
            .with_interrupt(INTERRUPT)
            .with_redispatch(WAY_BACK);
        let low = scheduler.add_background(1_000_000).unwrap();
        let high = scheduler.add_server(&contract(100, 1_000, 2), 0).unwrap();
        let [busy, reader] = [low, high].map(|server| scheduler.add_task(server).unwrap());
        if has_background {
            scheduler.wake(busy, 0).unwrap();
        }
        let used = |scheduler: &Scheduler| scheduler.supply(high).unwrap().used;
        scheduler.schedule(0);
        scheduler.wake_by_message(reader, 10, 10).unwrap();
        // A second message finds it awake.
        scheduler.wake_by_message(reader, 10, 10).unwrap();
        assert_eq!(used(&scheduler), INTERRUPT);
        assert_eq!(scheduler.schedule(11).run, Some(reader));
        scheduler.block(reader, 12, None).unwrap();
        scheduler.schedule(12);
        assert_eq!(used(&scheduler), INTERRUPT + 1 + WAY_BACK);
        // One that another task sends interrupts nothing.
        scheduler.wake(reader, 20).unwrap();
        assert_eq!(used(&scheduler), INTERRUPT + 1 + WAY_BACK);
    }
}

#[test]
fn a_message_to_a_server_that_a_reservation_runs_beside_is_the_interrupted_ones() {
    let mut pair = Pair::new(Shielding::Shielded, Policy::Sporadic, 0, 150);
    pair.scheduler
        .wake_by_message(pair.sleeper, 10, 10)
        .unwrap();
    assert_eq!(pair.scheduler.schedule(14).run, Some(pair.sleeper));
    assert_eq!(pair.used(), [14, 0]);
}

#[test]
fn an_interrupt_that_takes_the_whole_budget_is_paid_for_like_any_overrun() {
    let mut scheduler =
        Scheduler::new(common::config(Shielding::Shielded)).with_interrupt(INTERRUPT);
    let low = scheduler.add_server(&contract(50, 200, 1), 0).unwrap();
    let high = scheduler.add_server(&contract(3, 200, 2), 0).unwrap();
    let [busy, small] = [low, high].map(|server| scheduler.add_task(server).unwrap());
    scheduler.wake(busy, 0).unwrap();
    scheduler.block(small, 0, Some(10)).unwrap();
    scheduler.schedule(0);
    let decision = scheduler.schedule(15);
    assert_eq!((decision.run, decision.timer), (Some(small), Some(16)));
    let decision = scheduler.schedule(16);
    assert_eq!(decision.run, Some(busy));
    assert_eq!(scheduler.supply(high).unwrap().used, 6);
    // All three of this period, and three of the next: it has to wait for the one after.
    let mut queue = scheduler.replenishments(high).unwrap();
    assert!(queue.all(|entry| entry.at == 10 + 2 * 200));
}

/// Returns when the timer fires for a server that runs from `from` on, for this longest interrupt.
fn depletion(contract: &Contract, naps: &[(Nanos, Nanos)], from: Nanos, interrupt: Nanos) -> Nanos {
    let mut scheduler =
        Scheduler::new(common::config(Shielding::Shielded)).with_interrupt(interrupt);
    let server = scheduler.add_server(contract, 0).unwrap();
    let task = scheduler.add_task(server).unwrap();
    for &(wake, sleep) in naps {
        scheduler.wake(task, wake).unwrap();
        scheduler.schedule(wake);
        scheduler.block(task, sleep, None).unwrap();
        scheduler.schedule(sleep);
    }
    scheduler.wake(task, from).unwrap();
    scheduler.schedule(from).timer.unwrap()
}

#[test]
fn no_interrupt_ends_a_budget_if_there_is_more_by_the_time_it_is_over() {
    // Ten come back at 100, and ten at 115.
    let sporadic = contract(20, 100, 1).with_replenishments(4).unwrap();
    let naps = [(0, 10), (15, 25)];
    assert_eq!(depletion(&sporadic, &naps, 100, 4), 100 + 10);
    assert_eq!(depletion(&sporadic, &naps, 100, 5), 100 + 20);
    // The next period begins at 100; what was used before that is taken off its budget.
    let deferrable = contract(20, 100, 1).with_policy(Policy::Deferrable);
    assert_eq!(depletion(&deferrable, &[], 78, 1), 78 + 20);
    assert_eq!(depletion(&deferrable, &[], 78, 2), 100 + 18);
    // Nothing would be left of a budget of one.
    let small = contract(1, 100, 1).with_policy(Policy::Deferrable);
    assert_eq!(depletion(&small, &[], 97, 2), 97 + 1);
}

#[test]
fn what_comes_back_while_an_interrupt_lasts_is_no_overrun() {
    let mut scheduler =
        Scheduler::new(common::config(Shielding::Shielded)).with_interrupt(INTERRUPT);
    let server = scheduler.add_server(&contract(20, 100, 1), 0).unwrap();
    let task = scheduler.add_task(server).unwrap();
    // Ten come back at 100, and ten at 115.
    for (wake, sleep) in [(0, 10), (15, 25)] {
        scheduler.wake(task, wake).unwrap();
        scheduler.schedule(wake);
        scheduler.block(task, sleep, None).unwrap();
        scheduler.schedule(sleep);
    }
    scheduler.wake(task, 100).unwrap();
    assert_eq!(scheduler.schedule(100).timer, Some(120));
    scheduler.schedule(124);
    // Until 115 it ran on for five, and at 124 it has used four of what comes back at 200.
    assert_eq!(scheduler.supply(server).unwrap().overrun_max, 5);
    assert_eq!(scheduler.overrun(server), Ok(4));
}

#[test]
fn a_timer_that_is_late_leaves_the_longest_overrun_whatever_came_back_meanwhile() {
    for (order, policy) in [
        (Order::FixedPriority, Policy::Sporadic),
        (Order::FixedPriority, Policy::Deferrable),
        (Order::EarliestDeadline, Policy::Sporadic),
    ] {
        let config = Config {
            order,
            ..common::config(Shielding::Shielded)
        };
        let mut scheduler = Scheduler::new(config);
        let contract = contract(20, 100, 1).with_policy(policy);
        let server = scheduler.add_server(&contract, 0).unwrap();
        let task = scheduler.add_task(server).unwrap();
        scheduler.wake(task, 0).unwrap();
        assert_eq!(scheduler.schedule(0).timer, Some(20));
        // 80 until 100, and 160 until 200.
        scheduler.schedule(210);
        assert_eq!(scheduler.supply(server).unwrap().overrun_max, 160);
    }
}

#[test]
fn a_budget_that_comes_back_while_another_pays_for_the_interrupt_is_there_after_it() {
    let config = Config {
        order: Order::EarliestDeadline,
        servers: 3,
        tasks: 3,
        ..common::config(Shielding::Shielded)
    };
    let mut scheduler = Scheduler::new(config).with_interrupt(INTERRUPT);
    let contracts =
        [(60, 90), (50, 100), (3, 6)].map(|(budget, period)| contract(budget, period, 0));
    let [first, low, high] = contracts.map(|contract| {
        let server = scheduler.add_server(&contract, 0).unwrap();
        (server, scheduler.add_task(server).unwrap())
    });
    scheduler.wake(first.1, 0).unwrap();
    scheduler.wake(low.1, 0).unwrap();
    scheduler.block(high.1, 0, Some(92)).unwrap();
    assert_eq!(scheduler.schedule(0).run, Some(first.1));
    scheduler.block(first.1, 45, None).unwrap();
    let decision = scheduler.schedule(45);
    assert_eq!((decision.run, decision.timer), (Some(low.1), Some(92)));
    // Its budget ends at 95 and comes back at 100; it pays until 97.
    assert_eq!(scheduler.schedule(102).run, Some(high.1));
    assert_eq!(scheduler.supply(low.0).unwrap().used, 97 - 45);
    scheduler.block(high.1, 103, None).unwrap();
    let decision = scheduler.schedule(103);
    assert_eq!(
        (decision.run, decision.timer),
        (Some(low.1), Some(103 + 50 - 2))
    );
}

#[test]
fn the_redispatch_of_a_preempted_server_is_charged_to_the_preempting_one() {
    for policy in [Policy::Sporadic, Policy::Deferrable] {
        let mut pair = Pair::new(Shielding::Shielded, policy, 8, 10);
        assert_eq!(pair.scheduler.schedule(14).run, Some(pair.sleeper));
        pair.scheduler.block(pair.sleeper, 17, None).unwrap();
        let decision = pair.scheduler.schedule(17);
        assert_eq!(pair.used(), [10, 7 + WAY_BACK]);
        // It is there at 20, with 40 left, and its region begins.
        assert_eq!(decision.timer, Some(20 + 40));
        assert_eq!(decision.region_end, 20 + 8);
        assert_eq!(pair.scheduler.budget_left(pair.low, 18), Ok(40));
        assert_eq!(pair.scheduler.budget_left(pair.low, 23), Ok(37));
        pair.scheduler.wake(pair.sleeper, 25).unwrap();
        let decision = pair.scheduler.schedule(25);
        assert_eq!(decision.timer, Some(20 + 8));
        assert_eq!(pair.used(), [10 + 5, 7 + WAY_BACK]);
    }
}

#[test]
fn a_redispatch_that_is_cut_short_is_paid_for_once() {
    let mut pair = Pair::new(Shielding::Shielded, Policy::Sporadic, 0, 10);
    pair.scheduler.schedule(10);
    pair.scheduler.block(pair.sleeper, 17, Some(18)).unwrap();
    let decision = pair.scheduler.schedule(17);
    assert_eq!(
        decision.timer,
        Some(18),
        "no task is woken early or late for it"
    );
    assert_eq!(pair.scheduler.schedule(22).run, Some(pair.sleeper));
    pair.scheduler.block(pair.sleeper, 24, None).unwrap();
    pair.scheduler.schedule(24);
    // From 17 to 20 the dispatch of the preempted server; then the interrupt, its server, and
    // another dispatch.
    assert_eq!(pair.used(), [10, 7 + WAY_BACK + 4 + WAY_BACK]);
}

#[test]
fn no_server_pays_for_the_dispatch_of_one_that_was_not_preempted() {
    let mut pair = Pair::new(Shielding::Shielded, Policy::Sporadic, 0, 10);
    let other = pair.scheduler.add_server(&contract(20, 200, 0), 0).unwrap();
    let task = pair.scheduler.add_task(other).unwrap();
    pair.scheduler.wake(task, 5).unwrap();
    pair.scheduler.schedule(10);
    // The one that was preempted is taken away meanwhile.
    pair.scheduler.remove_server(pair.low, 12).unwrap();
    pair.scheduler.block(pair.sleeper, 17, None).unwrap();
    assert_eq!(pair.scheduler.schedule(17).run, Some(task));
    assert_eq!(pair.scheduler.supply(pair.high).unwrap().used, 7);
    assert_eq!(pair.scheduler.budget_left(other, 19), Ok(18));
}

#[test]
fn a_redispatch_beyond_the_budget_is_an_overrun_of_the_server_that_stopped() {
    let mut scheduler =
        Scheduler::new(common::config(Shielding::Shielded)).with_redispatch(WAY_BACK);
    let low = scheduler.add_server(&contract(50, 200, 1), 0).unwrap();
    let high = scheduler.add_server(&contract(5, 200, 2), 0).unwrap();
    let [busy, greedy] = [low, high].map(|server| scheduler.add_task(server).unwrap());
    scheduler.wake(busy, 0).unwrap();
    scheduler.block(greedy, 0, Some(10)).unwrap();
    scheduler.schedule(0);
    assert_eq!(scheduler.schedule(10).timer, Some(15));
    assert_eq!(scheduler.schedule(15).run, Some(busy));
    assert_eq!(scheduler.overrun(high), Ok(WAY_BACK));
    assert_eq!(scheduler.supply(high).unwrap().used, 5 + WAY_BACK);
}

#[test]
fn an_eager_scheduler_charges_the_interrupted() {
    let mut pair = Pair::new(Shielding::Eager, Policy::Sporadic, 0, 10);
    pair.scheduler.schedule(14);
    pair.scheduler.block(pair.sleeper, 17, None).unwrap();
    assert_eq!(pair.used(), [14, 3]);
}

#[test]
fn a_storm_takes_from_the_budget_of_the_tenant_that_makes_it() {
    let used = |interrupt| {
        let config = Config {
            tasks: 2,
            ..common::config(Shielding::Shielded)
        };
        let mut scheduler = Scheduler::new(config).with_interrupt(interrupt);
        let low = scheduler.add_server(&contract(400, 1_000, 1), 0).unwrap();
        let high = scheduler.add_server(&contract(400, 1_000, 2), 0).unwrap();
        let [busy, flood] = [low, high].map(|server| scheduler.add_task(server).unwrap());
        scheduler.wake(busy, 0).unwrap();
        scheduler.block(flood, 0, Some(10)).unwrap();
        let mut now = 0;
        let mut ran = 0;
        // Ten naps of ten; each interrupt takes five, and the flood itself one.
        for _ in 0..10 {
            let timer = scheduler.schedule(now).timer.unwrap();
            ran += timer - now;
            assert_eq!(scheduler.schedule(timer + 5).run, Some(flood));
            now = timer + 6;
            scheduler.block(flood, now, Some(now + 10)).unwrap();
        }
        let used = [low, high].map(|server| scheduler.supply(server).unwrap().used);
        assert_eq!(used[0] + used[1], now, "every nanosecond is charged once");
        (ran, used)
    };
    assert_eq!(used(0), (100, [150, 10]));
    assert_eq!(used(5), (100, [100, 60]));
}
