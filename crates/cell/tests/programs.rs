//! Which files are accepted as programs, and the one clear error for each other file.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::profile::Profile;
use leasehold_cell::program::{Code, Program, ProgramError};
use leasehold_cell::steps::{CEILING_NS, RowBounds};
use leasehold_cell::{Capture, Cell, CellConfig, Output, StartRequest, Surroundings};
use leasehold_lease::{ByteSize, Lease, Memory};
use wasmtime::Engine;

fn engine() -> Engine {
    Engine::new(&engine_config(Mechanism::Epochs)).expect("the configuration is valid")
}

fn load(text: &str) -> Result<Program, ProgramError> {
    Program::from_bytes(&engine(), text.as_bytes())
}

fn refusal(text: &str) -> String {
    load(text).expect_err("must be refused").to_string()
}

#[test]
fn a_command_module_is_loaded_and_counted() {
    let program = load(
        r#"(module
            (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
            (import "leasehold_kernel" "timer_create" (func (result i64)))
            (memory (export "memory") 3)
            (table 7 funcref)
            (data (i32.const 0) "hello")
            (data "passive")
            (func (export "_start")))"#,
    )
    .expect("valid");
    assert!(matches!(program.code(), Code::Module(_)));
    let inventory = program.inventory();
    assert_eq!(inventory.instances, 1);
    assert_eq!((inventory.memories, inventory.memory_bytes), (1, 3 * 65536));
    assert_eq!((inventory.tables, inventory.table_elements), (1, 7));
    assert_eq!(inventory.data_bytes, 5);
}

#[test]
fn what_a_program_starts_begins_although_that_program_computes() {
    const TEXT: &[u8] = br#"(module
        (import "leasehold_kernel" "task_start" (func $start (param i32 i32) (result i64)))
        (import "wasi_snapshot_preview1" "args_sizes_get"
          (func $args (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_write"
          (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 16) "task\00") (data (i32.const 32) "begun")
        (data (i32.const 40) "\20\00\00\00\05\00\00\00")
        (func (export "_start")
          (drop (call $args (i32.const 0) (i32.const 4)))
          (if (i32.load (i32.const 0))
            (then (drop (call $write
              (i32.const 1) (i32.const 40) (i32.const 1) (i32.const 8))))
            (else
              (if (i64.lt_s (call $start (i32.const 16) (i32.const 5)) (i64.const 0))
                (then unreachable))
              (loop $on (br $on))))))"#;
    // Nothing else wants the processor: no end of a turn is due.
    let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
    let output = Capture::new(1 << 10);
    let request = StartRequest {
        program: cell.compile(TEXT).expect("valid"),
        lease: Lease::default(),
        surroundings: Surroundings {
            stdout: Output::Capture(output.clone()),
            ..Surroundings::default()
        },
    };
    let tenant = cell.start_tenant(request).expect("starts");
    let began = Instant::now();
    while output.bytes() != b"begun" {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it has not begun"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    tenant.kill();
    tenant.wait().expect("ended");
}

#[test]
fn a_cell_holds_no_more_programs_than_it_has_room_for_and_each_no_more_than_its_lease_grants() {
    const TEXT: &[u8] = br#"(module (func (export "_start") (loop $l (br $l))))"#;
    let program = Program::from_bytes(&engine(), TEXT).expect("valid");
    let bytes = program.code_bytes();
    assert!((4096..1 << 20).contains(&bytes), "{bytes}");
    let mut config = CellConfig::new(Profile::free());
    config.code = Some(2 * bytes);
    let cell = Cell::start(config).expect("a cell");
    let lease = Lease::default();
    let first = cell.compile_for(TEXT, &lease).expect("room");
    let second = cell.compile(TEXT).expect("room");
    let refused = cell.compile_for(TEXT, &lease).expect_err("no room");
    let message = format!("of the {} that the programs of the cell", 2 * bytes);
    assert!(refused.to_string().contains(&message), "{refused}");
    // A tenant keeps its program, whoever else has given it up.
    let request = StartRequest {
        program: second,
        lease,
        surroundings: Surroundings::default(),
    };
    let tenant = cell.start_tenant(request).expect("started");
    assert!(cell.compile(TEXT).is_err());
    drop(first);
    let kept = cell.compile(TEXT).expect("room again");
    tenant.kill();
    tenant.wait().expect("ends");
    // The cell gives the program up after what the tenant had.
    let returned = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        cell.compile(TEXT).is_ok()
    });
    assert!(returned, "that of the tenant");
    let small = Lease {
        memory: Memory {
            code: ByteSize::new(bytes / 2).expect("in range"),
            ..lease.memory
        },
        ..lease
    };
    let refused = cell
        .compile_exports(TEXT, &small)
        .expect_err("more than granted");
    assert!(
        matches!(refused, ProgramError::CodeTooLarge { .. }),
        "{refused}"
    );
    drop(kept);
}

