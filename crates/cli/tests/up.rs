//! `leasehold up` as a person meets it: what it reports, and its exit codes.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A lease file, and `leasehold up` on it.
struct Leases {
    directory: TempDir,
}

impl Leases {
    fn new(tenants: &[(&str, &str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let text: String = tenants
            .iter()
            .map(|(name, guest, rest)| {
                let component = guests().join(guest);
                format!(
                    "[tenant.{name}]\ncomponent = {component:?}\nreclaim = {{ budget = \"20ms\" }}\n{rest}\n"
                )
            })
            .collect();
        std::fs::write(directory.path().join("leases.toml"), text).expect("written");
        Self { directory }
    }

    fn up(&self, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .current_dir(self.directory.path())
            .args(["up", "leases.toml"])
            .args(options)
            .output()
            .expect("runs")
    }
}

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests")
}

#[test]
fn every_tenant_runs_inside_its_reservation_and_is_reported() {
    let leases = Leases::new(&[
        (
            "spinner",
            "spin.wasm",
            "cpu = { budget = \"2ms\", period = \"20ms\", priority = 5 }",
        ),
        ("idle", "spin.wasm", ""),
        ("short", "hello.wasm", "args = [\"Ada\"]"),
    ]);
    let output = leases.up(&["--for", "500ms", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let tenant = |name: &str| {
        let tenants = json["tenants"].as_array().expect("tenants");
        let found = tenants.iter().find(|tenant| tenant["name"] == name);
        found.expect("every tenant is reported").clone()
    };
    let spinner = tenant("spinner");
    let elapsed = json["elapsed_ns"].as_u64().expect("a time");
    let used = spinner["used_ns"].as_u64().expect("a time");
    let overrun = spinner["overrun_max_ns"].as_u64().expect("a time");
    assert!(
        used <= (elapsed / 20_000_000 + 2) * 2_000_000 + overrun,
        "{spinner}"
    );
    assert!(spinner["depletions"].as_u64() > Some(0), "{spinner}");
    assert_eq!(spinner["state"], "killed");
    let wall = spinner["reclaim_wall_ns"].as_u64().expect("a time");
    let bound = spinner["reclaim_bound_ns"].as_u64().expect("a time");
    assert!(wall <= bound, "{spinner}");
    assert!(tenant("idle")["used_ns"].as_u64() > Some(0));
    assert_eq!(tenant("idle")["budget_ns"], Value::Null);
    assert_eq!(tenant("short")["state"], "exit 0");
}

#[test]
fn a_set_that_cannot_be_kept_is_not_started_unless_told_to() {
    let cpu = "cpu = { budget = \"6ms\", period = \"10ms\" }";
    let leases = Leases::new(&[("a", "hello.wasm", cpu), ("b", "hello.wasm", cpu)]);
    let refused = leases.up(&["--for", "1s"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(77), "{error}");
    assert!(error.contains("leasehold admit"), "{error}");
    assert!(refused.stdout.is_empty(), "nothing has run");
    let started = leases.up(&["--for", "5s", "--unadmitted"]);
    let said = String::from_utf8_lossy(&started.stdout);
    assert_eq!(started.status.code(), Some(0), "{started:?}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn memory_that_the_cell_does_not_hold_is_not_promised() {
    let memory = "memory = { reserve = \"48MiB\" }";
    let leases = Leases::new(&[
        ("a", "hello.wasm", memory),
        (
            "b",
            "hello.wasm",
            &format!("{memory}\n[cell]\nmemory = \"64MiB\""),
        ),
    ]);
    let output = leases.up(&["--for", "1s", "--unadmitted"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{error}");
    assert!(
        error.contains("leases.toml: memory: does NOT fit"),
        "{error}"
    );
    assert!(error.contains("32MiB too little"), "{error}");
    assert!(output.stdout.is_empty(), "nothing has run");
}

#[test]
fn what_fails_is_named_and_nothing_else_is_started() {
    let leases = Leases::new(&[("good", "hello.wasm", ""), ("bad", "none.wasm", "")]);
    let output = leases.up(&["--for", "1s"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(66), "{error}");
    assert!(error.contains("tenant.bad: no such program"), "{error}");
    assert!(output.stdout.is_empty(), "the good one has not run");
}
