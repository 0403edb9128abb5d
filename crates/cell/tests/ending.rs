//! A tenant can be ended at any instant, within what was charged, and leaves nothing behind.

mod common;

use common::{Started, cell, guest, lease, start, start_held, try_start, until};
use leasehold_cell::profile::Profile;
use leasehold_cell::stack::STACK_PAGES;
use leasehold_cell::steps::CEILING_NS;
use leasehold_cell::steps::caps;
use leasehold_cell::{
    Cell, CellConfig, Ended, Exit, Lease, ProcessorState, StartError, StartRequest, Surroundings,
};
use leasehold_lease::ByteSize;
use std::time::Duration;

/// Checks what holds for every end.
fn check(ended: &Ended, lease: Lease) {
    let reclaimed = &ended.reclaimed;
    assert!(
        reclaimed.predicted_ns <= lease.reclaim.budget.get(),
        "charged {} of {} ns",
        reclaimed.predicted_ns,
        lease.reclaim.budget.get()
    );
    let statement = &ended.statement;
    assert!(statement.charged.0 + statement.carved.0 <= statement.budget.0);
    let pages = statement.rows.iter().find(|row| row.name == "memory_page");
    let charged_pages = pages.map_or(0, |row| row.count);
    // What is given back besides memory pages is a stack, and the arena's pages.
    assert!(
        reclaimed.pages <= charged_pages + 256 + 65_536,
        "{reclaimed:?}"
    );
}

#[test]
fn hostile_guests_are_ended_within_their_charge_after_their_damage() {
    let cell = cell();
    let lease = lease(2_000_000, 2 << 20);
    for (guest, args) in [
        ("object-bomb.wasm", &["semaphore", "100000", "spin"][..]),
        ("object-bomb.wasm", &["channel", "2000", "sleep"]),
        ("object-bomb.wasm", &["region", "2000", "spin"]),
        ("object-bomb.wasm", &["timer", "100000", "sleep"]),
        ("object-bomb.wasm", &["task", "20", "spin"]),
        ("object-bomb.wasm", &["capability", "100000", "spin"]),
        ("object-bomb.wasm", &["tenant", "500", "spin"]),
        ("page-scatterer.wasm", &["67108864", "4096", "spin"]),
        ("timer-bomb.wasm", &["100000", "sleep"]),
        ("timer-bomb-p2.wasm", &["50000", "spin"]),
        ("blocker.wasm", &["20", "spin"]),
        ("tenant-tree.wasm", &["3", "3", "spin"]),
        ("table-bomb.wat", &[]),
        ("instance-bomb.wat", &[]),
        ("copy.wat", &[]),
        ("fill.wat", &[]),
    ] {
        let tenant = start(&cell, guest, args, lease);
        tenant.wait_for("ready");
        let ended = tenant.kill();
        assert_eq!(
            ended.exit,
            Exit::Killed,
            "{guest} {args:?}: {}",
            tenant.text()
        );
        check(&ended, lease);
    }
}

#[test]
fn a_tenant_is_ended_at_any_instant_from_its_start_on() {
    let cell = cell();
    let lease = lease(1_000_000, 1 << 20);
    for guest in [
        "spin.wasm",
        "hello-p2.wasm",
        "object-bomb.wasm",
        "start-loop.wat",
    ] {
        for microseconds in (0..400).step_by(20) {
            let args = ["semaphore", "1000", "spin"];
            let tenant = start(&cell, guest, &args, lease);
            std::thread::sleep(Duration::from_micros(microseconds));
            check(&tenant.kill(), lease);
        }
    }
}

#[test]
fn a_guest_that_asks_for_more_than_its_lease_is_refused_and_goes_on() {
    let cell = cell();
    let tight = lease(2_000, 64 << 10);
    for args in [
        ["semaphore", "0", "exit"],
        ["tenant", "0", "exit"],
        ["region", "0", "exit"],
    ] {
        let tenant = start(&cell, "object-bomb.wasm", &args, tight);
        let ended = tenant.handle.wait().expect("ends");
        assert_eq!(ended.exit, Exit::Code(0), "{args:?}");
        assert!(
            tenant.text().contains("refused"),
            "{args:?}: {}",
            tenant.text()
        );
        check(&ended, tight);
    }
}

