//! Bytes of a program that one host call may hold in the host's memory.

use crate::steps::caps::{CALL, VALUES};
use leasehold_lease::Lease;

/// The same of a component whose tenant pages, unless its lease says otherwise: the canonical ABI
/// copies a list in one step, in which every page of it may have to be fetched from the disk.
const OF_PAGED_COMPONENT: u64 = 8 << 10;

/// The same of a program that answers requests: its tenant has many executions at a time.
pub(crate) const OF_HANDLER: u64 = 64 << 10;

/// Bytes that one host call of a program under this lease may hold: what the lease says, or a default.
pub(crate) fn call_bytes(lease: &Lease, is_component: bool) -> u64 {
    match lease.reclaim.call_bytes {
        Some(bytes) => bytes.get(),
        None if is_component && lease.memory.paging.is_some() => OF_PAGED_COMPONENT,
        None => CALL.most,
    }
}

/// Bytes that the values of a call may count as, of so many for all calls.
pub(crate) const fn value_bytes(call_bytes: u64) -> u64 {
    call_bytes / (CALL.most / VALUES.most)
}