/// Where the machine code of a program is.
fn place(program: &Program) -> usize {
    let image = match program.code() {
        Code::Module(module) => module.image_range(),
        Code::Component(component) => component.image_range(),
    };
    image.start.addr()
}

#[test]
fn tenants_of_the_same_program_share_its_code_and_each_pays_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let text = r#"(module (memory 1) (func (export "_start")))"#;
    for name in ["a.wat", "b.wat"] {
        std::fs::write(path(name), text).expect("writable");
    }
    std::fs::write(path("c.wat"), text.replace("memory 1", "memory 2")).expect("writable");
    let bytes = load(text).expect("valid").code_bytes();
    let mut config = CellConfig::new(Profile::free());
    config.code = Some(4 * bytes);
    let cell = Cell::start(config).expect("a cell");
    let lease = Lease::default();
    let first = cell.load_for(&path("a.wat"), &lease).expect("valid");
    let same = cell.load_for(&path("b.wat"), &lease).expect("valid");
    assert_eq!(place(&first), place(&same), "whatever its file is called");
    let called = cell.load_exports(&path("a.wat"), &lease).expect("valid");
    assert_ne!(
        place(&first),
        place(&called),
        "it is entered in another way"
    );
    let other = cell.load_for(&path("c.wat"), &lease).expect("valid");
    assert_ne!(place(&first), place(&other));
    let refused = cell.load_for(&path("a.wat"), &lease).expect_err("full");
    assert!(
        matches!(refused, ProgramError::NoCodeSpace { .. }),
        "{refused}"
    );
    drop(same);
    let same = cell.load_for(&path("a.wat"), &lease).expect("room");
    // The file counts, not what was read under its name before.
    drop(called);
    std::fs::copy(path("c.wat"), path("a.wat")).expect("copied");
    let changed = cell.load_for(&path("a.wat"), &lease).expect("valid");
    assert_eq!(place(&changed), place(&other));
    // What nobody has any more is built again.
    drop((first, same));
    let built = cell.load_for(&path("b.wat"), &lease).expect("valid");
    let again = cell.load_for(&path("b.wat"), &lease).expect("valid");
    assert_eq!(place(&built), place(&again));
}

#[test]
fn what_is_not_webassembly_is_named_so() {
    let engine = engine();
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", b"\xff\xfe\0\0"] {
        let error = Program::from_bytes(&engine, bytes).expect_err("refused");
        assert!(matches!(error, ProgramError::NotWasm), "{error}");
    }
    assert!(matches!(load("(modul)"), Err(ProgramError::Text(_))));
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let engine = engine();
    let whole = wat::parse_str(
        r#"(module (memory 1) (global i32 (i32.const 7)) (func (export "_start") (nop)))"#,
    )
    .expect("valid text");
    Program::from_bytes(&engine, &whole).expect("the whole is valid");
    for length in 4..whole.len() {
        let error = Program::from_bytes(&engine, &whole[..length]).err();
        match error.expect("a prefix is not a program") {
            ProgramError::Corrupt { offset, .. } => assert!(offset <= length as u64),
            // What ends between two sections is a valid module without the rest.
            other => assert!(matches!(other, ProgramError::NoEntry(_)), "{other}"),
        }
    }
}

