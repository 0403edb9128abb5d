//! The host's heap, made predictable.

use std::sync::Once;

/// Allocations of this size and more are mappings of their own, bytes.
const OWN_MAPPING: i32 = 128 << 10;

/// Has the C library give every large allocation back to the system when it is freed, and make no
/// more of them mappings of their own than [the host has](crate::mappings).
///
/// By default glibc raises the size from which it does so after the first such free, up to 32 MiB.
/// Then the same drop is sometimes a list operation and sometimes gives back thousands of pages,
/// depending on what other tenants did before: no bound could be calibrated for it. It also
/// returns memory to the host when a tenant ends rather than at some later time.
pub(crate) fn make_predictable() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(target_env = "gnu")]
        // SAFETY: changes parameters of the allocator, which may be done at any time.
        let accepted = unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING)
                & libc::mallopt(libc::M_MMAP_MAX, crate::mappings::HEAP)
        };
        #[cfg(not(target_env = "gnu"))]
        let accepted = 0;
        if accepted != 1 {
            tracing::debug!("the allocator keeps its own ways with large allocations");
        }
    });
}
