//! Calls of exported functions: typed arguments and results, and hostile callees.

mod common;

use common::{cell, lease};
use leasehold_cell::steps::caps;
use leasehold_cell::{
    CallError, Cell, Exit, ExportedFunction, FunctionError, Lease, PendingCall, ProgramError,
    StartRequest, Surroundings, TenantHandle, Val,
};
use std::time::Duration;

/// A program that answers calls.
struct Called {
    _cell: Cell,
    tenant: TenantHandle,
    program: std::sync::Arc<leasehold_cell::Program>,
}

impl Called {
    fn start(text: &str) -> Self {
        Self::under(text, lease(50_000, 64 << 10))
    }

    fn under(text: &str, lease: Lease) -> Self {
        let cell = cell();
        let program = cell.compile_exports(text.as_bytes(), &lease);
        let program = program.expect("a program");
        let tenant = cell.start_tenant(StartRequest {
            program: program.clone(),
            lease,
            surroundings: Surroundings::default(),
        });
        let tenant = tenant.expect("a tenant");
        Self {
            _cell: cell,
            tenant,
            program,
        }
    }

    fn function(&self, name: &str) -> ExportedFunction {
        ExportedFunction::find(&self.program, name).expect("a function")
    }

    fn begin(&self, name: &str, arguments: Vec<Val>) -> PendingCall {
        let call = self.tenant.call(&self.function(name), arguments);
        call.expect("a call")
    }

    fn call(&self, name: &str, arguments: Vec<Val>) -> Result<Vec<Val>, CallError> {
        self.tenant.call(&self.function(name), arguments)?.wait()
    }

    /// The end of the tenant after a call that it cannot end by itself, and the call's.
    fn kill_in(self, name: &str, arguments: Vec<Val>) {
        let call = self.begin(name, arguments);
        assert_eq!(
            call.wait_for(Duration::from_millis(50)),
            Ok(None),
            "it goes on"
        );
        self.tenant.kill();
        assert_eq!(call.wait(), Err(CallError::Ended));
        let ended = self.tenant.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Killed);
        let (took, predicted) = (
            ended.reclaimed.returned.cpu_ns,
            ended.reclaimed.predicted_ns,
        );
        assert!(took < 50_000_000, "{took} of {predicted} ns");
    }
}

/// A component whose core module has this body, and exports of which this says how they are lifted.
fn component(body: &str, lifts: &str) -> String {
    format!(
        r#"(component
  (core module $main
    (memory (export "memory") 32)
    (global $next (mut i32) (i32.const 1024))
    {body})
  (core instance $main (instantiate $main))
  (alias core export $main "memory" (core memory $memory))
  {lifts})"#
    )
}

/// An allocator that never frees.
const REALLOC: &str = r#"
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at))"#;

/// Lifts an export of the core module `(param i32 i32)`, of a string or list that it returns as it is.
fn echo(ty: &str) -> String {
    component(
        &format!(
            r#"{REALLOC}
    (func (export "echo") (param i32 i32) (result i32)
      (i32.store (i32.const 16) (local.get 0))
      (i32.store (i32.const 20) (local.get 1))
      (i32.const 16))"#
        ),
        &format!(
            r#"(func (export "echo") (param "value" {ty}) (result {ty})
    (canon lift (core func $main "echo") (memory $memory) (realloc (core func $main "realloc"))))"#
        ),
    )
}

#[test]
fn a_function_of_a_core_module_is_called_with_numbers() {
    let called = Called::start(
        r#"(module
          (global $calls (mut i64) (i64.const 0))
          (func (export "_initialize") (global.set $calls (i64.const 100)))
          (func (export "f") (param i32 f64) (result i64 f64)
            (global.set $calls (i64.add (global.get $calls) (i64.extend_i32_s (local.get 0))))
            (global.get $calls) (f64.mul (local.get 1) (f64.const 2))))"#,
    );
    let arguments = vec![Val::S32(-1), Val::Float64(1.5)];
    let first = called.call("f", arguments.clone());
    assert_eq!(first, Ok(vec![Val::S64(99), Val::Float64(3.0)]));
    let second = called.call("f", arguments);
    assert_eq!(
        second,
        Ok(vec![Val::S64(98), Val::Float64(3.0)]),
        "of the same instance"
    );
    called.tenant.finish();
    assert_eq!(called.tenant.wait().expect("an end").exit, Exit::Code(0));
}

