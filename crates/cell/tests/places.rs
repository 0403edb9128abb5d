//! The cores of a cell's threads, in a process of its own: the threads are found by their names.

mod common;

use leasehold_cell::{Cell, CellConfig, Output, Realtime, StartRequest, Surroundings};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use std::time::{Duration, Instant};

/// The cores of each thread of this process with such a name.
fn cores_of(name: &str) -> Vec<CpuSet> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let named = tasks.flatten().filter(|task| {
        let found = std::fs::read_to_string(task.path().join("comm"));
        found.is_ok_and(|found| found.trim_end() == name)
    });
    let threads = named.map(|task| {
        let id = task.file_name().into_string().expect("a number");
        let id = Pid::from_raw(id.parse().expect("a number"));
        sched_getaffinity(id).expect("cores")
    });
    threads.collect()
}

#[test]
fn a_real_time_cell_keeps_to_a_core_which_its_other_threads_leave_to_it() {
    let all = sched_getaffinity(None).expect("the cores of this process");
    let mut config = CellConfig::new(common::profile());
    config.realtime = true;
    let cell = Cell::start(config).expect("a cell starts");
    let cells = cores_of("leasehold-cell");
    let [own] = cells[..] else {
        panic!("{} cells", cells.len());
    };
    let is_bound = own.count() == 1;
    // Where real-time priority is refused, or cells of other processes have all cores, it is not.
    assert!(is_bound || own == all);
    assert_eq!(
        cell.own_core().is_some(),
        is_bound && *cell.realtime() == Realtime::Granted
    );
    assert!(!is_bound || *cell.realtime() == Realtime::Granted || all.count() == 1);
    let program = "(module (memory (export \"memory\") 1) (func (export \"_start\")))";
    let tenant = cell.start_tenant(StartRequest {
        program: cell.compile(program.as_bytes()).expect("it compiles"),
        lease: common::lease(50_000, 1 << 10),
        surroundings: Surroundings {
            stdout: Output::Stdout,
            stderr: Output::Stderr,
            ..Surroundings::default()
        },
    });
    tenant.expect("a tenant starts").wait().expect("an end");
    // What tenants write waits for no cell. A thread names itself when it runs first; and what goes to one file is
    // written by one thread.
    let until = Instant::now() + Duration::from_secs(10);
    while cores_of("leasehold-out").is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(cores_of("leasehold-out"), [all]);
    assert!(cores_of("leasehold-err").iter().all(|cores| *cores == all));
    // The kernel keeps 15 bytes of a name.
    for name in ["leasehold-reape", "leasehold-io"] {
        let threads = cores_of(name);
        assert!(!threads.is_empty(), "{name}");
        for cores in threads {
            let mut together = cores;
            (0..CpuSet::MAX_CPU)
                .filter(|core| own.is_set(*core))
                .for_each(|core| together.set(core));
            assert_eq!(together, all, "{name}");
            let left = all.count() - u32::from(is_bound && all.count() > 1);
            assert_eq!(cores.count(), left, "{name}");
        }
    }
}
