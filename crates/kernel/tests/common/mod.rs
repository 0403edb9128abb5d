//! A kernel with round numbers for costs.

mod costs;

pub(crate) use costs::costs;
use leasehold_kernel::{Kernel, KernelConfig};
use leasehold_reclaim::{Config, HeapBacking, Mode};

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
