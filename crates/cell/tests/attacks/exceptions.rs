//! Exceptions: a heap that grows with each, frames to be unwound, and throws wherever the host is on the stack.

use super::common::paged::{PAGE, held, paging};
use super::common::{captured, cell, cell_with_backtraces, lease, run};
use leasehold_cell::engine_config::engine_config;
use leasehold_cell::exceptions::catch_in_every_frame;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::stack::STACK_PAGES;
use leasehold_cell::{Cell, Ended, Exit, Lease, StartRequest, Surroundings, TenantHandle};
use leasehold_lease::SharedPages;
use std::time::{Duration, Instant};
use wasmtime::{Engine, Instance, Module, Store, WasmParams, WasmResults};

/// Runs a program under a lease that is wide but for its memory.
fn run_under(cell: &Cell, text: &str, lease: Lease) -> Ended {
    let program = cell.compile_for(text.as_bytes(), &lease);
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    run(cell, program, lease, Surroundings::default()).0
}

fn exit_of(text: &str) -> Exit {
    run_under(&cell_with_backtraces(), text, lease(1_000_000, 1 << 20)).exit
}

fn charged(ended: &Ended, name: &str) -> u64 {
    let statement = &ended.statement;
    let rows = statement.rows.iter().filter(|row| row.name == name);
    rows.map(|row| row.count).sum()
}

/// Checks that everything given back was charged, and that no memory was beyond the lease.
fn check(ended: &Ended, memory_kib: u64) {
    let pages = ended.reclaimed.pages - ended.reclaimed.arena_pages;
    let stacks = charged(ended, "store") * STACK_PAGES as u64;
    let memory = charged(ended, "memory_page");
    // A large table goes back page by page, too: 4 bytes an element in up to twice as much memory.
    let tables = (8 * charged(ended, "table_element")).div_ceil(4096);
    assert!(memory <= memory_kib / 4, "{memory} pages");
    assert!(
        pages <= memory + stacks + tables,
        "{pages} of {memory}, {stacks} and {tables}"
    );
    let statement = &ended.statement;
    assert!(statement.charged <= statement.budget, "{statement:?}");
}

/// Throws as often as it is told, 0 for ever, and catches each.
fn thrower(times: u32) -> String {
    format!(
        r#"(module (memory (export "memory") 1) (tag $t (param i64 i64))
          (func $throw (param i64) (throw $t (local.get 0) (i64.const 5)))
          (func (export "_start") (local $n i32)
            (loop $again
              (block $caught (result i64 i64)
                (try_table (catch $t $caught) (call $throw (i64.extend_i32_u (local.get $n))))
                unreachable)
              (if (i64.ne (i64.const 5)) (then unreachable))
              (if (i64.ne (i64.extend_i32_u (local.get $n))) (then unreachable))
              (local.set $n (i32.add (local.get $n) (i32.const 1)))
              (br_if $again (i32.ne (local.get $n) (i32.const {times}))))))"#
    )
}

/// Descends so many frames, throws there, and catches outside, for ever or once.
pub(super) fn unwinder(frames: u32, again: bool) -> String {
    let again = if again { "(br $again)" } else { "" };
    format!(
        r#"(module (memory (export "memory") 1) (tag $t (param i32))
          (func $descend (param $n i32)
            (if (i32.eqz (local.get $n)) (then (throw $t (i32.const 7))))
            (call $descend (i32.sub (local.get $n) (i32.const 1))))
          (func (export "_start")
            (loop $again
              (block $caught (result i32)
                (try_table (catch $t $caught) (call $descend (i32.const {frames})))
                unreachable)
              (if (i32.ne (i32.const 7)) (then unreachable))
              {again})))"#
    )
}

fn start(cell: &Cell, text: &str, lease: Lease) -> TenantHandle {
    let program = cell.compile_for(text.as_bytes(), &lease);
    let request = captured(program.expect("a program"), "guest", &[], lease).0;
    cell.start_tenant(request).expect("a tenant starts")
}

