//! Attacks on the engine's work before the first instruction of a program.

use super::common::{cell, lease, run};
use leasehold_cell::steps::caps;
use leasehold_cell::{Exit, StartError, StartRequest, Surroundings};
use std::fmt::Write as _;

/// Bytes as text of WebAssembly.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "\\{byte:02x}");
        text
    })
}

/// A module with a long segment at 100,000, one across its end, a start function that reads both,
/// and a segment that its code may no longer use.
fn module(length: usize) -> String {
    let long = escaped(&vec![7; length]);
    format!(
        "(module
           (memory (export \"memory\") 80)
           (data $long (offset (i32.const 100000)) \"{long}\")
           (data (offset (i32.const {last})) \"\\01\\02\\03\")
           (start $start)
           (func $start
             (if (i32.ne (i32.load8_u (i32.const 100000)) (i32.const 7)) (then (unreachable)))
             (if (i32.ne (i32.load8_u (i32.const {last})) (i32.const 1)) (then (unreachable)))
             (if (i32.ne (i32.load8_u (i32.const 99999)) (i32.const 0)) (then (unreachable))))
           (func (export \"_start\")
             (memory.init $long (i32.const 0) (i32.const 0) (i32.const 0))
             (memory.init $long (i32.const 0) (i32.const 0) (i32.const 1))))",
        last = 100_000 + length - 2,
    )
}

#[test]
fn long_initial_data_that_the_guest_copies_means_the_same() {
    // Copied by the engine, and by the guest.
    for length in [60_000, 4 << 20] {
        let cell = cell();
        let program = cell.compile(module(length).as_bytes()).expect("a program");
        let (ended, _) = run(
            &cell,
            program,
            lease(50_000, 8 << 10),
            Surroundings::default(),
        );
        // The segment was dropped: reading a byte of it is out of bounds, reading none is not.
        let Exit::Trap(message) = &ended.exit else {
            panic!("{length}: {:?}", ended.exit)
        };
        assert!(
            message.contains("out of bounds memory access"),
            "{length}: {message}"
        );
    }
}

#[test]
fn an_initial_segment_out_of_bounds_is_a_trap_in_either_form() {
    for length in [1, 100_000] {
        let data = escaped(&vec![1; length]);
        let text = format!(
            "(module (memory 1) (data (i32.const 65535) \"{data}{data}\") (func (export \"_start\")))"
        );
        let cell = cell();
        let program = cell.compile(text.as_bytes()).expect("a program");
        let (ended, _) = run(&cell, program, lease(50_000, 1024), Surroundings::default());
        let Exit::Trap(message) = ended.exit else {
            panic!("not a trap")
        };
        assert!(message.contains("out of bounds memory access"), "{message}");
    }
}

#[test]
fn a_program_that_imports_what_has_no_row_is_refused_when_it_is_loaded() {
    let cell = cell();
    for (module, name) in [
        ("leasehold_kernel", "everything"),
        ("wasi_snapshot_preview1", "fd_everything"),
    ] {
        let text =
            format!("(module (import \"{module}\" \"{name}\" (func)) (func (export \"_start\")))");
        let error = cell
            .compile(text.as_bytes())
            .expect_err("nothing offers it");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn arguments_above_the_cap_are_refused_before_anything_is_made() {
    let cell = cell();
    let program = cell.compile(b"(module (func (export \"_start\")))");
    let program = program.expect("a program");
    for (bytes, fits) in [
        (caps::STRINGS.size() - 1, true),
        (caps::STRINGS.size(), false),
    ] {
        let started = cell.start_tenant(StartRequest {
            program: program.clone(),
            lease: lease(50_000, 1024),
            surroundings: Surroundings {
                args: vec!["a".repeat(bytes)],
                ..Surroundings::default()
            },
        });
        assert_eq!(started.is_ok(), fits, "{bytes} bytes");
    }
}

#[test]
fn a_start_that_the_memory_reservation_does_not_hold_is_refused_by_its_name() {
    let cell = cell();
    let program = "(module (memory (export \"memory\") 32) (func (export \"_start\")))";
    let program = cell.compile(program.as_bytes()).expect("it compiles");
    let started = cell.start_tenant(StartRequest {
        program,
        lease: lease(500_000, 1 << 10),
        surroundings: Surroundings::default(),
    });
    let Err(StartError::Lease { reason }) = started.map(drop) else {
        panic!("2 MiB in a MiB");
    };
    assert!(reason.contains("memory.reserve"), "{reason}");
}