#[test]
fn values_of_a_component_come_back_as_they_were() {
    let called = Called::start(&echo("string"));
    let text = Val::String("ä string".to_owned());
    assert_eq!(called.call("echo", vec![text.clone()]), Ok(vec![text]));
    let called = Called::start(&echo("(list (tuple u8 string (option s64)))"));
    let value = |name: &str, some: bool| {
        let some = some.then(|| Box::new(Val::S64(-3)));
        Val::Tuple(vec![
            Val::U8(7),
            Val::String(name.to_owned()),
            Val::Option(some),
        ])
    };
    let list = Val::List(vec![
        value("one", true),
        value("", false),
        value("three", true),
    ]);
    assert_eq!(called.call("echo", vec![list.clone()]), Ok(vec![list]));
}

#[test]
fn a_function_is_found_in_its_interface_and_refused_where_it_is_none() {
    let text = r#"(component
      (core module $m (func (export "f") (result i32) (i32.const 42)))
      (core instance $i (instantiate $m))
      (func $f (result u32) (canon lift (core func $i "f")))
      (instance $one (export "get" (func $f)) (export "own" (func $f)))
      (instance $two (export "get" (func $f)))
      (export "test:calls/one@1.0.0" (instance $one))
      (export "test:calls/two@1.0.0" (instance $two)))"#;
    let called = Called::start(text);
    for name in [
        "own",
        "test:calls/one@1.0.0#get",
        "test:calls/two@1.0.0#get",
    ] {
        assert_eq!(called.call(name, vec![]), Ok(vec![Val::U32(42)]), "{name}");
    }
    let find = |name| ExportedFunction::find(&called.program, name).expect_err("none");
    assert!(matches!(find("get"), FunctionError::Ambiguous { exports, .. } if exports.len() == 2));
    assert!(matches!(find("set"), FunctionError::Missing { exports, .. } if exports.len() == 3));
    let error = called
        .tenant
        .call(&called.function("own"), vec![Val::U32(1)]);
    assert!(matches!(error, Err(CallError::Arguments { .. })));
}

#[test]
fn a_command_is_not_called_and_a_library_is_not_run() {
    let cell = cell();
    let library = br#"(module (func (export "f")))"#;
    assert!(matches!(
        cell.compile(library),
        Err(ProgramError::NoEntry(_))
    ));
    let command = cell
        .compile(br#"(module (func (export "_start")))"#)
        .expect("a command");
    let found = ExportedFunction::find(&command, "_start");
    assert_eq!(found.expect_err("a command"), FunctionError::Command);
    let initialize = br#"(module (func (export "_initialize") (param i32)))"#;
    let refused = cell.compile_exports(initialize, &Lease::default());
    assert!(matches!(refused, Err(ProgramError::EntryType(..))));
}

#[test]
fn a_call_of_another_program_is_refused() {
    let (one, two) = (
        Called::start(&echo("string")),
        Called::start(&echo("string")),
    );
    let foreign = one.function("echo");
    let call = two.tenant.call(&foreign, vec![Val::String(String::new())]);
    assert_eq!(call.expect("sent").wait(), Err(CallError::OtherProgram));
}

#[test]
fn a_call_that_traps_ends_the_tenant_and_those_that_wait() {
    let called = Called::start(r#"(module (func (export "f") unreachable) (func (export "g")))"#);
    let (trap, after) = (called.begin("f", vec![]), called.begin("g", vec![]));
    let Err(CallError::Failed(Exit::Trap(message))) = trap.wait() else {
        panic!("no trap");
    };
    assert!(message.contains("unreachable"), "{message}");
    assert_eq!(after.wait(), Err(CallError::Ended));
    assert_eq!(called.call("g", vec![]), Err(CallError::Ended));
    assert!(matches!(
        called.tenant.wait().expect("an end").exit,
        Exit::Trap(_)
    ));
}

#[test]
fn a_call_that_exits_tells_the_code() {
    let called = Called::start(
        r#"(module
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (memory (export "memory") 1)
          (func (export "f") (call $exit (i32.const 7))))"#,
    );
    assert_eq!(
        called.call("f", vec![]),
        Err(CallError::Failed(Exit::Code(7)))
    );
    assert_eq!(called.tenant.wait().expect("an end").exit, Exit::Code(7));
}

#[test]
fn more_calls_than_may_wait_are_refused_and_the_others_answered() {
    let called = Called::start(
        r#"(module (func (export "f") (local i64)
             (loop (br_if 0 (i64.lt_u (local.tee 0 (i64.add (local.get 0) (i64.const 1))) (i64.const 1000000))))))"#,
    );
    let most = caps::CALLS_WAITING.size();
    let calls: Vec<PendingCall> = (0..3 * most).map(|_| called.begin("f", vec![])).collect();
    let answers: Vec<_> = calls.into_iter().map(PendingCall::wait).collect();
    assert!(answers.iter().filter(|answer| answer.is_ok()).count() >= most);
    assert!(answers.contains(&Err(CallError::Busy)));
    assert_eq!(called.call("f", vec![]), Ok(vec![]));
}