#[test]
fn every_flipped_byte_is_refused_or_still_valid_but_never_a_panic() {
    let engine = engine();
    let whole = wat::parse_str(
        r#"(module (memory 1) (func (export "_start") (memory.fill (i32.const 0) (i32.const 1) (i32.const 2))))"#,
    )
    .expect("valid text");
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let _ = Program::from_bytes(&engine, &damaged);
        }
    }
}

#[test]
fn refused_features_are_named() {
    for (text, feature) in [
        (
            "(module (memory 1 1 shared) (func (export \"_start\")))",
            "shared-memory",
        ),
        (
            "(module (memory i64 1) (func (export \"_start\")))",
            "memory64",
        ),
        ("(module (type (struct)) (func (export \"_start\")))", "gc"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains("does not offer"), "{refusal}");
        assert!(refusal.contains(feature), "{refusal}");
    }
}

#[test]
fn what_refuses_a_feature_says_where_it_is_used() {
    let legacy = r#"(module (import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))
        (func $first (drop (i32.const 1)))
        (func $second (export "_start") try catch_all end))"#;
    for (text, feature, place) in [
        (
            legacy,
            "legacy-exceptions",
            "in function 2 (second), at byte ",
        ),
        (
            "(module (type $a (array i8)) (func (export \"_start\")))",
            "gc",
            "at byte ",
        ),
        (
            "(module (func $f (export \"_start\") (local anyref)))",
            "gc",
            "in function 0 (f), at byte ",
        ),
        (
            "(module (func) (func (export \"_start\") (drop (ref.i31 (i32.const 1)))))",
            "gc",
            "in function 1, at byte ",
        ),
        (
            "(component (core module (func)) (core module (func) (func $g ref.null func ref.as_non_null drop)))",
            "function-references",
            "in function 1 (g), at byte ",
        ),
        (
            "(module (memory 1 1 shared) (func (export \"_start\")))",
            "shared-memory",
            "at byte ",
        ),
    ] {
        let refusal = refusal(text);
        assert!(
            refusal.contains(&format!("offer: {feature}, {place}")),
            "{refusal}"
        );
    }
    assert!(
        refusal(legacy).contains("-wasm-use-legacy-eh=false"),
        "{}",
        refusal(legacy)
    );
}