/// A program that does nothing, with or without an item that makes the engine prepare a heap.
fn idle(with: &str) -> String {
    format!(r#"(module (memory 1) {with} (func (export "_start")))"#)
}

#[test]
fn exceptions_are_thrown_caught_and_charged_as_memory() {
    let cell = cell();
    for (text, memories, pages) in [
        (idle(""), 1, 16),
        (idle("(tag)"), 2, 16),
        (
            idle("(global externref (ref.null extern)) (func (drop (global.get 0)))"),
            2,
            16,
        ),
        (
            idle("(table 1 externref) (func (table.set 0 (i32.const 0) (ref.null extern)))"),
            2,
            16,
        ),
        (
            idle(
                "(tag $t (param i32)) (func (result i32) (try_table (result i32) (catch $t 0) (i32.const 1)))",
            ),
            2,
            16,
        ),
        // 64 KiB of the heap, which has 1,000 exceptions of two words each.
        (thrower(1_000), 2, 32),
    ] {
        let ended = run_under(&cell, &text, lease(1_000_000, 1 << 20));
        assert_eq!(ended.exit, Exit::Code(0));
        let found = (charged(&ended, "memory"), charged(&ended, "memory_page"));
        assert_eq!(found, (memories, pages), "{text}");
        check(&ended, 1 << 20);
    }
}

#[test]
fn a_guest_that_throws_for_ever_ends_where_its_memory_does() {
    let cell = cell();
    let victim = start(&cell, &thrower(200_000), lease(1_000_000, 16 << 10));
    let ended = run_under(&cell, &thrower(0), lease(1_000_000, 8 << 10));
    let Exit::Lease(why) = &ended.exit else {
        panic!("{:?}", ended.exit)
    };
    assert!(why.contains("exception"), "{why}");
    assert!(!ended.refusals.is_empty());
    assert!(charged(&ended, "memory_page") >= 1_000);
    check(&ended, 8 << 10);
    assert_eq!(victim.wait().expect("an end").exit, Exit::Code(0));
}

#[test]
fn a_reclamation_budget_limits_exceptions_too() {
    let cell = cell();
    // 0.3 us for each page, besides 20 for the store and what it begins with.
    let ended = run_under(&cell, &thrower(0), lease(300, 1 << 20));
    assert!(matches!(ended.exit, Exit::Lease(_)), "{:?}", ended.exit);
    check(&ended, 1 << 20);
    assert!(charged(&ended, "memory_page") < 1_000);
}

#[test]
fn exceptions_are_kept_in_tables_and_globals() {
    let text = r#"(module (tag $t (param i32))
      (table $kept 0 100000 exnref) (global $last (mut exnref) (ref.null exn))
      (func $throw (param i32) (throw $t (local.get 0)))
      (func $new (param i32) (result exnref)
        (block $caught (result i32 exnref)
          (try_table (catch_ref $t $caught) (call $throw (local.get 0))) unreachable)
        (return_call $second))
      (func $second (param i32 exnref) (result exnref) (local.get 1))
      (func (export "_start") (local $n i32)
        (loop $again
          (global.set $last (call $new (local.get $n)))
          (if (i32.ne (table.grow $kept (global.get $last) (i32.const 1)) (local.get $n)) (then unreachable))
          (local.set $n (i32.add (local.get $n) (i32.const 1)))
          (br_if $again (i32.lt_u (local.get $n) (i32.const 20000))))
        (table.copy $kept $kept (i32.const 10000) (i32.const 0) (i32.const 10000))
        (table.fill $kept (i32.const 0) (global.get $last) (i32.const 10000))
        (local.set $n (i32.const 0))
        (loop $again
          (block $caught (result i32)
            (try_table (catch $t $caught) (throw_ref (table.get $kept (local.get $n)))) unreachable)
          (i32.ne (select (i32.const 19999) (i32.sub (local.get $n) (i32.const 10000))
            (i32.lt_u (local.get $n) (i32.const 10000))))
          (if (then unreachable))
          (local.set $n (i32.add (local.get $n) (i32.const 1)))
          (br_if $again (i32.lt_u (local.get $n) (i32.const 20000))))))"#;
    let ended = run_under(&cell(), text, lease(1_000_000, 1 << 20));
    assert_eq!(ended.exit, Exit::Code(0));
    assert_eq!(charged(&ended, "table_element"), 20_000);
    check(&ended, 1 << 20);
}

