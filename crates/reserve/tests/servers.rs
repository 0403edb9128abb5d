//! The supply of each kind of server, and ids that outlive their servers.

mod common;

use common::{Machine, config, contract};
use leasehold_reserve::{
    Config, INSTANT_MAX, Nanos, Order, Policy, Refused, Scheduler, Shielding, TaskId,
};

#[test]
fn a_busy_sporadic_server_gets_its_budget_once_a_period() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (_, task) = machine.server("a", contract(10, 30, 1));
    machine.wake(task);
    machine.run_to(100);
    let runs = [(0, 10, "a"), (30, 40, "a"), (60, 70, "a"), (90, 100, "a")];
    assert_eq!(machine.slices, runs);
    assert_eq!(machine.fired, [10, 30, 40, 60, 70, 90, 100]);
}

#[test]
fn a_deferrable_server_can_hit_twice_around_a_period() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (server, task) = machine.server("a", contract(10, 30, 1).with_policy(Policy::Deferrable));
    machine.run_to(20);
    machine.wake(task);
    assert_eq!(machine.last.timer, Some(40), "the budget of 30 is certain");
    machine.run_to(100);
    assert_eq!(
        machine.slices,
        [(20, 40, "a"), (60, 70, "a"), (90, 100, "a")]
    );
    assert_eq!(machine.scheduler.supply(server).unwrap().used, 40);
}

#[test]
fn background_servers_share_the_time_that_is_not_reserved() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (_, task) = machine.server("a", contract(10, 30, 0));
    let first = machine.scheduler.add_background(5).unwrap();
    let second = machine.scheduler.add_background(5).unwrap();
    let (b, c) = (machine.task("b", first), machine.task("c", second));
    for task in [b, c, task] {
        machine.wake(task);
    }
    machine.run_to(40);
    let runs = [
        (0, 10, "a"),
        (10, 15, "b"),
        (15, 20, "c"),
        (20, 25, "b"),
        (25, 30, "c"),
        (30, 40, "a"),
    ];
    assert_eq!(machine.slices, runs);
}

#[test]
fn a_background_server_that_ran_alone_for_long_starts_with_a_turn_of_its_own() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let [a, b, c] = ["a", "b", "c"].map(|name| {
        let server = machine.scheduler.add_background(5).unwrap();
        machine.task(name, server)
    });
    let (_, top) = machine.server("top", contract(10, 100, 0));
    // Each runs alone until its turn is long over, and is preempted then.
    machine.wake(a);
    machine.run_to(20);
    machine.wake(top);
    machine.wake(b);
    machine.wake(c);
    machine.run_to(50);
    let runs = [
        (0, 20, "a"),
        (20, 30, "top"),
        (30, 35, "b"),
        (35, 40, "c"),
        (40, 45, "a"),
        (45, 50, "b"),
    ];
    assert_eq!(machine.slices, runs);
    assert!(machine.idle_fires.is_empty());
}

#[test]
fn tasks_of_a_server_take_turns_and_sleepers_join_in() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (server, a) = machine.server("a", contract(100, 100, 0).with_slice(10));
    let b = machine.task("b", server);
    machine.wake(a);
    machine.run_to(5);
    machine.scheduler.block(b, 5, Some(25)).unwrap();
    machine.schedule();
    assert_eq!(
        machine.last.timer,
        Some(25),
        "no other can have a turn before"
    );
    machine.run_to(50);
    let runs = [(0, 25, "a"), (25, 35, "b"), (35, 45, "a"), (45, 50, "b")];
    assert_eq!(machine.slices, runs);
    assert!(machine.idle_fires.is_empty());
}

/// Lets time pass until `to`. A task of `tasks` that runs for 3 ns blocks, and `wakes` returns the
/// task to wake then.
fn hand_over(machine: &mut Machine, tasks: &[TaskId], to: Nanos, wakes: impl Fn(TaskId) -> TaskId) {
    while machine.now < to {
        machine.run_to(machine.now + 3);
        let running = machine.last.run.filter(|task| tasks.contains(task));
        if let Some(task) = running {
            machine.scheduler.block(task, machine.now, None).unwrap();
            machine.scheduler.wake(wakes(task), machine.now).unwrap();
            machine.schedule();
        }
    }
}

