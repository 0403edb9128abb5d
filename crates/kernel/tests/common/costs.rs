use leasehold_kernel::KernelCosts;
use leasehold_reclaim::CostModel;

/// Costs that are easy to add up, and all different.
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
