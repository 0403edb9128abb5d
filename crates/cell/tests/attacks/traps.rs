//! Traps and their messages.

use super::common::{cell, cell_with_backtraces, lease, run};
use leasehold_cell::steps::caps;
use leasehold_cell::{Cell, Exit, StartRequest, Surroundings};

/// A module of this name whose function of the same name calls itself until its stack is used up.
fn named(name: &str) -> String {
    format!("(module ${name} (func ${name} (export \"_start\") (call ${name})))")
}

#[test]
fn a_name_of_20_mb_is_neither_kept_nor_formatted() {
    let cell = cell_with_backtraces();
    let name = "n".repeat(20 << 20);
    // A text may not be so long.
    let binary = wat::parse_str(named(&name)).expect("a module");
    let program = cell.compile(&binary).expect("a program");
    let (ended, _) = run(&cell, program, lease(50_000, 1024), Surroundings::default());
    let Exit::Trap(message) = ended.exit else {
        panic!("{:?}", ended.exit)
    };
    assert!(
        message.len() <= caps::TRAP_MESSAGE.size(),
        "{} bytes",
        message.len()
    );
    assert!(message.contains("wasm function"), "{message}");
    assert!(!message.contains("nn"), "{message}");
}

#[test]
fn a_backtrace_has_no_more_frames_than_its_row_says() {
    let cell = cell_with_backtraces();
    let program = cell.compile(named("again").as_bytes()).expect("a program");
    let (ended, _) = run(&cell, program, lease(50_000, 1024), Surroundings::default());
    let Exit::Trap(message) = ended.exit else {
        panic!("{:?}", ended.exit)
    };
    assert_eq!(
        message.matches("again!again").count(),
        caps::FRAMES.size(),
        "{message}"
    );
}

#[test]
fn a_trap_on_a_shared_cell_walks_no_stack() {
    // The engine walks all of it, 32,750 frames at the most, in a step that no row counts.
    let cell = cell();
    let program = cell.compile(named("again").as_bytes()).expect("a program");
    let (ended, _) = run(&cell, program, lease(50_000, 1024), Surroundings::default());
    let Exit::Trap(message) = ended.exit else {
        panic!("{:?}", ended.exit)
    };
    assert!(message.contains("stack"), "{message}");
    assert!(!message.contains("again"), "{message}");
}

#[test]
fn an_execution_pays_for_the_walk_over_its_stack() {
    // The engine walks the stack of a guest that waits, too, when it is dropped: twice 2.2 ms, as the profile has it.
    let text = "(module (memory (export \"memory\") 1) (func (export \"_start\")))";
    let ends = |cell: &Cell, budget_us| {
        let program = cell.compile(text.as_bytes()).expect("a program");
        let request = StartRequest {
            program,
            lease: lease(budget_us, 1024),
            surroundings: Surroundings::default(),
        };
        cell.start_tenant(request).map(|tenant| tenant.wait())
    };
    assert!(ends(&cell(), 4_400).is_ok());
    assert!(ends(&cell_with_backtraces(), 4_400).is_err());
    assert!(ends(&cell_with_backtraces(), 8_800).is_ok());
}

#[test]
fn a_bad_pointer_is_a_trap_whatever_was_refused_before() {
    let text = r#"(module
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (if (i32.ne (memory.grow (i32.const 65535)) (i32.const -1)) (then (return)))
        (drop (call $write (i32.const 1) (i32.const 0x7ffffff0) (i32.const 1) (i32.const 0)))))"#;
    let cell = cell();
    let program = cell.compile(text.as_bytes()).expect("it compiles");
    let tenant = cell.start_tenant(StartRequest {
        program,
        lease: lease(1_000_000, 1 << 10),
        surroundings: Surroundings::default(),
    });
    let ended = tenant
        .expect("it starts")
        .wait()
        .expect("the cell is there");
    assert!(
        matches!(&ended.exit, Exit::Trap(why) if why.contains("out of bounds")),
        "{:?}",
        ended.exit
    );
}
