//! Calls of exported functions whose arguments or results are at their caps.

use anyhow::{Context, Result};
use leasehold_cell::calibrate::Effort;
use leasehold_cell::steps::{RowId, StepSamples};
use leasehold_cell::{Cell, ExportedFunction, Lease, StartRequest, Surroundings, Val};

/// The row of the engine's work around such a call.
pub(super) const ROW: Option<RowId> = RowId::find("engine", "call");

/// A function that is called with the most that it may take or return.
struct Called {
    name: String,
    text: String,
    arguments: Vec<Val>,
}

/// Calls functions of each kind many times; returns the steps of each.
///
/// # Errors
/// When a program cannot be started, or its function cannot be called.
pub(super) fn samples(cell: &Cell, effort: Effort) -> Result<Vec<Vec<StepSamples>>> {
    let calls = match effort {
        Effort::Quick => 20,
        Effort::Full => 400,
    };
    let kinds = returning().into_iter().chain(taking());
    let measured = kinds.map(|called| {
        call(cell, &called, calls).with_context(|| format!("calls of {}", called.name))?;
        Ok(cell.take_step_samples())
    });
    measured.collect()
}

fn call(cell: &Cell, called: &Called, calls: usize) -> Result<()> {
    let lease = Lease::default();
    let program = cell.compile_exports(called.text.as_bytes(), &lease)?;
    let function = ExportedFunction::find(&program, "f")?;
    let tenant = cell.start_tenant(StartRequest {
        program,
        lease,
        surroundings: Surroundings::default(),
    })?;
    for _ in 0..calls {
        tenant.call(&function, called.arguments.clone())?.wait()?;
    }
    tenant.kill();
    tenant.wait()?;
    Ok(())
}

/// A component with this core function, types and lifted function.
fn component(function: &str, types: &str, lifted: &str) -> String {
    format!(
        r#"(component
             (core module $m
               (memory (export "memory") 32)
               (global $next (mut i32) (i32.const 1024))
               (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
                 (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
                 (global.set $next (i32.add (local.get $at) (local.get 3)))
                 (local.get $at))
               {function})
             (core instance $i (instantiate $m))
             (alias core export $i "memory" (core memory $memory))
             {types}
             (func (export "f") {lifted}
               (canon lift (core func $i "f") (memory $memory) (realloc (core func $i "realloc")))))"#
    )
}

/// Functions that return lists, of memory that they never touched: as many elements as may be lifted.
fn returning() -> Vec<Called> {
    let names = |count: u32| {
        let names = (0..count).map(|at| format!("\"n{at}\""));
        names.collect::<Vec<_>>().join(" ")
    };
    let flags = format!(
        "(type $t' (flags {})) (export $t \"t\" (type $t'))",
        names(32)
    );
    let cases = format!(
        "(type $t' (enum {})) (export $t \"t\" (type $t'))",
        names(4_000)
    );
    let kinds = [
        ("u8", "", 800),
        ("(tuple u8 u8)", "", 130),
        ("(option u64)", "", 800),
        ("string", "", 100),
        ("$t", &flags, 50),
        ("$t", &cases, 10),
    ];
    let called = kinds.into_iter().map(|(element, types, length)| Called {
        name: format!("a function that returns {length} of {element}"),
        text: component(
            &format!(
                r#"(func (export "f") (result i32)
                     (i32.store (i32.const 16) (i32.const 65536))
                     (i32.store (i32.const 20) (i32.const {length}))
                     (i32.const 16))"#
            ),
            types,
            &format!("(result (list {element}))"),
        ),
        arguments: Vec::new(),
    });
    called.collect()
}

/// Functions that take a list or a string of the greatest length. Their allocations are given back.
fn taking() -> Vec<Called> {
    let function = r#"(func (export "f") (param i32 i32) (global.set $next (i32.const 1024)))"#;
    let kinds = [
        ("(list u8)", Val::List(vec![Val::U8(7); 800])),
        ("string", Val::String("x".repeat(32_000))),
        (
            "(list string)",
            Val::List(vec![Val::String("x".to_owned()); 700]),
        ),
    ];
    let called = kinds.into_iter().map(|(ty, value)| Called {
        name: format!("a function that takes {ty}"),
        text: component(function, "", &format!(r#"(param "value" {ty})"#)),
        arguments: vec![value],
    });
    called.collect()
}