#[test]
fn the_hosts_memory_is_limited_for_a_tenant_in_total() {
    let cell = cell();
    // Each task has a stack and may have a call in flight, whatever the budget pays for.
    let mut small = lease(2_000_000, 8 << 10);
    small.memory.host = ByteSize::new(16 << 20);
    let tenant = start(&cell, "object-bomb.wasm", &["task", "200", "spin"], small);
    tenant.wait_for("ready");
    let statement = tenant.kill().statement;
    let stores = statement.rows.iter().find(|row| row.name == "store");
    let stores = stores.expect("charged").count;
    assert!(
        (2..=11).contains(&stores),
        "{stores} stacks of 1.5 MiB in 16 MiB"
    );

    let mut tiny = lease(2_000_000, 8 << 10);
    tiny.memory.host = ByteSize::new(64 << 10);
    let refused = try_start(&cell, "object-bomb.wasm", tiny)
        .err()
        .expect("refused");
    assert!(refused.to_string().contains("memory.host"), "{refused}");
}

#[test]
fn memory_beyond_the_reservation_is_refused() {
    let cell = cell();
    let lease = lease(1_000_000, 8 << 10);
    let tenant = start(
        &cell,
        "page-scatterer.wasm",
        &["1073741824", "4096", "exit"],
        lease,
    );
    let ended = tenant.handle.wait().expect("ends");
    let statement = ended.statement;
    let pages = statement
        .rows
        .iter()
        .find(|row| row.name == "memory_page")
        .expect("charged");
    assert!(
        pages.count <= 2048,
        "{} pages of a reservation of 2048",
        pages.count
    );
    assert!(
        pages.count > 1900,
        "only {} pages of a reservation of 2048",
        pages.count
    );
}

#[test]
fn a_budget_smaller_than_an_empty_tenant_is_refused_with_nothing_left_behind() {
    let cell = cell();
    let program = cell.load(&guest("hello.wasm")).expect("loads");
    let request = |budget_us| StartRequest {
        program: program.clone(),
        lease: lease(budget_us, 16 << 10),
        surroundings: Surroundings::default(),
    };
    for budget_us in [1, 50, 100, 120, 150] {
        let refused = cell
            .start_tenant(request(budget_us))
            .err()
            .expect("refused")
            .to_string();
        assert!(refused.contains("`reclaim.budget` is "), "{refused}");
    }
    let ended = cell
        .start_tenant(request(5_000))
        .expect("starts")
        .wait()
        .expect("ends");
    assert_eq!(ended.exit, Exit::Code(0));
}

/// A program of two memories with `first` and `second` pages of 64 KiB.
fn two_memories(first: u32, second: u32) -> String {
    format!(
        r#"(module (memory (export "memory") {first}) (memory {second}) (func (export "_start")))"#
    )
}

