//! The tracer on the kernel that runs the tests, in the contended mode. Needs root.

#![cfg(feature = "tracer")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};

use common::{ground_truth, kill_a_tracer, lockscope, until, uses_of};
use leasehold_lockscope::{Class, Mode, Trace, locks};

/// One tracer at a time: one of the tests looks for what another one would have loaded.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Whether the kernel has the tracepoints of `mmap_lock` that some tests need (Linux 6.13).
fn sees_mmap_lock() -> bool {
    let output = lockscope().arg("probe").output().expect("started");
    let sees = String::from_utf8_lossy(&output.stdout).contains("every mmap_lock");
    if !sees {
        eprintln!("not run: this kernel's mmap_lock has no tracepoints that the tracer knows");
    }
    sees
}

fn record(directory: &Path, a: &str, b: &str, more: &[&str]) -> (Trace, Output) {
    common::record(
        directory,
        a,
        b,
        &[&["--mode", "contended"][..], more].concat(),
    )
}

/// Of the address space that was locked most, by `workload`.
fn mmap_writes(trace: &Trace, workload: u8) -> u64 {
    let writes = uses_of(trace, workload)
        .filter(|used| trace.primitives[usize::from(used.primitive.0)].name == "mmap_lock, write");
    writes.map(|used| used.acquired).max().unwrap_or(0)
}

#[test]
fn every_mmap_lock_is_counted() {
    let _turn = turn();
    if !sees_mmap_lock() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let run = |count: u64| {
        let program = ground_truth();
        let (few, many) = (
            format!("exec {program} mmap 0"),
            format!("exec {program} mmap {count}"),
        );
        let (trace, _) = record(directory.path(), &few, &many, &["--for", "60s"]);
        assert_eq!(trace.mode, Mode::Contended);
        assert_eq!(trace.losses.acquisitions, 0);
        // Starting a program takes the same lock, every time as often.
        mmap_writes(&trace, 1) - mmap_writes(&trace, 0)
    };
    assert_eq!(run(1_000), 2_000);
    assert_eq!(run(20_000), 40_000);
}

/// As many as a machine takes in a second, several times.
#[test]
fn of_millions_of_events_none_is_lost() {
    let _turn = turn();
    if !sees_mmap_lock() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (few, many) = (
        format!("exec {} mmap 0", ground_truth()),
        format!("exec {} mmap 1000000", ground_truth()),
    );
    let (trace, _) = record(directory.path(), &few, &many, &["--for", "10m"]);
    assert_eq!(trace.losses.acquisitions, 0);
    assert_eq!(mmap_writes(&trace, 1) - mmap_writes(&trace, 0), 2_000_000);
}

#[test]
fn what_a_workload_does_until_it_is_ready_is_not_recorded() {
    let _turn = turn();
    if !sees_mmap_lock() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = ground_truth();
    let begins = |before: u64, after: u64| {
        format!("{program} mmap {before}; echo ready; read line; exec {program} mmap {after}")
    };
    let (trace, _) = record(
        directory.path(),
        &begins(3_000, 0),
        &begins(0, 3_000),
        &["--for", "10m", "--when-ready"],
    );
    assert!(mmap_writes(&trace, 0) < 3_000);
    assert!(mmap_writes(&trace, 1) >= 6_000);
}

#[test]
fn a_workload_that_ends_before_it_is_ready_is_named() {
    let _turn = turn();
    let output = lockscope()
        .args(["record", "--mode", "contended", "--when-ready"])
        .args(["--a", "echo ready; read line", "--b", "echo steady"])
        .output()
        .expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("workload b: it ended (exit status: 0) before it said that it is ready"),
        "{error}"
    );
}

/// A workload that tells of rounds of ten milliseconds.
const ROUNDS: &str = "echo ready; read line; while :; do sleep 0.01; echo round; done";

