//! The charge for `wasmtime-wasi`'s resource table.
//!
//! `wasmtime-wasi` puts streams and error values into the table inside a host call, without asking
//! the cell. But every host call fetches the table from the cell first, and the table has a
//! capacity. The capacity is therefore always the number of charged places. Whenever the table is
//! fetched, the cell ensures that the places of one host call are free and charged, before the call
//! allocates. When the budget does not allow it, the capacity stays, and the call that needs a
//! place fails inside `wasmtime-wasi`.
//!
//! An execution has [`ENTRIES`] places at most: dropping its store closes what is in them in one step.
//! Charged at high water: a place that was freed is used again and was paid for.

use crate::local;
use crate::meter::Held;
use crate::outline::FIRST_PLACES;
use crate::steps::caps::ENTRIES;
use leasehold_kernel::TenantId;
use wasmtime::component::Resource;
use wasmtime_wasi::ResourceTable;

/// Places that one host call may take: more than any of them pushes.
const PER_CALL: usize = 8;

const _: () = assert!(FIRST_PLACES == 2 * PER_CALL);

/// Places charged at a time.
const BATCH: usize = 8 * PER_CALL;

/// How much of a guest's resource table has been charged.
#[derive(Debug)]
pub(crate) struct TableCharge {
    charged: usize,
    /// Calls that can still be made before the table could run short of what was checked.
    calls_left: usize,
}

struct Probe;

impl TableCharge {
    /// The charge for a table that stays empty: its program is no component.
    pub(crate) fn none(table: &mut ResourceTable) -> Self {
        table.set_max_capacity(0);
        Self {
            charged: 0,
            calls_left: 0,
        }
    }

    /// Charges the places that a guest takes when it starts.
    ///
    /// # Errors
    /// When the lease does not allow it.
    pub(crate) fn start(
        table: &mut ResourceTable,
        tenant: TenantId,
        execution: u64,
    ) -> Result<Self, leasehold_kernel::Errno> {
        let charged = FIRST_PLACES;
        local::with(|local| local.hold(tenant, execution, Held::WasiEntry, charged as u64))?;
        table.set_max_capacity(charged);
        Ok(Self {
            charged,
            calls_left: 0,
        })
    }

    /// Makes room for one host call. About a nanosecond, and every eighth call 60 ns.
    pub(crate) fn make_room(
        &mut self,
        table: &mut ResourceTable,
        tenant: TenantId,
        execution: u64,
    ) {
        if self.calls_left > 0 {
            self.calls_left -= 1;
            return;
        }
        if Self::has_room(table, PER_CALL) {
            self.calls_left = usize::from(Self::has_room(table, BATCH)) * (BATCH / PER_CALL - 1);
            return;
        }
        if self.charged == 0 || self.charged + BATCH > ENTRIES.size() {
            return;
        }
        let charge =
            local::with(|local| local.hold(tenant, execution, Held::WasiEntry, BATCH as u64));
        if charge.is_ok() {
            self.charged += BATCH;
            table.set_max_capacity(self.charged);
        }
    }

    /// Puts what a guest can be refused into the table, unless that leaves no room for what it cannot be
    /// refused, such as the value of an error.
    pub(crate) fn put<T: Send + 'static>(
        table: &mut ResourceTable,
        what: T,
    ) -> Option<Resource<T>> {
        match Self::has_room(table, PER_CALL) {
            true => table.push(what).ok(),
            false => None,
        }
    }

    /// The table does not tell how full it is, but it tells when it is full.
    fn has_room(table: &mut ResourceTable, places: usize) -> bool {
        let mut probes = [const { None }; BATCH];
        let mut room = true;
        for probe in &mut probes[..places] {
            match table.push(Probe) {
                Ok(pushed) => *probe = Some(pushed),
                Err(_) => {
                    room = false;
                    break;
                }
            }
        }
        // In reverse, so that the free list hands out low places first again.
        for probe in probes.into_iter().rev().flatten() {
            let deleted = table.delete(probe);
            debug_assert!(deleted.is_ok(), "a probe has no children");
        }
        room
    }
}
