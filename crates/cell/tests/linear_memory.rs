//! Linear memories and stacks that outlive their tenants: fresh, bounded, returned.

use std::sync::Arc;

use leasehold_cell::engine_config::{FIBER_STACK, engine_config};
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::slot::SlotPool;
use leasehold_cell::stack::{STACK_PAGES, StackPool};
use leasehold_slots::range_pool::STEP_PAGES;
use wasmtime::{Engine, Instance, Memory, Module, StackCreator, Store, Trap};

const WASM_PAGE: usize = 65536;

/// A cell's engine, without the cell.
fn engine(slots: &SlotPool) -> Engine {
    let mut config = engine_config(Mechanism::Epochs);
    config.with_host_memory(Arc::new(slots.clone()));
    Engine::new(&config).expect("the configuration is valid")
}

/// A store with one memory of `pages` wasm pages.
fn memory(engine: &Engine, pages: usize) -> wasmtime::Result<(Store<()>, Memory, Instance)> {
    let module = Module::new(
        engine,
        format!(
            r#"(module (memory (export "m") {pages})
                (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0)))
                (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))"#
        ),
    )?;
    let mut store = Store::new(engine, ());
    store.set_epoch_deadline(1);
    let instance = Instance::new(&mut store, &module, &[])?;
    let memory = instance.get_memory(&mut store, "m").expect("exported");
    Ok((store, memory, instance))
}

fn clean_all(pool: &SlotPool) -> usize {
    let mut steps = 0;
    while pool.clean_step(STEP_PAGES).remaining > 0 {
        steps += 1;
    }
    steps + 1
}

/// Whether the byte at `address` can be read by the guest.
fn readable(store: &mut Store<()>, instance: Instance, address: u32) -> bool {
    let load = instance
        .get_typed_func::<i32, i32>(&mut *store, "load")
        .expect("exported");
    match load.call(store, address as i32) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(
                error.downcast_ref::<Trap>(),
                Some(&Trap::MemoryOutOfBounds),
                "{error}"
            );
            false
        }
    }
}

#[test]
fn a_reused_slot_reads_as_zero_whatever_was_left_in_it() {
    for keep in [0, 4096, 100_000, 3 * WASM_PAGE, usize::MAX] {
        let pool = SlotPool::new(1, keep).expect("address space");
        let engine = engine(&pool);
        // Sizes around blocks of 2 MiB and the kept part; growth at run time as well.
        for (pages, grown) in [
            (1, 0),
            (3, 0),
            (31, 2),
            (33, 0),
            (100, 77),
            (2, 0),
            (0, 0),
            (64, 0),
        ] {
            let (mut store, memory, _) = memory(&engine, pages).expect("the slot is clean");
            assert_eq!(memory.data_size(&store), pages * WASM_PAGE);
            memory.grow(&mut store, grown).expect("within the slot");
            let data = memory.data_mut(&mut store);
            assert_eq!(data.len(), (pages + grown as usize) * WASM_PAGE);
            assert!(
                data.iter().all(|&byte| byte == 0),
                "keep {keep}, {pages} pages"
            );
            data.fill(0xa5);
            drop(store);
            clean_all(&pool);
        }
    }
}

#[test]
fn a_reused_slot_is_exactly_as_large_as_its_memory() {
    for keep in [0, 4 * WASM_PAGE] {
        let pool = SlotPool::new(1, keep).expect("address space");
        let engine = engine(&pool);
        for pages in [8_usize, 2, 5, 1, 8] {
            let (mut store, _, instance) = memory(&engine, pages).expect("the slot is clean");
            let end = (pages * WASM_PAGE) as u32;
            for inside in [0, end - 1] {
                assert!(readable(&mut store, instance, inside));
            }
            for outside in [end, end + 4096, 8 * 65536 + 1, 1 << 30, u32::MAX] {
                assert!(
                    !readable(&mut store, instance, outside),
                    "{outside:#x} of {pages} pages"
                );
            }
            drop(store);
            clean_all(&pool);
        }
    }
}

#[test]
fn a_memory_grows_to_four_gibibytes_and_not_further() {
    let pool = SlotPool::new(1, 0).expect("address space");
    let engine = engine(&pool);
    let (mut store, _, instance) = memory(&engine, 1).expect("the slot is clean");
    let grow = instance
        .get_typed_func::<i32, i32>(&mut store, "grow")
        .expect("exported");
    assert_eq!(grow.call(&mut store, 65535).expect("no trap"), 1);
    assert!(readable(&mut store, instance, u32::MAX));
    assert_eq!(grow.call(&mut store, 1).expect("no trap"), -1);
}

