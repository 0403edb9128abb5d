//! The parts of component types are counted as often as they are used, before a program is validated.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use leasehold_wasm::compiled::Compiled;

const PARTS: &str = "parts of component types, each as often as it is used";
const RESOURCES: &str = "resources times parts of component types, each as often as it is used";
const DEPTH: &str = "levels of a component type";

const RUN: &str = r#"
  (core module $m (memory (export "memory") 1) (func (export "f"))
    (func (export "take") (param i32)) (func (export "allocate") (param i32 i32 i32 i32) (result i32) unreachable)
    (func (export "run") (result i32) i32.const 0))
  (core instance $c (instantiate $m)) (func $f (canon lift (core func $c "f")))
  (func $run (result (result)) (canon lift (core func $c "run")))
  (instance $r (export "run" (func $run))) (export "wasi:cli/run@0.2.0" (instance $r))"#;

fn component(parts: &str) -> String {
    format!("(component {RUN} {parts})")
}

fn each(n: usize, part: impl Fn(usize) -> String) -> String {
    (0..n).map(part).collect()
}

/// Instances of which each holds the one before twice.
fn doubled_instances(levels: usize) -> String {
    let mut parts = r#"(instance $i0 (export "f" (func $f)))"#.to_owned();
    for level in 1..=levels {
        let below = level - 1;
        let _ = write!(
            parts,
            r#"(instance $i{level} (export "a" (instance $i{below})) (export "b" (instance $i{below})))"#
        );
    }
    parts
}

fn aliased(levels: usize, aliases: usize) -> String {
    let bundle = format!(r#"(instance $w (export "i" (instance $i{levels})))"#);
    let aliases = each(aliases, |at| {
        format!(r#"(alias export $w "i" (instance $x{at}))"#)
    });
    component(&(doubled_instances(levels) + &bundle + &aliases))
}

fn exported(levels: usize, exports: usize) -> String {
    let exports = each(exports, |at| {
        format!(r#"(export "x{at}" (instance $i{levels}))"#)
    });
    component(&(doubled_instances(levels) + &exports))
}

/// An argument that has more than the component asks for, which copies it.
fn larger_argument(levels: usize, copies: usize) -> String {
    let copies = each(copies, |at| {
        format!(
            r#"(instance $c{at} (export "i" (instance $i))) (alias export $c{at} "i" (instance $a{at}))"#
        )
    });
    component(&format!(
        r#"{} (component $copying (import "i" (instance $i)) {copies})
          (instance (instantiate $copying (with "i" (instance $i{levels}))))"#,
        doubled_instances(levels)
    ))
}

/// Components of which each takes the one before into two others, by aliases.
fn closures(levels: usize) -> String {
    let mut parts = "(component $c0)".to_owned();
    for level in 1..=levels {
        let below = level - 1;
        let _ = write!(
            parts,
            "(component $c{level} (component (alias outer 2 $c{below} (component)))
               (component (alias outer 2 $c{below} (component))))"
        );
    }
    component(&parts)
}

fn instantiated(exports: &str, count: usize, instances: usize) -> String {
    let exports = each(count, |at| exports.replace("NAME", &format!("e{at}")));
    let instances = "(instance (instantiate $c1))".repeat(instances);
    component(&format!(
        r#"(import "c" (component $c1 {exports})) {instances}"#
    ))
}

fn nested_types(levels: usize, bottom: &str) -> String {
    let mut types = format!("(type $i0 (instance {bottom}))");
    for level in 1..=levels {
        let below = level - 1;
        let _ = write!(
            types,
            r#"(type $i{level} (instance (alias outer 1 $i{below} (type $q))
                 (export "a" (instance (type $q))) (export "b" (instance (type $q)))))"#
        );
    }
    component(&format!(
        r#"{types} (import "wasi:cli/x@0.2.0" (instance (type $i{levels})))"#
    ))
}

fn values(levels: usize, uses: usize, each_use: &str) -> String {
    let mut types = "(type $t0 (tuple u8 u8))".to_owned();
    for level in 1..=levels {
        let below = level - 1;
        let _ = write!(types, "(type $t{level} (tuple $t{below} $t{below}))");
    }
    let function = format!(r#"(type $ft (func (param "a" $t{levels})))"#);
    let uses = each(uses, |at| {
        each_use
            .replace("NAME", &format!("e{at}"))
            .replace("$t", &format!("$t{levels}"))
    });
    component(&(types + &function + &uses))
}

const LIFT: &str = r#"(func (type $ft) (canon lift (core func $c "take") (memory (core memory $c "memory"))
    (realloc (core func $c "allocate"))))"#;
const TYPE: &str = r#"(type (func (param "a" $t)))"#;
const LIST: &str = "(type (list $t))";
const RECORD: &str = r#"(type (record (field "a" $t)))"#;
const VARIANT: &str = r#"(type (variant (case "a") (case "b" $t)))"#;
const OPTION: &str = "(type (option $t))";
const RESULT: &str = "(type (result u8 (error $t)))";
const EXPORT: &str = r#"(export "NAME" (type $t))"#;

