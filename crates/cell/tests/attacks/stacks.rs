//! Stacks of the size that a lease states: limited, charged, given back.

use super::common::{captured, cell, guest, lease, profile, run};
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::stack::STACK_PAGES;
use leasehold_cell::{
    Cell, CellConfig, Ended, Exit, Lease, StackClass, StartError, StartRequest, Surroundings,
};
use leasehold_lease::ByteSize;

/// A lease with a stack of so many KiB.
fn with_stack(kib: u64) -> Lease {
    let mut lease = lease(1_000_000, 1 << 20);
    lease.memory.stack = ByteSize::new(kib << 10).expect("in range");
    lease
}

/// Calls itself so many times, one inside the other. A frame has 16 bytes.
fn descends(calls: u64) -> String {
    format!(
        r#"(module (func $descend (param $n i64)
            (if (i64.eqz (local.get $n)) (then (return)))
            (call $descend (i64.sub (local.get $n) (i64.const 1))))
          (func (export "_start") (call $descend (i64.const {calls}))))"#
    )
}

fn end_of(cell: &Cell, text: &str, lease: Lease) -> Ended {
    let program = cell
        .compile_for(text.as_bytes(), &lease)
        .expect("a program");
    run(cell, program, lease, Surroundings::default()).0
}

fn host_pages(ended: &Ended) -> u64 {
    let statement = &ended.statement;
    let rows = statement.rows.iter().filter(|row| row.name == "host_page");
    rows.map(|row| row.count).sum()
}

#[test]
fn a_guest_has_the_stack_that_its_lease_says_and_no_more_and_pays_for_all_of_it() {
    let cell = cell();
    let least = host_pages(&end_of(&cell, &descends(1), with_stack(512)));
    for (kib, class) in [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536]
        .into_iter()
        .zip(StackClass::all())
    {
        assert_eq!(class.guest_bytes() as u64, kib << 10);
        let frames = (kib << 10) / 16;
        let within = end_of(&cell, &descends(frames - 1_000), with_stack(kib));
        assert_eq!(within.exit, Exit::Code(0), "{kib} KiB");
        let beyond = end_of(&cell, &descends(frames + 1_000), with_stack(kib));
        let Exit::Trap(message) = &beyond.exit else {
            panic!("{kib} KiB: {:?}", beyond.exit)
        };
        assert!(message.contains("call stack exhausted"), "{message}");
        // What is beyond a stack of the smallest class.
        let more = class.pages() - STACK_PAGES;
        assert_eq!(host_pages(&within), least + more as u64, "{kib} KiB");
        assert!(within.reclaimed.pages <= (class.pages() + 4096) as u64);
        assert!(within.reclaimed.pages >= class.pages() as u64, "{kib} KiB");
    }
    // The smallest class that is large enough.
    assert_eq!(
        end_of(&cell, &descends(250_000), with_stack(3_000)).exit,
        Exit::Code(0)
    );
}

#[test]
fn a_stack_that_the_lease_does_not_pay_for_is_refused_with_nothing_left_behind() {
    let cell = cell();
    let start = |lease: Lease| {
        let program = cell
            .compile_for(descends(1).as_bytes(), &lease)
            .expect("a program");
        let handle = cell.start_tenant(captured(program, "guest", &[], lease).0);
        handle.map(|handle| handle.wait().expect("an end").exit)
    };
    let mut no_room = with_stack(64 << 10);
    no_room.memory.host = ByteSize::new(100 << 20);
    let Err(StartError::Lease { reason }) = start(no_room) else {
        panic!("started")
    };
    assert!(reason.contains("memory.host"), "{reason}");
    // 0.6 us for each of 32,896 pages.
    let mut no_budget = with_stack(64 << 10);
    no_budget.reclaim.budget = "10ms".parse().expect("a time");
    let Err(StartError::Lease { reason }) = start(no_budget) else {
        panic!("started")
    };
    assert!(reason.contains("reclaim.budget"), "{reason}");
    no_budget.reclaim.budget = "25ms".parse().expect("a time");
    assert_eq!(start(no_budget).expect("it is paid for"), Exit::Code(0));
}

#[test]
fn a_program_is_not_run_on_another_stack_than_it_was_compiled_for() {
    let cells = [cell(), cell()];
    let lease = with_stack(1024);
    let start = |cell: &Cell, program, lease| {
        let (request, _): (StartRequest, _) = captured(program, "guest", &[], lease);
        cell.start_tenant(request).map(|_| ())
    };
    let program = cells[0].compile(descends(1).as_bytes()).expect("a program");
    let Err(StartError::Program(why)) = start(&cells[0], program.clone(), lease) else {
        panic!("started")
    };
    assert!(why.contains("524288") && why.contains("1048576"), "{why}");
    let Err(StartError::Program(why)) = start(&cells[1], program, with_stack(512)) else {
        panic!("started")
    };
    assert!(why.contains("another cell"), "{why}");
}

#[test]
fn guests_of_every_class_are_preempted_by_either_mechanism() {
    for mechanism in [Mechanism::Injected, Mechanism::Epochs] {
        let mut config = CellConfig::new(profile());
        config.preemption = mechanism;
        let cell = Cell::start(config).expect("a cell");
        let spinning: Vec<_> = [512, 1024, 65_536]
            .map(|kib| {
                let lease = with_stack(kib);
                let program = cell.load_for(&guest("spin.wasm"), &lease).expect("a guest");
                let (request, output) = captured(program, "spin.wasm", &[], lease);
                (cell.start_tenant(request).expect("a tenant"), output)
            })
            .into();
        for (tenant, output) in &spinning {
            super::common::until("ready", || output.bytes().starts_with(b"ready"));
            assert!(tenant.statement().is_some());
        }
        for (tenant, _) in &spinning {
            tenant.kill();
            assert_eq!(tenant.wait().expect("an end").exit, Exit::Killed);
        }
    }
}

#[test]
fn a_guest_that_is_killed_at_the_bottom_of_its_stack_leaves_nothing_of_it() {
    let cell = cell();
    let text = descends(4_000_000).replace("(return)", "(loop $l (br $l))");
    let text = text.replace(
        "(func (export \"_start\")",
        "(func (export \"_start\") (local i64)",
    );
    for _ in 0..5 {
        let lease = with_stack(64 << 10);
        let program = cell
            .compile_for(text.as_bytes(), &lease)
            .expect("a program");
        let tenant = cell.start_tenant(captured(program, "guest", &[], lease).0);
        let tenant = tenant.expect("a tenant");
        std::thread::sleep(std::time::Duration::from_millis(30));
        tenant.kill();
        let ended = tenant.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Killed);
        assert!(ended.reclaimed.pages >= StackClass::LARGEST.pages() as u64);
    }
}

#[test]
fn ten_thousand_frames_are_unwound_on_a_larger_stack() {
    let text = super::exceptions::unwinder(60_000, false);
    assert_eq!(
        end_of(&cell(), &text, with_stack(8 << 10)).exit,
        Exit::Code(0)
    );
}
