//! What tests of the tracer share: the programs, traces of them, and waiting for what must come.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use leasehold_lockscope::{Mode, Trace, Use};

/// The program `lockscope`.
pub(crate) fn lockscope() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lockscope"))
}

pub(crate) fn ground_truth() -> String {
    example("ground-truth")
}

/// An example that cargo builds beside the tests.
pub(crate) fn example(name: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_lockscope"));
    let example = program.with_file_name("examples").join(name);
    example.display().to_string()
}

/// Two commands recorded with the options `more`, and what the program said.
pub(crate) fn record(directory: &Path, a: &str, b: &str, more: &[&str]) -> (Trace, Output) {
    let file = directory.join("trace");
    let output = lockscope()
        .args(["record", "--a", a, "--b", b, "--out"])
        .arg(&file)
        .args(more)
        .output()
        .expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    (Trace::read(&file).expect("a trace"), output)
}

/// Two commands recorded in the full mode until they end, and nothing of them lost.
pub(crate) fn record_fully(a: &str, b: &str, more: &[&str]) -> Trace {
    let directory = tempfile::tempdir().expect("a directory");
    let more = [&["--mode", "full", "--for", "10m"][..], more].concat();
    let (trace, output) = record(directory.path(), a, b, &more);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!error.contains("failed"), "{error}");
    assert_eq!(trace.mode, Mode::Full);
    assert_eq!(trace.losses.acquisitions, 0, "{:?}", trace.losses);
    trace
}

/// Starts a tracer, kills it (SIGKILL) while it records `busy` beside a sleeping workload, and
/// waits until the kernel no longer has any program called `program`. Its process id.
pub(crate) fn kill_a_tracer(mode: &str, busy: &str, program: &str) -> u32 {
    let directory = tempfile::tempdir().expect("a directory");
    let mark = directory.path().join("running");
    let command = format!("touch {}; {busy}", mark.display());
    let mut tracer = lockscope()
        .args(["record", "--mode", mode, "--a", &command])
        .args(["--b", "exec sleep 1000", "--out"])
        .arg(directory.path().join("trace"))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    until(|| mark.exists());
    assert!(loaded(program) > 0);
    tracer.kill().expect("killed");
    tracer.wait().expect("waited for");
    until(|| loaded(program) == 0);
    tracer.id()
}

pub(crate) fn uses_of(trace: &Trace, workload: u8) -> impl Iterator<Item = &Use> {
    trace
        .uses
        .iter()
        .filter(move |used| used.workload.0 == workload)
}

/// Acquisitions and measured holds of `workload` in functions of this name.
pub(crate) fn taken_in(trace: &Trace, workload: u8, functions: &[&str]) -> (u64, u64) {
    let here = uses_of(trace, workload).filter(|used| {
        let name = trace.symbol(used.site).map(|symbol| symbol.name.as_str());
        name.is_some_and(|name| functions.contains(&name))
    });
    here.fold((0, 0), |(acquired, held), used| {
        (acquired + used.acquired, held + used.held)
    })
}

/// How many programs of this name are loaded into the kernel.
pub(crate) fn loaded(name: &str) -> usize {
    libbpf_rs::query::ProgInfoIter::default()
        .filter(|program| program.name.to_string_lossy() == name)
        .count()
}

/// Waits for what must come, however busy the machine is.
pub(crate) fn until(mut reached: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if reached() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come within a minute");
}