#[test]
fn memories_beyond_the_pool_are_refused_until_slots_are_clean_again() {
    let pool = SlotPool::new(2, 0).expect("address space");
    let engine = engine(&pool);
    let first = memory(&engine, 1).expect("a slot");
    let second = memory(&engine, 1).expect("a slot");
    assert!(memory(&engine, 1).is_err());
    drop(first);
    assert!(memory(&engine, 1).is_err(), "a dirty slot is not given out");
    clean_all(&pool);
    let third = memory(&engine, 1).expect("the slot is clean again");
    assert_eq!(
        (pool.state().taken, pool.state().clean, pool.state().dirty),
        (2, 0, 0)
    );
    drop((second, third));
    assert_eq!(pool.state().dirty, 2);
}

#[test]
fn cleaning_visits_every_page_that_was_accessible_in_bounded_steps_and_no_other() {
    let pool = SlotPool::new(4, 2 * 4096).expect("address space");
    let engine = engine(&pool);
    drop(memory(&engine, 0).expect("a slot"));
    assert_eq!(pool.state().clean, 4, "nothing to clean in an empty memory");
    for pages in [65, 1] {
        let (mut store, memory, _) = memory(&engine, pages).expect("a slot");
        memory.data_mut(&mut store).fill(1);
    }
    let mut left = 66 * 16;
    assert_eq!(pool.state().dirty_pages, left);
    while left > 0 {
        let cleaned = pool.clean_step(7);
        assert!((1..=7).contains(&cleaned.pages));
        left -= cleaned.pages;
        assert_eq!(cleaned.remaining, left);
    }
    assert_eq!((pool.state().clean, pool.state().quarantined), (4, 0));
    assert_eq!(pool.clean_step(7), Default::default());
}

#[test]
fn a_step_of_cleaning_passes_over_pages_without_memory_and_stops_at_its_number_of_others() {
    const PAGE: usize = 4096;
    const TABLE: usize = 512;
    for kept in [0, 1 << 20] {
        let pool = SlotPool::new(1, kept * PAGE).expect("address space");
        let engine = engine(&pool);
        let (mut store, memory, _) = memory(&engine, 3 * TABLE / 16).expect("a slot");
        let data = memory.data_mut(&mut store);
        // Ten pages with memory, far apart, in the first of three page tables.
        for page in 0..10 {
            data[page * 50 * PAGE] = 1;
        }
        drop(store);
        let (mut steps, mut left) = (0, 3 * TABLE);
        while left > 0 {
            let cleaned = pool.clean_step(4);
            assert!(cleaned.pages <= TABLE, "{cleaned:?}");
            left -= cleaned.pages;
            steps += 1;
        }
        assert_eq!(steps, 2 + 3, "kept: {kept}");
        let (store, memory, _) = self::memory(&engine, 3 * TABLE / 16).expect("a clean slot");
        assert!(memory.data(&store).iter().all(|byte| *byte == 0));
    }
}

/// Bytes of this process's `field` in `/proc/self/status`.
fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status
        .lines()
        .find(|line| line.starts_with(field))
        .expect("a known field");
    let kib: usize = line
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    kib * 1024
}

#[test]
fn cleaned_pages_go_back_to_the_system() {
    let pool = SlotPool::new(1, 0).expect("address space");
    let engine = engine(&pool);
    let (mut store, memory, _) = memory(&engine, 4096).expect("the slot is clean");
    for page in memory.data_mut(&mut store).chunks_mut(4096) {
        page[0] = 1;
    }
    drop(store);
    let dirty = status("RssAnon");
    clean_all(&pool);
    let returned = dirty.saturating_sub(status("RssAnon"));
    assert!(
        returned > 200 << 20,
        "of 256 MiB, {returned} bytes were returned"
    );
}

/// Page faults of this process that needed no disk.
fn minor_faults() -> i64 {
    // SAFETY: the structure is plain numbers, and filled in by the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_minflt
    }
}

#[test]
fn cleaning_touches_no_page_that_the_guest_left_alone() {
    let pool = SlotPool::new(1, 64 << 20).expect("address space");
    let engine = engine(&pool);
    let (mut store, memory, _) = memory(&engine, 1024).expect("the slot is clean");
    let data = memory.data_mut(&mut store);
    for at in [0, 5 << 20, (5 << 20) + 4096, 9 << 20, (64 << 20) - 1] {
        data[at] = 0xa5;
    }
    let mut sum = 0_u64;
    for page in data[20 << 20..30 << 20].chunks(4096) {
        sum += u64::from(page[7]); // only read: shares the system's zero page
    }
    assert_eq!(sum, 0);
    drop(store);
    let before = minor_faults();
    clean_all(&pool);
    let faults = minor_faults() - before;
    assert!(faults < 20, "{faults} faults for 16,384 pages");
}

