//! Components that call each other: strings, lists and handles that pass between them, and allocators that are
//! called on the way.

use super::common::paged::{PAGE, held, paging};
use super::common::{captured, cell, cell_with_backtraces, lease, run};
use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::program::{Program, ProgramError};
use leasehold_cell::steps::caps::{ALL_HANDLES, LENDS, STRING, WIDE_STRING};
use leasehold_cell::{Cell, Ended, Exit, Lease, Surroundings};
use leasehold_lease::SharedPages;
use std::time::{Duration, Instant};
use wasmtime::Engine;

/// How the two components of a program encode strings.
const ENCODINGS: [(&str, u32); 3] = [("utf8", 1), ("utf16", 2), ("latin1+utf16", 1)];

/// An allocator that gives what comes next, and never takes anything back.
const BUMP: &str = r#"(global $next (mut i32) (i32.const 1024))
  (func (export "realloc") (param $old i32) (param $bytes i32) (param $align i32) (param $new i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get $new)))
    (memory.copy (local.get $at) (local.get $old)
      (select (local.get $bytes) (local.get $new) (i32.lt_u (local.get $bytes) (local.get $new))))
    (local.get $at))"#;

/// Two components of which one calls `take` of the other.
struct Pair<'a> {
    /// What `take` is given.
    ty: &'a str,
    /// How the caller and the callee encode strings.
    encodings: (&'a str, &'a str),
    /// The callee's allocator.
    realloc: &'a str,
    /// The callee's code: uses the address and the length in `local.get 0` and `local.get 1`, and
    /// leaves a number.
    take: &'a str,
    /// The caller's code: calls `$take` with an address and a length, which returns that number.
    body: &'a str,
}

impl Default for Pair<'_> {
    fn default() -> Self {
        Self {
            ty: "string",
            encodings: ("utf8", "utf8"),
            realloc: BUMP,
            take: "(local.get 1)",
            body: "",
        }
    }
}

impl Pair<'_> {
    fn text(&self) -> String {
        let Pair {
            ty,
            encodings: (from, to),
            realloc,
            take,
            body,
        } = self;
        format!(
            r#"(component
  (component $callee
    (core module $m (memory (export "memory") 256) {realloc}
      (func (export "take") (param i32 i32) (result i32) {take}))
    (core instance $i (instantiate $m))
    (func (export "take") (param "it" {ty}) (result u32)
      (canon lift (core func $i "take") (memory (core memory $i "memory")) (realloc (core func $i "realloc")) string-encoding={to})))
  (component $caller
    (import "take" (func $take (param "it" {ty}) (result u32)))
    (core module $memory (memory (export "memory") 256))
    (core instance $memory (instantiate $memory))
    (core func $take (canon lower (func $take) (memory (core memory $memory "memory")) string-encoding={from}))
    (core module $m
      (import "" "memory" (memory 256))
      (import "" "take" (func $take (param i32 i32) (result i32)))
      (func (export "run") (result i32) (local $n i32) {body} (i32.const 0)))
    (core instance $main (instantiate $m (with "" (instance
      (export "memory" (memory $memory "memory")) (export "take" (func $take))))))
    (func (export "run") (result (result)) (canon lift (core func $main "run"))))
  (instance $callee (instantiate $callee))
  (instance $caller (instantiate $caller (with "take" (func $callee "take"))))
  (instance $command (export "run" (func $caller "run")))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#
        )
    }
}

fn run_under(cell: &Cell, text: &str, lease: Lease) -> Ended {
    let program = cell.compile_for(text.as_bytes(), &lease);
    let program = program.unwrap_or_else(|error| panic!("{text}: {error}"));
    run(cell, program, lease, Surroundings::default()).0
}

fn exit_of(text: &str) -> Exit {
    run_under(&cell_with_backtraces(), text, lease(1_000_000, 128 << 10)).exit
}

fn trap_of(text: &str) -> String {
    match exit_of(text) {
        Exit::Trap(message) => message,
        exit => panic!("{text}: {exit:?}"),
    }
}

fn refusal(text: &str) -> ProgramError {
    let engine = Engine::new(&engine_config(Mechanism::Epochs)).expect("a valid configuration");
    Program::from_bytes(&engine, text.as_bytes()).expect_err("refused")
}

