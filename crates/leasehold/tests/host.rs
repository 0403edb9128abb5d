//! The interface of a host: its inputs reach the tenant, and the tenant's outputs reach the caller.

use leasehold::{
    CallError, Command, Costs, Error, Exit, Host, Lease, Nanoseconds, Start, Type, Value, wave,
};
use std::time::Duration;

fn host() -> Host {
    Host::new(Costs::none()).expect("a host")
}

/// Writes its first argument but one to standard output, and its input to standard error.
const ECHO: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $args (i32.const 64) (i32.const 1024)))
    (i32.store (i32.const 0) (i32.load (i32.const 68)))
    (i32.store (i32.const 4) (i32.const 5))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (i32.const 100))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
    (i32.store (i32.const 4) (i32.load (i32.const 16)))
    (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

#[test]
fn what_a_tenant_is_started_with_is_what_it_sees_and_its_output_is_kept() {
    let host = host();
    let command = host
        .compile(ECHO.as_bytes(), &Lease::default())
        .expect("a program");
    let tenant = host.run(&command, Start::new().arg("hello").stdin("input"));
    let outcome = tenant.expect("a tenant").wait().expect("an end");
    assert!(outcome.is_success(), "{:?}", outcome.exit);
    assert_eq!(
        (&*outcome.stdout, &*outcome.stderr),
        (&b"hello"[..], &b"input"[..])
    );
    assert!(!outcome.report.statement.rows.is_empty());
}

fn spin(host: &Host) -> Command {
    let text = r#"(module (func (export "_start") (loop (br 0))))"#;
    host.compile(text.as_bytes(), &Lease::default())
        .expect("a program")
}

#[test]
fn a_tenant_can_be_looked_at_and_killed_while_it_runs() {
    let host = host();
    let tenant = host.run(&spin(&host), Start::new()).expect("a tenant");
    assert!(
        tenant
            .wait_for(Duration::from_millis(20))
            .expect("it runs")
            .is_none()
    );
    assert!(
        tenant.statement().is_some() && tenant.memory().is_some() && tenant.processor().is_some()
    );
    tenant.kill();
    assert_eq!(tenant.wait().expect("an end").exit, Exit::Killed);
}

#[test]
fn errors_say_which_side_caused_them() {
    let host = host();
    let library = br#"(module (func (export "f") (param i32)))"#;
    assert!(matches!(
        host.compile(library, &Lease::default()),
        Err(Error::Program(_))
    ));
    let plugin = host
        .compile_plugin(library, &Lease::default())
        .expect("a plug-in");
    assert!(matches!(plugin.function("g"), Err(Error::Function(_))));
    let instance = host.plug_in(&plugin, Start::new()).expect("an instance");
    let called = |arguments: Vec<Value>| instance.call::<()>("f", arguments);
    assert!(matches!(
        called(vec![]),
        Err(Error::Call(CallError::Arguments { .. }))
    ));
    assert!(matches!(
        instance.call::<(i32,)>("f", (1,)),
        Err(Error::Results { .. })
    ));
    assert!(called(vec![Value::S32(1)]).is_ok());
    assert!(matches!(
        instance.begin_call_of_text("f("),
        Err(Error::Text(_))
    ));
    assert!(matches!(
        instance.begin_call_of_text("f(true)"),
        Err(Error::Text(_))
    ));
    assert_eq!(instance.finish().expect("an end").exit, Exit::Code(0));
}

#[test]
fn a_lease_that_does_not_pay_for_the_start_is_said_so() {
    let profile = leasehold_cell::profile::Profile::free();
    let mut costs = profile;
    costs
        .median_ps
        .held
        .insert("store".to_owned(), 1_000_000_000);
    let host = Host::new(costs.into()).expect("a host");
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(1_000).expect("in range");
    let command = host
        .compile(br#"(module (func (export "_start")))"#, &lease)
        .expect("a program");
    let refused = host.run(&command, Start::new());
    assert!(matches!(refused, Err(Error::Start(_))));
}

/// A component of which `f` returns its argument.
fn identity(ty: &str, types: &str) -> String {
    format!(
        r#"(component
  (core module $m
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at))
    (func (export "f") (param i32 i32) (result i32)
      (i32.store (i32.const 16) (local.get 0)) (i32.store (i32.const 20) (local.get 1)) (i32.const 16)))
  (core instance $i (instantiate $m))
  (alias core export $i "memory" (core memory $memory))
  {types}
  (func (export "f") (param "value" (list {ty})) (result (list {ty}))
    (canon lift (core func $i "f") (memory $memory) (realloc (core func $i "realloc")))))"#
    )
}