#[test]
fn what_stays_resident_is_bounded_for_all_slots_together() {
    let keep = 2 * WASM_PAGE;
    let pool = SlotPool::new(100, keep).expect("address space");
    let engine = engine(&pool);
    // Large, small and growing memories in turn, so that slots change their users' sizes.
    for round in 0..4 {
        let mut taken: Vec<_> = (0..100)
            .map(|at| {
                let (mut store, memory, _) =
                    memory(&engine, (at + round) % 4).expect("the slots are clean");
                memory
                    .grow(&mut store, ((at * round) % 3) as u64)
                    .expect("within the slot");
                let data = memory.data_mut(&mut store);
                assert!(data.iter().all(|&byte| byte == 0));
                data.fill(1);
                store
            })
            .collect();
        assert!(pool.resident() <= 64 * keep);
        taken.drain(..).rev().for_each(drop);
        clean_all(&pool);
        assert_eq!(pool.state().clean, 100);
        // 64 are full; the others may be counted as full because of a page that they hide.
        assert!(pool.resident() <= 100 * keep);
    }
    let pool = SlotPool::new(100, keep).expect("address space");
    let engine = self::engine(&pool);
    let all: Vec<_> = (0..100)
        .map(|_| memory(&engine, 3).expect("a slot"))
        .collect();
    drop(all);
    assert_eq!(pool.resident(), 64 * keep);
}

#[test]
fn memories_of_sixty_four_bits_are_refused() {
    let pool = SlotPool::new(1, 0).expect("address space");
    let mut config = engine_config(Mechanism::Epochs);
    config.wasm_memory64(true).with_host_memory(Arc::new(pool));
    let engine = Engine::new(&config).expect("valid");
    let module = Module::new(&engine, "(module (memory i64 1))").expect("valid");
    assert!(Instance::new(Store::new(&engine, ()), &module, &[]).is_err());
}

#[test]
fn a_reused_stack_reads_as_zero() {
    for keep in [0, 4096, 8 * 4096, usize::MAX] {
        let pool = StackPool::new(1, keep).expect("address space");
        for _ in 0..3 {
            let stack = pool
                .new_stack(FIBER_STACK, false)
                .expect("the stack is clean");
            assert!(
                pool.new_stack(FIBER_STACK, false).is_err(),
                "there is only one"
            );
            let range = stack.range();
            assert_eq!(range.end, stack.top().addr());
            assert_eq!(range.len(), FIBER_STACK);
            assert_eq!(stack.guard_range().end.addr(), range.start);
            let bottom = stack.guard_range().end;
            // SAFETY: the stack is ours, readable and writable, and nothing runs on it.
            let contents = unsafe { std::slice::from_raw_parts_mut(bottom, FIBER_STACK) };
            assert!(contents.iter().all(|&byte| byte == 0), "keep {keep}");
            contents.fill(0x5a);
            drop(stack);
            assert_eq!(pool.state().dirty_pages, STACK_PAGES);
            while pool.clean_step(100).remaining > 0 {}
        }
    }
}

#[test]
fn guests_run_on_the_stacks_of_the_pool() {
    let (slots, stacks) = (SlotPool::new(1, 0), StackPool::new(2, 16384));
    let (slots, stacks) = (
        slots.expect("address space"),
        stacks.expect("address space"),
    );
    let mut config = engine_config(Mechanism::Epochs);
    config
        .with_host_memory(Arc::new(slots))
        .with_host_stack(Arc::new(stacks.clone()));
    let engine = Engine::new(&config).expect("valid");
    let module = Module::new(
        &engine,
        r#"(module
            (func $deep (export "deep") (param i32) (result i32)
                (if (result i32) (local.get 0)
                    (then (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))
                    (else (i32.const 0))))
            (func $endless (export "endless") (result i32)
                (i32.add (i32.const 1) (call $endless))))"#,
    )
    .expect("valid");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    for _ in 0..3 {
        let mut store = Store::new(&engine, ());
        store.set_epoch_deadline(1);
        runtime.block_on(async {
            let instance = Instance::new_async(&mut store, &module, &[])
                .await
                .expect("no imports");
            let deep = instance
                .get_typed_func::<i32, i32>(&mut store, "deep")
                .expect("exported");
            assert_eq!(deep.call_async(&mut store, 5000).await.expect("fits"), 5000);
            let endless = instance.get_typed_func::<(), i32>(&mut store, "endless");
            let error = endless.expect("exported").call_async(&mut store, ()).await;
            let error = error.expect_err("no stack is endless");
            assert_eq!(error.downcast_ref::<Trap>(), Some(&Trap::StackOverflow));
        });
        assert!(stacks.state().taken > 0);
        drop(store);
        assert_eq!(stacks.state().taken, 0);
        while stacks.clean_step(STEP_PAGES).remaining > 0 {}
    }
    assert_eq!((stacks.state().clean, stacks.state().quarantined), (2, 0));
}
