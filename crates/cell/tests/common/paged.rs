//! Cells that hold memory, and tenants that page in it.

use super::{lease, profile};
use leasehold_cell::memory::{HeldMemory, MemoryUse, Swap};
use leasehold_cell::{Cell, CellConfig, Ended, Lease, TenantHandle};
use leasehold_lease::{ByteSize, MemoryKind, Paging, SharedPages};
use leasehold_pager::{Account, Counts};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const PAGE: u64 = 4096;

/// A cell that holds memory, and the directory of its swap file.
pub(crate) struct Held {
    pub(crate) cell: Cell,
    pub(crate) directory: TempDir,
}

/// A cell that holds `memory` bytes and has a swap file of `swap`.
pub(crate) fn held(memory: u64, swap: u64) -> Held {
    let directory = tempfile::tempdir().expect("directory");
    let mut config = CellConfig::new(profile());
    config.memory = Some(HeldMemory {
        bytes: memory,
        for_all: true,
        swap: Some(Swap {
            path: directory.path().join("swap"),
            bytes: swap,
        }),
    });
    let cell = Cell::start(config).expect("a cell that holds memory");
    Held { cell, directory }
}

/// A lease of `budget_us` that reserves `reserve` bytes and allows `limit`: its tenant pages if that
/// is more.
pub(crate) fn paging(budget_us: u64, reserve: u64, limit: u64, shared: SharedPages) -> Lease {
    let mut lease = lease(budget_us, reserve / 1024);
    lease.memory.paging = (limit > reserve).then(|| Paging {
        limit: ByteSize::new(limit).expect("in range"),
        kind: MemoryKind::Hard,
        shared,
        mappings: Paging::MAPPINGS,
    });
    lease
}

pub(crate) fn paged(used: MemoryUse) -> (Account, Counts) {
    used.paging.expect("it pages")
}

/// Waits until a tenant that runs uses memory as wanted.
pub(crate) fn until(
    tenant: &TenantHandle,
    mut wanted: impl FnMut(&Account, &Counts) -> bool,
) -> MemoryUse {
    loop {
        let used = tenant.memory().expect("it runs");
        let (account, counts) = paged(used);
        assert!(account.balances(), "{account:?}");
        if wanted(&account, &counts) {
            return used;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn end(tenant: &TenantHandle) -> Ended {
    tenant.kill();
    tenant.wait().expect("an end")
}