/// Fills the caller's memory with a letter in units of so many bytes, and passes so many of them.
fn pass(units: u64, width: u32) -> String {
    let store = if width == 1 {
        "i32.store8"
    } else {
        "i32.store16"
    };
    let bytes = units * u64::from(width);
    format!(
        "(block $filled (loop $fill
           (br_if $filled (i32.ge_u (local.get $n) (i32.const {bytes})))
           ({store} (local.get $n) (i32.const 113))
           (local.set $n (i32.add (local.get $n) (i32.const {width})))
           (br $fill)))
         (if (i32.ne (call $take (i32.const 0) (i32.const {units})) (i32.const {units})) (then unreachable))"
    )
}

#[test]
fn strings_pass_between_components_in_every_encoding() {
    for (from, width) in ENCODINGS {
        for (to, own) in ENCODINGS {
            let most = match (from, to) {
                ("utf8", "utf8") => STRING.most,
                _ => WIDE_STRING.most / 2,
            };
            for units in [0, 1, 1000, most] {
                let body = pass(units, width);
                // The last letter is there, and none after it.
                let load = if own == 1 {
                    "i32.load8_u"
                } else {
                    "i32.load16_u"
                };
                let take = format!(
                    "(if (local.get 1) (then (if (i32.ne (i32.const 113) ({load} (i32.add (local.get 0)
                       (i32.mul (i32.const {own}) (i32.sub (local.get 1) (i32.const 1)))))) (then unreachable))))
                     (local.get 1)"
                );
                let (encodings, body, take) = ((from, to), body.as_str(), take.as_str());
                let pair = Pair {
                    encodings,
                    body,
                    take,
                    ..Pair::default()
                };
                assert_eq!(exit_of(&pair.text()), Exit::Code(0), "{from} {to} {units}");
            }
        }
    }
}

#[test]
fn a_string_beyond_the_cap_traps_in_the_allocator_and_is_named() {
    for (encodings, width, most) in [
        (("utf8", "utf8"), 1, STRING.most),
        (("utf16", "utf16"), 2, WIDE_STRING.most / 2),
        (("utf8", "utf16"), 1, WIDE_STRING.most / 2),
        (("utf16", "utf8"), 2, WIDE_STRING.most),
        (("latin1+utf16", "utf8"), 1, WIDE_STRING.most),
    ] {
        for units in [most + 1, 4 << 20] {
            let body = &pass(units, width);
            let trap = trap_of(
                &Pair {
                    encodings,
                    body,
                    ..Pair::default()
                }
                .text(),
            );
            assert!(
                trap.contains("a string between components has more than "),
                "{encodings:?}: {trap}"
            );
        }
    }
}

#[test]
fn a_list_has_no_cap_where_no_string_is_passed() {
    let body = &pass(8 << 20, 1);
    let list = Pair {
        ty: "(list u8)",
        body,
        ..Pair::default()
    };
    assert_eq!(exit_of(&list.text()), Exit::Code(0));
    // Beside a string it has the string's, unless its elements are aligned otherwise.
    let words = Pair {
        ty: "(list (tuple u32 string))",
        body: "(drop (call $take (i32.const 0) (i32.const 20000)))",
        ..Pair::default()
    };
    assert_eq!(exit_of(&words.text()), Exit::Code(0));
}

#[test]
fn what_is_no_string_or_not_the_callers_memory_traps() {
    for (body, reason) in [
        (
            "(i32.store (i32.const 0) (i32.const 255)) (drop (call $take (i32.const 0) (i32.const 1)))",
            "utf8",
        ),
        (
            "(drop (call $take (i32.const 16777215) (i32.const 2)))",
            "out-of-bounds",
        ),
        (
            "(drop (call $take (i32.const -1) (i32.const 1)))",
            "out-of-bounds",
        ),
        (
            "(drop (call $take (i32.const 0) (i32.const -1)))",
            "out-of-bounds",
        ),
        (
            "(drop (call $take (i32.const 8) (i32.const 2147483647)))",
            "out-of-bounds",
        ),
    ] {
        let trap = trap_of(
            &Pair {
                body,
                ..Pair::default()
            }
            .text(),
        );
        let expected = trap.contains(reason) || trap.contains("has more than");
        assert!(expected, "{body}: {trap}");
    }
}

