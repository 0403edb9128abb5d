//! The cores and priorities of a cell's threads, in a process of its own: the threads are found by their names.

mod common;

use leasehold_cell::{
    Cell, CellConfig, Output, Realtime, StartRequest, Surroundings, WhenRealtime,
};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One cell at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The threads of this process with such a name.
fn threads_of(name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let named = tasks.flatten().filter(|task| {
        let found = std::fs::read_to_string(task.path().join("comm"));
        found.is_ok_and(|found| found.trim_end() == name)
    });
    let threads = named.map(|task| {
        let id = task.file_name().into_string().expect("a number");
        id.parse().expect("a number")
    });
    threads.collect()
}

/// The cores of each of them.
fn cores_of(name: &str) -> Vec<CpuSet> {
    let threads = threads_of(name).into_iter();
    threads
        .map(|id| sched_getaffinity(Pid::from_raw(id)).expect("cores"))
        .collect()
}

/// Whether a thread is scheduled as a real-time one now, by its own priority or another thread's (proc(5), field 18 of
/// `stat`).
fn is_urgent(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let stat = stat.expect("a thread");
    let (_, after_name) = stat.rsplit_once(')').expect("a name");
    let priority = after_name.split_whitespace().nth(18 - 3);
    let priority: i32 = priority.expect("a priority").parse().expect("a number");
    priority < 0
}

#[test]
fn a_real_time_cell_keeps_to_a_core_which_its_other_threads_leave_to_it() {
    let _alone = ALONE.lock();
    let all = sched_getaffinity(None).expect("the cores of this process");
    let mut config = CellConfig::new(common::profile());
    config.realtime = WhenRealtime::Always;
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

/// Writes to 64 MiB, and computes.
const LARGE: &str = r#"(module
  (memory (export "memory") 1024)
  (func (export "_start")
    (memory.fill (i32.const 0) (i32.const 1) (i32.const 0x4000000))
    (loop $for_ever (br $for_ever))))"#;

#[test]
fn a_cell_is_urgent_from_a_kill_until_everything_is_back_and_at_no_other_time() {
    let _alone = ALONE.lock();
    let mut config = CellConfig::new(common::profile());
    config.realtime = WhenRealtime::ForKills;
    let cell = Cell::start(config).expect("a cell starts");
    let threads = threads_of("leasehold-cell");
    let [thread] = threads[..] else {
        panic!("{} cells", threads.len());
    };
    if let Realtime::Refused(reason) = cell.realtime() {
        eprintln!("skipped: real-time priority cannot be had here: {reason}");
        return;
    }
    assert_eq!(*cell.realtime(), Realtime::ForKills);
    let program = cell.compile(LARGE.as_bytes()).expect("it compiles");
    let mut seen = 0;
    // A kill may be over before it is looked at.
    for _ in 0..20 {
        let tenant = cell.start_tenant(StartRequest {
            program: program.clone(),
            lease: common::lease(1_000_000, 64 << 10),
            surroundings: Surroundings::default(),
        });
        let tenant = tenant.expect("a tenant starts");
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_urgent(thread), "before the kill");
        tenant.kill();
        let ended = loop {
            seen += u32::from(is_urgent(thread));
            match tenant.wait_for(Duration::ZERO).expect("the cell is there") {
                Some(ended) => break ended,
                None => std::thread::sleep(Duration::from_micros(100)),
            }
        };
        assert_eq!(ended.exit, leasehold_cell::Exit::Killed);
        let until = Instant::now() + Duration::from_secs(10);
        while is_urgent(thread) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(10));
        assert!(!is_urgent(thread), "after the end");
        if seen > 0 {
            break;
        }
    }
    assert!(seen > 0, "it was never urgent");
    drop(cell);
    assert!(threads_of("leasehold-donor").is_empty());
}