#[test]
fn a_kill_ends_a_call_in_the_function_the_allocator_and_post_return() {
    let spin = "(loop (br 0))";
    let text = |realloc: &str, body: &str, post: &str| {
        component(
            &format!(
                r#"
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) {realloc} (i32.const 1024))
    (func (export "f") (param i32 i32) (result i32) {body} (i32.const 16))
    (func (export "post") (param i32) {post})"#
            ),
            r#"(func (export "f") (param "value" string) (result (list u8))
    (canon lift (core func $main "f") (memory $memory) (realloc (core func $main "realloc"))
      (post-return (core func $main "post"))))"#,
        )
    };
    let argument = || vec![Val::String("x".repeat(1000))];
    for (realloc, body, post) in [(spin, "", ""), ("", spin, ""), ("", "", spin)] {
        Called::start(&text(realloc, body, post)).kill_in("f", argument());
    }
    let called = Called::start(&text("", "", ""));
    assert_eq!(called.call("f", argument()), Ok(vec![Val::List(vec![])]));
}

/// A component of which `f` returns a list of this type with so many elements, of memory that it never touched.
fn list_of(ty: &str, types: &str, length: u64) -> String {
    component(
        &format!(
            r#"
    (func (export "f") (result i32)
      (i32.store (i32.const 16) (i32.const 65536))
      (i32.store (i32.const 20) (i32.const {length}))
      (i32.const 16))"#
        ),
        &format!(
            r#"{types}
    (func (export "f") (result (list {ty})) (canon lift (core func $main "f") (memory $memory)))"#
        ),
    )
}

#[test]
fn a_result_above_the_cap_ends_the_tenant_before_it_is_copied() {
    for (ty, most) in [("u8", 800), ("(tuple u8 u8)", 130), ("(option u64)", 800)] {
        let called = Called::start(&list_of(ty, "", most));
        assert!(called.call("f", vec![]).is_ok(), "{ty}");
        for length in [2 * most, 20_000] {
            let called = Called::start(&list_of(ty, "", length));
            let Err(CallError::Failed(Exit::Trap(message))) = called.call("f", vec![]) else {
                panic!("{length} of {ty}");
            };
            assert!(message.contains("fuel"), "{message}");
        }
    }
}

#[test]
fn results_that_take_long_for_their_bytes_may_have_fewer() {
    let names = |count: u32| {
        let names = (0..count).map(|at| format!("\"n{at}\""));
        names.collect::<Vec<_>>().join(" ")
    };
    let exported = |ty: String| format!("(type $t' {ty}) (export $t \"t\" (type $t'))");
    for (ty, most) in [
        (format!("(flags {})", names(32)), 50),
        (format!("(enum {})", names(4_000)), 10),
        ("string".to_owned(), 100),
    ] {
        let (types, element) = match &*ty {
            "string" => (String::new(), "string"),
            _ => (exported(ty.clone()), "$t"),
        };
        let called = Called::start(&list_of(element, &types, most));
        let answer = called.call("f", vec![]);
        assert!(answer.is_ok(), "{most} of {element}: {answer:?}");
        let called = Called::start(&list_of(element, &types, 800));
        assert!(
            matches!(called.call("f", vec![]), Err(CallError::Failed(_))),
            "{element}"
        );
    }
}

