//! The examples of SPR §III, with the tasks of table I and the instants that its text names.

mod common;

use common::{Machine, config, contract};
use leasehold_reserve::{Contract, Shielding, State};

const HI: u8 = 3;
const MID: u8 = 2;
const LO: u8 = 1;

fn table_i() -> [Contract; 3] {
    [
        contract(10, 30, HI),
        contract(20, 40, MID),
        contract(10, 60, LO),
    ]
}

/// When timers fired that switched nothing, eager and shielded, and when all fired that were
/// shielded.
fn useless(play: impl Fn(&mut Machine)) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let [eager, shielded] = [Shielding::Eager, Shielding::Shielded].map(|shielding| {
        let mut machine = Machine::new(config(shielding));
        play(&mut machine);
        machine
    });
    assert_eq!(eager.slices, shielded.slices, "the same schedule");
    (eager.idle_fires, shielded.idle_fires, shielded.fired)
}

#[test]
fn fig_2a_a_replenishment_of_the_task_that_runs_is_no_timer() {
    let (eager, shielded, _) = useless(|machine| {
        let [_, mid, _] = table_i();
        let (_, mid) = machine.server("mid", mid);
        // Ten units are used from 0 on and ten from 10 on.
        machine.wake(mid);
        machine.run_to(10);
        machine.block(mid, None);
        machine.wake(mid);
        machine.run_to(70);
        assert_eq!(machine.slices, [(0, 20, "mid"), (40, 60, "mid")]);
    });
    assert_eq!((eager, shielded), (vec![50], vec![]));
}

#[test]
fn fig_2b_and_4_a_depleted_task_is_not_activated_before_its_replenishment() {
    let (eager, shielded, fired) = useless(|machine| {
        let [hi, ..] = table_i();
        let (_, hi) = machine.server("hi", hi);
        machine.wake(hi);
        machine.run_to(9);
        // It completes as its budget ends.
        machine.now = 10;
        machine.slices = vec![(0, 10, "hi")];
        machine.block(hi, Some(20));
        machine.run_to(35);
    });
    assert_eq!((eager, shielded, fired), (vec![20], vec![], vec![30]));
}

#[test]
fn fig_2c_a_completed_task_is_not_replenished_before_its_activation() {
    let (eager, shielded, fired) = useless(|machine| {
        let [_, _, lo] = table_i();
        let (_, lo) = machine.server("lo", lo);
        machine.wake(lo);
        machine.run_to(5);
        machine.block(lo, Some(70));
        machine.run_to(75);
    });
    assert_eq!((eager, shielded, fired), (vec![60], vec![], vec![70]));
}

#[test]
fn fig_2de_and_5_timeouts_of_others_wait_for_the_more_important_task() {
    let (eager, shielded, fired) = useless(|machine| {
        let [hi, mid, lo] = table_i();
        let (_, hi) = machine.server("hi", hi);
        let (_, mid) = machine.server("mid", mid);
        let (_, lo) = machine.server("lo", lo);
        // One waits for budget at 40, the other for its activation at 41.
        machine.wake(mid);
        machine.run_to(20);
        machine.scheduler.block(lo, 20, Some(41)).unwrap();
        machine.schedule();
        machine.run_to(35);
        machine.wake(hi);
        machine.run_to(45);
        machine.block(hi, None);
        machine.run_to(70);
        let runs = [
            (0, 20, "mid"),
            (35, 45, "hi"),
            (45, 65, "mid"),
            (65, 70, "lo"),
        ];
        assert_eq!(machine.slices, runs);
    });
    assert_eq!((eager, shielded), (vec![40, 41], vec![]));
    assert_eq!(fired, [20, 45, 65]);
}

#[test]
fn an_overrun_is_taken_off_the_next_budget_unless_a_period_was_slept_through() {
    for (wake, left) in [(35, 8), (59, 8), (60, 10), (90, 10)] {
        let mut machine = Machine::new(config(Shielding::Shielded));
        let [hi, ..] = table_i();
        let (server, hi) = machine.server("hi", hi);
        machine.wake(hi);
        // The timer of 10 is two units late, and the task blocks at once.
        machine.now = 12;
        machine.block(hi, None);
        assert_eq!(machine.scheduler.overrun(server), Ok(2));
        machine.now = wake;
        machine.wake(hi);
        // What came back at 30 and was used then comes back at 60 (SPR §IV-C).
        assert_eq!(machine.scheduler.budget_left(server, wake), Ok(left));
    }
}

#[test]
fn fig_3_budget_that_comes_back_while_a_task_runs_needs_no_timer() {
    let [hi, mid, _] = table_i();
    let mut machine = Machine::new(config(Shielding::Shielded));
    let (_, hi) = machine.server("hi", hi);
    let (server, mid) = machine.server("mid", mid);
    machine.scheduler.block(hi, 0, Some(90)).unwrap();
    // Ten units from 0 on, and ten from 10 on: they come back at 40 and at 50.
    machine.wake(mid);
    machine.run_to(10);
    machine.block(mid, None);
    machine.wake(mid);
    machine.run_to(20);
    assert_eq!(machine.scheduler.state(server), Ok(State::Depleted));
    // At 40, what comes back at 50 is certain: the only timer is at 60.
    machine.run_to(40);
    assert_eq!(machine.last.timer, Some(60));
    // What was used from 50 on comes back at 90, and at 80 that is certain again: without the
    // other task the budget would last until 100.
    machine.run_to(80);
    assert_eq!(machine.last.timer, Some(90));
    machine.run_to(110);
    assert_eq!(
        machine.slices,
        [
            (0, 20, "mid"),
            (40, 60, "mid"),
            (80, 90, "mid"),
            (90, 100, "hi"),
            (100, 110, "mid"),
        ]
    );
    assert!(machine.idle_fires.is_empty());
}

#[test]
fn fig_6_a_region_of_6_leaves_one_preemption_of_a_budget_of_10() {
    for (nonpreemptive, preemptions) in [(0, 3), (6, 1)] {
        let mut machine = Machine::new(config(Shielding::Shielded));
        let (_, hi) = machine.server("hi", contract(10, 30, HI));
        let lo_contract = contract(10, 60, LO)
            .with_nonpreemptive(nonpreemptive)
            .unwrap();
        let (lo_server, lo) = machine.server("lo", lo_contract);
        machine.wake(lo);
        // The other wakes up two units after it went to sleep, and runs for one.
        for _ in 0..3 {
            machine
                .scheduler
                .block(hi, machine.now, Some(machine.now + 2))
                .unwrap();
            machine.schedule();
            while machine.last.run != Some(hi) {
                machine.run_to(machine.now + 1);
            }
            machine.run_to(machine.now + 1);
        }
        machine.block(hi, None);
        machine.run_to(60);
        let supply = machine.scheduler.supply(lo_server).unwrap();
        assert_eq!((supply.used, supply.preemptions), (10, preemptions));
    }
}
