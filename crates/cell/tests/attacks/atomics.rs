//! Atomic instructions: on memories of one thread, where no wait ends and no memory may be shared.

use super::common::paged::{PAGE, held, paging};
use super::common::{cell, lease, run};
use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::program::{Program, ProgramError};
use leasehold_cell::{Exit, Lease, Surroundings};
use leasehold_lease::SharedPages;
use wasmtime::Engine;

fn exit_under(cell: &leasehold_cell::Cell, text: &str, lease: Lease) -> Exit {
    let program = cell.compile_for(text.as_bytes(), &lease);
    let program = program.unwrap_or_else(|error| panic!("{text}: {error}"));
    run(cell, program, lease, Surroundings::default()).0.exit
}

fn exit_of(text: &str) -> Exit {
    exit_under(&cell(), text, lease(1_000_000, 1 << 10))
}

/// A command of one page with this body.
fn command(body: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 1)
          (func (export "_start") (local $n i32) {body}))"#
    )
}

fn trap_of(body: &str) -> String {
    match exit_of(&command(body)) {
        Exit::Trap(message) => message,
        exit => panic!("{body}: {exit:?}"),
    }
}

/// A value, how wide it is in bytes, and the names of the instructions for it: `i32.atomic.rmw8.NAME_u`.
const WIDTHS: [(&str, &str, &str, u32); 7] = [
    ("i32", "", "", 4),
    ("i32", "8", "_u", 1),
    ("i32", "16", "_u", 2),
    ("i64", "", "", 8),
    ("i64", "8", "_u", 1),
    ("i64", "16", "_u", 2),
    ("i64", "32", "_u", 4),
];

/// What an operation makes of an old value and an operand.
type Operation = (&'static str, fn(u64, u64) -> u64);

const OPERATIONS: [Operation; 6] = [
    ("add", u64::wrapping_add),
    ("sub", u64::wrapping_sub),
    ("and", |old, value| old & value),
    ("or", |old, value| old | value),
    ("xor", |old, value| old ^ value),
    ("xchg", |_, value| value),
];

#[test]
fn every_atomic_instruction_is_offered_and_does_what_the_standard_says() {
    const OLD: u64 = 0xFEDC_BA98_7654_3210;
    const VALUE: u64 = 0x9234_5678_9ABC_DEF3;
    let mut checks = String::from("(atomic.fence)");
    let mut check = |ty: &str, found: String, expected: u64| {
        checks += &format!("(if ({ty}.ne {found} ({ty}.const {expected})) (then unreachable))");
    };
    for (ty, part, unsigned, bytes) in WIDTHS {
        let mask = u64::MAX >> (64 - 8 * bytes);
        let whole = if ty == "i32" {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        let (old, value) = (OLD & mask, VALUE & whole);
        let store = format!("({ty}.atomic.store{part} (i32.const 64) ({ty}.const {old}))");
        let load = format!("({ty}.atomic.load{part}{unsigned} offset=8 (i32.const 56))");
        for (name, result) in OPERATIONS {
            let rmw = format!(
                "(block (result {ty}) {store} ({ty}.atomic.rmw{part}.{name}{unsigned} (i32.const 64) ({ty}.const {value})))"
            );
            check(ty, rmw, old);
            check(ty, load.clone(), result(old, value) & mask);
        }
        for (expected, stored) in [(old, value & mask), (old ^ 1, old)] {
            let cmpxchg = format!(
                "(block (result {ty}) {store} ({ty}.atomic.rmw{part}.cmpxchg{unsigned} (i32.const 64)
                   ({ty}.const {expected}) ({ty}.const {value})))"
            );
            check(ty, cmpxchg, old);
            check(ty, load.clone(), stored);
        }
    }
    assert_eq!(exit_of(&command(&checks)), Exit::Code(0));
}

#[test]
fn a_wait_traps_and_a_notification_wakes_no_thread() {
    // There is no other thread that could end the wait, whatever the value and the timeout.
    for wait in [
        "(drop (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1)))",
        "(drop (memory.atomic.wait32 (i32.const 0) (i32.const 1) (i64.const 0)))",
        "(drop (memory.atomic.wait64 (i32.const 8) (i64.const 0) (i64.const 1000000)))",
        // What follows is compiled, although it is never reached.
        "(br_if 0 (i32.add (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1)) (local.get 0)))",
        "(memory.atomic.wait64 offset=8 (i32.const 8) (i64.const 0) (i64.const -1)) (local.set 0)",
    ] {
        let trap = trap_of(wait);
        assert!(trap.contains("unreachable"), "{wait}: {trap}");
    }
    let notified = command(
        "(if (memory.atomic.notify (i32.const 4) (i32.const -1)) (then unreachable))
         (if (memory.atomic.notify offset=65532 (i32.const 0) (i32.const 0)) (then unreachable))",
    );
    assert_eq!(exit_of(&notified), Exit::Code(0));
}

