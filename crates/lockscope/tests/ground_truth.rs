//! The full mode against workloads whose acquisitions are known by construction. Runs where lock
//! functions can be probed: in the lab, with `--ignored`.

#![cfg(feature = "tracer")]

use std::path::Path;
use std::process::Command;

use leasehold_lockscope::{Class, Mode, Trace, locks};

const COUNT: u64 = 5_000;

fn record(a: &str, b: &str, more: &[&str]) -> Trace {
    let program = Path::new(env!("CARGO_BIN_EXE_lockscope"));
    let example = program
        .parent()
        .expect("a directory")
        .join("examples/ground-truth");
    let command = |arguments: &str| format!("{} {arguments}", example.display());
    record_commands(&command(a), &command(b), more)
}

fn record_commands(a: &str, b: &str, more: &[&str]) -> Trace {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace");
    let output = Command::new(env!("CARGO_BIN_EXE_lockscope"))
        .args([
            "record", "--mode", "full", "--for", "10m", "--a", a, "--b", b, "--out",
        ])
        .arg(&file)
        .args(more)
        .output()
        .expect("started");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let trace = Trace::read(&file).expect("a trace");
    assert_eq!(trace.mode, Mode::Full);
    assert_eq!(trace.losses.acquisitions, 0, "{:?}", trace.losses);
    trace
}

/// Acquisitions and measured holds of `workload` in functions of this name.
fn taken_in(trace: &Trace, workload: u8, functions: &[&str]) -> (u64, u64) {
    let here = trace.uses.iter().filter(|used| {
        let name = trace.symbol(used.site).map(|symbol| symbol.name.as_str());
        used.workload.0 == workload && name.is_some_and(|name| functions.contains(&name))
    });
    here.fold((0, 0), |(acquired, held), used| {
        (acquired + used.acquired, held + used.held)
    })
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn the_mutex_of_a_pipe_is_counted_exactly() {
    let trace = record(
        &format!("pipe {COUNT}"),
        &format!("pipe {}", 2 * COUNT),
        &[],
    );
    for (workload, count) in [(0, COUNT), (1, 2 * COUNT)] {
        let written = taken_in(&trace, workload, &["pipe_write", "anon_pipe_write"]);
        let read = taken_in(&trace, workload, &["pipe_read", "anon_pipe_read"]);
        assert_eq!(written, (count, count));
        assert_eq!(read, (count, count));
    }
    // Each has a pipe of its own.
    let most: Vec<_> = locks(&trace)
        .into_iter()
        .filter(|lock| {
            lock.class == Class::Mutex
                && lock.by.values().any(|usage| usage.acquired() >= 2 * COUNT)
        })
        .collect();
    assert_eq!(most.len(), 2);
    assert!(most.iter().all(|lock| !lock.shared));
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn the_semaphore_of_a_directory_is_counted_exactly_and_shared() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = format!("directory {COUNT} {}", directory.path().display());
    // Every file brings locks of its own: one class of them, and room.
    let trace = record(&files, &files, &["--class", "rwsem", "--rows", "262144"]);
    for workload in 0..2 {
        assert_eq!(taken_in(&trace, workload, &["do_unlinkat"]).0, COUNT);
    }
    let shared = locks(&trace).into_iter().find(|lock| {
        lock.shared
            && lock
                .by
                .values()
                .all(|usage| usage.exclusive.acquired >= 2 * COUNT)
    });
    assert!(
        shared.is_some(),
        "both take the directory's semaphore twice for each file"
    );
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn the_spin_lock_of_a_futex_is_counted_exactly() {
    let trace = record(&format!("futex {COUNT}"), "futex 0", &[]);
    let sites = ["futex_wait_setup", "futex_q_lock"];
    assert_eq!(taken_in(&trace, 0, &sites), (COUNT, COUNT));
    assert_eq!(taken_in(&trace, 1, &sites), (0, 0));
}

/// The lock of a run queue is released by another task than the one that took it.
#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_lock_that_another_task_releases_has_no_hold_time() {
    let sleeps = "i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done";
    let trace = record_commands(sleeps, sleeps, &[]);
    for workload in 0..2 {
        let (acquired, held) = taken_in(&trace, workload, &["__schedule"]);
        assert!(
            acquired >= 20 && held < acquired / 2,
            "{held} of {acquired}"
        );
    }
}

/// Programs of the tracer in the kernel.
fn loaded() -> usize {
    libbpf_rs::query::ProgInfoIter::default()
        .filter(|program| program.name.to_string_lossy() == "lock_entered")
        .count()
}

fn until(mut reached: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if reached() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it did not come within a minute");
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_tracer_that_is_killed_leaves_no_probe_in_a_lock_function() {
    let directory = tempfile::tempdir().expect("a directory");
    let mark = directory.path().join("running");
    let command = format!("touch {}; while :; do :; done", mark.display());
    let mut tracer = Command::new(env!("CARGO_BIN_EXE_lockscope"))
        .args([
            "record",
            "--mode",
            "full",
            "--a",
            &command,
            "--b",
            "exec sleep 1000",
            "--out",
        ])
        .arg(directory.path().join("trace"))
        .spawn()
        .expect("started");
    until(|| mark.exists());
    assert!(loaded() > 0);
    tracer.kill().expect("killed");
    tracer.wait().expect("waited for");
    until(|| loaded() == 0);
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_storm_of_forks_and_exits_is_counted_or_its_loss_is_said() {
    let storm = "i=0; while [ $i -lt 150 ]; do /bin/true & i=$((i+1)); done; wait";
    let trace = record_commands(storm, storm, &["--rows", "1048576"]);
    // Every process that is made takes the list of tasks once, and once more when it is reaped.
    for workload in 0..2 {
        let (made, _) = taken_in(&trace, workload, &["copy_process"]);
        assert!(made >= 150, "{made}");
    }
}