/// A program of 100 MB whose last function has this body and these locals; the number of that function.
fn large_program(
    body: &[wasm_encoder::Instruction<'_>],
    locals: &[wasm_encoder::ValType],
) -> (Vec<u8>, u32) {
    use wasm_encoder::{
        CodeSection, DataCountSection, DataSection, Function, FunctionSection, Instruction,
        TypeSection,
    };
    const FUNCTIONS: u32 = 130;
    let mut types = TypeSection::new();
    types.ty().function([], []);
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    let mut add = |body: &[Instruction<'_>], locals: &[wasm_encoder::ValType]| {
        functions.function(0);
        let mut function = Function::new(locals.iter().map(|ty| (1, *ty)));
        for instruction in body {
            function.instruction(instruction);
        }
        function.instruction(&Instruction::End);
        code.function(&function);
    };
    let long = (0..70_000).flat_map(|_| [Instruction::I32Const(1 << 30), Instruction::Drop]);
    let long: Vec<_> = long.collect();
    for _ in 0..FUNCTIONS {
        add(&long, &[]);
    }
    add(body, locals);
    let mut data = DataSection::new();
    data.passive(vec![7; 36 << 20]);
    let mut module = wasm_encoder::Module::new();
    module
        .section(&types)
        .section(&functions)
        .section(&DataCountSection { count: 1 })
        .section(&code)
        .section(&data);
    (module.finish(), FUNCTIONS)
}

#[test]
fn a_refused_feature_is_found_at_the_end_of_a_large_program() {
    use wasm_encoder::{Instruction, RefType, ValType};
    let instruction = [
        Instruction::I32Const(1),
        Instruction::RefI31,
        Instruction::Drop,
    ];
    for (body, locals) in [
        (&[][..], &[ValType::Ref(RefType::ANYREF)][..]),
        (&instruction, &[]),
    ] {
        let (binary, index) = large_program(body, locals);
        let began = std::time::Instant::now();
        let refused = Program::from_bytes(&engine(), &binary);
        println!("{} bytes: {:?}", binary.len(), began.elapsed());
        let refused = refused.expect_err("garbage-collected types").to_string();
        let named = format!("gc, in function {index}, at byte");
        assert!(refused.contains(&named), "{refused}");
    }
}

#[test]
fn a_type_that_is_not_on_offer_is_named_without_a_look_at_what_functions_do() {
    // The function takes a value where there is none, or has an instruction that does not exist.
    let takes = "(func (drop))";
    for (text, place) in [
        ("(type (struct)) (func)", "at byte "),
        ("(table 1 (ref null any)) (func)", "at byte "),
        ("(func (local anyref))", "in function 1, at byte "),
        ("(func (drop (ref.null any)))", "in function 1, at byte "),
        (
            "(func (drop (block (result anyref) (unreachable))))",
            "in function 1, at byte ",
        ),
        (
            "(func (drop (select (result anyref) (unreachable) (unreachable) (i32.const 0))))",
            "in function 1, at byte ",
        ),
    ] {
        let refusal = refusal(&format!("(module {takes} {text})"));
        assert!(
            refusal.contains(&format!("offer: gc, {place}")),
            "{text}: {refusal}"
        );
    }
    let mut declared =
        wat::parse_str("(module (type (struct)) (func nop nop nop nop nop))").expect("well-formed");
    let nops = declared.windows(5).position(|bytes| bytes == [1; 5]);
    declared[nops.expect("the function")] = 0x27;
    let refused = Program::from_bytes(&engine(), &declared).expect_err("a structure");
    assert!(
        refused.to_string().contains("offer: gc, at byte "),
        "{refused}"
    );
    let typed = refusal("(module (type $f (func)) (func (local (ref null $f))))");
    assert!(typed.contains("offer: function-references, in function 0, at byte "));
}

#[test]
fn what_is_wrong_first_is_what_is_named_whatever_thread_finds_it() {
    use wasm_encoder::{RefType, ValType};
    let any = ValType::Ref(RefType::ANYREF);
    let (mut binary, _) = large_program(&[], &[any]);
    // A local of the first long function is of that type, too: found by another thread, much earlier.
    let first = binary
        .windows(8)
        .position(|bytes| bytes == [0, 0x41, 0x80, 0x80, 0x80, 0x80, 0x04, 0x1A])
        .expect("the first function");
    // Not an instruction: `0x27` has no meaning.
    binary[first + 1] = 0x27;
    for _ in 0..3 {
        let refused = Program::from_bytes(&engine(), &binary).expect_err("invalid");
        let refused = refused.to_string();
        assert!(
            refused.contains(&format!("at byte {}", first + 1)),
            "{refused}"
        );
    }
}

#[test]
fn a_module_of_another_world_is_refused_with_the_list_of_what_is_missing() {
    let refusal = refusal(
        r#"(module (import "env" "f" (func)) (import "js" "g" (func))
            (import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))
            (func (export "_start")))"#,
    );
    assert!(
        refusal.ends_with("nothing here offers env::f, js::g"),
        "{refusal}"
    );
}

#[test]
fn a_component_of_another_world_is_refused_with_the_list_of_what_is_missing() {
    let refusal = refusal(
        r#"(component
            (import "wasi:keyvalue/store@0.2.0" (instance (export "open" (func))))
            (import "wasi:cli/environment@0.3.0" (instance (export "get-environment" (func))))
            (import "wasi:cli/environment@0.2.0" (instance)))"#,
    );
    assert!(
        refusal.ends_with("offers wasi:keyvalue/store@0.2.0, wasi:cli/environment@0.3.0"),
        "{refusal}"
    );
}

#[test]
fn a_program_without_entry_point_is_refused() {
    assert!(refusal("(module)").contains("_start"));
    assert!(refusal("(module (memory (export \"_start\") 1))").contains("_start"));
    assert!(refusal("(component)").contains("wasi:cli/run"));
}

/// A component with these parts that is a command.
fn command(parts: &str) -> String {
    format!(
        r#"(component {parts}
            (core module $run (func (export "f") (result i32) i32.const 0))
            (core instance $run (instantiate $run))
            (func $run (result (result)) (canon lift (core func $run "f")))
            (instance $r (export "run" (func $run)))
            (export "wasi:cli/run@0.2.0" (instance $r)))"#
    )
}

