//! The guarantees of tenants that share a processor.

mod common;

use common::{Started, begin, cell, lease, start, until};
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::{
    Cell, CellConfig, Destination, Exit, Lease, Order, Output, ProcessorState, Shielding,
    StartError, Supply,
};
use leasehold_lease::ByteSize;
use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;

/// Returns a lease for a small guest with a processor reservation in the form of `--cpu`.
fn reserved(cpu: &str) -> Lease {
    Lease {
        cpu: Some(cpu.parse().expect("a reservation")),
        ..lease(50_000, 1 << 20)
    }
}

fn background() -> Lease {
    lease(50_000, 1 << 20)
}

fn spin(cell: &Cell, lease: Lease) -> Started {
    let started = start(cell, "spin.wasm", &[], lease);
    started.wait_for("ready");
    started
}

fn supply(tenant: &Started) -> Supply {
    tenant.handle.processor().expect("alive").supply
}

/// Checks that a tenant has received at most 3 ms in every period of 15 ms. A deferrable server can
/// have one budget more at the start, and the overrun of the last period is still to be subtracted.
fn no_more_than_3_of_15_ms(supply: &Supply, began: Instant) {
    let periods = began.elapsed().as_nanos() as u64 / (15 * MS) + 1;
    assert!(
        supply.used <= (periods + 1) * 3 * MS + supply.overrun_max,
        "{supply:?} in {periods} periods"
    );
}

#[test]
fn a_tenant_that_spins_gets_its_budget_in_every_period_and_no_more() {
    for policy in ["sporadic", "deferrable"] {
        let cell = cell();
        let began = Instant::now();
        let cpu = format!("budget=3ms,period=15ms,policy={policy}");
        let tenant = spin(&cell, reserved(&cpu));
        until("it has had 12 budgets", || {
            supply(&tenant).used >= 12 * 3 * MS
        });
        let supply = supply(&tenant);
        no_more_than_3_of_15_ms(&supply, began);
        assert!(supply.depletions > 0, "each was used up: {supply:?}");
        assert_eq!(tenant.kill().exit, Exit::Killed);
    }
}

#[test]
fn tenants_without_a_reservation_share_what_is_left() {
    let cell = cell();
    let tenant = spin(&cell, reserved("budget=5ms,period=10ms"));
    let others = [spin(&cell, background()), spin(&cell, background())];
    let used = |tenants: &[Started; 2]| [0, 1].map(|n| supply(&tenants[n]).used);
    let began = used(&others);
    let depletions = supply(&tenant).depletions;
    until("both ran", || {
        let now = used(&others);
        now[0] - began[0] > 40 * MS && now[1] - began[1] > 40 * MS
    });
    assert!(
        supply(&tenant).depletions > depletions,
        "the reservation is served meanwhile"
    );
    let left = others[0].handle.processor().expect("alive").budget_left_ns;
    assert_eq!(left, None, "nothing was reserved");
}

#[test]
fn a_depleted_tenant_does_not_run_though_the_processor_is_idle() {
    let cell = cell();
    // Enough to be started with, on a busy machine.
    let tenant = spin(&cell, reserved("budget=20ms,period=3600s"));
    until("depleted", || {
        let processor = tenant.handle.processor().expect("alive");
        processor.state == ProcessorState::Depleted
    });
    let used = supply(&tenant).used;
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(supply(&tenant).used, used);
    assert_eq!(
        tenant.handle.processor().expect("alive").budget_left_ns,
        Some(0)
    );
}

#[test]
fn all_tasks_and_descendants_of_a_tenant_run_on_its_one_reservation() {
    let cell = cell();
    let arguments = ["2", "2", "spin", "64", "run"];
    let lease = Lease {
        cpu: Some("budget=2ms,period=20ms".parse().expect("a reservation")),
        ..lease(500_000, 1 << 20)
    };
    let began = Instant::now();
    let tenant = start(&cell, "tenant-tree.wasm", &arguments, lease);
    until("depleted", || supply(&tenant).depletions >= 10);
    let supply = supply(&tenant);
    let periods = began.elapsed().as_nanos() as u64 / (20 * MS) + 1;
    assert!(
        supply.used <= periods * 2 * MS + supply.overrun_max,
        "{supply:?} in {periods} periods"
    );
}

