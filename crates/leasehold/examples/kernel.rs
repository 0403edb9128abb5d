//! A custom kernel: [`leasehold::reclaim`] decides what may be created and takes it back,
//! [`leasehold::reserve`] decides what runs next. Neither needs `std`, WebAssembly, a clock or a
//! thread: time is an argument, and memory comes from `alloc`.
//!
//! `std` is here for `main` to print; the kernel itself is built for machines without an operating system by
//! `scripts/bare`.
//!
//! `cargo run --release -p leasehold --example kernel`

#![no_std]

extern crate alloc;
extern crate std;

use leasehold::reclaim::{
    Class, Config as Arenas, CostModel, GroupId, Groups, HeapBacking, Mode, Nanos, Refused,
};
use leasehold::reserve::{
    Config as Reservations, Contract, Order, Priority, Scheduler, ServerId, Shielding, TaskId,
};
use std::println;

/// A tenant: what it owns, and when it runs.
struct Tenant {
    group: GroupId,
    server: ServerId,
    task: TaskId,
}

/// What a tenant leaves outside of itself: a thing that has to be told when the tenant ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    WakeOther(u32),
}

/// The kernel: two state machines side by side.
struct Kernel {
    groups: Groups<HeapBacking, Link>,
    scheduler: Scheduler,
    semaphore: Class<u64>,
}

impl Kernel {
    fn new() -> Self {
        let arenas = Arenas {
            arena_bytes: 1 << 20,
            keep_resident: 64 << 10,
            mode: Mode::Grouped,
            max_groups: 16,
        };
        // Picoseconds, as measured on the machine.
        let costs = CostModel {
            root_ps: 1_000_000,
            group_ps: 60_000,
            scrub_ps: 50_000,
            chunk_ps: 100_000,
            page_ps: 100_000,
        };
        let mut groups = Groups::new(arenas, costs, HeapBacking);
        let semaphore = groups.register("semaphore", 400);
        let scheduler = Scheduler::new(Reservations {
            order: Order::FixedPriority,
            shielding: Shielding::Shielded,
            servers: 16,
            tasks: 16,
            seed: 0,
        });
        Self {
            groups,
            scheduler,
            semaphore,
        }
    }

    /// A tenant that may take `reclaim_ns` to end, and gets `budget_ns` of every `period_ns`.
    fn admit(&mut self, reclaim_ns: u64, contract: &Contract, now: u64) -> Option<Tenant> {
        let group = self.groups.open_root(Nanos(reclaim_ns)).ok()?;
        let server = self.scheduler.add_server(contract, now).ok()?;
        let task = self.scheduler.add_task(server).ok()?;
        Some(Tenant {
            group,
            server,
            task,
        })
    }

    /// A system call: charged before it is made.
    fn make_semaphore(&mut self, tenant: &Tenant) -> Result<(), Refused> {
        self.groups
            .alloc(tenant.group, self.semaphore, 1)
            .map(|_| ())
    }

    /// Ends a tenant: as many steps as it has links and chunks, however many semaphores it made.
    fn end(&mut self, tenant: Tenant, now: u64) -> u64 {
        let mut told = 0;
        let outcome = self
            .groups
            .reclaim(tenant.group, &mut |_: &mut Groups<_, _>, link| {
                let Link::WakeOther(_) = link;
                told += 1;
            });
        // Its task and its part of the processor go with it.
        let _ = self.scheduler.remove_task(tenant.task, now);
        let _ = self.scheduler.remove_server(tenant.server, now);
        assert_eq!(told, outcome.scrubbed);
        outcome.steps
    }
}

fn main() {
    let mut kernel = Kernel::new();
    let contract =
        Contract::new(2_000_000, 10_000_000).map(|contract| contract.with_priority(Priority(10)));
    let Ok(contract) = contract else {
        return;
    };
    let Some(tenant) = kernel.admit(20_000, &contract, 0) else {
        return;
    };
    kernel.groups.link(tenant.group, Link::WakeOther(7)).ok();
    let mut made = 0_u32;
    let refused = loop {
        match kernel.make_semaphore(&tenant) {
            Ok(()) => made += 1,
            Err(refused) => break refused,
        }
    };
    println!("made {made} semaphores, then: {refused}");

    // It has something to do: it runs until its budget ends, and again in its next period.
    kernel.scheduler.wake(tenant.task, 0).ok();
    for now in [0, 2_000_000, 10_000_000] {
        let decision = kernel.scheduler.schedule(now);
        println!(
            "at {now} ns: runs {}, next decision {:?}",
            decision.run.is_some(),
            decision.timer
        );
    }
    let steps = kernel.end(tenant, 11_000_000);
    println!("taken back in {steps} steps");
    assert!(steps < 100, "no step for each semaphore");
}
