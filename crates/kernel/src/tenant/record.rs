//! The record of a tenant.

use leasehold_reclaim::{GroupId, Handle};

use crate::deadline::heap::Heap;
use crate::id::TenantId;
use crate::object::tenant::state::Child;
use crate::object::timer::state::Timer;
use crate::table::Table;

/// How deep tenants can be nested: a top-level tenant has depth 0.
pub const TENANT_DEPTH: u8 = 16;

/// A tenant's record, in its own group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenant {
    pub(crate) group: GroupId,
    /// `None` for a top-level tenant.
    pub(crate) parent: Option<Parent>,
    pub(crate) depth: u8,
    /// The reclamation budget that it was made with.
    pub(crate) budget_ns: u64,
    pub(crate) table: Table,
    /// Its armed timers, and those of its children.
    pub(crate) deadlines: Heap,
    /// Of a top-level tenant: where it is among those whose earliest deadline has changed.
    pub(crate) rearmed: Option<u32>,
    /// The memory reservation, and what of it is in use or carved for children; bytes.
    pub(crate) memory: Memory,
    /// In [`Mode::Individual`](leasehold_reclaim::Mode::Individual): how far its end has come.
    pub(crate) swept: u32,
}

/// The connection of a tenant with its parent: all in the parent's group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parent {
    pub(crate) tenant: TenantId,
    pub(crate) child: Handle<Child>,
    /// Stands for the tenant's earliest deadline among the parent's.
    pub(crate) alarm: Handle<Timer>,
}

/// A memory reservation. The kernel only keeps the account; the cell provides the memory and
/// charges it before it is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Bytes reserved for the tenant, its children's included.
    pub reserved: u64,
    /// Bytes in use, or carved for children.
    pub used: u64,
}

impl TenantId {
    #[inline]
    pub(crate) const fn record(self) -> Handle<Tenant> {
        Handle::from_raw(self.0)
    }
}