#[test]
fn tasks_that_hand_over_to_each_other_take_no_turn_of_another_background_server() {
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        let mut machine = Machine::new(config(shielding));
        let [several, other] =
            [10, 10].map(|slice| machine.scheduler.add_background(slice).unwrap());
        let tasks = ["a", "b"].map(|name| machine.task(name, several));
        let c = machine.task("c", other);
        for task in [tasks[0], tasks[1], c] {
            machine.wake(task);
        }
        // One of them is always ready, and none runs for as long as a slice.
        hand_over(&mut machine, &tasks, 1_000, |task| task);
        let used = machine.scheduler.supply(other).unwrap().used;
        assert!((450..=550).contains(&used), "{shielding:?}: {used}");
    }
}

#[test]
fn a_background_task_that_sleeps_for_no_time_takes_no_turn_of_another_server() {
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        let mut machine = Machine::new(config(shielding));
        let servers = [10, 10].map(|slice| machine.scheduler.add_background(slice).unwrap());
        let [a, b] = [0, 1].map(|n| machine.task(["a", "b"][n], servers[n]));
        machine.wake(a);
        machine.wake(b);
        while machine.now < 1_000 {
            machine.run_to(machine.now + 3);
            if machine.last.run == Some(a) {
                machine.block(a, Some(machine.now));
            }
        }
        let used = machine.scheduler.supply(servers[1]).unwrap().used;
        assert!(used >= 450, "{shielding:?}: {used}");
    }
}

#[test]
fn a_sleeper_joins_in_although_other_tasks_of_its_server_hand_over_to_each_other() {
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        let mut machine = Machine::new(config(shielding));
        let (server, a) = machine.server("a", contract(100, 100, 0).with_slice(10));
        let tasks = [a, machine.task("b", server)];
        let sleeper = machine.task("sleeper", server);
        for task in tasks {
            machine.wake(task);
        }
        machine.scheduler.block(sleeper, 0, Some(20)).unwrap();
        hand_over(&mut machine, &tasks, 60, |task| task);
        let first = machine.slices.iter().find(|slice| slice.2 == "sleeper");
        assert!(
            first.is_some_and(|slice| slice.0 <= 30),
            "{shielding:?}: {first:?}"
        );
    }
}

#[test]
fn a_background_server_that_slept_joins_in_while_others_wake_each_other() {
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        let mut machine = Machine::new(config(shielding));
        let servers = [10; 3].map(|slice| machine.scheduler.add_background(slice).unwrap());
        let [a, b] = [0, 1].map(|n| machine.task(["a", "b"][n], servers[n]));
        let sleeper = machine.task("sleeper", servers[2]);
        machine.wake(a);
        machine.scheduler.block(sleeper, 0, Some(20)).unwrap();
        hand_over(
            &mut machine,
            &[a, b],
            60,
            |task| if task == a { b } else { a },
        );
        let first = machine.slices.iter().find(|slice| slice.2 == "sleeper");
        assert!(
            first.is_some_and(|slice| slice.0 <= 30),
            "{shielding:?}: {first:?}"
        );
    }
}

#[test]
fn a_wake_up_time_in_the_past_does_not_bring_an_old_deadline_back() {
    let mut machine = Machine::new(Config {
        order: Order::EarliestDeadline,
        ..config(Shielding::Shielded)
    });
    let (_, a) = machine.server("a", contract(9, 10, 0));
    let (_, b) = machine.server("b", contract(1, 5, 0));
    machine.wake(a);
    machine.run_to(9);
    machine.block(a, None);
    machine.scheduler.block(b, 9, Some(11)).unwrap();
    // The budget came back at 10, and with it the deadline of 20; the other's is 16.
    machine.now = 12;
    machine.scheduler.block(a, 12, Some(5)).unwrap();
    assert_eq!(machine.schedule().run, Some(b));
    machine.run_to(13);
    assert_eq!(machine.last.run, Some(a));
}