#[test]
fn addresses_that_are_not_aligned_or_out_of_bounds_trap_whatever_the_atomic_instruction() {
    let instructions = [
        ("(drop (i32.atomic.load AT))", 4),
        ("(i64.atomic.store AT (i64.const 1))", 8),
        ("(drop (i32.atomic.rmw16.add_u AT (i32.const 1)))", 2),
        (
            "(drop (i64.atomic.rmw.cmpxchg AT (i64.const 0) (i64.const 1)))",
            8,
        ),
        ("(drop (memory.atomic.notify AT (i32.const 1)))", 4),
        (
            "(drop (memory.atomic.wait32 AT (i32.const 0) (i64.const 0)))",
            4,
        ),
        (
            "(drop (memory.atomic.wait64 AT (i64.const 0) (i64.const 0)))",
            8,
        ),
    ];
    for (instruction, bytes) in instructions {
        for (at, reason) in [
            (format!("(i32.const {})", bytes / 2), "unaligned"),
            (format!("offset=1 (i32.const {bytes})"), "unaligned"),
            (format!("(i32.const {})", 65536), "out of bounds"),
            (
                format!("offset=4294967288 (i32.const {bytes})"),
                "out of bounds",
            ),
        ] {
            let trap = trap_of(&instruction.replace("AT", &at));
            assert!(trap.contains(reason), "{instruction} {at}: {trap}");
        }
    }
}

#[test]
fn a_component_waits_for_no_thread_either() {
    let component = |body: &str| {
        format!(
            r#"(component
              (core module $m
                (memory 1) (memory $second 1)
                (func (export "run") (result i32) {body} (i32.const 0)))
              (core instance $i (instantiate $m))
              (func $run (result (result)) (canon lift (core func $i "run")))
              (instance $command (export "run" (func $run)))
              (export "wasi:cli/run@0.2.0" (instance $command)))"#
        )
    };
    let notified = component(
        "(if (memory.atomic.notify $second (i32.const 8) (i32.const 1)) (then unreachable))",
    );
    assert_eq!(exit_of(&notified), Exit::Code(0));
    let waiting = component(
        "(drop (memory.atomic.wait64 $second (i32.const 8) (i64.const 0) (i64.const -1)))",
    );
    let exit = exit_of(&waiting);
    assert!(
        matches!(&exit, Exit::Trap(trap) if trap.contains("unreachable")),
        "{exit:?}"
    );
}

#[test]
fn a_shared_memory_is_refused_wherever_it_is() {
    let engine = Engine::new(&engine_config(Mechanism::Epochs)).expect("a valid configuration");
    for text in [
        r#"(module (memory 1 1 shared) (func (export "_start")))"#,
        r#"(module (memory 1) (memory 1 2 shared) (func (export "_start")))"#,
        r#"(module (import "env" "memory" (memory 1 65536 shared)) (func (export "_start")))"#,
        r#"(module (import "wasi_snapshot_preview1" "memory" (memory 1 1 shared)) (func (export "_start")))"#,
        r#"(component (core module (memory 1 1 shared)))"#,
        r#"(component (component (core module (memory 1 1 shared))))"#,
        r#"(component (component (core module (import "m" "m" (memory 1 1 shared)))))"#,
    ] {
        let refused = Program::from_bytes(&engine, text.as_bytes());
        let refused = refused.expect_err(text);
        assert!(
            matches!(refused, ProgramError::Features { .. }),
            "{refused}"
        );
        let refused = refused.to_string();
        assert!(refused.contains("shared-memory, at byte "), "{refused}");
        assert!(refused.contains("without `-pthread`"), "{refused}");
    }
}

#[test]
fn atomics_reach_pages_that_are_out() {
    let held = held(512 * PAGE, 32 << 20);
    // Words all over 1 MiB are changed three times, in 32 frames.
    let text = r#"(module (memory (export "memory") 16)
      (func (export "_start") (local $round i32) (local $at i32)
        (loop $rounds
          (local.set $at (i32.const 0))
          (loop $words
            (if (i64.ne (i64.atomic.rmw.xor (local.get $at) (i64.const 5))
                        (select (i64.const 5) (i64.const 0) (i32.and (local.get $round) (i32.const 1))))
              (then unreachable))
            (br_if $words (i32.lt_u
              (local.tee $at (i32.add (local.get $at) (i32.const 512))) (i32.const 1048576))))
          (br_if $rounds (i32.lt_u
            (local.tee $round (i32.add (local.get $round) (i32.const 1))) (i32.const 3))))))"#;
    let narrow = paging(2_000_000, 32 * PAGE, 2 << 20, SharedPages::Conserve);
    assert_eq!(exit_under(&held.cell, text, narrow), Exit::Code(0));
}