fn resource(name: &str) -> String {
    format!(r#"(export "{name}" (type (sub resource)))"#)
}

/// An instance with resources that is passed to components, each of which the engine looks up in it.
fn passed_resources(count: usize, instances: usize) -> String {
    let declared = each(count, |at| resource(&format!("e{at}")));
    let defined = each(count, |at| format!("(type $r{at} (resource (rep i32)))"));
    let bundled = each(count, |at| format!(r#"(export "e{at}" (type $r{at}))"#));
    let instances =
        r#"(instance (instantiate $user (with "i" (instance $given))))"#.repeat(instances);
    component(&format!(
        r#"(component $user (import "i" (instance {declared})))
          {defined} (instance $given {bundled}) {instances}"#
    ))
}

/// What a program is refused for, without being validated, within milliseconds; `None` if it is not.
fn refusal(text: &str) -> Option<String> {
    let binary = wat::parse_str(text).expect("text");
    let begin = Instant::now();
    let counted = Compiled::load_size(&binary);
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    counted.err().map(|error| error.to_string())
}

#[track_caller]
fn assert_limit(what: &str, shallow: &str, deep: &str) {
    assert_eq!(refusal(shallow), None);
    let refusal = refusal(deep).expect("above the limit");
    assert!(
        refusal.contains(&format!(" {what}; allowed: at most")),
        "{refusal}"
    );
}

#[test]
fn instances_that_hold_others_twice_are_counted_as_often_as_they_are_copied() {
    assert_limit(PARTS, &aliased(10, 10), &aliased(16, 10));
    assert_limit(PARTS, &exported(10, 2), &exported(17, 2));
}

#[test]
fn an_argument_that_has_more_than_is_asked_for_is_counted_as_often_as_it_is_copied() {
    assert_limit(PARTS, &larger_argument(10, 4), &larger_argument(10, 300));
}

#[test]
fn what_a_component_takes_from_outside_is_counted_with_it() {
    assert_limit(PARTS, &closures(8), &closures(20));
}

#[test]
fn a_component_counts_as_often_as_it_is_instantiated() {
    let functions = r#"(export "NAME" (func))"#;
    assert_limit(
        PARTS,
        &instantiated(functions, 1_000, 10),
        &instantiated(functions, 1_000, 900),
    );
    let resources = resource("NAME");
    assert_limit(
        RESOURCES,
        &instantiated(&resources, 1_000, 2),
        &instantiated(&resources, 1_000, 100),
    );
}

#[test]
fn resources_count_as_often_as_they_are_looked_up_in_an_argument() {
    assert_limit(
        RESOURCES,
        &passed_resources(1_000, 3),
        &passed_resources(3_000, 3),
    );
}

#[test]
fn types_of_instances_count_as_often_as_they_are_referred_to() {
    let function = r#"(export "f" (func))"#;
    assert_limit(
        PARTS,
        &nested_types(10, function),
        &nested_types(18, function),
    );
    let resource = resource("r");
    assert_limit(
        RESOURCES,
        &nested_types(6, &resource),
        &nested_types(14, &resource),
    );
}

#[test]
fn types_of_values_count_as_often_as_they_are_used() {
    for each_use in [LIFT, TYPE, LIST, RECORD, VARIANT, OPTION, RESULT, EXPORT] {
        assert_limit(
            PARTS,
            &values(10, 10, each_use),
            &values(10, 2_000, each_use),
        );
    }
}

/// A component with types of instances inside of each other, which the parser would follow without end.
fn types_inside_each_other(depth: usize) -> Vec<u8> {
    let mut section = vec![1];
    section.extend([0x42, 1, 1].repeat(depth));
    section.extend([0x42, 0]);
    let mut binary = b"\0asm\x0d\0\x01\0\x07".to_vec();
    let mut length = section.len();
    while length >= 0x80 {
        binary.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    binary.push(length as u8);
    binary.extend(section);
    binary
}

#[test]
fn types_inside_each_other_are_refused_before_the_parser_follows_them() {
    assert!(Compiled::load_size(&types_inside_each_other(63)).is_ok());
    for depth in [64, 300_000] {
        let error = Compiled::load_size(&types_inside_each_other(depth)).expect_err("too deep");
        assert!(error.to_string().contains(DEPTH), "{error}");
    }
}

#[test]
fn bytes_that_end_inside_of_a_type_are_an_error() {
    let binary = types_inside_each_other(10);
    for end in 8..binary.len() {
        assert!(Compiled::load_size(&binary[..end]).is_err() || end == 8);
    }
}

/// Instances, and types of instances, of which each holds the one before.
fn chains(levels: usize) -> [String; 2] {
    let mut instances = r#"(instance $i0 (export "f" (func $f)))"#.to_owned();
    let mut types = format!("(type $t0 (instance {}))", resource("r"));
    for level in 1..levels {
        let below = level - 1;
        let _ = write!(
            instances,
            r#"(instance $i{level} (export "a" (instance $i{below})))"#
        );
        let _ = write!(
            types,
            r#"(type $t{level} (instance (alias outer 1 $t{below} (type $q)) (export "a" (instance (type $q)))))"#
        );
    }
    [component(&instances), component(&types)]
}

#[test]
fn a_type_of_many_levels_is_refused_before_the_validator_panics() {
    for (shallow, deep) in chains(60).iter().zip(chains(130)) {
        assert_limit(DEPTH, shallow, &deep);
    }
}