#[test]
fn an_allocator_between_components_cannot_do_more_than_a_guest() {
    let realloc = |body: &str| {
        format!(r#"(func (export "realloc") (param i32 i32 i32 i32) (result i32) {body})"#)
    };
    let body = "(drop (call $take (i32.const 0) (i32.const 1000)))";
    for (allocator, reason) in [
        ("(i32.const -1)", "out-of-bounds"),
        ("(i32.const 16777200)", "out-of-bounds"),
        ("unreachable", "unreachable"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "divide by zero"),
        ("(throw $t)", "exception"),
    ] {
        let allocator = &format!("(tag $t) {}", realloc(allocator));
        let pair = Pair {
            realloc: allocator,
            body,
            ..Pair::default()
        };
        let trap = trap_of(&pair.text());
        assert!(trap.contains(reason), "{allocator}: {trap}");
    }
    // It may grow its memory, and give an odd address to a string of bytes.
    for allocator in [
        "(drop (memory.grow (i32.const 1))) (i32.const 1)",
        "(i32.const 0)",
    ] {
        let allocator = &realloc(allocator);
        let pair = Pair {
            realloc: allocator,
            body,
            ..Pair::default()
        };
        assert_eq!(exit_of(&pair.text()), Exit::Code(0), "{allocator}");
    }
    let odd = &realloc("(i32.const 1)");
    let wide = Pair {
        realloc: odd,
        body,
        encodings: ("utf8", "utf16"),
        ..Pair::default()
    };
    assert!(
        trap_of(&wide.text()).contains("align"),
        "{}",
        trap_of(&wide.text())
    );
}

#[test]
fn a_guest_that_is_between_components_all_the_time_is_preempted_and_killed() {
    let cell = cell();
    let for_ever = "(loop $again (drop (call $take (i32.const 0) (i32.const 65536))) (br $again))";
    let loops = r#"(func (export "realloc") (param i32 i32 i32 i32) (result i32) (loop $l (br $l)) unreachable)"#;
    let reset =
        r#"(func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))"#;
    for pair in [
        Pair {
            realloc: reset,
            body: for_ever,
            ..Pair::default()
        },
        Pair {
            realloc: reset,
            body: for_ever,
            ty: "(list u8)",
            ..Pair::default()
        },
        Pair {
            realloc: loops,
            body: for_ever,
            ..Pair::default()
        },
    ] {
        let lease = lease(1_000_000, 128 << 10);
        let program = cell
            .compile_for(pair.text().as_bytes(), &lease)
            .expect("a program");
        let (request, _) = captured(program, "between", &[], lease);
        let between = cell.start_tenant(request).expect("a tenant");
        std::thread::sleep(Duration::from_millis(20));
        // Another one runs beside it.
        let idle = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
        assert_eq!(run_under(&cell, idle, lease).exit, Exit::Code(0));
        between.kill();
        let began = Instant::now();
        assert_eq!(between.wait().expect("an end").exit, Exit::Killed);
        assert!(began.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn what_passes_between_components_arrives_whole_although_they_are_preempted() {
    let cell = cell();
    // A sum of all bytes, in the caller before and in the callee afterwards.
    let sum = |at: &str, length: &str| {
        format!(
            "(block $end (loop $next
               (br_if $end (i32.eqz {length}))
               (local.set $sum (i32.add (i32.rotl (local.get $sum) (i32.const 5)) (i32.load8_u {at})))
               (local.set {at_name} (i32.add {at} (i32.const 1)))
               (local.set {length_name} (i32.sub {length} (i32.const 1)))
               (br $next)))",
            at_name = at.trim_start_matches("(local.get ").trim_end_matches(')'),
            length_name = length.trim_start_matches("(local.get ").trim_end_matches(')'),
        )
    };
    let take = format!(
        "(local $sum i32) {} (local.get $sum)",
        sum("(local.get 0)", "(local.get 1)")
    );
    let body = format!(
        "(local $at i32) (local $left i32) (local $sum i32)
         (loop $again
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (local.set $at (i32.const 0))
           (loop $fill
             (i32.store8 (local.get $at)
               (i32.rem_u (i32.mul (i32.add (local.get $at) (local.get $n)) (i32.const 7919)) (i32.const 127)))
             (br_if $fill (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 60000))))
           (local.set $at (i32.const 0)) (local.set $left (i32.const 60000)) (local.set $sum (i32.const 0))
           {}
           (if (i32.ne (local.get $sum) (call $take (i32.const 0) (i32.const 60000))) (then unreachable))
           (br_if $again (i32.lt_u (local.get $n) (i32.const 400))))",
        sum("(local.get $at)", "(local.get $left)")
    );
    let realloc =
        r#"(func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))"#;
    let lease = lease(1_000_000, 128 << 10);
    let tenants: Vec<_> = ["string", "(list u8)", "string"]
        .map(|ty| {
            let pair = Pair {
                ty,
                realloc,
                take: &take,
                body: &body,
                ..Pair::default()
            };
            let program = cell.compile_for(pair.text().as_bytes(), &lease);
            let program = program.unwrap_or_else(|error| panic!("{error}"));
            let (request, _) = captured(program, "composed", &[], lease);
            cell.start_tenant(request).expect("a tenant")
        })
        .into();
    for tenant in tenants {
        assert_eq!(tenant.wait().expect("an end").exit, Exit::Code(0));
    }
}

#[test]
fn every_flipped_byte_of_a_composed_program_is_refused_or_still_valid() {
    let engine = Engine::new(&engine_config(Mechanism::Epochs)).expect("a valid configuration");
    let binary = wat::parse_str(Pair::default().text()).expect("valid");
    for at in 0..binary.len() {
        let mut flipped = binary.clone();
        flipped[at] ^= 1 << (at % 8);
        let _ = Program::from_bytes(&engine, &flipped);
    }
}

#[test]
fn strings_between_components_of_a_tenant_that_pages_reach_pages_that_are_out() {
    let held = held(512 * PAGE, 64 << 20);
    let rounds = "(loop $rounds
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (if (i32.ne (call $take (i32.mul (local.get $n) (i32.const 65536)) (i32.const 65536)) (i32.const 65536))
          (then unreachable))
        (br_if $rounds (i32.lt_u (local.get $n) (i32.const 60))))";
    let pair = Pair {
        body: rounds,
        ..Pair::default()
    };
    let narrow = paging(2_000_000, 64 * PAGE, 48 << 20, SharedPages::Conserve);
    assert_eq!(
        run_under(&held.cell, &pair.text(), narrow).exit,
        Exit::Code(0)
    );
}