#[test]
fn a_tenant_pays_for_its_own_end() {
    let cell = cell();
    // 32 MiB of pages take some milliseconds to give back: several periods at 200 µs in each.
    let hostile = start(
        &cell,
        "page-scatterer.wasm",
        &["33554432", "4096", "sleep"],
        reserved("budget=200us,period=20ms,priority=200"),
    );
    hostile.wait_for("ready");
    let neighbour = spin(&cell, background());
    let used = supply(&neighbour).used;
    let ended = hostile.kill();
    assert_eq!(ended.exit, Exit::Killed);
    let reclaimed = ended.reclaimed;
    assert!(reclaimed.pages >= 8192, "{reclaimed:?}");
    if reclaimed.returned.cpu_ns > MS {
        assert!(
            reclaimed.returned.wall_ns > 2 * 20 * MS,
            "the end took {reclaimed:?}, on more than one budget"
        );
    }
    assert!(
        supply(&neighbour).used > used,
        "its neighbour ran meanwhile, though of lower priority"
    );
}

#[test]
fn without_a_reservation_pages_go_back_in_half_of_the_time_at_the_most() {
    let cell = cell();
    let end = |cpu: Option<&str>, bytes: &str| {
        let lease = Lease {
            cpu: cpu.map(|cpu| cpu.parse().expect("a reservation")),
            ..lease(2_000_000, 2 << 20)
        };
        let tenant = start(
            &cell,
            "page-scatterer.wasm",
            &[bytes, "4096", "sleep"],
            lease,
        );
        tenant.wait_for("ready");
        tenant.kill().reclaimed
    };
    let (large, small) = ("134217728", "65536");

    let reclaimed = end(None, large);
    let spent = reclaimed.returned.cpu_ns - reclaimed.reusable.cpu_ns;
    let passed = reclaimed.returned.wall_ns - reclaimed.reusable.wall_ns;
    // At once as much as a turn is long, and a step more.
    assert!(2 * spent < passed + 2 * MS, "{reclaimed:?}");
    assert!(
        reclaimed.pauses > 0 || spent < 2 * MS,
        "32,768 pages are more than goes back at once: {reclaimed:?}"
    );

    let reclaimed = end(None, small);
    let passed = reclaimed.returned.wall_ns - reclaimed.reusable.wall_ns;
    assert!(
        reclaimed.pauses == 0 || passed > MS,
        "few pages wait for nothing: {reclaimed:?}"
    );

    let reclaimed = end(Some("budget=9ms,period=10ms"), large);
    assert_eq!(reclaimed.pauses, 0, "its budget says how fast");
}

#[test]
fn a_tenant_pays_for_its_own_start() {
    let cell = cell();
    let tenant = common::start_held(
        &cell,
        "hello.wasm",
        &["Ada"],
        reserved("budget=5ms,period=50ms,priority=7"),
    );
    let before = supply(&tenant);
    assert!(
        before.used > 0 && before.dispatches > 0,
        "it was built in turns of its own: {before:?}"
    );
    tenant.handle.go();
    let ended = tenant.handle.wait().expect("it ends");
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(
        ended.supply.used > before.used,
        "running and ending are its own as well: {:?}",
        ended.supply
    );
}

#[test]
fn a_start_that_fails_leaves_its_reservation_to_others() {
    let cell = cell();
    let most = "budget=6ms,period=10ms";
    for _ in 0..20 {
        let mut lease = reserved(most);
        lease.reclaim.budget = leasehold_lease::Nanoseconds::new(1000).expect("a microsecond");
        let refused = common::try_start(&cell, "spin.wasm", lease);
        assert!(matches!(
            refused,
            Err(leasehold_cell::StartError::Lease { .. })
        ));
    }
    // The end of the last one may not be over when its refusal is heard of.
    until("there is room", || {
        common::try_start(&cell, "spin.wasm", reserved(most)).is_ok()
    });
}

#[test]
fn a_full_cell_says_so_and_does_not_blame_the_lease() {
    let mut config = leasehold_cell::CellConfig::new(common::profile());
    config.max_memories = 8;
    let cell = Cell::start(config).expect("a cell");
    let mut started = Vec::new();
    let refused = loop {
        assert!(started.len() <= 8, "there were places for 8 programs");
        match common::try_start(&cell, "spin.wasm", background()) {
            Ok(tenant) => started.push(tenant),
            Err(refused) => break refused,
        }
    };
    assert!(
        matches!(refused, leasehold_cell::StartError::Full(_)),
        "{refused}"
    );
    assert!(!started.is_empty());
}

