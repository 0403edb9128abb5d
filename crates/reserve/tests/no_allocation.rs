//! A scheduler allocates when it is made and never again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use leasehold_reserve::simulate::SplitMix;
use leasehold_reserve::{
    Config, Contract, Order, Policy, Priority, Refused, Scheduler, ServerId, Shielding, TaskId,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work; counting touches a thread-local number only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SERVERS: usize = 50;

fn contract(random: u64) -> Contract {
    let period = 100 + random % 1_000;
    Contract::new(1 + random % 50, period)
        .and_then(|contract| contract.with_replenishments(1 + (random % 64) as u32))
        .unwrap()
        .with_priority(Priority(random as u8))
        .with_policy(if random.is_multiple_of(2) {
            Policy::Sporadic
        } else {
            Policy::Deferrable
        })
        .with_slice(random % 3)
}

#[test]
fn nothing_is_allocated_or_freed_after_construction() {
    for order in [Order::FixedPriority, Order::EarliestDeadline] {
        for shielding in [Shielding::Eager, Shielding::Shielded] {
            let config = Config {
                order,
                shielding,
                servers: SERVERS as u32,
                tasks: 200,
                seed: 0,
            };
            let mut scheduler = Scheduler::new(config);
            let mut servers: [Option<ServerId>; SERVERS] = [None; SERVERS];
            let mut tasks: [Option<TaskId>; 300] = [None; 300];
            let before = ALLOCATIONS.get();
            let (mut random, mut now) = (SplitMix::new(1), 0);
            let mut full = 0;
            for _ in 0..50_000 {
                let number = random.bits();
                now += number % 13;
                let server = (number >> 8) as usize % SERVERS;
                let task = (number >> 16) as usize % tasks.len();
                match (number >> 32) % 16 {
                    0 if servers[server].is_none() => {
                        servers[server] =
                            Some(scheduler.add_server(&contract(number), now).unwrap());
                    }
                    1 if servers[server].is_none() => {
                        servers[server] = Some(scheduler.add_background(1 + number % 9).unwrap());
                    }
                    2 if number.is_multiple_of(8) => {
                        if let Some(id) = servers[server].take() {
                            scheduler.remove_server(id, now).unwrap();
                        }
                    }
                    3 => {
                        if let Some(id) = servers[server] {
                            let _ =
                                scheduler.join_replenishments(id, (number >> 40) as u32 % 4, now);
                        }
                    }
                    4 | 5 => {
                        if let Some(id) = servers[server] {
                            match scheduler.add_task(id) {
                                Ok(id) => tasks[task] = Some(id),
                                Err(refused) => {
                                    assert_eq!(refused, Refused::Tasks);
                                    full += 1;
                                }
                            }
                        }
                    }
                    6 if number.is_multiple_of(4) => {
                        if let Some(id) = tasks[task].take() {
                            let _ = scheduler.remove_task(id, now);
                        }
                    }
                    7..=10 => {
                        if let Some(id) = tasks[task] {
                            let _ = scheduler.wake(id, now);
                        }
                    }
                    11 => {
                        if let Some(id) = tasks[task] {
                            let _ = scheduler.block(id, now, Some(now + number % 97));
                        }
                    }
                    _ => {
                        if let Some(id) = scheduler.running() {
                            let _ = scheduler.block(id, now, Some(now + number % 97));
                        }
                    }
                }
                scheduler.schedule(now);
            }
            assert_eq!(ALLOCATIONS.get(), before, "{order:?} {shielding:?}");
            assert!(full > 0, "the capacity was reached");
        }
    }
}