/// A component in which each level instantiates the one before `width` times.
fn nested(levels: u32, width: u32) -> String {
    let mut text = String::from("(core module $m (memory 1) (table 2 funcref))");
    text.push_str(
        "(component $c0 (alias outer 1 $m (core module $m)) (core instance (instantiate $m)))",
    );
    for level in 1..=levels {
        let inner = level - 1;
        text.push_str(&format!(
            "(component $c{level} (alias outer 1 $c{inner} (component $i))"
        ));
        for _ in 0..width {
            text.push_str("(instance (instantiate $i))");
        }
        text.push(')');
    }
    format!(
        r#"(component {text} (instance (instantiate $c{levels}))
            (component $run (import "x" (func $f (result (result)))) (export "run" (func $f)))
            (core module $r (func (export "run") (result i32) (i32.const 0)))
            (core instance $ri (instantiate $r))
            (func $run_f (result (result)) (canon lift (core func $ri "run")))
            (instance $ro (instantiate $run (with "x" (func $run_f))))
            (export "wasi:cli/run@0.2.0" (instance $ro)))"#
    )
}

/// What the guests of the tests import, and what nothing offers.
#[test]
fn the_steps_that_a_program_reaches_are_known_before_it_is_compiled() {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests");
    let engine = engine();
    let mut seen = (0, 0);
    for entry in std::fs::read_dir(guests).expect("guests").flatten() {
        let path = entry.path();
        let is_small = entry.metadata().is_ok_and(|found| found.len() < 400 << 10);
        if !is_small || path.extension() != Some("wasm".as_ref()) {
            continue;
        }
        // Before it is loaded: what that finds is remembered.
        let reach = Program::reach_in(&path, None);
        let Ok(program) = Program::load(&engine, &path, None) else {
            continue;
        };
        let reach = reach.expect("a program");
        assert!(reach == *program.reach(), "{}", path.display());
        match program.code() {
            Code::Module(_) => seen.0 += 1,
            Code::Component(_) => seen.1 += 1,
        }
    }
    assert!(seen.0 > 3 && seen.1 > 1, "{seen:?}");
}