#[test]
fn a_tenant_that_wakes_up_preempts_one_of_lower_priority() {
    let cell = cell();
    let probe = start(
        &cell,
        "latency-probe.wasm",
        &["5000000", "20"],
        reserved("budget=1ms,period=5ms,priority=100"),
    );
    let other = spin(&cell, reserved("budget=7ms,period=10ms,priority=1"));
    probe.wait_for("late 20");
    let text = probe.text();
    let median = text
        .split("late 20 ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let median: u64 = median
        .and_then(|median| median.parse().ok())
        .expect("a number");
    assert!(
        median > 0,
        "its sleeps last until the instant that it asked for"
    );
    assert!(supply(&other).preemptions > 0);
    assert!(supply(&probe).activations > 1);
}

/// Takes what is written to it when it is allowed to.
struct Gated(Receiver<()>);

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The test may have ended.
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_tenant_that_waited_for_its_output_preempts_one_of_lower_priority_when_it_is_out() {
    let cell = cell();
    let (allow, gate) = channel();
    let program = cell.load(&common::guest("matrix.wasm")).expect("loads");
    // It never sleeps: but for the time in which its output waits, it would run.
    let (mut request, _) = common::captured(
        program,
        "matrix",
        &["1"],
        reserved("budget=2ms,period=10ms,priority=100"),
    );
    request.surroundings.stdout = Output::To(Destination::new("gated", Gated(gate)));
    let writer = cell.start_tenant(request).expect("starts");
    let processor = || writer.processor().expect("alive");
    until("it waits for its output", || {
        processor().state == ProcessorState::Blocked
    });
    let other = spin(&cell, reserved("budget=7ms,period=10ms,priority=1"));
    let (dispatches, preemptions) = (processor().supply.dispatches, supply(&other).preemptions);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(processor().supply.dispatches, dispatches, "it still waits");
    until("it has preempted the other one", || {
        let _ = allow.send(());
        supply(&other).preemptions > preemptions
    });
    assert!(processor().supply.dispatches > dispatches);
}

#[test]
fn host_calls_are_charged_to_the_tenant_that_makes_them() {
    let cell = cell();
    let other = spin(&cell, background());
    let began = Instant::now();
    // It reads the clock and does nothing else.
    let caller = start(
        &cell,
        "gap-probe.wasm",
        &["20000000", "20000000", "1000"],
        reserved("budget=3ms,period=15ms"),
    );
    caller.wait_for("ready");
    // What is not charged to the caller is left to the other one, and that is most; unless the host is so busy
    // that it takes most of both, which it does not do all the time.
    until(
        "the other one has most of the time that 12 budgets take",
        || {
            let before = (supply(&caller).used, supply(&other).used);
            until("it has had 12 budgets", || {
                supply(&caller).used >= before.0 + 12 * 3 * MS
            });
            let of_caller = supply(&caller);
            no_more_than_3_of_15_ms(&of_caller, began);
            supply(&other).used - before.1 > 2 * (of_caller.used - before.0)
        },
    );
}

#[test]
fn a_cell_runs_out_of_places_for_tenants_without_harm() {
    let mut config = CellConfig::new(common::profile());
    config.max_tenants = 2;
    let cell = Cell::start(config).expect("a cell");
    let first = spin(&cell, background());
    let second = spin(&cell, reserved("budget=1ms,period=10ms"));
    let refused = common::try_start(&cell, "spin.wasm", background());
    assert!(
        matches!(refused, Err(leasehold_cell::StartError::Processor(_))),
        "no third place"
    );
    second.kill();
    spin(&cell, background());
    first.kill();
}

#[test]
fn a_task_woken_by_a_guest_that_runs_on_gets_a_turn() {
    let cell = cell();
    let client = common::start_held(&cell, "delegator.wasm", &["10", "spin"], background());
    let service = common::start_held(&cell, "service.wasm", &["keep"], background());
    cell.connect(&client.handle, &service.handle, 4096, 4)
        .expect("connected");
    service.handle.go();
    // It waits for the first message before there is a sender.
    service.wait_for("ready");
    let before = supply(&service).dispatches;
    client.handle.go();
    until("the service has run", || {
        supply(&service).dispatches > before
    });
}

#[test]
fn tasks_that_hand_over_to_each_other_leave_other_tenants_their_turns() {
    let cell = cell();
    let relay = start(&cell, "relay.wasm", &["3"], lease(500_000, 1 << 20));
    relay.wait_for("ready");
    let before = supply(&relay).used;
    // It is built, runs and ends in its own processor time.
    let other = spin(&cell, background());
    until("the other has had twenty turns", || {
        supply(&other).used >= 20 * MS
    });
    assert_eq!(other.kill().exit, Exit::Killed);
    assert!(supply(&relay).used > before, "and so has it");
    assert_eq!(relay.kill().exit, Exit::Killed);
}

#[test]
fn by_deadlines_tenants_that_spin_get_their_budgets_in_every_period_and_no_more() {
    let mut config = CellConfig::new(common::profile());
    config.order = Order::EarliestDeadline;
    let cell = Cell::start(config).expect("a cell");
    let began = Instant::now();
    // By their priorities, which are equal, the second could not be admitted: 3 + 14 > 15.
    let other = spin(&cell, reserved("budget=14ms,period=21ms"));
    let tenant = spin(&cell, reserved("budget=3ms,period=15ms"));
    let refused = common::try_start(&cell, "spin.wasm", reserved("budget=3ms,period=15ms"));
    assert!(refused.is_err(), "that is more than the processor");
    until("each has had 12 budgets", || {
        supply(&tenant).used >= 12 * 3 * MS && supply(&other).used >= 12 * 14 * MS
    });
    no_more_than_3_of_15_ms(&supply(&tenant), began);
    assert_eq!(tenant.kill().exit, Exit::Killed);
    assert_eq!(other.kill().exit, Exit::Killed);
}

#[test]
fn a_cell_with_epochs_admits_with_the_time_in_which_the_frames_of_a_stack_are_left() {
    let deep = || {
        let mut lease = background();
        lease.memory.stack = ByteSize::new(64 << 20).expect("in range");
        lease
    };
    for (mechanism, is_admitted) in [(Mechanism::Injected, true), (Mechanism::Epochs, false)] {
        let mut config = CellConfig::new(common::profile());
        config.preemption = mechanism;
        let cell = Cell::start(config).expect("a cell");
        let fast = spin(&cell, reserved("budget=1ms,period=5ms,priority=9"));
        let deep = common::try_start(&cell, "spin.wasm", deep());
        match is_admitted {
            true => drop(deep.expect("a deep stack is no step")),
            false => assert!(
                matches!(deep, Err(leasehold_cell::StartError::Processor(_))),
                "{mechanism:?}"
            ),
        }
        assert_eq!(fast.kill().exit, Exit::Killed);
    }
}

#[test]
fn a_reservation_that_cannot_be_kept_is_refused_and_costs_the_others_nothing() {
    let cell = cell();
    let first = spin(&cell, reserved("budget=6ms,period=10ms,priority=2"));
    for _ in 0..3 {
        let refused = common::try_start(
            &cell,
            "spin.wasm",
            reserved("budget=5ms,period=10ms,priority=1"),
        );
        assert!(matches!(
            refused,
            Err(leasehold_cell::StartError::Processor(_))
        ));
    }
    // A host step of either may delay the other.
    let second = spin(&cell, reserved("budget=3800us,period=10ms,priority=1"));
    first.kill();
    // What an ended tenant had reserved can be reserved again.
    spin(&cell, reserved("budget=6ms,period=10ms,priority=3"));
    second.kill();
}

#[test]
fn many_tenants_with_small_budgets_start_while_all_of_them_attack() {
    const TENANTS: u32 = 256;
    for shielding in [Shielding::Eager, Shielding::Shielded] {
        let mut config = CellConfig::new(common::profile());
        config.shielding = shielding;
        // A host step may take five of these budgets: nothing is promised to so many of them.
        config.admission = false;
        let cell = Cell::start(config).expect("a cell");
        let attackers: Vec<_> = (0..TENANTS)
            .map(|_| {
                let lease = reserved("budget=20us,period=10ms");
                common::begin(&cell, "thundering-herd.wasm", &["10000000"], lease)
            })
            .collect();
        let attackers: Vec<Started> = attackers.into_iter().map(|begun| begun.wait()).collect();
        for attacker in attackers {
            attacker.wait_for("ready");
        }
    }
}

#[test]
fn a_kill_ends_a_start_and_the_one_who_waits_for_it_is_told() {
    let cell = cell();
    // It takes some 100 us: many periods of this.
    let lease = reserved("budget=10us,period=5s");
    let refused = begin(&cell, "spin.wasm", &[], lease).kill();
    assert!(matches!(refused, Some(StartError::Killed)), "{refused:?}");
}