#[test]
fn ids_of_what_was_removed_are_refused_for_ever() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (server, task) = machine.server("a", contract(10, 30, 1));
    let other = machine.task("b", server);
    machine.wake(task);
    machine.scheduler.remove_task(other, 3).unwrap();
    assert_eq!(machine.scheduler.wake(other, 3), Err(Refused::Stale));
    machine.now = 4;
    machine.scheduler.remove_server(server, 4).unwrap();
    assert_eq!(machine.schedule().run, None);
    let (again, new) = machine.server("c", contract(10, 30, 1));
    assert_eq!(again.index(), server.index());
    assert_eq!(machine.scheduler.wake(task, 5), Err(Refused::Stale));
    assert_eq!(machine.scheduler.state(server), Err(Refused::Stale));
    assert_eq!(
        machine.scheduler.remove_server(server, 5),
        Err(Refused::Stale)
    );
    assert_eq!(machine.scheduler.add_task(server), Err(Refused::Stale));
    assert_eq!(machine.scheduler.server_of(new), Ok(again));
}

#[test]
fn a_server_that_was_not_admitted_counts_the_budgets_that_it_missed() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (greedy, all) = machine.server("a", contract(30, 30, 2));
    let (starved, none) = machine.server("b", contract(10, 30, 1));
    machine.wake(all);
    machine.wake(none);
    machine.run_to(100);
    machine.scheduler.schedule(100);
    assert_eq!(machine.scheduler.supply(starved).unwrap().misses, 2);
    assert_eq!(machine.scheduler.supply(greedy).unwrap().misses, 0);
}

#[test]
fn work_that_no_task_asked_for_is_charged_to_no_task() {
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        for policy in [Policy::Sporadic, Policy::Deferrable] {
            let mut machine = Machine::new(config(shielding));
            let (server, task) = machine.server("a", contract(10, 100, 1).with_policy(policy));
            let (other, waiting) = machine.server("b", contract(10, 100, 2));
            machine.wake(task);
            machine.run_to(4);

            machine.scheduler.pause(machine.now);
            machine.scheduler.wake(waiting, 30).unwrap();
            machine.scheduler.block(waiting, 50, None).unwrap();
            machine.now = 60;
            machine.scheduler.resume(machine.now);
            machine.schedule();

            assert_eq!(machine.last.run, Some(task));
            assert_eq!(
                machine.last.timer,
                Some(66),
                "what was left of its budget is left"
            );
            machine.run_to(66);
            let supply = |server| machine.scheduler.supply(server).unwrap();
            assert_eq!((supply(server).used, supply(server).overrun_max), (10, 0));
            assert_eq!(supply(server).preemptions, 0);
            assert_eq!(supply(other).used, 0);
        }
    }
}

#[test]
fn a_pause_may_last_for_periods() {
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        let mut machine = Machine::new(config(shielding));
        let deferrable = contract(10, 30, 1).with_policy(Policy::Deferrable);
        let (server, task) = machine.server("a", deferrable);
        machine.wake(task);
        machine.run_to(4);
        machine.scheduler.pause(4);
        machine.now = 100;
        machine.scheduler.resume(100);
        machine.schedule();
        assert_eq!(machine.scheduler.supply(server).unwrap().used, 4);
        // Since 90 it has a whole budget again, and gets more at every multiple of its period.
        machine.run_to(200);
        assert_eq!(machine.scheduler.supply(server).unwrap().used, 4 + 4 * 10);
    }
}

