//! Where a cell's threads run, in a process of their own: they are found by their names.

mod common;

use leasehold_cell::{Cell, CellConfig, Realtime};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};

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
fn threads_that_close_files_and_wait_leave_the_core_of_a_real_time_cell() {
    let all = sched_getaffinity(None).expect("the cores of this process");
    let mut config = CellConfig::new(common::profile());
    config.realtime = true;
    let cell = Cell::start(config).expect("a cell starts");
    // Where real-time priority is refused, or there is one core only, they run anywhere.
    let leaves = *cell.realtime() == Realtime::Granted && all.count() > 1;
    let cells = cores_of("leasehold-cell");
    assert_eq!(cells, [all], "a cell that is bound to no core");
    // The kernel keeps 15 bytes of a name.
    for name in ["leasehold-reape", "leasehold-io"] {
        let threads = cores_of(name);
        assert!(!threads.is_empty(), "{name}");
        for cores in threads {
            assert_eq!(cores.count(), all.count() - u32::from(leaves), "{name}");
        }
    }
}
