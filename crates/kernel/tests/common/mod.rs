//! A kernel with round numbers for costs.

use leasehold_kernel::{Kernel, KernelConfig, KernelCosts};
use leasehold_reclaim::{Config, CostModel, HeapBacking, Mode};

pub(crate) fn costs() -> KernelCosts {
    KernelCosts {
        model: CostModel {
            root_ps: 10_000,
            group_ps: 5_000,
            scrub_ps: 1_000,
            chunk_ps: 500,
            page_ps: 256,
        },
        semaphore_ps: 11,
        channel_ps: 13,
        region_ps: 17,
        timer_ps: 19,
        task_ps: 23,
        tenant_ps: 29,
        capability_ps: 7,
        parcel_ps: 31,
        execution_ps: 37,
    }
}

pub(crate) fn sized(mode: Mode, arena_bytes: usize, max_executions: u32) -> Kernel<HeapBacking> {
    let reclaim = Config {
        arena_bytes,
        keep_resident: arena_bytes,
        mode,
        max_groups: 1 << 12,
    };
    let config = KernelConfig {
        reclaim,
        max_executions,
        max_channel_bytes: 1 << 16,
        max_region_bytes: 1 << 20,
        timer_floor_ns: 10,
    };
    Kernel::new(config, costs(), HeapBacking)
}