#[test]
fn elements_that_the_compiler_cannot_lay_out_are_few_or_set_by_the_program() {
    let elements = |kind: &str, items: &str, count| {
        let items = items.repeat(count);
        format!(
            "(module (table 100000 funcref) (func $f)
               (func (export \"_start\")) (elem {kind} {items}))"
        )
    };
    let known = load(&elements("(i32.const 7)", "$f ", 50_000)).expect("laid out");
    assert_eq!(known.inventory().elements, 0);
    let named = |count| elements("(i32.const 7) funcref", "(ref.func $f) ", count);
    for count in [4_096, 4_097, 65_536] {
        let few = load(&named(count)).expect("few");
        assert_eq!(few.inventory().elements, count as u64);
    }
    let refused = refusal(&named(65_537));
    assert!(refused.contains("copies 65537 elements"), "{refused}");
    // The engine evaluates those of passive segments when it makes an instance, used or not.
    load(&elements("func", "$f ", 4_096)).expect("few");
    let refused = refusal(&elements("func", "$f ", 4_097));
    let expected = "4097 elements in passive segments; allowed: at most 4096";
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn instances_of_nested_components_are_counted() {
    let program = load(&nested(3, 4)).expect("valid");
    assert_eq!(program.inventory().instances, 64 + 1);
    assert_eq!(program.inventory().memories, 64);
    assert_eq!(program.inventory().table_elements, 128);
    assert!(matches!(program.code(), Code::Component(_)));
}

#[test]
fn an_instance_bomb_is_refused_before_it_is_compiled() {
    let refused = refusal(&nested(8, 2));
    let expected = "core instances; allowed: at most 100";
    assert!(refused.contains(expected), "{refused}");
    // 20^90 instances: nothing expands it.
    let refused = refusal(&nested(90, 20));
    assert!(refused.contains("parts of component types"), "{refused}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Program::load(&engine(), "no/such/file.wasm".as_ref(), None).err();
    assert!(
        error
            .expect("refused")
            .to_string()
            .starts_with("cannot read no/such/file.wasm: ")
    );
}

#[test]
fn what_the_engine_makes_one_by_one_is_limited_for_a_program() {
    let module = |part: &str, count: usize| {
        let parts = part.repeat(count);
        format!("(module {parts} (func $f (export \"_start\")) (memory (export \"memory\") 1))")
    };
    for (part, most, what) in [
        ("(global i32 (i32.const 0))", 8192, "globals"),
        ("(elem func $f)", 1024, "segments"),
        ("(data \"x\")", 1024, "segments"),
        ("(elem declare func $f)", 1024, "segments"),
    ] {
        load(&module(part, most)).unwrap_or_else(|error| panic!("{most} of {part}: {error}"));
        let refused = load(&module(part, most + 1));
        let error = refused.expect_err("refused").to_string();
        assert!(
            error.contains(what) && error.contains(&most.to_string()),
            "{error}"
        );
    }
}

#[test]
fn an_entry_point_of_another_type_is_refused_when_it_is_loaded() {
    for ty in ["(param i32)", "(result i32) i32.const 0"] {
        let refusal = refusal(&format!("(module (func (export \"_start\") {ty}))"));
        assert!(
            refusal.contains("_start is not the entry point of a command"),
            "{refusal}"
        );
    }
    load(&command("")).expect("a command");
    let refusal = refusal(&command("").replace("(result (result))", "(result u32)"));
    assert!(
        refusal.contains("run of wasi:cli/run@0.2 is not the entry point"),
        "{refusal}"
    );
}

#[test]
fn a_program_that_has_many_parts_is_admitted_with_the_step_that_makes_them() {
    let longest_of = |text: String| {
        let program = load(&text).expect("within the limits");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let unread = Program::reach_in(file.path(), None).expect("a program");
        assert_eq!(unread, *program.reach());
        let bounds = RowBounds::calibrated(&Profile::free());
        let (row, ns) = unread.longest_under(&bounds, &Lease::default());
        (row.row().name, ns)
    };
    let longest = |part: &str, count: usize| {
        let parts = part.repeat(count);
        longest_of(format!("(module {parts} (func $f (export \"_start\")))"))
    };
    let (global, segment) = ("(global i32 (i32.const 0))", "(elem declare func $f)");
    let ordinary = longest(global, 200);
    assert_eq!(ordinary.1, CEILING_NS, "that of other rows: {ordinary:?}");
    // Of each, the pages of which may have to be found.
    let (table, memory) = ("(table 16383 funcref)", "(memory 1)");
    for (part, most, each_ns) in [
        (global, 8_192, 170),
        (segment, 1_024, 1_400),
        (table, 100, 31 * 5_000),
        (memory, 100, 5_000),
    ] {
        let (row, ns) = longest(part, most);
        assert_eq!(row, "instantiate");
        assert!(ns >= CEILING_NS + most as u64 * each_ns - 50_000, "{ns}");
    }
    // Fresh pages, which are found when they are touched.
    let long = longest("(table 16384 funcref)", 10);
    assert_eq!(long.1, CEILING_NS, "{long:?}");
    // Of components, as often as they are instantiated.
    let inner = |part: &str, count: usize, times: usize| {
        let inner = "(core module $m (func (export \"f\"))) (core instance $m (instantiate $m))";
        let nested = format!("(component $c {inner} {})", part.repeat(count));
        let instances = "(instance (instantiate $c))".repeat(times);
        longest_of(command(&(nested + &instances)))
    };
    let resource = "(type (resource (rep i32)))";
    let lifted = "(func (canon lift (core func $m \"f\")))";
    // Another name of the function each.
    let named = "(func (canon lift (core func $m \"f\") (post-return (core func $m \"f\"))))";
    for (part, most, each_ns) in [
        (resource, 10_000, 100),
        (lifted, 5_000, 100),
        (named, 5_000, 600),
    ] {
        for times in [1, 3] {
            let (row, ns) = inner(part, most, times);
            assert_eq!(row, "instantiate");
            assert!(ns >= (most * times) as u64 * each_ns, "{ns}");
        }
    }
}