/// A component that makes resources, and one that asks for them.
fn with_resources(body: &str, destructor: &str) -> String {
    format!(
        r#"(component
  (component $maker
    (core module $d (func (export "drop") (param i32) {destructor}))
    (core instance $d (instantiate $d))
    (type $thing' (resource (rep i32) (dtor (core func $d "drop"))))
    (export $thing "thing" (type $thing'))
    (core func $new (canon resource.new $thing'))
    (core module $m (import "" "new" (func $new (param i32) (result i32)))
      (func (export "make") (result i32) (call $new (i32.const 7)))
      (func (export "look") (param i32) (result i32) (local.get 0))
      (func (export "keep") (param i32)))
    (core instance $i (instantiate $m (with "" (instance (export "new" (func $new))))))
    (func (export "make") (result (own $thing)) (canon lift (core func $i "make")))
    (func (export "look") (param "thing" (borrow $thing)) (result u32) (canon lift (core func $i "look")))
    (func (export "keep") (param "thing" (own $thing)) (canon lift (core func $i "keep"))))
  (component $user
    (import "thing" (type $thing (sub resource)))
    (import "make" (func $make (result (own $thing))))
    (import "look" (func $look (param "thing" (borrow $thing)) (result u32)))
    (import "keep" (func $keep (param "thing" (own $thing))))
    (core func $make (canon lower (func $make)))
    (core func $look (canon lower (func $look)))
    (core func $keep (canon lower (func $keep)))
    (core func $drop (canon resource.drop $thing))
    (core module $m
      (import "" "make" (func $make (result i32)))
      (import "" "look" (func $look (param i32) (result i32)))
      (import "" "keep" (func $keep (param i32)))
      (import "" "drop" (func $drop (param i32)))
      (func (export "run") (result i32) (local $n i32) {body} (i32.const 0)))
    (core instance $i (instantiate $m (with "" (instance (export "make" (func $make))
      (export "look" (func $look)) (export "keep" (func $keep)) (export "drop" (func $drop))))))
    (func (export "run") (result (result)) (canon lift (core func $i "run"))))
  (instance $maker (instantiate $maker))
  (instance $user (instantiate $user
    (with "thing" (type $maker "thing")) (with "make" (func $maker "make"))
    (with "look" (func $maker "look")) (with "keep" (func $maker "keep"))))
  (instance $command (export "run" (func $user "run")))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#
    )
}

#[test]
fn handles_pass_between_components_and_are_as_few_as_a_tenant_may_have() {
    let used = with_resources(
        "(loop $again
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (if (i32.ne (call $look (call $make)) (i32.const 7)) (then unreachable))
           (call $drop (i32.const 1))
           (br_if $again (i32.lt_u (local.get $n) (i32.const 5000))))
         (call $keep (call $make))",
        "(if (i32.ne (local.get 0) (i32.const 7)) (then unreachable))",
    );
    assert_eq!(exit_of(&used), Exit::Code(0));
    for kept in [
        "(loop $again (drop (call $make)) (br $again))",
        "(loop $again (call $keep (call $make)) (br $again))",
    ] {
        let trap = trap_of(&with_resources(kept, ""));
        assert!(trap.contains("handle limit"), "{trap}");
    }
    for (body, reason) in [
        ("(call $drop (i32.const 5))", "handle"),
        ("(drop (call $look (i32.const 0)))", "handle"),
        ("(call $drop (call $make))", "unreachable"),
    ] {
        let trap = trap_of(&with_resources(body, "unreachable"));
        assert!(trap.contains(reason), "{body}: {trap}");
    }
}

/// Components that make resources, so many, and a user of them that fills the tables of one after the other.
fn with_tables(count: usize) -> String {
    let all = |part: fn(usize) -> String| (0..count).map(part).collect::<Vec<_>>().join("\n");
    format!(
        r#"(component
  (component $maker
    (type $r (resource (rep i32)))
    (core func $new (canon resource.new $r))
    (core func $drop (canon resource.drop $r))
    (core module $m
      (import "" "new" (func $new (param i32) (result i32)))
      (import "" "drop" (func $drop (param i32)))
      (func (export "fill") (param $most i32) (local $n i32)
        (loop $l (drop (call $new (i32.const 0)))
          (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (local.get $most))))
        (loop $l (call $drop (local.get $n))
          (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))
    (core instance $i (instantiate $m (with "" (instance
      (export "new" (func $new)) (export "drop" (func $drop))))))
    (func (export "fill") (param "most" u32) (canon lift (core func $i "fill"))))
  {instances}
  (component $user
    {imports}
    {lowered}
    (core module $m
      {core_imports}
      (func (export "run") (result i32) {calls} (i32.const 0)))
    (core instance $i (instantiate $m (with "" (instance {exports}))))
    (func (export "run") (result (result)) (canon lift (core func $i "run"))))
  (instance $user (instantiate $user {with}))
  (instance $command (export "run" (func $user "run")))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#,
        instances = all(|n| format!("(instance $m{n} (instantiate $maker))")),
        imports = all(|n| format!(r#"(import "f{n}" (func $f{n} (param "most" u32)))"#)),
        lowered = all(|n| format!("(core func $f{n} (canon lower (func $f{n})))")),
        core_imports = all(|n| format!(r#"(import "" "f{n}" (func $f{n} (param i32)))"#)),
        calls = all(|n| format!("(call $f{n} (i32.const MOST))")),
        exports = all(|n| format!(r#"(export "f{n}" (func $f{n}))"#)),
        with = all(|n| format!(r#"(with "f{n}" (func $m{n} "fill"))"#)),
    )
}

#[test]
fn tables_of_handles_that_were_once_full_are_charged_for() {
    for (components, full) in [(3, LENDS.most), (40, ALL_HANDLES.most / 43)] {
        let text = with_tables(components);
        let all = text.replace("MOST", &full.to_string());
        let ended = run_under(&cell_with_backtraces(), &all, lease(1_000_000, 256 << 10));
        assert_eq!(ended.exit, Exit::Code(0), "{components}");
        let charged = ended
            .statement
            .rows
            .iter()
            .find(|row| row.name == "host_page");
        let pages = charged.map_or(0, |row| row.count);
        // Each place is of 20 bytes.
        assert!(pages * PAGE >= (components as u64) * full * 20, "{pages}");
        let more = text.replace("MOST", &(full + 1).to_string());
        let trap = trap_of(&more);
        assert!(trap.contains("handle limit"), "{components}: {trap}");
    }
}

/// A component that lends another one a list with the same handle so many times.
fn lending(times: u64) -> String {
    format!(
        r#"(component
  (component $maker
    (type $thing' (resource (rep i32)))
    (export $thing "thing" (type $thing'))
    (core func $new (canon resource.new $thing'))
    (core module $m
      (import "" "new" (func $new (param i32) (result i32)))
      (memory (export "memory") 16)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
      (func (export "make") (result i32) (call $new (i32.const 7)))
      (func (export "look") (param i32 i32)))
    (core instance $i (instantiate $m (with "" (instance (export "new" (func $new))))))
    (func (export "make") (result (own $thing)) (canon lift (core func $i "make")))
    (func (export "look") (param "things" (list (borrow $thing)))
      (canon lift (core func $i "look") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))
  (component $user
    (import "thing" (type $thing (sub resource)))
    (import "make" (func $make (result (own $thing))))
    (import "look" (func $look (param "things" (list (borrow $thing)))))
    (core module $memory (memory (export "memory") 16))
    (core instance $memory (instantiate $memory))
    (core func $make (canon lower (func $make)))
    (core func $look (canon lower (func $look) (memory (core memory $memory "memory"))))
    (core module $m
      (import "" "memory" (memory 16))
      (import "" "make" (func $make (result i32)))
      (import "" "look" (func $look (param i32 i32)))
      (func (export "run") (result i32) (local $thing i32) (local $at i32)
        (local.set $thing (call $make))
        (loop $l
          (i32.store (local.get $at) (local.get $thing))
          (local.set $at (i32.add (local.get $at) (i32.const 4)))
          (br_if $l (i32.lt_u (local.get $at) (i32.const {bytes}))))
        (call $look (i32.const 0) (i32.const {times}))
        (i32.const 0)))
    (core instance $i (instantiate $m (with "" (instance (export "memory" (memory $memory "memory"))
      (export "make" (func $make)) (export "look" (func $look))))))
    (func (export "run") (result (result)) (canon lift (core func $i "run"))))
  (instance $maker (instantiate $maker))
  (instance $user (instantiate $user (with "thing" (type $maker "thing"))
    (with "make" (func $maker "make")) (with "look" (func $maker "look"))))
  (instance $command (export "run" (func $user "run")))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#,
        bytes = times * 4
    )
}

#[test]
fn components_lend_each_other_few_handles_at_a_time() {
    assert_eq!(exit_of(&lending(LENDS.most - 8)), Exit::Code(0));
    let trap = trap_of(&lending(65_000));
    assert!(trap.contains("handle limit"), "{trap}");
}

/// Components one after the other, each of which calls the one before, and nothing else.
fn chain(count: usize) -> String {
    let mut text = String::from(
        r#"(component
  (component $first
    (core module $m (func (export "f")))
    (core instance $i (instantiate $m))
    (func (export "f") (canon lift (core func $i "f"))))
  (component $next
    (import "f" (func $f))
    (core func $g (canon lower (func $f)))
    (func (export "f") (canon lift (core func $g))))
  (instance $c0 (instantiate $first))"#,
    );
    for n in 1..=count {
        let before = n - 1;
        text +=
            &format!(r#"(instance $c{n} (instantiate $next (with "f" (func $c{before} "f"))))"#);
    }
    text + r#"
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#
}

#[test]
fn adapters_that_no_instance_is_given_are_counted() {
    assert_eq!(exit_of(&chain(20)), Exit::Code(0));
    let refused = refusal(&chain(120)).to_string();
    assert!(refused.contains("instances"), "{refused}");
}

#[test]
fn components_that_multiply_are_refused_however_many_there_would_be() {
    // Each component has a thousand of the one before, and calls a function.
    let mut inner = String::from(
        r#"(component $c (import "f" (func $f)) (core func (canon lower (func $f))))"#,
    );
    for _ in 0..8 {
        let all = r#"(instance (instantiate $c (with "f" (func $f))))"#.repeat(1_000);
        inner = format!(
            r#"(component $c (import "f" (func $f)) {inner} {all} (core func (canon lower (func $f))))"#
        );
    }
    let text = format!(
        r#"(component (component $m (core module $m (func (export "f"))) (core instance $i (instantiate $m))
          (func (export "f") (canon lift (core func $i "f"))))
          (instance $m (instantiate $m)) {inner}
          (instance (instantiate $c (with "f" (func $m "f")))))"#
    );
    let refused = refusal(&text).to_string();
    assert!(!refused.is_empty());
}

#[test]
fn a_destructor_that_never_returns_is_killed() {
    let cell = cell();
    let lease = lease(1_000_000, 1 << 10);
    let text = with_resources("(call $drop (call $make))", "(loop $l (br $l))");
    let program = cell
        .compile_for(text.as_bytes(), &lease)
        .expect("a program");
    let (request, _) = captured(program, "destructor", &[], lease);
    let tenant = cell.start_tenant(request).expect("a tenant");
    std::thread::sleep(Duration::from_millis(20));
    tenant.kill();
    assert_eq!(tenant.wait().expect("an end").exit, Exit::Killed);
}

#[test]
fn an_exception_of_a_component_is_a_trap_of_the_one_that_called_it() {
    let throws = Pair {
        realloc: &format!("(tag $t) {BUMP}"),
        take: "(throw $t)",
        body: "(block $caught (try_table (catch_all $caught)
                 (drop (call $take (i32.const 0) (i32.const 1)))))",
        ..Pair::default()
    };
    let trap = trap_of(&throws.text());
    assert!(trap.contains("exception"), "{trap}");
}

#[test]
fn components_are_few_and_pass_each_other_types_of_few_parts() {
    // A component that does nothing, many times.
    let many = |count: usize| {
        format!(
            r#"(component (component $c) {}
              (core module $m (func (export "run") (result i32) (i32.const 0)))
              (core instance $i (instantiate $m))
              (func $run (result (result)) (canon lift (core func $i "run")))
              (instance $command (export "run" (func $run)))
              (export "wasi:cli/run@0.2.0" (instance $command)))"#,
            "(instance (instantiate $c))".repeat(count)
        )
    };
    assert_eq!(exit_of(&many(256)), Exit::Code(0));
    let refused = refusal(&many(257)).to_string();
    assert!(refused.contains("components"), "{refused}");
    // A type that doubles with every level.
    let mut types = String::from("(type $t0 (tuple u8 string))");
    for level in 1..12 {
        types += &format!("(type $t{level} (tuple $t{0} $t{0}))", level - 1);
    }
    let text = format!(
        r#"(component
          (component $callee {types}
            (core module $m (memory (export "memory") 1) {BUMP} (func (export "take") (param i32)))
            (core instance $i (instantiate $m))
            (func (export "take") (param "it" $t11)
              (canon lift (core func $i "take") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))
          (component $caller {types}
            (import "take" (func $take (param "it" $t11)))
            (core module $memory (memory (export "memory") 1))
            (core instance $memory (instantiate $memory))
            (core func $take (canon lower (func $take) (memory (core memory $memory "memory"))))
            {})
          (instance $callee (instantiate $callee))
          (instance (instantiate $caller (with "take" (func $callee "take"))))
          (core module $m (func (export "run") (result i32) (i32.const 0)))
          (core instance $i (instantiate $m))
          (func $run (result (result)) (canon lift (core func $i "run")))
          (instance $command (export "run" (func $run)))
          (export "wasi:cli/run@0.2.0" (instance $command)))"#,
        r#"(core func (canon lower (func $take) (memory (core memory $memory "memory"))))"#
            .repeat(2)
    );
    let refused = refusal(&text).to_string();
    assert!(
        refused.contains("parts of what components pass each other"),
        "{refused}"
    );
}
