//! Loading a program takes bounded time and memory: its parts are limited, and the cost at each
//! limit is measured.

mod load_shapes;

use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::program::{Program, ProgramError};
use leasehold_wasm::load_limits::LOAD_LIMITS;
use load_shapes::{ADAPTED, SHAPES, Shape, doubling_components, functions_with_handlers};
use std::time::{Duration, Instant};
use wasmtime::Engine;

/// Made of so many functions or bytes that it takes too long for a test.
const UNTRIED: [&str; 1] = ["bytes of code"];

fn engine() -> Engine {
    Engine::new(&engine_config(Mechanism::Injected)).expect("valid")
}

#[test]
fn every_limit_of_loading_is_met_by_a_program_and_named_beyond_it() {
    for limit in LOAD_LIMITS {
        let shapes = SHAPES.iter().filter(|shape| shape.what == limit.what);
        assert!(
            shapes.count() > 0 || UNTRIED.contains(&limit.what),
            "{limit:?}"
        );
    }
    let wrong: Vec<String> = SHAPES
        .iter()
        .filter_map(|shape| mismatch(shape).err())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a shape meets its limit and no other, and its limit is the one that is named beyond it.
fn mismatch(Shape { what, most, make }: &Shape) -> Result<(), String> {
    let size = Program::load_size(&make(*most)).map_err(|error| format!("{what}: {error}"))?;
    let of_limit = size.counts().find(|(limit, _)| limit.what == *what);
    let (limit, count) = of_limit.ok_or_else(|| format!("{what}: no limit"))?;
    if count <= limit.most / 5 * 4 {
        return Err(format!("{limit:?}: only {count}"));
    }
    let beyond = match Program::load_size(&make(most + most.div_ceil(3))) {
        Ok(_) => return Err(format!("{what}: accepted beyond its limit")),
        Err(error) => error.to_string(),
    };
    match beyond.contains(&format!(" {what}; allowed: at most {}", limit.most)) {
        true => Ok(()),
        false => Err(format!("{what}: {beyond}")),
    }
}

#[test]
fn components_that_are_instantiated_without_end_are_refused_before_they_are_compiled() {
    Program::from_bytes(&engine(), &doubling_components(4)).expect("few");
    let begin = Instant::now();
    let refused = Program::from_bytes(&engine(), &doubling_components(60));
    let error = refused.expect_err("2^60 components");
    assert!(
        matches!(error, ProgramError::TooManyParts { .. }),
        "{error}"
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_group_of_many_types_is_refused_at_once() {
    let group = SHAPES.iter().filter(|shape| shape.what == "types").nth(1);
    let binary = (group.expect("a group").make)(900_000);
    let begin = Instant::now();
    let error = Program::from_bytes(&engine(), &binary).expect_err("too many");
    assert!(
        error.to_string().contains("types; allowed: at most"),
        "{error}"
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_constant_expression_has_few_instructions_wherever_it_stands() {
    let places = [
        "(global i32 EXPRESSION)",
        "(table 1 funcref EXPRESSION)",
        r#"(memory 1) (data (offset EXPRESSION) "")"#,
        "(table 1 funcref) (elem (offset EXPRESSION) func)",
        "(table 1 funcref) (elem (i32.const 0) funcref (item EXPRESSION))",
        "(elem funcref (item EXPRESSION))",
        "(elem declare funcref (item EXPRESSION))",
    ];
    for place in places {
        let programs = [
            format!("(module {place})"),
            format!("(component (core module {place}))"),
            format!("(component (component (core module) (core module {place})))"),
        ];
        for program in programs {
            let size_with = |additions: usize| {
                let expression =
                    "i32.const 1 ".to_owned() + &"i32.const 1 i32.add ".repeat(additions);
                Program::load_size(program.replace("EXPRESSION", &expression).as_bytes())
            };
            size_with(31).unwrap_or_else(|error| panic!("63 instructions of {program}: {error}"));
            let error = size_with(32).expect_err(&program).to_string();
            assert!(
                error.contains("65 instructions of a constant expression; allowed: at most 64"),
                "{program}: {error}"
            );
        }
    }
}

#[test]
fn a_long_constant_expression_is_refused_at_once() {
    let expression = SHAPES
        .iter()
        .find(|shape| shape.what == "instructions of a constant expression");
    let binary = (expression.expect("a shape").make)(3_000_000);
    let begin = Instant::now();
    let error = Program::from_bytes(&engine(), &binary).expect_err("too long");
    assert!(
        matches!(error, ProgramError::TooManyParts { .. }),
        "{error}"
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Loads a program; how long it took, the memory that it needed, MiB, and how it ended.
fn load(binary: &[u8]) -> (Duration, u64, String) {
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak begins anew");
    let (before, begin) = (peak_kib(), Instant::now());
    let loaded = Program::from_bytes(&engine(), binary);
    let (took, peak) = (begin.elapsed(), peak_kib().saturating_sub(before));
    let result = loaded.map_or_else(|error| error.to_string(), |_| "loaded".to_owned());
    (took, peak >> 10, result.chars().take(60).collect())
}

/// Prints the rows of docs/reference/program-limits.md: of the limits whose names begin with `LEASEHOLD_LIMITS`, or of
/// all.
#[test]
#[ignore = "a measurement of minutes"]
fn what_loading_takes_at_each_limit() {
    let begins = std::env::var("LEASEHOLD_LIMITS").unwrap_or_default();
    let wanted = SHAPES
        .iter()
        .chain(ADAPTED)
        .filter(|shape| shape.what.starts_with(&begins));
    for Shape { what, most, make } in wanted {
        let binary = make(*most);
        let (took, mib, result) = load(&binary);
        let kib = binary.len().div_ceil(1024);
        println!(
            "| {what} | {kib} | {:.2} | {mib} | {result} |",
            took.as_secs_f64()
        );
    }
}

/// Prints what one function takes whose calls are inside handlers of exceptions: as many calls, handlers, tags
/// of these, and locals that change before each call as `LEASEHOLD_HANDLERS` says, such as `256x64x64x0 128x128x2x10`.
#[test]
#[ignore = "a measurement of minutes"]
fn what_handlers_around_calls_take() {
    let wanted = std::env::var("LEASEHOLD_HANDLERS").unwrap_or_default();
    for product in wanted.split_whitespace() {
        let numbers = product
            .split('x')
            .map(|text| text.parse().expect("a number"));
        let [calls, around, tags, locals] = numbers.collect::<Vec<usize>>()[..] else {
            panic!("{product}: CALLSxHANDLERSxTAGSxLOCALS");
        };
        let program = functions_with_handlers(calls, around, tags, 1, locals);
        let (took, mib, result) = load(&program);
        let seconds = took.as_secs_f64();
        println!("| {product} | {seconds:.2} | {mib} | {result} |");
    }
}

/// Prints what programs have of each thing that is limited: those in `LEASEHOLD_PROGRAMS`.
#[test]
#[ignore = "a measurement of programs that are given"]
fn what_programs_have() {
    let programs = std::env::var("LEASEHOLD_PROGRAMS").unwrap_or_default();
    for path in programs.split_whitespace() {
        let binary = std::fs::read(path).expect("a file");
        println!("{path}");
        for (limit, count) in Program::load_size(&binary)
            .expect("within the limits")
            .counts()
        {
            println!("  {:70} {count:12} of {:12}", limit.what, limit.most);
        }
        let (took, mib, result) = load(&binary);
        println!("  {} bytes, {took:?}, {mib} MiB: {result}", binary.len());
    }
}
