//! Where guests are preempted by epochs, code without loops and calls of the host in a row are interrupted as well.

mod common;

use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::program::{Code, Program};
use leasehold_cell::{Cell, CellConfig, Exit};
use wasmtime::{Engine, Linker, Store, UpdateDeadline};

/// How often a guest looks at the epoch until it has run this line: each look finds that it is due.
fn looks(line: &str) -> u32 {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "sched_yield" (func $host (result i32)))
            (memory (export "memory") 1)
            (func (export "_start") (local i32) {line}))"#
    );
    let engine = Engine::new(&engine_config(Mechanism::Epochs)).expect("an engine");
    let program = Program::from_bytes(&engine, text.as_bytes()).expect("a program");
    let Code::Module(module) = program.code() else {
        panic!("a module");
    };
    let mut linker = Linker::new(&engine);
    linker
        .func_wrap("wasi_snapshot_preview1", "sched_yield", || 0)
        .expect("linked");
    let mut store = Store::new(&engine, 0);
    store.set_epoch_deadline(0);
    store.epoch_deadline_callback(|mut store| {
        *store.data_mut() += 1;
        Ok(UpdateDeadline::Continue(0))
    });
    let instance = linker.instantiate(&mut store, module).expect("linked");
    let start = instance.get_typed_func::<(), ()>(&mut store, "_start");
    start
        .expect("exported")
        .call(&mut store, ())
        .expect("no trap");
    *store.data()
}

#[test]
fn a_guest_looks_at_the_epoch_behind_each_call_of_the_host() {
    let line = "(drop (call $host))".repeat(20_000);
    assert_eq!(looks(&line), 1 + 20_000);
}

#[test]
fn a_guest_looks_at_the_epoch_in_a_line_of_loads() {
    let loads = "i32.load ".repeat(300_000);
    let line = format!("local.get 0 {loads} local.set 0");
    assert_eq!(looks(&line), 1 + 300_003 / 256);
}

#[test]
fn a_cell_kills_guests_in_straight_lines_and_between_calls_of_the_host() {
    for line in [
        format!("local.get 0 {} local.set 0", "i32.load ".repeat(300_000)),
        "(drop (call $host (i32.const 0) (i32.const 16384)))".repeat(20_000),
    ] {
        let text = format!(
            r#"(module
                (import "wasi_snapshot_preview1" "random_get" (func $host (param i32 i32) (result i32)))
                (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
                (memory (export "memory") 1)
                (data (i32.const 40000) "ready") (data (i32.const 40016) "\40\9c\00\00\05\00\00\00")
                (func $line (local i32) {line})
                (func (export "_start")
                    (drop (call $write (i32.const 1) (i32.const 40016) (i32.const 1) (i32.const 40024)))
                    (loop $again (call $line) (br $again))))"#
        );
        let mut config = CellConfig::new(common::profile());
        config.preemption = Mechanism::Epochs;
        let cell = Cell::start(config).expect("a cell");
        let program = cell.compile(text.as_bytes()).expect("a program");
        let (request, output) =
            common::captured(program, "line", &[], common::lease(10_000, 8 << 10));
        let tenant = cell.start_tenant(request).expect("a tenant");
        common::until("ready", || output.bytes().starts_with(b"ready"));
        tenant.kill();
        assert_eq!(tenant.wait().expect("an end").exit, Exit::Killed);
    }
}