#[test]
fn an_exception_has_as_many_values_as_a_type_and_no_more() {
    let of = |values: usize| {
        format!(
            r#"(module (tag $t (param {types}))
              (func $throw (throw $t {constants}))
              (func (export "_start") (local $n i32)
                (loop $again
                  (block $caught (result {types})
                    (try_table (catch $t $caught) (call $throw)) unreachable)
                  {sums}
                  (if (i64.ne (i64.const {sum})) (then unreachable))
                  (br_if $again (i32.lt_u
                    (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))))"#,
            types = "i64 ".repeat(values),
            constants = (0..values)
                .map(|n| format!("(i64.const {n})"))
                .collect::<String>(),
            sums = "i64.add ".repeat(values - 1),
            sum = values * (values - 1) / 2,
        )
    };
    assert_eq!(exit_of(&of(128)), Exit::Code(0));
    let refused = cell().compile(of(1_000).as_bytes()).expect_err("too many");
    assert!(
        refused
            .to_string()
            .contains("of a type; allowed: at most 128"),
        "{refused}"
    );
}

#[test]
fn an_exception_passes_thousands_of_frames() {
    assert_eq!(exit_of(&unwinder(6_000, false)), Exit::Code(0));
}

#[test]
fn a_guest_is_ended_while_it_unwinds() {
    let cell = cell();
    let victim = start(&cell, &unwinder(5_000, true), lease(1_000_000, 1 << 20));
    for microseconds in (0..4_000).step_by(100) {
        let tenant = start(&cell, &unwinder(5_000, true), lease(1_000_000, 64 << 10));
        std::thread::sleep(Duration::from_micros(microseconds));
        tenant.kill();
        let ended = tenant.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Killed);
        check(&ended, 64 << 10);
    }
    assert!(victim.statement().is_some());
}

#[test]
fn an_exception_that_nothing_catches_ends_the_program_with_its_name() {
    let text =
        r#"(module (tag $t) (func $deep (throw $t)) (func $start (export "_start") (call $deep)))"#;
    let Exit::Trap(message) = exit_of(text) else {
        panic!("not a trap")
    };
    assert!(message.contains("exception"), "{message}");
    assert!(message.contains("start"), "{message}");
    let null = r#"(module (func (export "_start") (throw_ref (ref.null exn))))"#;
    let Exit::Trap(message) = exit_of(null) else {
        panic!("not a trap")
    };
    assert!(message.contains("null"), "{message}");
}

/// A component whose allocator throws while a host call returns bytes, ten thousand times; the caller catches it, if
/// told so.
fn throws_in_a_host_call(catches: bool) -> String {
    let call = match catches {
        true => {
            "(block $caught (try_table (catch $t $caught) (call $random (i64.const 1000) (i32.const 8))) unreachable)"
        }
        false => "(call $random (i64.const 1000) (i32.const 8))",
    };
    format!(
        r#"(component
          (import "wasi:random/random@0.2.0" (instance $from
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
          (core module $lib (memory (export "memory") 1) (tag $t (export "t"))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (throw $t)))
          (core instance $lib (instantiate $lib))
          (core func $random (canon lower (func $from "get-random-bytes")
            (memory (core memory $lib "memory")) (realloc (core func $lib "realloc"))))
          (core module $main (import "lib" "t" (tag $t)) (import "host" "random" (func $random (param i64 i32)))
            (func (export "run") (result i32) (local $n i32)
              (loop $again {call}
                (br_if $again (i32.lt_u
                  (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 10000))))
              (i32.const 0)))
          (core instance $main (instantiate $main (with "lib" (instance $lib))
            (with "host" (instance (export "random" (func $random))))))
          (func $run (result (result)) (canon lift (core func $main "run")))
          (instance $r (export "run" (func $run)))
          (export "wasi:cli/run@0.2.0" (instance $r)))"#
    )
}

#[test]
fn an_exception_in_an_allocator_ends_the_host_call_that_it_was_called_for() {
    let Exit::Trap(message) = exit_of(&throws_in_a_host_call(false)) else {
        panic!("not a trap")
    };
    assert!(message.contains("exception"), "{message}");
    // Exceptions that were passed to the host and never taken are given back with the rest.
    let ended = run_under(
        &cell(),
        &throws_in_a_host_call(true),
        lease(1_000_000, 1 << 20),
    );
    assert_eq!(ended.exit, Exit::Code(0));
    check(&ended, 1 << 20);
}

#[test]
fn exceptions_of_a_tenant_that_pages_are_in_pages_of_its_own() {
    let held = held(512 * PAGE, 32 << 20);
    let wide = paging(2_000_000, 32 * PAGE, 8 << 20, SharedPages::Conserve);
    // 100,000 exceptions take more than 2 MB, of which 128 KiB are resident.
    assert_eq!(
        run_under(&held.cell, &thrower(100_000), wide).exit,
        Exit::Code(0)
    );
    let narrow = paging(2_000_000, 32 * PAGE, 1 << 20, SharedPages::Conserve);
    let ended = run_under(&held.cell, &thrower(0), narrow);
    assert!(matches!(ended.exit, Exit::Lease(_)), "{:?}", ended.exit);
}

