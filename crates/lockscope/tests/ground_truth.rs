//! The full mode against workloads whose acquisitions are known by construction. Runs where lock
//! functions can be probed: in the lab, with `--ignored`.

#![cfg(feature = "tracer")]

mod common;

use common::{ground_truth, kill_a_tracer, record_fully, taken_in};
use leasehold_lockscope::{Class, Trace, locks};

const COUNT: u64 = 5_000;

fn record(a: &str, b: &str, more: &[&str]) -> Trace {
    let [a, b] = [a, b].map(|arguments| format!("{} {arguments}", ground_truth()));
    record_fully(&a, &b, more)
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
    let trace = record_fully(sleeps, sleeps, &[]);
    for workload in 0..2 {
        let (acquired, held) = taken_in(&trace, workload, &["__schedule"]);
        assert!(
            acquired >= 20 && held < acquired / 2,
            "{held} of {acquired}"
        );
    }
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_tracer_that_is_killed_leaves_no_probe_in_a_lock_function() {
    kill_a_tracer("full", "while :; do :; done", "lock_entered");
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_storm_of_forks_and_exits_is_counted_or_its_loss_is_said() {
    let storm = "i=0; while [ $i -lt 150 ]; do /bin/true & i=$((i+1)); done; wait";
    let trace = record_fully(storm, storm, &["--rows", "1048576"]);
    // Every process that is made takes the list of tasks once, and once more when it is reaped.
    for workload in 0..2 {
        let (made, _) = taken_in(&trace, workload, &["copy_process"]);
        assert!(made >= 150, "{made}");
    }
}
