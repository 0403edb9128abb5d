//! The full mode against workloads whose acquisitions are known by construction. Runs where lock
//! functions can be probed: in the lab, with `--ignored`.

#![cfg(feature = "tracer")]

mod common;

use std::fs;

use common::{ground_truth, kill_a_tracer, record_fully, taken_in, uses_of};
use leasehold_lockscope::{Class, Trace, Use, locks};

const COUNT: u64 = 5_000;
/// Files of a workload that is compared with itself untraced.
const ROUNDS: u64 = 500;

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

/// Uses of `workload` in functions of this name.
fn taken_by<'a>(trace: &'a Trace, workload: u8, functions: &[&str]) -> Vec<&'a Use> {
    uses_of(trace, workload)
        .filter(|used| {
            let name = trace.symbol(used.site).map(|symbol| symbol.name.as_str());
            name.is_some_and(|name| functions.contains(&name))
        })
        .collect()
}

/// A page fault in the middle of a write, which another thread answers after a known time, makes the
/// writer hold the pipe's mutex for just that. What is nested in it costs it nothing.
#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn holds_of_known_length_are_measured_within_a_tenth() {
    let directory = tempfile::tempdir().expect("a directory");
    let known = |name: &str| {
        let text = fs::read_to_string(directory.path().join(name)).expect("written");
        let mut words = text
            .split(' ')
            .map(|word| word.parse::<f64>().expect("a number"));
        (words.next().expect("least"), words.next().expect("most"))
    };
    for (count, micros) in [(200, 2_000), (40, 20_000), (10, 200_000)] {
        let hold = |name: &str| {
            let file = directory.path().join(name);
            format!("hold {count} {micros} {}", file.display())
        };
        let trace = record(&hold("a"), &hold("b"), &["--class", "mutex,spin"]);
        for (workload, name) in [(0, "a"), (1, "b")] {
            let uses = taken_by(&trace, workload, &["pipe_write", "anon_pipe_write"]);
            let (held, ns) = uses.iter().fold((0, 0), |(held, ns), used| {
                let longest = class_of(&trace, used) == Class::Mutex;
                if longest {
                    (held + used.held, ns + used.hold_ns)
                } else {
                    (held, ns)
                }
            });
            assert_eq!(held, count);
            let measured = ns as f64 / held as f64;
            let (least, most) = known(name);
            println!(
                "{micros} µs: known {least:.0} to {most:.0} ns, measured {measured:.0} ns, \
                 {:+.2} %; an empty probe {:?} ns",
                (measured / most - 1.0) * 100.0,
                trace.probe_ns
            );
            assert!((least..1.01 * most).contains(&measured));
            // The writer goes on, and returns, right after it was woken.
            assert!(measured > 0.9 * most);
        }
    }
}

/// The hold of a directory's semaphore while a file is made and removed is a part of what that takes
/// without a tracer, and little more where the locks that are taken inside are probed, too.
#[test]
#[ignore = "needs such a kernel, and a clock that other load does not move: lab/run --deterministic"]
fn a_hold_contains_nothing_of_the_tracer() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let file = directory.path().join("known");
    let arguments = format!(
        "round {ROUNDS} {} {}",
        directory.path().display(),
        file.display()
    );
    let known = || {
        let text = fs::read_to_string(&file).expect("written");
        text.parse::<f64>().expect("a number")
    };
    let status = std::process::Command::new(ground_truth())
        .args(arguments.split(' '))
        .status();
    assert!(status.expect("started").success());
    let round = known();
    let sites = ["do_unlinkat", "open_last_lookups", "path_openat"];
    let held = |classes: &str| {
        let more = ["--rows", "262144", "--class", classes];
        let trace = record(&arguments, "futex 0", &more);
        let uses = taken_by(&trace, 0, &sites);
        let (held, ns) = uses
            .iter()
            .filter(|used| class_of(&trace, used) == Class::Rwsem)
            .fold((0, 0), |(held, ns), used| {
                (held + used.held, ns + used.hold_ns)
            });
        assert!(held >= 2 * ROUNDS);
        let of_a_round = ns as f64 / ROUNDS as f64;
        println!(
            "{classes}: a round takes {round:.0} ns, {:.0} traced; of it held {of_a_round:.0}; \
             an empty probe {:?}",
            known(),
            trace.probe_ns
        );
        of_a_round
    };
    let (alone, nested) = (held("rwsem"), held("all"));
    assert!(alone < round && nested < round);
    // What the probes take of a round is several times as long as what is held of it.
    assert!(nested < 1.15 * alone, "{nested} of {alone}");
}

/// On one processor each task is preempted within a hold now and then, for a time slice of 3 ms; it holds a
/// directory for some 30 µs.
#[test]
#[ignore = "needs such a kernel, and one processor whose load is known: lab/run --deterministic"]
fn a_hold_contains_nothing_of_a_task_that_preempted_its_holder() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let files = ["a", "b"].map(|name| {
        let own = directory.path().join(name);
        fs::create_dir(&own).expect("made");
        format!("directory {COUNT} {}", own.display())
    });
    let more = ["--class", "rwsem", "--rows", "262144"];
    let trace = record(&files[0], &files[1], &more);
    for workload in 0..2 {
        let holds = taken_by(&trace, workload, &["do_unlinkat"]);
        let longest = holds.iter().map(|used| used.hold_max_ns).max();
        assert!(longest.is_some_and(|ns| ns < 1_500_000), "{longest:?}");
    }
}

/// A task that spins for a lock which another one holds does not hold it yet, also where the kernel does
/// not announce that it waits: together they hold it for no longer than there is time.
#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_task_that_spins_for_a_lock_does_not_hold_it() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let files = format!("directory {COUNT} {}", directory.path().display());
    let trace = record(&files, &files, &["--class", "spin", "--rows", "262144"]);
    let all = locks(&trace);
    for lock in &all {
        let held: u64 = lock.by.values().map(|usage| usage.exclusive.hold_ns).sum();
        assert!(held <= trace.duration_ns, "{held} ns: {}", lock.name);
    }
    let waited = |lock: &&leasehold_lockscope::Lock| {
        lock.shared && lock.by.values().any(|usage| usage.contended > 0)
    };
    assert!(all.iter().filter(waited).count() > 3);
}

/// Inodes that one workload frees and the other one gets are other locks each time, also those that
/// only the constructor of the slab initialises.
#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn files_that_are_made_in_turns_share_no_lock_of_an_inode() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let arguments = |turn: u8| {
        let own = directory.path().join(turn.to_string());
        fs::create_dir(&own).expect("a directory");
        format!("alternate 200 200 {turn} {}", own.display())
    };
    let trace = record(&arguments(0), &arguments(1), &["--rows", "262144"]);
    let all = locks(&trace);
    let of_files = |lock: &&leasehold_lockscope::Lock| {
        lock.name.starts_with("shmem_inode_info.") || lock.name.starts_with("dentry.")
    };
    let renewed = all.iter().filter(|lock| lock.generation > 0);
    let renewed: Vec<_> = renewed.filter(of_files).collect();
    println!(
        "{} locks, {} of files at the address of another one before",
        all.len(),
        renewed.len()
    );
    assert!(renewed.len() > 1_000);
    let wrong = renewed
        .iter()
        .filter(|lock| lock.shared)
        .map(|lock| format!("{} {:#x} {}", lock.name, lock.address, lock.generation));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn class_of(trace: &Trace, used: &Use) -> Class {
    trace.primitives[usize::from(used.primitive.0)].class
}