#[test]
fn budgets_of_a_long_pause_are_gone_and_less_urgent_servers_keep_theirs() {
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        // The urgent one runs, is ready and preempted, or has used its budget up when the pause begins.
        for before in [2, 12, 7] {
            let mut machine = Machine::new(config(shielding));
            let (urgent, high) = machine.server("high", contract(5, 10, 2));
            let (modest, low) = machine.server("low", contract(4, 10, 1));
            let (short, first) = machine.server("first", contract(1, 20, 3));
            for task in [high, low] {
                machine.wake(task);
            }
            machine.run_to(before);
            if before == 12 {
                machine.wake(first);
                machine.schedule();
            }
            let used = |machine: &Machine, server| machine.scheduler.supply(server).unwrap().used;
            machine.scheduler.pause(before);
            let began = before + 10_000;
            machine.now = began;
            machine.scheduler.resume(began);
            machine.schedule();
            let (high_before, low_before) = (used(&machine, urgent), used(&machine, modest));
            machine.run_to(began + 1000);
            let (high, low) = (
                used(&machine, urgent) - high_before,
                used(&machine, modest) - low_before,
            );
            assert!(
                (495..=505).contains(&high),
                "{shielding:?} {before}: {high}"
            );
            assert!((390..=404).contains(&low), "{shielding:?} {before}: {low}");
            assert!(used(&machine, short) <= 51 + 1);
        }
    }
}

#[test]
fn jobs_that_need_the_whole_budget_are_on_time_again_after_short_pauses() {
    let cases = [Shielding::Eager, Shielding::Shielded]
        .into_iter()
        .flat_map(|shielding| [(shielding, false), (shielding, true)]);
    for (shielding, sleeps) in cases {
        let mut machine = Machine::new(config(shielding));
        let (server, task) = machine.server("a", contract(800, 1600, 1));
        let (_, below) = machine.server("b", contract(200, 1600, 0));
        machine.wake(task);
        for job in 0..200 {
            let begin = job * 1600;
            machine.run_to(begin);
            machine.wake(below);
            machine.run_to(begin + 400);
            // Two pauses in every fourth job.
            let paused = if job % 4 == 0 { 150 } else { 0 };
            for _ in 0..2 {
                machine.scheduler.pause(machine.now);
                machine.now += paused;
                machine.scheduler.resume(machine.now);
            }
            machine.schedule();
            machine.run_to(begin + 800 + 2 * paused);
            let used = machine.scheduler.supply(server).unwrap().used;
            assert_eq!(used, (job + 1) * 800, "{shielding:?}: job {job}");
            let next = begin + 1600;
            let until = sleeps.then_some(next);
            machine.scheduler.block(task, machine.now, until).unwrap();
            machine.schedule();
            machine.run_to(machine.now + 200);
            machine.scheduler.block(below, machine.now, None).unwrap();
            machine.schedule();
            machine.run_to(next);
            machine.wake(task);
        }
    }
}

#[test]
fn a_pause_takes_nothing_of_a_non_preemptive_region() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let region = contract(50, 1000, 1).with_nonpreemptive(20).unwrap();
    let (_, low) = machine.server("low", region);
    let (_, high) = machine.server("high", contract(10, 1000, 2));
    machine.wake(low);
    machine.run_to(5);
    machine.scheduler.pause(5);
    machine.scheduler.wake(high, 30).unwrap();
    machine.now = 40;
    machine.scheduler.resume(40);
    machine.schedule();
    assert_eq!(
        (machine.last.run, machine.last.timer),
        (Some(low), Some(55))
    );
    machine.run_to(60);
    assert_eq!(machine.slices.last(), Some(&(55, 60, "high")));
}

#[test]
fn deferrable_servers_of_one_period_are_replenished_together_whenever_they_were_made() {
    let mut machine = Machine::new(config(Shielding::Shielded));
    let deferrable = contract(10, 100, 1).with_policy(Policy::Deferrable);
    for made in [0, 130, 170] {
        machine.run_to(made);
        let (server, task) = machine.server("a", deferrable);
        machine.wake(task);
        machine.run_to(made + 20);
        let boundary = (made / 100 + 1) * 100;
        let left = |now| machine.scheduler.budget_left(server, now).unwrap();
        assert_eq!((left(boundary - 1), left(boundary)), (0, 10));
    }
    let runs = [(0, 10), (100, 110), (130, 140), (170, 180)];
    assert_eq!(machine.slices, runs.map(|(from, to)| (from, to, "a")));
}

