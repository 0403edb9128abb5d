//! `leasehold attack --known`: each attack that once got through breaks nothing that is counted.

mod calibrated;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use tempfile::TempDir;

static STATE: LazyLock<TempDir> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let profile = directory.path().join("profile.json");
    std::fs::write(profile, calibrated::profile()).expect("written");
    directory
});

fn attack() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .arg("attack")
        .env("LEASEHOLD_PROFILE", STATE.path().join("profile.json"));
    command
}

fn known(names: &[&str]) -> (Option<i32>, String, String) {
    let output = attack()
        .args(["--json", "--known"])
        .args(names)
        .output()
        .expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn no_known_attack_breaks_a_promise_that_is_counted() {
    let (code, output, errors) = known(&[]);
    // A busy host makes times longer.
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {errors}{output}");
    let rows: Vec<Value> = serde_json::from_str(&output).expect("JSON");
    assert_eq!(rows.len(), leasehold_attack::KNOWN.len());
    for (known, row) in leasehold_attack::KNOWN.iter().zip(rows) {
        let seen = &row["observation"];
        assert!(seen["refused"].is_null(), "{row}");
        assert!(seen["wakes"].as_u64() > Some(10), "the victim ran: {row}");
        let exit = seen["exit"].as_str().expect("text");
        assert!(exit.starts_with(known.ends), "it did what it is for: {row}");
    }
}

#[test]
fn an_attack_that_is_not_known_is_named_with_those_that_are() {
    let (code, _, errors) = known(&["nothing"]);
    assert_eq!(code, Some(66));
    assert!(
        errors.contains("\"nothing\"") && errors.contains("long-path"),
        "{errors}"
    );
}

#[test]
fn a_search_that_is_interrupted_tells_what_it_found() {
    let mut search = attack();
    search.args(["--for", "3600s", "--json", "--out"]);
    let out = tempfile::tempdir().expect("a directory");
    search.arg(out.path()).stdout(Stdio::piped());
    let search = search.spawn().expect("starts");
    while !catches_interrupts(search.id()) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // Some attacks.
    std::thread::sleep(Duration::from_secs(3));
    kill_process(Pid::from_child(&search), Signal::INT).expect("it runs");
    let output = search.wait_with_output().expect("ends");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found["played"].as_u64() > Some(0), "{found}");
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)));
}

/// Whether the process has a handler for SIGINT.
fn catches_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("a mask").trim(), 16).expect("hexadecimal");
    caught & 1 << (Signal::INT.as_raw() - 1) != 0
}
