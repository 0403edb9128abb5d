//! `leasehold run --invoke`: one call of an exported function, from the command line.

mod calibrated;

use std::process::{Command, Output, Stdio};

const NUMBERS: &str = r#"(module
  (func (export "add_two") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "both") (param f64) (result i64 f64) (i64.const -7) (local.get 0))
  (func (export "none"))
  (func (export "trap") unreachable))"#;

const PLUGIN: &str = include_str!("../../leasehold/examples/plugin.wat");

/// Runs `leasehold run` on this program.
fn run(text: &str, options: &[&str], args: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("directory");
    let (program, profile) = (
        directory.path().join("p.wat"),
        directory.path().join("profile.json"),
    );
    std::fs::write(&program, text).expect("written");
    std::fs::write(&profile, calibrated::profile()).expect("written");
    Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("run")
        .args(options)
        .arg(&program)
        .args(args)
        .env("LEASEHOLD_PROFILE", &profile)
        .env("XDG_CACHE_HOME", directory.path())
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn prints(text: &str, options: &[&str], args: &[&str], expected: &str) {
    let output = run(text, options, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{options:?}: {errors}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{options:?}: {errors}"
    );
}

#[test]
fn numbers_of_a_core_module_are_printed_a_line_each() {
    prints(NUMBERS, &["--invoke", "add_two"], &["40", "2"], "42\n");
    prints(NUMBERS, &["--invoke", "add_two(-1, 2)"], &[], "1\n");
    prints(NUMBERS, &["--invoke", "both(1.5)"], &[], "-7\n1.5\n");
    prints(NUMBERS, &["--invoke", "both(nan)"], &[], "-7\nNaN\n");
    prints(NUMBERS, &["--invoke", "none"], &[], "");
}

#[test]
fn values_of_a_component_are_printed_as_they_are_written() {
    prints(
        PLUGIN,
        &["--invoke", r#"count-words("to be, or")"#],
        &[],
        "3\n",
    );
    prints(PLUGIN, &["--invoke", "sum([1, 2, 3])"], &[], "6\n");
}

#[test]
fn a_function_that_never_returns_is_killed_and_one_that_traps_is_told() {
    let output = run(
        PLUGIN,
        &["--kill-after", "50ms", "--report", "--invoke", "spin()"],
        &[],
    );
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("reclamation budget"));
    let output = run(NUMBERS, &["--invoke", "trap()"], &[]);
    assert_eq!(output.status.code(), Some(134), "{output:?}");
}

#[test]
fn a_call_that_cannot_be_made_is_refused_in_one_line() {
    for (call, word) in [
        ("nothing(1)", "there are: count-words, sum, spin"),
        ("sum(1)", "arguments of sum"),
        ("sum(", "is no call"),
        ("count-words()", "arguments"),
    ] {
        let output = run(PLUGIN, &["--invoke", call], &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{call}: {error}");
        assert!(error.contains(word), "{call}: {error}");
        assert!(output.stdout.is_empty(), "{call}");
    }
    for number in ["3e400", "-3e400"] {
        let output = run(NUMBERS, &["--invoke", &format!("both({number})")], &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{number}: {error}");
        assert!(error.contains(&format!("found {number}")), "{error}");
    }
}

/// A component whose function takes an enumeration.
const CHOICE: &str = r#"(component
  (core module $m (func (export "choose") (param i32) (result i32) (local.get 0)))
  (core instance $i (instantiate $m))
  (type $choice' (enum "left" "right"))
  (export $choice "choice" (type $choice'))
  (func (export "choose") (param "which" $choice) (result u32) (canon lift (core func $i "choose"))))"#;

#[test]
fn a_case_that_the_type_does_not_have_is_a_wrong_argument_and_no_refusal_of_the_lease() {
    prints(CHOICE, &["--invoke", "choose(right)"], &[], "1\n");
    let output = run(CHOICE, &["--invoke", "choose(up)"], &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("choose"), "{error}");
}
