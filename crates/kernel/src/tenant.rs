//! Tenants: one reclamation group and one capability table each.

use core::fmt;

use leasehold_reclaim::{Backing, GroupId, Handle, Nanos};

use crate::capability::{Capability, ObjectClass};
use crate::deadline::Heap;
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::object::tenant::Child;
use crate::object::timer::Timer;
use crate::rights::Rights;
use crate::table::Table;

/// How deep tenants can be nested: a top-level tenant has depth 0.
pub const TENANT_DEPTH: u8 = 16;

/// Names a tenant. One that outlives its tenant is detectably stale ([`Errno::Gone`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantId(pub(crate) Handle<Tenant>);

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

impl<B: Backing> Kernel<B> {
    /// Admits a top-level tenant with a reclamation budget and a memory reservation.
    ///
    /// # Errors
    /// [`Errno::Budget`] if the budget does not even pay for an empty tenant, [`Errno::Memory`]
    /// if there is no arena, [`Errno::Limit`] if there are too many tenants.
    pub fn admit(&mut self, budget_ns: u64, memory_bytes: u64) -> Result<TenantId, Errno> {
        self.rearmed.reserve()?;
        let group = self.groups.open_root(Nanos(budget_ns))?;
        let opened = self.open_tenant(group, None, 0, budget_ns, memory_bytes);
        if opened.is_err() {
            self.groups.reclaim(group, &mut |_: &mut _, _| {});
        } else {
            self.rearmed.opened();
        }
        opened
    }

    /// Makes the record and table of a tenant in its group, which is empty.
    pub(crate) fn open_tenant(
        &mut self,
        group: GroupId,
        parent: Option<Parent>,
        depth: u8,
        budget_ns: u64,
        memory_bytes: u64,
    ) -> Result<TenantId, Errno> {
        let table = Table::new(&mut self.groups, group, self.classes.table)?;
        let memory = Memory {
            reserved: memory_bytes,
            used: 0,
        };
        let deadlines = Heap::default();
        let record = Tenant {
            group,
            parent,
            depth,
            budget_ns,
            table,
            deadlines,
            rearmed: None,
            memory,
            swept: 0,
        };
        let tenant = TenantId(self.groups.alloc(group, self.classes.tenant, record)?);
        let own = Capability {
            rights: Rights::NONE,
            ..Capability::original(tenant.0.raw(), ObjectClass::Tenant)
        };
        let (_, vacancy) = self.vacancy(tenant, 0)?;
        self.install(tenant, vacancy, own)?;
        Ok(tenant)
    }

    /// Takes `bytes` of a tenant's memory reservation.
    ///
    /// # Errors
    /// [`Errno::Memory`] if less is left, [`Errno::Gone`] if the tenant has ended.
    pub fn take_memory(&mut self, tenant: TenantId, bytes: u64) -> Result<(), Errno> {
        let memory = &mut self.tenant_mut(tenant)?.memory;
        if memory.reserved - memory.used < bytes {
            return Err(Errno::Memory);
        }
        memory.used += bytes;
        Ok(())
    }

    /// Gives `bytes` back to a tenant's memory reservation, or as many as are in use. Does
    /// nothing if the tenant has ended: its whole reservation went back to its parent then.
    pub fn give_memory(&mut self, tenant: TenantId, bytes: u64) {
        if let Ok(tenant) = self.tenant_mut(tenant) {
            tenant.memory.used = tenant.memory.used.saturating_sub(bytes);
        }
    }

    /// A tenant's memory account.
    ///
    /// # Errors
    /// [`Errno::Gone`] if the tenant has ended.
    pub fn memory(&self, tenant: TenantId) -> Result<Memory, Errno> {
        Ok(self.tenant(tenant)?.memory)
    }
}
