//! The pages of guest memory that a step visits.
//!
//! For a paging tenant each page may be a fault that waits for the disk. A step therefore copies at
//! most a page or two for such a tenant: transfers, strings, random bytes, messages and regions are
//! moved a page a step, bulk instructions in chunks of a page, and what the canonical ABI copies
//! for a component is bounded by `call_bytes`.

use super::caps::{POINTERS, STRING};
use super::table::{CELL, ENGINE, KERNEL, PREVIEW1, Row};
use leasehold_pager::PAGE;
use leasehold_wasm::bulk_instructions::PAGED_CHUNK;

/// Of preview 1: 1,024 buffers of a transfer, which may all be empty, or two paths; a page of data, wherever
/// it begins; and a result.
const PREVIEW1_PAGES: u64 = 6;

/// Of the kernel, for core modules: a page of a message or of strings, wherever it begins, and capabilities.
const KERNEL_PAGES: u64 = 4;

/// Of a component, besides what the canonical ABI copies: lists and areas for parameters and results may
/// begin at the end of a page.
const COMPONENT_PAGES: u64 = 4;

/// Pages of guest memory that one step of a row visits at the most, for a tenant that pages and of which a
/// call may hold `call_bytes`.
pub(super) fn visited(row: &Row, call_bytes: u64) -> u64 {
    match (row.interface, row.name) {
        // A copy, wherever its ends are.
        (ENGINE, "instruction") => 2 * (u64::from(PAGED_CHUNK).div_ceil(PAGE) + 1),
        // Two bytes for each that a value counts as, in a list of numbers, and areas for parameters and results; and
        // strings and lists that begin anywhere.
        (ENGINE, "call") => call_bytes.div_ceil(PAGE) + COMPONENT_PAGES + POINTERS.most,
        // One that is read and one that is written, wherever they begin; a wide one is written with twice its bytes
        // at the most.
        (ENGINE, "string") => 2 * (STRING.most.div_ceil(PAGE) + 1),
        // The exception.
        (ENGINE, "throw") => 1,
        (ENGINE | CELL, _) => 0,
        (PREVIEW1, _) => PREVIEW1_PAGES,
        (KERNEL, _) => KERNEL_PAGES,
        _ => call_bytes.div_ceil(PAGE) + COMPONENT_PAGES,
    }
}

/// How often host code may wait for the disk before the guest could be preempted, where the row of its step is not known
/// yet: as often as any import of the program visits pages.
pub(super) fn waits(row: &Row, call_bytes: u64) -> u64 {
    let call = (call_bytes.div_ceil(PAGE) + COMPONENT_PAGES).max(PREVIEW1_PAGES);
    visited(row, call_bytes).max(call)
}

#[cfg(test)]
mod tests {
    use super::visited;
    use crate::steps::RowId;

    #[test]
    fn a_step_visits_a_few_pages_whatever_it_is_asked_for() {
        for id in RowId::all() {
            let most = match id.row().name {
                // Strings between components are copied whole, whatever the lease.
                "string" => 34,
                // Results may be scattered.
                "call" => 38,
                _ => 6,
            };
            assert!(visited(id.row(), 8 << 10) <= most, "{}", id.row().title());
        }
        let send = RowId::find("leasehold:kernel/channel", "send").expect("a row");
        assert_eq!(visited(send.row(), 128 << 10), 36);
    }
}
