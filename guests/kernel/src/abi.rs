//! The imports of `leasehold_kernel`, exactly as `docs/guest-abi.md` lists them.
//!
//! Selectors, rights and counts are unsigned here: wasm's `i32` has no sign.

#[link(wasm_import_module = "leasehold_kernel")]
unsafe extern "C" {
    pub(crate) safe fn capability_derive(capability: u32, rights: u32) -> i64;
    pub(crate) safe fn capability_drop(capability: u32) -> i64;
    pub(crate) safe fn capability_revoke(capability: u32) -> i64;

    pub(crate) safe fn semaphore_create(value: u32) -> i64;
    pub(crate) safe fn semaphore_up(semaphore: u32, n: u32) -> i64;
    pub(crate) safe fn semaphore_down(semaphore: u32) -> i64;
    pub(crate) safe fn semaphore_try_down(semaphore: u32) -> i64;

    pub(crate) safe fn channel_create(capacity: u32) -> i64;
    pub(crate) fn channel_send(
        channel: u32,
        bytes: *const u8,
        length: usize,
        capabilities: *const u32,
        count: usize,
    ) -> i64;
    pub(crate) fn channel_try_send(
        channel: u32,
        bytes: *const u8,
        length: usize,
        capabilities: *const u32,
        count: usize,
    ) -> i64;
    pub(crate) fn channel_receive(
        channel: u32,
        bytes: *mut u8,
        capacity: usize,
        capabilities: *mut u32,
        slots: usize,
    ) -> i64;
    pub(crate) fn channel_try_receive(
        channel: u32,
        bytes: *mut u8,
        capacity: usize,
        capabilities: *mut u32,
        slots: usize,
    ) -> i64;

    pub(crate) safe fn region_create(length: u64) -> i64;
    pub(crate) safe fn region_length(region: u32) -> i64;
    pub(crate) fn region_read(region: u32, offset: u64, into: *mut u8, length: usize) -> i64;
    pub(crate) fn region_write(region: u32, offset: u64, from: *const u8, length: usize) -> i64;

    pub(crate) safe fn timer_create() -> i64;
    pub(crate) safe fn timer_set(timer: u32, after_ns: u64, period_ns: u64) -> i64;
    pub(crate) safe fn timer_wait(timer: u32) -> i64;

    pub(crate) fn task_start(arguments: *const u8, length: usize) -> i64;
    pub(crate) safe fn task_wait(task: u32) -> i64;
    pub(crate) safe fn task_stop(task: u32) -> i64;

    pub(crate) safe fn tenant_create(reclaim_ns: u64, memory_bytes: u64) -> i64;
    pub(crate) fn tenant_start(tenant: u32, arguments: *const u8, length: usize) -> i64;
    pub(crate) safe fn tenant_grant(tenant: u32, capability: u32, rights: u32, links: u32) -> i64;
    pub(crate) safe fn tenant_wait(tenant: u32) -> i64;
    pub(crate) safe fn tenant_end(tenant: u32) -> i64;
    pub(crate) fn tenant_statement(into: *mut [u64; 3]) -> i64;
}