#[test]
fn arguments_above_the_cap_are_refused_and_more_is_allowed_by_the_lease() {
    let large = || vec![Val::String("x".repeat(100_000))];
    let called = Called::start(&echo("string"));
    let refused = called.tenant.call(&called.function("echo"), large());
    assert!(matches!(
        refused,
        Err(CallError::TooLarge {
            bytes: 100_000..,
            ..
        })
    ));
    let mut generous = lease(50_000, 64 << 10);
    generous.reclaim.call_bytes = leasehold_lease::ByteSize::new(1 << 20);
    let called = Called::under(&echo("string"), generous);
    assert_eq!(called.call("echo", large()), Ok(large()));
}

#[test]
fn host_calls_of_a_function_may_lift_what_they_may_elsewhere() {
    // 64 KiB of standard output in a call that returns a list of flags, of which far fewer bytes may be lifted.
    let text = r#"(component
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "error" (type $shared (eq $error)))
    (export "output-stream" (type $output (sub resource)))
    (type $failed (variant (case "last-operation-failed" (own $shared)) (case "closed")))
    (export "stream-error" (type $failure (eq $failed)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $output)) (param "contents" (list u8)) (result (result (error $failure)))))))
  (alias export $streams "output-stream" (type $stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (export "output-stream" (type $output (eq $stream)))
    (export "get-stdout" (func (result (own $output))))))
  (core module $memory (memory (export "memory") 4))
  (core instance $memory (instantiate $memory))
  (alias core export $memory "memory" (core memory $mem))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $mem)))
  (core module $main
    (import "host" "memory" (memory 4))
    (import "host" "get" (func $get (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (func (export "f") (result i32)
      (call $write (call $get) (i32.const 65536) (i32.const 4096) (i32.const 64))
      (i32.load8_u (i32.const 64))))
  (core instance $main (instantiate $main (with "host" (instance
    (export "memory" (memory $memory "memory")) (export "get" (func $get)) (export "write" (func $write))))))
  (type $t' (flags "a" "b" "c" "d"))
  (export $t "t" (type $t'))
  (func (export "f") (result $t) (canon lift (core func $main "f") (memory $mem))))"#;
    let called = Called::start(text);
    assert_eq!(
        called.call("f", vec![]),
        Ok(vec![Val::Flags(vec![])]),
        "written"
    );
}

#[test]
fn types_that_cannot_be_called_are_refused() {
    let program = |text: &str| {
        let cell = cell();
        cell.compile_exports(text.as_bytes(), &Lease::default())
            .expect("a program")
    };
    let vector = program(r#"(module (func (export "f") (param v128)))"#);
    let error = ExportedFunction::find(&vector, "f").expect_err("a vector");
    assert_eq!(error, FunctionError::Type);
    let resource = program(
        r#"(component
          (type $r' (resource (rep i32)))
          (core module $m (func (export "f") (param i32)))
          (core instance $i (instantiate $m))
          (export $r "r" (type $r'))
          (func (export "f") (param "r" (own $r)) (canon lift (core func $i "f"))))"#,
    );
    let error = ExportedFunction::find(&resource, "f").expect_err("a resource");
    assert_eq!(error, FunctionError::Type);
}

#[test]
fn a_result_points_to_few_strings_that_are_not_in_a_list() {
    let found = |strings: u64| {
        let text = component(
            r#"(func (export "f") (result i32) (i32.const 16))"#,
            &format!(
                r#"(func (export "f") (result (tuple {}))
                     (canon lift (core func $main "f") (memory $memory)))"#,
                "string ".repeat(strings as usize)
            ),
        );
        let program = cell().compile_exports(text.as_bytes(), &Lease::default());
        ExportedFunction::find(&program.expect("a program"), "f").map(|_| ())
    };
    assert_eq!(found(caps::POINTERS.most), Ok(()));
    assert_eq!(
        found(caps::POINTERS.most + 1),
        Err(FunctionError::Scattered)
    );
}

/// A list of options of options, so many around one another.
fn nested(depth: u64) -> String {
    (0..depth).fold("u8".to_owned(), |ty, _| format!("(list {ty})"))
}

#[test]
fn what_is_nested_most_deeply_fits_the_stack_and_what_is_nested_more_is_refused() {
    let most = caps::NESTED.most;
    let called = Called::start(&echo(&nested(most)));
    let value = (0..most).fold(Val::U8(1), |value, _| Val::List(vec![value]));
    assert_eq!(called.call("echo", vec![value.clone()]), Ok(vec![value]));
    let cell = cell();
    let deeper = echo(&nested(most + 1));
    let program = cell
        .compile_exports(deeper.as_bytes(), &Lease::default())
        .expect("a program");
    let error = ExportedFunction::find(&program, "echo").expect_err("too deep");
    assert_eq!(error, FunctionError::Nested);
}

#[test]
fn a_lease_is_charged_for_the_values_of_calls_when_its_tenant_starts() {
    let text = r#"(module (func (export "_start")) (func (export "f")))"#;
    let charged = |program: std::sync::Arc<leasehold_cell::Program>, cell: &Cell| {
        let request = StartRequest {
            program,
            lease: lease(50_000, 1024),
            surroundings: Surroundings::default(),
        };
        let tenant = cell.start_held(request).expect("a tenant");
        tenant.kill();
        let ended = tenant.wait().expect("an end");
        let rows = ended.statement.rows;
        rows.iter()
            .find(|row| row.name == "host_page")
            .map_or(0, |row| row.count)
    };
    let cell = cell();
    let run = charged(cell.compile(text.as_bytes()).expect("a command"), &cell);
    let called = cell.compile_exports(text.as_bytes(), &lease(50_000, 1024));
    let called = charged(called.expect("a library"), &cell);
    assert_eq!(called - run, 3 * caps::VALUES.most / 4096);
}

#[test]
fn a_caller_that_gave_up_does_not_keep_a_call_from_being_made() {
    let called = Called::start(&echo("(list u32)"));
    let list = || vec![Val::List((0..500).map(Val::U32).collect())];
    for _ in 0..20 {
        drop(called.begin("echo", list()));
    }
    assert_eq!(called.call("echo", list()), Ok(list()));
    called.tenant.finish();
    assert_eq!(called.tenant.wait().expect("an end").exit, Exit::Code(0));
    assert_eq!(called.call("echo", list()), Err(CallError::Ended));
}

#[test]
fn a_task_of_a_program_that_is_called_ends_at_once() {
    let called = Called::start(
        r#"(module
          (import "leasehold_kernel" "task_start" (func $start (param i32 i32) (result i64)))
          (import "leasehold_kernel" "task_wait" (func $wait (param i32) (result i64)))
          (memory (export "memory") 1)
          (func (export "f") (result i64)
            (call $wait (i32.wrap_i64 (call $start (i32.const 0) (i32.const 0))))))"#,
    );
    assert_eq!(called.call("f", vec![]), Ok(vec![Val::S64(0)]));
}

#[test]
fn types_that_a_component_imports_are_taken_of_no_host() {
    let types = [
        r#"(type $e (enum "e1" "e2")) (import "mode" (type $i (eq $e)))"#,
        r#"(import "my:pkg/types@0.1.0"
             (instance $t (type $e (enum "e1" "e2")) (export "mode" (type (eq $e)))))
           (alias export $t "mode" (type $i))"#,
        r#"(import "my:pkg/none@0.1.0" (instance)) (import "my:pkg/inner@0.1.0" (instance (export "a" (instance))))
           (type $e (enum "e1" "e2")) (export $i "mode" (type $e))"#,
        r#"(import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
           (alias export $errors "error" (type $r)) (import "own-name" (type (eq $r)))
           (type $e (enum "e1" "e2")) (export $i "mode" (type $e))"#,
    ];
    for types in types {
        let text = format!(
            r#"(component {types}
              (core module $m (func (export "f") (param i32) (result i32) (local.get 0)))
              (core instance $c (instantiate $m))
              (func (export "f") (param "x" $i) (result $i) (canon lift (core func $c "f"))))"#
        );
        let called = Called::start(&text);
        let second = || vec![Val::Enum("e2".to_owned())];
        assert_eq!(called.call("f", second()), Ok(second()), "{types}");
    }
    for import in [
        r#"(import "a" (type (sub resource)))"#,
        r#"(import "a" (func))"#,
        r#"(import "a" (instance (export "f" (func))))"#,
        r#"(import "a" (instance (export "i" (instance (export "f" (func))))))"#,
        r#"(import "a" (instance (export "r" (type (sub resource)))))"#,
    ] {
        let text = format!("(component {import})");
        let refused = cell().compile_exports(text.as_bytes(), &lease(50_000, 64 << 10));
        let refused = refused.expect_err("nothing offers it");
        assert!(
            matches!(&refused, ProgramError::World { imports } if imports[..] == ["a"]),
            "{import}: {refused}"
        );
    }
}
