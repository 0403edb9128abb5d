//! Measures the cost of taking memory back: detaching and cleaning a slot against unmapping, and
//! starting with data segments that are copied against stock wasmtime's copy-on-write images.
//!
//! `cargo run --release -p leasehold-cell --example teardown`. Medians, in thread CPU time.

use std::sync::Arc;
use std::time::Duration;

use leasehold_cell::engine_config::{FEATURES, MEMORY_GUARD, MEMORY_RESERVATION, engine_config};
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::slot::SlotPool;
use leasehold_slots::range_pool::STEP_PAGES;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Config, Engine, Instance, MemoryCreator, MemoryType, Module, Store};

const PAGE: usize = 4096;

fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Medians of what `run` measures, in µs.
fn medians<const N: usize>(runs: usize, mut run: impl FnMut() -> [Duration; N]) -> [f64; N] {
    let mut samples: Vec<[Duration; N]> = (0..runs).map(|_| run()).collect();
    std::array::from_fn(|column| {
        samples.sort_by_key(|sample| sample[column]);
        samples[runs / 2][column].as_nanos() as f64 / 1e3
    })
}

/// Writes one byte to each of the first `pages` pages.
///
/// # Safety
///
/// They are writable, and nothing refers to them.
unsafe fn touch(base: *mut u8, pages: usize) {
    for page in 0..pages {
        // SAFETY: by contract.
        unsafe { base.add(page * PAGE).write_volatile(1) };
    }
}

fn slots() {
    println!("pages      munmap      detach       clean  of which per page   longest step   (µs)");
    for (pages, runs) in [(16, 1000), (96, 1000), (10_000, 50), (1_000_000, 5)] {
        let bytes = pages * PAGE;
        let [unmap] = medians(runs, || {
            // SAFETY: a new private mapping, unmapped by its only owner.
            unsafe {
                let access = ProtFlags::READ | ProtFlags::WRITE;
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
                let base = mmap_anonymous(std::ptr::null_mut(), bytes, access, flags);
                let base = base.expect("address space");
                touch(base.cast(), pages);
                let start = now();
                munmap(base, bytes).expect("mapped");
                [now() - start]
            }
        });
        for keep in [0, 256 << 10] {
            let pool = SlotPool::new(1, keep).expect("address space");
            let [detach, clean, longest] = medians(runs, || {
                let memory = pool
                    .new_memory(
                        MemoryType::new(0, None),
                        bytes.next_multiple_of(1 << 16),
                        None,
                        Some(MEMORY_RESERVATION as usize),
                        MEMORY_GUARD as usize,
                    )
                    .expect("the slot is clean");
                // SAFETY: the memory is ours and has at least `bytes` accessible bytes.
                unsafe { touch(memory.as_ptr(), pages) };
                let start = now();
                drop(memory);
                let detached = now();
                let mut longest = Duration::ZERO;
                let mut left = usize::MAX;
                while left > 0 {
                    let start = now();
                    left = pool.clean_step(STEP_PAGES).remaining;
                    longest = longest.max(now() - start);
                }
                [detached - start, now() - detached, longest]
            });
            println!(
                "{pages:<8} {unmap:>9.1} {detach:>11.2} {clean:>11.1} {:>18.3} {longest:>14.1}   keeping {} KiB",
                clean / pages as f64,
                keep >> 10,
            );
        }
    }
}

fn starts() {
    println!("\ndata segment   engine                     start     end   clean   (µs)");
    for kib in [0, 64, 1024, 8192] {
        let data = "x".repeat(kib << 10);
        let text = format!(
            r#"(module (memory {}) (data (i32.const 0) "{data}")
                (func (export "_start") (i32.store (i32.const 8) (i32.const 1))))"#,
            (kib >> 6) + 1
        );
        let run = |name: &str, config: &Config, pool: Option<&SlotPool>| {
            let engine = Engine::new(config).expect("valid");
            let module = Module::new(&engine, &text).expect("valid");
            let [start, end, clean] = medians(500, || {
                let begin = now();
                let mut store = Store::new(&engine, ());
                store.set_epoch_deadline(1 << 40);
                let instance = Instance::new(&mut store, &module, &[]).expect("no imports");
                let main = instance.get_typed_func::<(), ()>(&mut store, "_start");
                main.expect("exported")
                    .call(&mut store, ())
                    .expect("no trap");
                let started = now();
                drop(store);
                let ended = now();
                while pool.is_some_and(|pool| pool.clean_step(STEP_PAGES).remaining > 0) {}
                [started - begin, ended - started, now() - ended]
            });
            println!("{kib:>8} KiB   {name:<22} {start:>9.1} {end:>7.1} {clean:>7.1}");
        };
        let mut stock = Config::new();
        stock.wasm_features(FEATURES, true).epoch_interruption(true);
        run("wasmtime", &stock, None);
        for keep in [0, 256 << 10, 1 << 20, 16 << 20] {
            let pool = SlotPool::new(1, keep).expect("address space");
            let mut config = engine_config(Mechanism::Epochs);
            config.with_host_memory(Arc::new(pool.clone()));
            run(
                &format!("slots, keeping {} KiB", keep >> 10),
                &config,
                Some(&pool),
            );
        }
    }
}

fn main() {
    slots();
    starts();
}
