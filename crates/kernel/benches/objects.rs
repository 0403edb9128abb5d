//! Measures the cost of creating objects and of taking them back: grouped, and one by one (BRR fig.
//! 7 and 8).
//!
//! `cargo bench -p leasehold-kernel --bench objects [-- most-objects]`

use std::hint::black_box;
use std::time::Instant;

use leasehold_kernel::{Kernel, KernelConfig, KernelCosts, Rights, Selector, TenantId};
use leasehold_reclaim::{Config, CostModel, HeapBacking, Mode};

const CLASSES: [&str; 7] = [
    "semaphore",
    "channel",
    "region",
    "timer",
    "task",
    "tenant",
    "capability",
];
const ARENA: usize = 2 << 30;
/// Rounds per point; the median counts, the first few only warm the arena up.
const ROUNDS: usize = 9;
const BUDGET_NS: u64 = 1_000_000_000_000;

fn kernel(mode: Mode) -> Kernel<HeapBacking> {
    let reclaim = Config {
        arena_bytes: ARENA,
        keep_resident: ARENA,
        mode,
        max_groups: 1 << 20,
    };
    let config = KernelConfig {
        reclaim,
        max_executions: 16,
        max_channel_bytes: 1 << 16,
        max_region_bytes: 1 << 20,
        timer_floor_ns: 0,
    };
    let model = CostModel {
        root_ps: 10_000,
        group_ps: 5_000,
        scrub_ps: 50_000,
        chunk_ps: 500,
        page_ps: 70_000,
    };
    let costs = KernelCosts {
        model,
        semaphore_ps: 500,
        channel_ps: 1_500,
        region_ps: 500,
        timer_ps: 3_000,
        task_ps: 800,
        tenant_ps: 3_000,
        capability_ps: 1_000,
        parcel_ps: 6_000,
        execution_ps: 10_000,
    };
    Kernel::new(config, costs, HeapBacking)
}

fn create(kernel: &mut Kernel<HeapBacking>, tenant: TenantId, class: &str, n: u64) {
    let original = kernel.semaphore_create(tenant, 0).expect("semaphore");
    for at in 0..n {
        let made: Selector = match class {
            "semaphore" => kernel.semaphore_create(tenant, 0),
            "channel" => kernel.channel_create(tenant, 64),
            "region" => kernel.region_create(tenant, 64),
            "timer" => kernel.timer_create(tenant).inspect(|&timer| {
                // Armed, in an order that neither a queue nor a stack would like.
                let after = at.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF;
                kernel.timer_set(tenant, timer, 0, after, 0).expect("set");
            }),
            "task" => kernel.task_create(tenant),
            "tenant" => kernel.tenant_create(tenant, 1_000, 0),
            _ => kernel.capability_derive(tenant, original, Rights::READ),
        }
        .expect("paid for");
        black_box(made);
    }
}

/// Median nanoseconds to create one object, and to end the tenant that has them all; steps.
fn measure(mode: Mode, class: &str, n: u64) -> (f64, f64, u64) {
    let mut kernel = kernel(mode);
    let (mut created, mut ended, mut steps) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let tenant = kernel.admit(BUDGET_NS, 0).expect("admitted");
        let start = Instant::now();
        create(&mut kernel, tenant, class, n);
        created.push(start.elapsed().as_nanos() as f64 / n as f64);
        let start = Instant::now();
        steps = kernel.end(tenant, &mut |_| {}).expect("ended").steps;
        ended.push(start.elapsed().as_nanos() as f64);
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    };
    (median(created), median(ended), steps)
}

fn main() {
    let most = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .next()
        .unwrap_or(1_000_000u64);
    println!(
        "class        objects | grouped: create ns   end ns  steps | one by one: create ns       end ns    steps"
    );
    for class in CLASSES {
        let mut n = 1;
        while n <= most {
            // The record table holds 2^20 - 1 groups, the capability table 2^20 places.
            let count = n.min((1 << 20) - 40);
            let (create, end, steps) = measure(Mode::Grouped, class, count);
            let (plain, walk, visits) = measure(Mode::Individual, class, count);
            println!(
                "{class:<12} {count:>7} | {create:>18.1} {end:>8.0} {steps:>6} | {plain:>21.1} {walk:>12.0} {visits:>8}"
            );
            n *= 10;
        }
    }
}
