//! Neighbours and victims that are processes: this test plays the program that starts them, and is
//! started again as each of them.

use leasehold_study::neighbour::{Distance, Interval, Load, Neighbour};
use leasehold_study::{Options, child, clock, find};

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(child::SUBCOMMAND) {
        if let Err(error) = child::main(arguments) {
            eprintln!("{error:#}");
            std::process::exit(1);
        }
        return;
    }
    let tests: [(&str, fn()); 5] = [
        (
            "a_neighbour_in_a_process_stamps_with_our_clock",
            stamps_are_comparable,
        ),
        (
            "a_neighbour_that_cannot_start_is_an_error",
            no_such_processor,
        ),
        ("a_dropped_neighbour_leaves_no_process", dropping_ends),
        (
            "the_furthest_neighbour_works_and_leaves_no_cgroup",
            furthest_works,
        ),
        (
            "processes_reports_every_point_and_restores_the_limit",
            processes,
        ),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

fn stamps_are_comparable() {
    for load in [Load::Compute, Load::Map, Load::Spawn] {
        let start_ns = clock::monotonic_ns();
        let neighbour = Neighbour::start(load, Distance::Process, 0).expect("started");
        let diary = neighbour.finish().expect("finished");
        let whole = Interval {
            start_ns,
            end_ns: clock::monotonic_ns(),
        };
        assert!(!diary.operations.is_empty());
        assert_eq!(
            diary.during(&[whole]).count(),
            diary.operations.len() as u64,
            "{load:?}"
        );
        assert_eq!(diary.outside(&[whole]).count(), 0);
    }
}

fn no_such_processor() {
    assert!(Neighbour::start(Load::Compute, Distance::Process, 1 << 20).is_err());
}

fn dropping_ends() {
    let children = || {
        let own = format!("/proc/self/task/{}/children", std::process::id());
        std::fs::read_to_string(own).expect("children of this thread")
    };
    let before = children();
    let neighbour = Neighbour::start(Load::Compute, Distance::Process, 0).expect("started");
    assert_ne!(children(), before);
    drop(neighbour);
    assert_eq!(children(), before);
}

fn furthest_works() {
    let place = Distance::furthest(0);
    let neighbour = Neighbour::start(Load::Map, place, 0).expect("started");
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("readable");
    let children = format!("/proc/self/task/{}/children", std::process::id());
    let child = std::fs::read_to_string(children).expect("children of this thread");
    let his = std::fs::read_to_string(format!("/proc/{}/cgroup", child.trim())).expect("readable");
    assert_eq!(his != own, place == Distance::Container, "{his}");
    let named = |line: &str| Some(line.split_once("/leasehold-neighbour-")?.1.to_owned());
    let cgroup = his.lines().find_map(named);
    assert_eq!(cgroup.is_some(), place == Distance::Container, "{his}");
    assert!(!neighbour.finish().expect("finished").operations.is_empty());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let mut trees = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let memory = trees.find(|at| at.ends_with("/memory"));
    if let (Some(cgroup), Some(memory)) = (cgroup, memory) {
        let all = std::fs::read_dir(memory).expect("readable");
        let name = format!("leasehold-neighbour-{cgroup}");
        assert!(!all.flatten().any(|entry| *entry.file_name() == *name));
    }
}

fn processes() {
    let limit = || std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("readable");
    let before = limit();
    let study = find("processes").expect("known");
    let report = study
        .run(&Options {
            quick: true,
            ..Options::default()
        })
        .expect("measured");
    assert_eq!(limit(), before);

    let column = |key: &str| -> Vec<f64> {
        report
            .rows
            .iter()
            .map(|row| row[key].as_f64().expect("a number"))
            .collect()
    };
    let (mappings, exit) = (column("mappings"), column("exit_ns_p50"));
    assert!(mappings.len() >= 4 && mappings.is_sorted());
    assert!(exit.last() > exit.first(), "{exit:?}");
    let bytes = column("kernel_bytes");
    assert!(
        bytes[bytes.len() - 1] / mappings[mappings.len() - 1] >= 100.0,
        "{bytes:?}"
    );
    assert!(column("neighbour_ratio").iter().all(|ratio| *ratio > 0.0));
    assert!(
        column("exit_ns_p5")
            .iter()
            .zip(column("exit_ns_p95"))
            .all(|(low, high)| *low <= high)
    );
}
