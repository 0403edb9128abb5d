//! A cell beside other threads of the host, alone in its process: its thread is found by its name.

mod common;

use common::{lease, start, until};
use leasehold_cell::{Cell, CellConfig};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};

const MS: u64 = 1_000_000;

/// Nanoseconds that the cell's thread has run.
fn ran() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let cell = tasks.flatten().find(|task| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == "leasehold-cell")
    });
    let path = cell.expect("the cell's thread").path().join("schedstat");
    let text = std::fs::read_to_string(path).expect("what it ran");
    let first = text.split_whitespace().next().expect("a number");
    first.parse().expect("a number")
}

#[test]
fn a_tenant_is_not_charged_for_what_other_threads_of_the_host_took() {
    let allowed = sched_getaffinity(None).expect("the cores of this process");
    let core = (0..CpuSet::MAX_CPU)
        .find(|&core| allowed.is_set(core))
        .expect("a core");
    let mut config = CellConfig::new(common::profile());
    config.cpu = Some(core);
    let cell = Cell::start(config).expect("a cell starts");
    let tenant = start(&cell, "spin.wasm", &[], lease(50_000, 1 << 20));
    tenant.wait_for("ready");
    let used = || tenant.handle.processor().expect("alive").supply.used;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut here = CpuSet::new();
            here.set(core);
            sched_setaffinity(None, &here).expect("that core");
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (used_before, ran_before) = (used(), ran());
        until("it has had much of the processor", || {
            used() - used_before > 300 * MS
        });
        let (used, ran) = (used() - used_before, ran() - ran_before);
        over.store(true, Ordering::Relaxed);
        assert!(
            used < ran + ran / 5 + 10 * MS,
            "charged for {used} ns, of which the thread ran {ran}"
        );
    });
}