#[test]
fn a_program_whose_second_memory_is_not_paid_for_is_refused_before_it_has_the_first() {
    let cell = cell();
    // Two leases that pay for either memory and not for both: by bytes, and by time.
    for (first, second, lease) in [
        (200, 200, lease(1_000_000, 16 << 10)),
        (400, 400, lease(7_000, 1 << 20)),
    ] {
        for (first, second, fits) in [(first, 0, true), (0, second, true), (first, second, false)] {
            let program = cell.compile(two_memories(first, second).as_bytes());
            let started = cell.start_tenant(StartRequest {
                program: program.expect("compiles"),
                lease,
                surroundings: Surroundings::default(),
            });
            match started {
                Ok(tenant) => {
                    let ended = tenant.wait().expect("ends");
                    assert_eq!((&ended.exit, fits), (&Exit::Code(0), true));
                    check(&ended, lease);
                }
                Err(StartError::Lease { .. }) => assert!(!fits, "{first} and {second}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn no_end_cleans_the_pages_of_a_program_that_did_not_start_meanwhile() {
    let cell = cell();
    let tight = lease(1_000_000, 16 << 10);
    let program = cell.compile(two_memories(255, 200).as_bytes());
    let program = program.expect("compiles");
    let wide = lease(2_000_000, 1 << 20);
    for _ in 0..50 {
        // Tasks take a step of the end each: time for others to get in between.
        let ending = start(&cell, "object-bomb.wasm", &["task", "50", "spin"], wide);
        ending.wait_for("ready");
        ending.handle.kill();
        for _ in 0..5 {
            let _ = cell.start_tenant(StartRequest {
                program: program.clone(),
                lease: tight,
                surroundings: Surroundings::default(),
            });
        }
        let ended = ending.handle.wait().expect("ends");
        let statement = &ended.statement;
        let charged = |name: &str| {
            let rows = statement.rows.iter().filter(|row| row.name == name);
            rows.map(|row| row.count).sum::<u64>()
        };
        let stacks = charged("store") * STACK_PAGES as u64;
        let pages = ended.reclaimed.pages - ended.reclaimed.arena_pages;
        assert!(
            pages <= charged("memory_page") + stacks,
            "{pages} pages of {} and {stacks}",
            charged("memory_page")
        );
    }
}

#[test]
fn a_parent_ends_its_children_and_learns_how_they_exited() {
    let cell = cell();
    let lease = lease(2_000_000, 1 << 20);
    let tenant = start(&cell, "tenant-tree.wasm", &["2", "2", "spin", "run"], lease);
    tenant.wait_for("ready");
    let ended = tenant.kill();
    assert_eq!(ended.exit, Exit::Killed);
    check(&ended, lease);
}

#[test]
fn a_prediction_counts_what_children_are_charged_and_not_what_they_might_be() {
    let cell = cell();
    // The tree divides the whole budget among its tenants.
    let lease = lease(2_000_000, 1 << 20);
    let tenant = start(&cell, "tenant-tree.wasm", &["2", "3", "spin"], lease);
    tenant.wait_for("ready");
    let statement = tenant.handle.statement().expect("lives");
    assert!(statement.carved.0 > statement.budget.0 / 2, "{statement:?}");
    let ended = tenant.kill();
    check(&ended, lease);
    let (predicted, statement) = (ended.reclaimed.predicted_ns, ended.statement);
    assert!(predicted >= statement.charged.0 / 1000);
    assert!(predicted < lease.reclaim.budget.get() / 20, "{predicted}");
}

#[test]
fn when_a_client_ends_its_service_is_told_and_lives_on() {
    let cell = cell();
    let lease = lease(2_000_000, 1 << 20);
    for mode in ["keep", "wait"] {
        let client = start_held(&cell, "delegator.wasm", &["10", "spin"], lease);
        let service = start_held(&cell, "service.wasm", &[mode], lease);
        let selectors = cell
            .connect(&client.handle, &service.handle, 4096, 4)
            .expect("connected");
        assert_eq!(selectors, (1, 1));
        service.handle.go();
        client.handle.go();
        client.wait_for("ready");
        // The messages are in the client's channel: the service waits when it has received them all.
        until("received", || {
            let processor = service.handle.processor();
            let processor = processor
                .unwrap_or_else(|| panic!("{:?}: {}", service.handle.wait(), service.text()));
            processor.state == ProcessorState::Blocked
        });
        check(&client.kill(), lease);
        let ended = service.handle.wait().expect("ends");
        assert_eq!(ended.exit, Exit::Code(0));
        assert!(
            service.text().contains("got 10 refused"),
            "{}",
            service.text()
        );
        check(&ended, lease);
    }
}

#[test]
fn a_hostile_service_spends_no_more_of_its_client_than_it_was_granted() {
    let cell = cell();
    let lease = lease(2_000_000, 1 << 20);
    let client = start_held(&cell, "spin.wasm", &[], lease);
    // Tasks of the service wait on the channel itself, which belongs to the client.
    let service = start_held(&cell, "service.wasm", &["keep"], lease);
    let before = client.handle.statement().expect("lives").charged;
    cell.connect(&client.handle, &service.handle, 4096, 4)
        .expect("connected");
    let granted = client.handle.statement().expect("lives").charged;
    service.handle.go();
    client.handle.go();
    std::thread::sleep(Duration::from_millis(20));
    let after = client.handle.statement().expect("lives").charged;
    assert!(
        granted.0 > before.0,
        "links are paid for when they are granted"
    );
    // The program itself charges when it starts; a wait of the service takes one scrub entry's
    // memory at most.
    let service_ended = service.kill();
    check(&service_ended, lease);
    let client_ended = client.kill();
    check(&client_ended, lease);
    assert!(
        after.0 - granted.0 < 1_000_000_000,
        "{} ps for one wait",
        after.0 - granted.0
    );
}

#[test]
fn a_task_that_ends_gives_its_memory_back_to_its_tenant() {
    let cell = cell();
    // Pays for a few programs at a time, but a hundred are started one after the other.
    let program = cell.compile(TASKS_IN_A_ROW.as_bytes()).expect("compiles");
    let ended = cell
        .start_tenant(StartRequest {
            program,
            lease: lease(3_000, 2 << 10),
            surroundings: Surroundings {
                args: vec!["main".to_owned()],
                ..Surroundings::default()
            },
        })
        .expect("starts")
        .wait()
        .expect("ends");
    assert_eq!(ended.exit, Exit::Code(0), "{:?}", ended.statement);
}

/// Starts a task and waits for it, a hundred times. Sleeps a millisecond and tries again when the
/// lease does not pay (the start is refused, or the task ends with 134 for want of memory): the
/// pages of the last one may still be on their way back.
const TASKS_IN_A_ROW: &str = r#"(module
  (import "leasehold_kernel" "task_start" (func $start (param i32 i32) (result i64)))
  (import "leasehold_kernel" "task_wait" (func $wait (param i32) (result i64)))
  (import "leasehold_kernel" "capability_drop" (func $drop (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 4)
  (data (i32.const 0) "t\00")
  (func $sleep
    (i32.store (i32.const 80) (i32.const 1))
    (i64.store (i32.const 88) (i64.const 1000000))
    (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512))))
  (func $once (result i32) (local $task i64) (local $code i64)
    (local.set $task (call $start (i32.const 0) (i32.const 2)))
    (if (i64.lt_s (local.get $task) (i64.const 0)) (then (return (i32.const 0))))
    (local.set $code (call $wait (i32.wrap_i64 (local.get $task))))
    (if (i64.ne (call $drop (i32.wrap_i64 (local.get $task))) (i64.const 0))
      (then (call $exit (i32.const 3))))
    (if (i64.eq (local.get $code) (i64.const 134)) (then (return (i32.const 0))))
    (if (i64.ne (local.get $code) (i64.const 7)) (then (call $exit (i32.const 2))))
    (i32.const 1))
  (func (export "_start") (local $done i32) (local $tries i32)
    (drop (call $args (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then (call $exit (i32.const 7))))
    (loop $next
      (if (call $once)
        (then (local.set $done (i32.add (local.get $done) (i32.const 1))))
        (else (call $sleep)))
      (local.set $tries (i32.add (local.get $tries) (i32.const 1)))
      (if (i32.gt_u (local.get $tries) (i32.const 10000)) (then (call $exit (i32.const 1))))
      (br_if $next (i32.lt_u (local.get $done) (i32.const 100))))))"#;

/// Runs a program from text under a lease; how it ended.
fn run(text: &str, lease: Lease) -> Ended {
    let cell = cell();
    let tenant = cell.start_tenant(StartRequest {
        program: cell.compile(text.as_bytes()).expect("compiles"),
        lease,
        surroundings: Surroundings {
            args: vec!["main".to_owned()],
            ..Surroundings::default()
        },
    });
    tenant.expect("starts").wait().expect("ends")
}

#[test]
fn a_supervisor_starts_children_one_after_the_other_for_ever() {
    // More than a tenant's share of the cell's places, were those of ended children not given back.
    let ended = run(CHILDREN_IN_A_ROW, lease(1_000_000, 64 << 10));
    assert_eq!(ended.exit, Exit::Code(0));
}

/// Has a child run to its end 600 times; a start is tried again as long as it is refused.
const CHILDREN_IN_A_ROW: &str = r#"(module
  (import "leasehold_kernel" "tenant_create" (func $create (param i64 i64) (result i64)))
  (import "leasehold_kernel" "tenant_start" (func $start (param i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "tenant_wait" (func $wait (param i32) (result i64)))
  (import "leasehold_kernel" "capability_drop" (func $drop (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "c\00")
  (func $sleep
    (i32.store (i32.const 80) (i32.const 1))
    (i64.store (i32.const 88) (i64.const 1000000))
    (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512))))
  (func $once (local $child i64) (local $tries i32)
    (local.set $child (call $create (i64.const 5000000) (i64.const 65536)))
    (if (i64.lt_s (local.get $child) (i64.const 0)) (then (call $exit (i32.const 2))))
    (block $started (loop $again
      (br_if $started (i64.eqz (call $start (i32.wrap_i64 (local.get $child)) (i32.const 0) (i32.const 2))))
      (call $sleep)
      (local.set $tries (i32.add (local.get $tries) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $tries) (i32.const 2000)))
      (call $exit (i32.const 3))))
    (if (i64.ne (call $wait (i32.wrap_i64 (local.get $child))) (i64.const 7))
      (then (call $exit (i32.const 4))))
    (drop (call $drop (i32.wrap_i64 (local.get $child)))))
  (func (export "_start") (local $done i32)
    (drop (call $args (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then (call $exit (i32.const 7))))
    (loop $next
      (call $once)
      (local.set $done (i32.add (local.get $done) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $done) (i32.const 600))))))"#;

#[test]
fn table_elements_are_limited_for_a_tenant_in_total() {
    // By which a program of the tenant's may grow its table when its main program has 600 elements
    // of the 1,000 that the lease allows: as a task, and as a child tenant.
    for start in ["(call $task (i32.const 0) (i32.const 2))", "(call $child)"] {
        for (elements, exit) in [(400, 7), (401, 8)] {
            let mut lease = lease(1_000_000, 64 << 10);
            lease.memory.table_elements = 1000;
            let text = TABLES
                .replace("START", start)
                .replace("ELEMENTS", &elements.to_string());
            let ended = run(&text, lease);
            assert_eq!(ended.exit, Exit::Code(exit), "{elements} by {start}");
        }
    }
}

#[test]
fn a_program_that_declares_more_table_elements_than_its_lease_allows_is_refused() {
    let mut lease = lease(1_000_000, 64 << 10);
    lease.memory.table_elements = 1000;
    let cell = cell();
    for (elements, starts) in [(1000, true), (1001, false)] {
        let text = format!("(module (table {elements} funcref) (func (export \"_start\")))");
        let program = cell.compile(text.as_bytes()).expect("compiles");
        let started = cell.start_tenant(StartRequest {
            program,
            lease,
            surroundings: Surroundings::default(),
        });
        assert_eq!(started.is_ok(), starts, "{elements}");
    }
}

#[test]
fn a_task_that_ends_a_child_goes_on_when_no_other_runs() {
    let cell = cell();
    let program = cell.compile(ENDS_A_CHILD.as_bytes()).expect("compiles");
    for _ in 0..20 {
        let tenant = cell.start_tenant(StartRequest {
            program: program.clone(),
            lease: lease(1_000_000, 64 << 10),
            surroundings: Surroundings {
                args: vec!["main".to_owned()],
                ..Surroundings::default()
            },
        });
        let ended = tenant.expect("starts").wait_for(Duration::from_secs(60));
        let ended = ended.expect("the cell is there").expect("goes on");
        assert_eq!(ended.exit, Exit::Code(0));
    }
}

/// Has a child sleep, ends it, and exits with 0 if that worked.
const ENDS_A_CHILD: &str = r#"(module
  (import "leasehold_kernel" "tenant_create" (func $create (param i64 i64) (result i64)))
  (import "leasehold_kernel" "tenant_start" (func $start (param i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "tenant_end" (func $end (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "c\00")
  (func $sleep (param $ns i64)
    (i32.store (i32.const 80) (i32.const 1))
    (i64.store (i32.const 88) (local.get $ns))
    (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512))))
  (func (export "_start") (local $child i64)
    (drop (call $args (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1))
      (then (call $sleep (i64.const 1000000000000)) (call $exit (i32.const 7))))
    (local.set $child (call $create (i64.const 100000000) (i64.const 1048576)))
    (if (i64.ne (call $start (i32.wrap_i64 (local.get $child)) (i32.const 0) (i32.const 2)) (i64.const 0))
      (then (call $exit (i32.const 2))))
    ;; The child is asleep when it is ended.
    (call $sleep (i64.const 1000000))
    (call $exit (i64.ne (call $end (i32.wrap_i64 (local.get $child))) (i64.const 0)))))"#;

#[test]
fn a_table_grows_by_a_bounded_number_of_elements_at_once_an_empty_one_too() {
    for (declared, elements, grows) in [(0, 4_096, 1), (0, 4_097, 0), (1, 4_097, 0)] {
        let text = format!(
            r#"(module
              (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
              (memory (export "memory") 0)
              (table $table {declared} funcref)
              (func (export "_start")
                (call $exit (i32.ge_s
                  (table.grow $table (ref.null func) (i32.const {elements})) (i32.const 0)))))"#
        );
        let ended = run(&text, lease(1_000_000, 64 << 10));
        assert_eq!(ended.exit, Exit::Code(grows), "{declared} and {elements}");
    }
}

#[test]
fn a_table_grows_to_a_bounded_size() {
    let text = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (memory (export "memory") 0)
          (table $table 0 funcref)
          (func (export "_start")
            (loop $grow
              (br_if $grow (i32.ge_s
                (table.grow $table (ref.null func) (i32.const {})) (i32.const 0))))
            (call $exit (i32.ne (table.size $table) (i32.const {})))))"#,
        caps::TABLE_GROWTH.most,
        caps::TABLE_ELEMENTS.most
    );
    let mut lease = lease(1_000_000, 64 << 10);
    lease.memory.table_elements = 10_000_000;
    assert_eq!(run(&text, lease).exit, Exit::Code(0));
}

/// Makes a table of as many elements as a lease may have, and writes to all of it.
const LARGE_TABLE: &str = r#"(module (memory (export "memory") 0)
  (table $table 10000000 funcref) (elem declare func $f) (func $f)
  (func (export "_start")
    (table.fill $table (i32.const 0) (ref.func $f) (i32.const 10000000))))"#;

#[test]
fn a_table_of_ten_million_elements_is_made_and_dropped_in_short_steps() {
    let mut config = CellConfig::new(Profile::free());
    config.sample_steps = true;
    let cell = Cell::start(config).expect("a cell");
    let program = cell.compile(LARGE_TABLE.as_bytes()).expect("a program");
    let mut lease = lease(1_000_000, 64 << 10);
    lease.memory.table_elements = 10_000_000;
    for _ in 0..5 {
        let handle = cell.start_tenant(StartRequest {
            program: program.clone(),
            lease,
            surroundings: Surroundings::default(),
        });
        let ended = handle.expect("started").wait().expect("ended");
        assert_eq!(ended.exit, Exit::Code(0));
    }
    for samples in cell.take_step_samples() {
        let mut ns = samples.ns;
        ns.sort_unstable();
        let (row, median) = (samples.row.row().title(), ns[ns.len() / 2]);
        assert!(median < CEILING_NS, "{row}: {median} ns");
        println!(
            "{row}: {median} ns, {:?}",
            &ns[ns.len().saturating_sub(5)..]
        );
    }
}

/// Grows its table by 600 elements, has a program started that grows its own by ELEMENTS, and
/// exits with that one's code: 7 if it could.
const TABLES: &str = r#"(module
  (import "leasehold_kernel" "task_start" (func $task (param i32 i32) (result i64)))
  (import "leasehold_kernel" "task_wait" (func $task_wait (param i32) (result i64)))
  (import "leasehold_kernel" "tenant_create" (func $create (param i64 i64) (result i64)))
  (import "leasehold_kernel" "tenant_start" (func $start (param i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "tenant_wait" (func $tenant_wait (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (table $table 0 funcref)
  (data (i32.const 0) "c\00")
  (func $grow (param $elements i32) (result i32)
    (i32.ge_s (table.grow $table (ref.null func) (local.get $elements)) (i32.const 0)))
  (func $child (result i64) (local $child i64)
    (local.set $child (call $create (i64.const 100000000) (i64.const 1048576)))
    (drop (call $start (i32.wrap_i64 (local.get $child)) (i32.const 0) (i32.const 2)))
    (local.get $child))
  (func (export "_start") (local $program i64) (local $code i64)
    (drop (call $args (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1))
      (then (call $exit (select (i32.const 7) (i32.const 8) (call $grow (i32.const ELEMENTS))))))
    (if (i32.eqz (call $grow (i32.const 600))) (then (call $exit (i32.const 2))))
    (local.set $program START)
    (local.set $code (call $task_wait (i32.wrap_i64 (local.get $program))))
    (if (i64.lt_s (local.get $code) (i64.const 0))
      (then (local.set $code (call $tenant_wait (i32.wrap_i64 (local.get $program))))))
    (call $exit (i32.wrap_i64 (local.get $code)))))"#;

#[test]
fn the_same_work_ends_in_the_same_steps_whatever_the_number_of_objects() {
    let cell = cell();
    let lease = lease(2_000_000, 16 << 10);
    let steps = |count: &str| {
        let tenant: Started = start(
            &cell,
            "object-bomb.wasm",
            &["semaphore", count, "spin"],
            lease,
        );
        tenant.wait_for("ready");
        let reclaimed = tenant.kill().reclaimed;
        (reclaimed.scrubbed, reclaimed.groups)
    };
    assert_eq!(steps("10"), steps("1000000"));
}