#[test]
fn a_pair_is_measured_beside_each_other_and_beside_a_control() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let [trace, result] = ["pair.trace", "pair.json"].map(|name| directory.path().join(name));
    let output = lockscope()
        .args(["verify", "--mode", "contended", "--name", "one other"])
        .args(["--blocks", "2", "--each", "100ms", "--for", "200ms"])
        .args(["--disturbed", "1"])
        .args(["--a", ROUNDS, "--b", ROUNDS, "--control", ROUNDS])
        .arg("--out")
        .arg(&trace)
        .arg("--result")
        .arg(&result)
        .output()
        .expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let agreement = lockscope()
        .args(["agreement", "--json", "--held-out", "other"])
        .arg(&result)
        .output()
        .expect("started");
    let agreement: serde_json::Value = serde_json::from_slice(&agreement.stdout).expect("JSON");
    // Both directions, each measured; of a sleeper what was measured is near nothing.
    assert_eq!(agreement["all"]["pairs"], 2, "{agreement}");
    assert_eq!(agreement["held_out"]["pairs"], 2, "{agreement}");
    for workload in Trace::read(&trace).expect("a trace").workloads {
        assert!(workload.own_ns > 0, "{workload:?}");
    }
}

#[test]
fn a_workload_that_runs_alone_first_tells_how_much_work_it_did() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let more = ["--when-ready", "--alone", "100ms", "--for", "300ms"];
    let (trace, _) = record(directory.path(), ROUNDS, ROUNDS, &more);
    for workload in &trace.workloads {
        let (own, ran) = (workload.own_ns, workload.ran_ns);
        // Nothing holds it up but other programs of this machine.
        assert!(own > ran / 10 && own < 2 * ran, "{workload:?}");
    }
}

#[test]
fn rounds_of_a_worker_are_timed_beside_thrashers() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let worker = "echo ready; read line; while :; do sleep 0.01; echo round; done";
    let thrasher = "echo ready; read line; : >{}; exec sleep 1000";
    let output = lockscope()
        .current_dir(directory.path())
        .args([
            "interfere",
            "--mode",
            "contended",
            "--when-ready",
            "--max",
            "2",
        ])
        .args(["--worker", worker, "--thrasher", thrasher])
        .args(["--add-every", "300ms", "--json"])
        .output()
        .expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let steps = result["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 3);
    for step in steps {
        assert!(
            step["median_ms"]
                .as_f64()
                .is_some_and(|median| median >= 10.0),
            "{step}"
        );
    }
    // Each thrasher had a name of its own.
    for name in ["thrasher1", "thrasher2"] {
        assert!(directory.path().join(name).exists(), "{name}");
    }
}

#[test]
fn two_workloads_that_fight_for_a_directory_share_its_lock() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let fought = directory.path().join("fought");
    fs::create_dir(&fought).expect("a directory");
    let command = format!(
        "{} directory 100000000 {}",
        ground_truth(),
        fought.display()
    );
    let (trace, _) = record(directory.path(), &command, &command, &["--for", "3s"]);
    let shared: Vec<_> = locks(&trace)
        .into_iter()
        .filter(|lock| lock.shared)
        .collect();
    let directory_lock = shared.iter().find(|lock| lock.class == Class::Rwsem);
    let lock = directory_lock.expect("the directory's lock is fought for");
    assert!(
        lock.by
            .values()
            .all(|usage| usage.contended > 0 && usage.wait_ns > 0)
    );
    // Where it was taken is known, without the insides of the lock.
    let used = trace
        .uses
        .iter()
        .find(|used| used.lock == lock.address)
        .expect("a use");
    let site = trace.symbol(used.site).expect("a name");
    assert!(
        !site.name.contains("rwsem") && !site.name.contains("down_write"),
        "{site:?}"
    );
}

#[test]
fn a_workload_that_forks_and_exits_all_the_time_is_followed() {
    let _turn = turn();
    if !sees_mmap_lock() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let storm = "i=0; while [ $i -lt 1500 ]; do /bin/true & i=$((i+1)); done; wait";
    let (trace, _) = record(directory.path(), storm, storm, &["--for", "120s"]);
    assert_eq!(trace.losses.acquisitions, 0);
    for workload in 0..2 {
        // Each process has an address space of its own, told apart although addresses are reused.
        let spaces = uses_of(&trace, workload).filter(|used| {
            trace.primitives[usize::from(used.primitive.0)].name == "mmap_lock, write"
        });
        let spaces: std::collections::BTreeSet<_> =
            spaces.map(|used| (used.lock, used.generation)).collect();
        assert!(spaces.len() >= 1_500, "{} address spaces", spaces.len());
    }
    let mm_locks = locks(&trace)
        .into_iter()
        .filter(|lock| lock.name == "mm_struct.mmap_lock");
    assert_eq!(
        mm_locks.filter(|lock| lock.shared).count(),
        0,
        "no process is of both workloads"
    );
}