#[test]
fn the_initial_memory_of_a_program_that_throws_is_where_it_belongs() {
    let held = held(512 * PAGE, 32 << 20);
    let text = thrower(100).replace(
        "(tag $t",
        &format!("(data (i32.const 4000) \"{}\") (tag $t", "x".repeat(60_000)),
    );
    let text = text.replace(
        "(func (export \"_start\") (local $n i32)",
        "(func (export \"_start\") (local $n i32)
           (if (i32.ne (i32.load8_u (i32.const 60000)) (i32.const 120)) (then unreachable))",
    );
    for shared in [SharedPages::None, SharedPages::Conserve, SharedPages::Lock] {
        let lease = paging(2_000_000, 64 * PAGE, 8 << 20, shared);
        let tenants: Vec<TenantHandle> = (0..3).map(|_| start(&held.cell, &text, lease)).collect();
        for tenant in tenants {
            assert_eq!(
                tenant.wait().expect("an end").exit,
                Exit::Code(0),
                "{shared:?}"
            );
        }
    }
}

#[test]
fn a_program_whose_lease_does_not_pay_for_a_heap_is_not_started() {
    let cell = cell();
    let program = cell.compile(idle("(tag)").as_bytes()).expect("a program");
    let without = cell.compile(idle("").as_bytes()).expect("a program");
    assert_eq!(
        (program.inventory().heaps, without.inventory().heaps),
        (1, 0)
    );
    // The price of a memory, more than what remains.
    let tight = |budget_us| StartRequest {
        program: program.clone(),
        lease: lease(budget_us, 1 << 10),
        surroundings: Surroundings::default(),
    };
    let least = (1..10_000).find(|&us| cell.start_tenant(tight(us)).is_ok());
    let least = least.expect("some budget pays");
    let mut other = tight(least - 1);
    other.program = without;
    assert!(
        cell.start_tenant(other).is_ok(),
        "the heap is the difference"
    );
}

/// Nanoseconds of a call of `run`, the least of ten, of a module that is compiled as it is or with a handler in
/// every frame.
fn least_ns(text: &str, in_every_frame: bool) -> u128 {
    let wasm = wat::parse_str(text).expect("a module");
    let wasm = match in_every_frame {
        true => catch_in_every_frame(&wasm)
            .expect("well-formed")
            .into_owned(),
        false => wasm,
    };
    let engine = Engine::new(&engine_config(Mechanism::Injected)).expect("valid");
    let module = Module::new(&engine, wasm).expect("valid");
    let mut store = Store::new(&engine, ());
    let instance = Instance::new(&mut store, &module, &[]).expect("it fits");
    let run = instance.get_typed_func::<(), ()>(&mut store, "run");
    let run = run.expect("exported");
    let mut timed = || {
        let began = Instant::now();
        run.call(&mut store, ()).expect("it returns");
        began.elapsed().as_nanos()
    };
    (0..10).map(|_| timed()).min().expect("ten")
}

/// What `run` of a module returns for each of some arguments; `None` where it ends with an exception or a trap.
fn results<P, R>(wasm: &[u8], arguments: impl IntoIterator<Item = P>) -> Vec<Option<R>>
where
    P: WasmParams,
    R: WasmResults,
{
    let engine = Engine::new(&engine_config(Mechanism::Injected)).expect("valid");
    let module = Module::new(&engine, wasm).expect("valid");
    let mut store = Store::new(&engine, ());
    let instance = Instance::new(&mut store, &module, &[]).expect("it fits");
    let run = instance.get_typed_func::<P, R>(&mut store, "run");
    let run = run.expect("exported");
    let arguments = arguments.into_iter();
    arguments
        .map(|argument| run.call(&mut store, argument).ok())
        .collect()
}

