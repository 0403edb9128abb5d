//! A node compiles programs in processes of their own: what becomes of one is no matter of the tenants.

mod calibrated;
mod served;

use rustix::process::{Pid, Signal, kill_process};
use served::{Node, SOON, table};
use std::fs;
use std::time::{Duration, Instant};

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let tasks =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<String> = tasks.collect();
    let numbers = children.iter().flat_map(|line| line.split_whitespace());
    numbers
        .map(|number| number.parse().expect("a number"))
        .collect()
}

/// Waits for the process of a job.
fn job_of(server: u32) -> u32 {
    let by = Instant::now() + SOON;
    loop {
        if let [job] = children(server)[..] {
            return job;
        }
        assert!(Instant::now() < by, "no process compiles");
        std::thread::yield_now();
    }
}

/// A program that takes long to compile, and that no cache has: some thousand functions.
fn long_program() -> String {
    let operations =
        "(local.set 0 (i64.mul (local.get 0) (i64.add (local.get 1) (local.get 0))))".repeat(150);
    let function = |nth: usize| {
        format!(
            "(func (param i64 i64) (result i64) (drop (i64.const {nth})) {operations} (local.get 0))"
        )
    };
    let functions: String = (0..800).map(function).collect();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("later");
    format!(
        "(module (func (export \"_start\") (drop (i64.const {}))) {functions})",
        now.as_nanos() as u64 >> 1
    )
}

#[test]
fn a_program_whose_compilation_is_ended_is_refused_and_the_node_goes_on() {
    let node = Node::start(&[]);
    let process = node.child.id();
    let servers = children(process);
    assert_eq!(servers.len(), 1, "the server of jobs");
    fs::write(node.path("long.wat"), long_program()).expect("written");
    let lease = "[tenant.long]\ncomponent = \"long.wat\"\nreclaim = { budget = \"200ms\" }\nrestart = \"never\"\n";
    let (code, _, errors) = std::thread::scope(|scope| {
        let put = scope.spawn(|| node.put("long", lease));
        let job = job_of(servers[0]);
        let names = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
        let names =
            names.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        let compiles = |name: &String| name.trim() == "leasehold-code0";
        assert_eq!(names.into_iter().find(compiles), None, "the node compiles");
        // Tenants are there all the time.
        assert_eq!(node.get("/").0, 200);
        let job = Pid::from_raw(job as i32).expect("a process");
        kill_process(job, Signal::KILL).expect("it compiles");
        put.join().expect("put")
    });
    assert_ne!(code, Some(0));
    let expected = "long.wat: loading the program: its process was ended by signal 9; it may have 4096 MiB of memory";
    assert!(errors.contains(expected), "{errors}");
    node.done(&["put", "other", &{
        let file = node.path("other.toml");
        fs::write(&file, table("other", "/env", "")).expect("written");
        file.display().to_string()
    }]);
    assert_eq!(node.get("/env").0, 200);
    assert_eq!(children(process), servers);
    assert!(children(servers[0]).is_empty());
}

#[test]
fn a_node_whose_server_of_jobs_has_ended_says_so_and_goes_on() {
    let node = Node::start(&[]);
    let [server] = children(node.child.id())[..] else {
        panic!("a server");
    };
    kill_process(
        Pid::from_raw(server as i32).expect("a process"),
        Signal::KILL,
    )
    .expect("killed");
    fs::write(node.path("long.wat"), long_program()).expect("written");
    let lease = "[tenant.long]\ncomponent = \"long.wat\"\nreclaim = { budget = \"200ms\" }\n";
    let (code, _, errors) = node.put("long", lease);
    assert_ne!(code, Some(0));
    assert!(
        errors.contains("the server that starts processes for it has ended"),
        "{errors}"
    );
    assert_eq!(node.get("/").0, 200);
}

#[test]
fn nothing_that_compiles_outlives_its_node_however_that_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut node = Node::start(&[]);
        let servers = children(node.child.id());
        fs::write(node.path("long.wat"), long_program()).expect("written");
        let lease = "[tenant.long]\ncomponent = \"long.wat\"\nreclaim = { budget = \"200ms\" }\n";
        let job = std::thread::scope(|scope| {
            let put = scope.spawn(|| node.put("long", lease));
            let job = job_of(servers[0]);
            node.signal(signal);
            put.join().expect("put");
            job
        });
        node.child.wait().expect("it ends");
        let runs = |process: u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status"));
            // Its parent is another process now, which may take its time to look.
            status.is_ok_and(|status| !status.contains("State:\tZ"))
        };
        let by = Instant::now() + SOON;
        while runs(servers[0]) || runs(job) {
            assert!(Instant::now() < by, "{signal:?}: it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_server_of_jobs_has_no_capability() {
    let node = Node::start(&[]);
    let [server] = children(node.child.id())[..] else {
        panic!("a server");
    };
    let status = fs::read_to_string(format!("/proc/{server}/status")).expect("it runs");
    for (key, expected) in [
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
    ] {
        let found = status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t"));
        assert_eq!(found, Some(expected), "{key}");
    }
}