#[test]
fn a_table_that_is_full_says_what_it_lost() {
    let _turn = turn();
    if !sees_mmap_lock() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let storm = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done";
    let (trace, output) = record(
        directory.path(),
        storm,
        storm,
        &["--for", "120s", "--rows", "16"],
    );
    assert!(trace.losses.acquisitions > 0);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains(&format!("lost: {} acquisitions", trace.losses.acquisitions)),
        "{said}"
    );
}

#[test]
fn a_tracer_that_is_killed_leaves_no_program_and_no_process() {
    let _turn = turn();
    // Nor what its workloads forked: a group is gone only when no process is in it.
    let busy = "sleep 1000 & (sleep 1000 & sleep 1000); wait";
    let group = cgroups(kill_a_tracer("contended", busy, "wait_began"));
    until(|| !group.exists());
}

#[test]
fn what_is_fought_for_is_shown_while_it_runs() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let fifo = directory.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("started").success());
    let mut fighters = [(); 2].map(|()| {
        let fighter = Command::new(ground_truth())
            .args(["fifo", "1000000000"])
            .arg(&fifo)
            .spawn();
        fighter.expect("started")
    });
    let mut top = lockscope();
    top.args(["top", "--interval", "1s", "--count", "2"]);
    for fighter in &fighters {
        top.args(["--pid", &fighter.id().to_string()]);
    }
    let output = top.output().expect("started");
    for fighter in &mut fighters {
        fighter.kill().expect("killed");
        fighter.wait().expect("waited for");
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let shared = |line: &str| line.contains("mutex taken by") && line.contains(" yes ");
    assert!(said.lines().any(shared), "{said}");
    assert_eq!(said.matches("waits/s").count(), 4, "{said}");
}

#[test]
fn what_cannot_be_written_is_said_before_anything_is_started() {
    let directory = tempfile::tempdir().expect("a directory");
    let mark = directory.path().join("started");
    let command = format!("touch {}", mark.display());
    let output = lockscope()
        .args(["record", "--a", &command, "--b", &command])
        .args(["--out", "/no/such/directory/trace"])
        .output()
        .expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
    assert!(!mark.exists());
}

fn cgroups(tracer: u32) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let mount = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .expect("cgroup2");
    let root = mount.split(' ').nth(4).expect("a mount point");
    Path::new(root).join(format!("lockscope-{tracer}"))
}

#[test]
fn a_process_that_runs_already_is_recorded_with_what_it_starts() {
    let _turn = turn();
    if !sees_mmap_lock() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let script = "while :; do /bin/true; done";
    let mut running = Command::new("sh")
        .args(["-c", script])
        .spawn()
        .expect("started");
    let file = directory.path().join("trace");
    let output = lockscope()
        .args([
            "attach",
            "--mode",
            "contended",
            "--for",
            "1s",
            "--pid",
            &running.id().to_string(),
        ])
        .arg("--out")
        .arg(&file)
        .output();
    running.kill().expect("killed");
    running.wait().expect("waited for");
    assert!(output.expect("started").status.success());
    let trace = Trace::read(&file).expect("a trace");
    let spaces: std::collections::BTreeSet<_> = trace
        .uses
        .iter()
        .map(|used| (used.lock, used.generation))
        .collect();
    assert!(
        spaces.len() > 3,
        "only {} locks of a shell and its children",
        spaces.len()
    );
}

#[test]
fn a_full_disk_is_one_clear_error_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let mount = |arguments: &[&str]| {
        let status = Command::new("mount").args(arguments).arg(&disk).status();
        assert!(status.expect("started").success());
    };
    mount(&["-t", "tmpfs", "-o", "size=16k", "none"]);
    let long = Trace {
        name: "x".repeat(100_000),
        ..Trace::default()
    };
    let error = long.write(&disk.join("trace"));
    let left = fs::read_dir(&disk).expect("readable").count();
    assert!(
        Command::new("umount")
            .arg(&disk)
            .status()
            .expect("started")
            .success()
    );
    let error = error.expect_err("the disk is full").to_string();
    assert!(
        error.contains("disk/trace: cannot write the trace: No space left"),
        "{error}"
    );
    assert_eq!(left, 0);
}