/// A module whose `run` throws the exception of its first argument at the place of its second. Each
/// of the places is between handlers of every kind, most of which are unreachable.
fn catching(places: u32) -> String {
    let throws: String = (0..places)
        .map(|place| {
            format!(
                r#"(local.set $at (i32.const {place}))
                (local.set $sum (i32.add (local.get $sum) (call $maybe
                  (i32.and (local.get $what) (i32.sub (i32.const 0) (i32.eq (local.get $at) (local.get $where))))
                  (local.get $at))))
                (local.set $sum (i32.add (local.get $sum) (call_indirect (type $maybe) (i32.const 0) (local.get $at) (i32.const 0))))
                (if (i32.and (i32.eq (local.get $what) (i32.const 5)) (i32.eq (local.get $at) (local.get $where)))
                  (then (throw $two (local.get $at) (i64.const 3))))"#
            )
        })
        .collect();
    format!(
        r#"(module (tag $none) (tag $one (param i32)) (tag $two (param i32 i64)) (tag $out)
          (type $maybe (func (param i32 i32) (result i32)))
          (table funcref (elem $maybe))
          (func $maybe (type $maybe)
            (if (i32.eq (local.get 0) (i32.const 1)) (then (throw $none)))
            (if (i32.eq (local.get 0) (i32.const 2)) (then (throw $one (local.get 1))))
            (if (i32.eq (local.get 0) (i32.const 3)) (then (throw $two (local.get 1) (i64.const 9))))
            (if (i32.eq (local.get 0) (i32.const 4)) (then (throw $out)))
            (local.get 1))
          (func (export "run") (param $what i32) (param $where i32) (result i32)
            (local $at i32) (local $sum i32) (local $rounds i32) (local $exception exnref)
            (block $all (result exnref)
              (try_table (catch_all_ref $all)
                (block $void
                  (block $one (result i32)
                    (try_table (catch $one $one) (catch $none $void)
                      (block $two (result i32 i64 exnref)
                        (try_table (catch $one $one) (catch_ref $two $two) (catch $one $one) (catch $one $one) (catch $one $one)
                          (catch $one $one) (catch $one $one) (catch $one $one) (catch $none $void)
                          (loop $again
                            (if (local.get $rounds) (then (local.set $what (i32.const 0))))
                            (local.set $rounds (i32.add (local.get $rounds) (i32.const 1)))
                            (try_table (catch $out $again)
                              {throws}
                              (return (i32.add (local.get $sum) (i32.mul (local.get $rounds) (i32.const 1000000)))))))
                        unreachable)
                      (local.set $exception)
                      (if (i32.eq (local.get $where) (i32.const 3)) (then (throw_ref (local.get $exception))))
                      i32.wrap_i64
                      (return (i32.add (i32.add) (i32.const 3000000))))
                    unreachable)
                  (return (i32.add (i32.add (local.get $sum)) (i32.const 4000000))))
                (return (i32.add (local.get $at) (i32.const 5000000))))
              unreachable)
            drop
            (i32.add (local.get $sum) (i32.const 6000000))))"#
    )
}

#[test]
fn handlers_of_each_call_catch_what_those_around_all_would() {
    let wasm = wat::parse_str(catching(80)).expect("a module");
    let parted = catch_in_every_frame(&wasm).expect("well-formed");
    let tables = try_tables(&parted);
    assert!(tables > 40, "only {tables} blocks with handlers");
    let arguments = || (0..7).flat_map(|what| (0..20).map(move |place| (what, place)));
    let expected = results::<(i32, i32), i32>(&wasm, arguments());
    let found = results::<(i32, i32), i32>(&parted, arguments());
    assert_eq!(found, expected);
    let mut kinds: Vec<_> = expected
        .iter()
        .map(|result| result.map(|n| n / 1_000_000))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert!(kinds.len() >= 5, "{kinds:?}");
}

/// How many `try_table` there are.
fn try_tables(wasm: &[u8]) -> usize {
    let payloads = wasmparser::Parser::new(0).parse_all(wasm);
    let bodies = payloads.filter_map(|payload| match payload.expect("well-formed") {
        wasmparser::Payload::CodeSectionEntry(body) => Some(body),
        _ => None,
    });
    let operators = bodies.flat_map(|body| body.get_operators_reader().expect("well-formed"));
    let is_table = |operator: &wasmparser::Operator<'_>| {
        matches!(operator, wasmparser::Operator::TryTable { .. })
    };
    operators
        .map(|operator| operator.expect("well-formed"))
        .filter(is_table)
        .count()
}