#[test]
fn text_becomes_values_and_values_become_the_same_text() {
    let host = host();
    let named = |ty: &str| format!("(type $t' {ty}) (export $t \"t\" (type $t'))");
    for (ty, types, text) in [
        ("u8", String::new(), "[1, 255]"),
        ("s64", String::new(), "[-1, 9223372036854775807]"),
        ("f64", String::new(), "[-1.5, inf, nan]"),
        ("char", String::new(), "['a', '\\n']"),
        ("string", String::new(), r#"["", "two \"words\""]"#),
        ("(option u8)", String::new(), "[some(1), none]"),
        (
            "(result u8 (error string))",
            String::new(),
            r#"[ok(1), err("no")]"#,
        ),
        ("(tuple u8 bool)", String::new(), "[(1, true), (2, false)]"),
        (
            "$t",
            named(r#"(record (field "a" u8) (field "b" string))"#),
            r#"[{a: 1, b: "x"}]"#,
        ),
        (
            "$t",
            named(r#"(variant (case "a") (case "b" u8))"#),
            "[a, b(2)]",
        ),
        ("$t", named(r#"(enum "a" "b")"#), "[b, a]"),
        ("$t", named(r#"(flags "a" "b" "c")"#), "[{a, c}, {}]"),
    ] {
        let text_of = identity(ty, &types);
        let plugin = host
            .compile_plugin(text_of.as_bytes(), &Lease::default())
            .expect(ty);
        let instance = host.plug_in(&plugin, Start::new()).expect("an instance");
        let results = instance.begin_call_of_text(&format!("f({text})"));
        let results = results.expect(ty).wait::<Vec<Value>>().expect(ty);
        assert_eq!(wave::results(&results).expect(ty), text, "{ty}");
    }
    let plugin = identity("$t", &named(r#"(record (field "a" u8) (field "b" u8))"#));
    let plugin = host
        .compile_plugin(plugin.as_bytes(), &Lease::default())
        .expect("a plug-in");
    let instance = host.plug_in(&plugin, Start::new()).expect("an instance");
    let results = instance
        .begin_call_of_text("f([{b: 2, a: 1}])")
        .expect("a call");
    let results = results.wait::<Vec<Value>>().expect("results");
    assert_eq!(
        wave::results(&results).expect("text"),
        "[{a: 1, b: 2}]",
        "fields in any order"
    );
}

#[test]
fn a_number_that_is_too_large_for_its_type_is_refused_wherever_it_is() {
    let host = host();
    let named = |ty: &str| format!("(type $t' {ty}) (export $t \"t\" (type $t'))");
    let beyond = "found 3e400, which is beyond the numbers of its type";
    for (ty, types, infinite, too_large) in [
        ("f64", String::new(), "[inf, -inf, 1e308]", "[1.5, 3e400]"),
        ("f32", String::new(), "[inf, -inf, 3e38]", "[inf, 3e400]"),
        (
            "(option f64)",
            String::new(),
            "[some(inf), none]",
            "[3e400]",
        ),
        ("(option f64)", String::new(), "[inf]", "[some(3e400)]"),
        (
            "(result f64 (error f32))",
            String::new(),
            "[ok(inf), err(-inf)]",
            "[err(3e400)]",
        ),
        ("(result f64)", String::new(), "[inf]", "[3e400]"),
        (
            "(tuple u8 f32)",
            String::new(),
            "[(1, inf)]",
            "[(1, 3e400)]",
        ),
        (
            "$t",
            named(r#"(record (field "a" f64) (field "b" f64))"#),
            "[{b: inf, a: 1}]",
            "[{b: 3e400, a: inf}]",
        ),
        (
            "$t",
            named(r#"(variant (case "a") (case "b" f64))"#),
            "[a, b(inf)]",
            "[b(3e400)]",
        ),
        ("u8", String::new(), "[255]", "[256]"),
    ] {
        let plugin = identity(ty, &types);
        let plugin = host
            .compile_plugin(plugin.as_bytes(), &Lease::default())
            .expect(ty);
        let instance = host.plug_in(&plugin, Start::new()).expect("an instance");
        let call = |text: &str| instance.begin_call_of_text(&format!("f({text})"));
        let results = call(infinite).expect(ty).wait::<Vec<Value>>();
        results.expect(ty);
        let Err(Error::Text(said)) = call(too_large) else {
            panic!("{ty}: {too_large} was taken");
        };
        assert!(ty == "u8" || said.contains(beyond), "{ty}: {said}");
    }
    let value = |text: &str| wave::value(text, &Type::Float32);
    assert_eq!(
        value("-inf").expect("a number"),
        Value::Float32(f32::NEG_INFINITY)
    );
    // It is none too large for the other type.
    for text in ["3e39", "-3e39"] {
        assert!(matches!(value(text), Err(Error::Text(_))), "{text}");
        wave::value(text, &Type::Float64).expect("a number");
    }
}