#[test]
fn a_recording_that_finds_the_disk_full_says_so_and_leaves_no_workload() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a directory");
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4k", "none"])
        .arg(&disk)
        .status();
    assert!(mounted.expect("started").success());
    let recording = lockscope()
        .args(["record", "--mode", "contended", "--for", "300ms"])
        .args(["--name", &"x".repeat(100_000)])
        .args(["--a", "exec sleep 1000", "--b", "exec sleep 1000", "--out"])
        .arg(disk.join("trace"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let group = cgroups(recording.id());
    let output = recording.wait_with_output().expect("waited for");
    let left = fs::read_dir(&disk).expect("readable").count();
    let unmounted = Command::new("umount").arg(&disk).status();
    assert!(unmounted.expect("started").success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("cannot write the trace: No space left"),
        "{error}"
    );
    assert_eq!(left, 0);
    assert!(!group.exists());
}

#[test]
fn what_is_no_trace_is_refused_in_one_line_that_names_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("not.trace");
    fs::write(&file, [0xff; 5_000]).expect("written");
    for command in ["report", "compare", "score"] {
        let output = lockscope()
            .arg(command)
            .arg(&file)
            .output()
            .expect("started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            error.contains("not.trace: not a lockscope trace"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn what_is_not_offered_or_does_not_exist_is_refused() {
    let refused = |arguments: &[&str], said: &str| {
        let output = lockscope().args(arguments).output().expect("started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    };
    refused(
        &["attach", "--cgroup", "no/such/group"],
        "not a control group",
    );
    refused(
        &["attach", "--pid", "4194999"],
        "no process has the id 4194999",
    );
    refused(&["attach"], "nothing to attach to");
    let record = ["record", "--a", "true", "--b", "true"];
    refused(
        &[&record[..], &["--mode", "half"]].concat(),
        "allowed: auto, full, contended",
    );
    refused(
        &[&record[..], &["--class", "mutes"]].concat(),
        "found \"mutes\"",
    );
    refused(
        &[&record[..], &["--for", "10"]].concat(),
        "allowed: a whole number and ms, s, m or h",
    );
    refused(
        &[&record[..], &["--platform", "lxc"]].concat(),
        "--platform: found \"lxc\"; allowed: host, runc",
    );
    refused(
        &[&record[..], &["--writable", "/no/such"]].concat(),
        "--writable /no/such: not a directory",
    );
    refused(
        &[
            "interfere",
            "--worker",
            "true",
            "--thrasher",
            "true",
            "--platform",
            "runc",
        ],
        "give --when-ready",
    );
}

#[test]
fn a_platform_that_is_not_installed_is_refused_before_anything_is_started() {
    let nothing = tempfile::tempdir().expect("a directory");
    for (platform, said) in [
        ("runc", "found no program runc in $PATH; "),
        ("gvisor", "found no program runsc in $PATH; "),
        ("firecracker", "found no program firecracker in $PATH; "),
        (
            "leasehold",
            "found no program leasehold in $PATH; build it: cargo build",
        ),
        ("microvm", "fetch it: lab/fetch machine"),
    ] {
        let program = nothing.path().join("lockscope");
        if !program.exists() {
            // By another process: a file that is open for writing in a fork of a test cannot be started.
            let copied = Command::new("cp")
                .arg(env!("CARGO_BIN_EXE_lockscope"))
                .arg(&program)
                .status();
            assert!(copied.expect("started").success());
        }
        let recording = Command::new(&program)
            .current_dir(nothing.path())
            .env("PATH", nothing.path())
            .env("LEASEHOLD_LAB", nothing.path())
            .args([
                "record",
                "--platform",
                platform,
                "--a",
                "true",
                "--b",
                "true",
            ])
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let group = cgroups(recording.id());
        let output = recording.wait_with_output().expect("waited for");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!group.exists());
    }
}