/// A module whose `run` throws so many times through so many frames and as many handlers as there may be.
fn timed(times: u32, frames: u32, handlers: usize) -> String {
    let clauses = "(catch $other $none) ".repeat(handlers);
    format!(
        r#"(module (tag $t) (tag $other)
          (func $descend (param $n i32)
            (if (i32.eqz (local.get $n)) (then (throw $t)))
            (block $none
              (try_table {clauses} (call $descend (i32.sub (local.get $n) (i32.const 1))))))
          (func (export "run") (local $n i32)
            (loop $again
              (block $caught (try_table (catch $t $caught) (call $descend (i32.const {frames}))))
              (br_if $again (i32.lt_u
                (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {times}))))))"#
    )
}

/// A module whose `run` calls and adds.
fn calling() -> String {
    r#"(module (tag $t) (func (param i32) (throw $t))
      (func $fibonacci (param $n i32) (result i32)
        (if (i32.lt_u (local.get $n) (i32.const 2)) (then (return (local.get $n))))
        (i32.add (call $fibonacci (i32.sub (local.get $n) (i32.const 1)))
          (call $fibonacci (i32.sub (local.get $n) (i32.const 2)))))
      (func (export "run") (drop (call $fibonacci (i32.const 27)))))"#
        .to_owned()
}

/// Prints what throwing takes.
#[test]
#[ignore = "a measurement"]
fn what_throwing_takes() {
    for (what, times, frames, handlers) in [
        ("one frame", 1_000, 0, 0),
        ("100 frames", 100, 100, 0),
        ("5,000 frames", 1, 5_000, 0),
        ("one frame with 511 handlers", 1_000, 1, 511),
    ] {
        let text = timed(times, frames, handlers);
        for in_every_frame in [false, true] {
            let ns = least_ns(&text, in_every_frame) / u128::from(times);
            println!("{what}, in every frame {in_every_frame}: {ns} ns");
        }
    }
    for in_every_frame in [false, true] {
        // 832,040 calls, or so.
        let ns = least_ns(&calling(), in_every_frame);
        println!("calls, in every frame {in_every_frame}: {ns} ns");
    }
}

#[test]
fn exceptions_that_carry_references_are_refused() {
    // The engine gives each function that is carried a number on the host, in a table that it copies when it grows:
    // 251 ms in one step for 900,000 of them, charged to nothing.
    let cell = cell();
    for ty in [
        "funcref",
        "externref",
        "exnref",
        "(ref null $f)",
        "i32 (ref func)",
    ] {
        let own =
            format!(r#"(module (type $f (func)) (tag (param {ty})) (func (export "_start")))"#);
        let imported = format!(
            r#"(module (type $f (func)) (import "a" "b" (tag (param {ty}))) (func (export "_start")))"#
        );
        for text in [own, imported] {
            let refused = cell
                .compile(text.as_bytes())
                .expect_err("refused")
                .to_string();
            assert!(
                refused.contains("references-in-exceptions"),
                "{ty}: {refused}"
            );
            assert!(refused.contains("throw its index"), "{refused}");
        }
    }
}

/// Throws in one frame, for ever, in handlers of which each throws again at once.
fn thrower_without_rest(handlers: usize) -> String {
    let again = "(local.set $x) (block $h (result exnref) (try_table (catch_all_ref $h) \
                 (throw_ref (local.get $x))) (unreachable))";
    format!(
        r#"(module (memory (export "memory") 1) (tag $t)
          (func (export "_start") (local $x exnref) (loop $l
            (block $h (result exnref) (try_table (catch_all_ref $h) (throw $t)) (unreachable))
            {} (drop) (br $l))))"#,
        again.repeat(handlers)
    )
}

#[test]
fn a_guest_that_does_nothing_but_throw_is_preempted() {
    // A throw continues in a handler and not behind its call, where a yield would wait. With a
    // hundred handlers a kill took 37 ms in the median, and up to a second.
    let cell = cell();
    let program = cell.compile(thrower_without_rest(100).as_bytes());
    let program = program.expect("a program");
    let mut effects: Vec<u64> = (0..9)
        .map(|_| {
            let tenant = cell.start_tenant(StartRequest {
                program: program.clone(),
                lease: lease(100_000, 32 << 10),
                surroundings: Surroundings::default(),
            });
            let tenant = tenant.expect("starts");
            std::thread::sleep(Duration::from_millis(2));
            tenant.kill();
            tenant.wait().expect("ends").reclaimed.effect_ns
        })
        .collect();
    effects.sort_unstable();
    assert!(effects[4] < 10_000_000, "{effects:?}");
}
