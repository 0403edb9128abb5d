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
