//! The functions that core modules import.

/// The name of the import module of all functions.
pub const MODULE: &str = "leasehold_kernel";

/// The names of the functions, in the order of the table in `docs/guest-abi.md`.
pub const FUNCTIONS: [&str; 33] = [
    "capability_derive",
    "capability_drop",
    "capability_revoke",
    "semaphore_create",
    "semaphore_up",
    "semaphore_down",
    "semaphore_try_down",
    "channel_create",
    "channel_send",
    "channel_try_send",
    "channel_receive",
    "channel_try_receive",
    "region_create",
    "region_length",
    "region_read",
    "region_write",
    "region_create_mapped",
    "region_map",
    "region_map_at",
    "data_length",
    "data_map",
    "timer_create",
    "timer_set",
    "timer_wait",
    "task_start",
    "task_wait",
    "task_stop",
    "tenant_create",
    "tenant_start",
    "tenant_grant",
    "tenant_wait",
    "tenant_end",
    "tenant_statement",
];