#[test]
fn a_server_that_is_served_late_has_missed_its_budget_from_the_instant_that_it_was_due() {
    for (policy, wakes) in [Policy::Sporadic, Policy::Deferrable]
        .into_iter()
        .flat_map(|policy| [(policy, true), (policy, false)])
    {
        let mut scheduler = Scheduler::new(common::config(Shielding::Shielded));
        let contract = contract(2, 10, 1).with_policy(policy);
        let server = scheduler.add_server(&contract, 0).unwrap();
        let task = scheduler.add_task(server).unwrap();
        if wakes {
            scheduler.block(task, 0, Some(10)).unwrap();
        } else {
            scheduler.wake(task, 0).unwrap();
            scheduler.schedule(0);
        }
        // Its budget is used up, or it sleeps; from 10 on it is due.
        scheduler.schedule(2);
        let misses = |scheduler: &Scheduler| scheduler.supply(server).unwrap().misses;
        // Something that nothing interrupts has the processor until 30.
        scheduler.settle(19);
        assert_eq!(misses(&scheduler), 0, "{policy:?}, {wakes}");
        scheduler.settle(29);
        assert_eq!(misses(&scheduler), 1, "{policy:?}, {wakes}");
        assert_eq!(scheduler.schedule(30).run, Some(task));
        assert_eq!(misses(&scheduler), 1, "{policy:?}, {wakes}");
        scheduler.block(task, 32, None).unwrap();
        scheduler.schedule(32);
        assert!(misses(&scheduler) <= 1, "{policy:?}, {wakes}");
    }
}

#[test]
fn a_late_constant_bandwidth_server_has_one_timer_however_many_budgets_it_goes_through() {
    let config = Config {
        order: Order::EarliestDeadline,
        ..common::config(Shielding::Shielded)
    };
    // 9 of 10 each: twice as much as there is.
    let set = |scheduler: &mut Scheduler| {
        [contract(9, 10, 0), contract(9, 10, 0)].map(|contract| {
            let server = scheduler.add_server(&contract, 0).unwrap();
            scheduler.add_task(server).unwrap()
        })
    };
    let mut scheduler = Scheduler::new(config);
    let [late, other] = set(&mut scheduler);
    scheduler.wake(late, 0).unwrap();
    scheduler.schedule(0);
    // A million nanoseconds later it goes through budgets until it has caught up with the time.
    scheduler.pause(0);
    scheduler.resume(1_000_000);
    let decision = scheduler.schedule(1_000_000);
    let end = decision.timer.expect("it catches up");
    assert_eq!(decision.run, Some(late));
    let decision = scheduler.schedule(end);
    assert!(decision.switched, "at {end}");
    // The first ends at 1,000,009, and has a deadline of 10; each other one gains one.
    assert_eq!(end, 1_000_009 + 9 * 1_000_000);

    // One that waits has its turn when the deadline of the late one is beyond its own.
    let mut scheduler = Scheduler::new(config);
    let [late, other_again] = set(&mut scheduler);
    assert_eq!(other, other_again);
    scheduler.wake(late, 0).unwrap();
    scheduler.schedule(0);
    scheduler.pause(0);
    scheduler.resume(1_000_000);
    scheduler.wake(other, 1_000_000).unwrap();
    let decision = scheduler.schedule(1_000_000);
    let end = decision.timer.expect("the other waits");
    let decision = scheduler.schedule(end);
    assert_eq!((decision.run, decision.switched), (Some(other), true));
    // That deadline is 1,000,010: as many budgets as the late one has deadlines up to there.
    assert_eq!(end, 1_000_000 + 9 * 100_001);
}

#[test]
fn time_ends_at_its_bound() {
    let mut scheduler = Scheduler::new(common::config(Shielding::Shielded));
    let server = scheduler.add_server(&contract(2, 10, 1), 0).unwrap();
    let task = scheduler.add_task(server).unwrap();
    scheduler.block(task, 0, Some(Nanos::MAX)).unwrap();
    assert_eq!(scheduler.schedule(5).timer, None);
    scheduler.wake(task, Nanos::MAX).unwrap();
    let decision = scheduler.schedule(Nanos::MAX);
    assert_eq!(decision.timer, Some(INSTANT_MAX + 2));
    assert_eq!(scheduler.schedule(Nanos::MAX).timer, Some(INSTANT_MAX + 2));
}
