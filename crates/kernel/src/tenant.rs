//! Tenants: one reclamation group and one capability table each.

pub(crate) mod record;

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{Backing, GroupId, Nanos};

use crate::capability::{Capability, ObjectClass};
use crate::deadline::heap::Heap;
use crate::id::TenantId;
use crate::kernel::Kernel;
use crate::refusal::errno;
use crate::table::Table;
use crate::tenant::record::{Memory, Parent, Tenant};

impl<B: Backing> Kernel<B> {
    /// Admits a top-level tenant with a reclamation budget and a memory reservation.
    ///
    /// # Errors
    /// [`Errno::Budget`] if the budget does not even pay for an empty tenant, [`Errno::Memory`]
    /// if there is no arena, [`Errno::Limit`] if there are too many tenants.
    pub fn admit(&mut self, budget_ns: u64, memory_bytes: u64) -> Result<TenantId, Errno> {
        self.rearmed.reserve()?;
        let group = self.groups.open_root(Nanos(budget_ns)).map_err(errno)?;
        let opened = self.open_tenant(group, None, 0, budget_ns, memory_bytes);
        if opened.is_err() {
            self.groups.reclaim(group, &mut |_: &mut _, _| {});
        } else {
            self.rearmed.opened();
        }
        opened
    }

    /// Limits the memory that the objects of a top-level tenant take, and those of its descendants, to `bytes`.
    /// The budget limits it, too; but a page costs so little time that a budget pays for hundreds of MiB.
    ///
    /// # Errors
    /// [`Errno::Gone`] when it has ended.
    pub fn limit_objects(&mut self, tenant: TenantId, bytes: u64) -> Result<(), Errno> {
        let group = self.group_of(tenant)?;
        self.groups.limit_root(group, bytes).map_err(errno)
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
        let record = self
            .groups
            .alloc(group, self.classes.tenant, record)
            .map_err(errno)?;
        let tenant = TenantId(record.raw());
        let own = Capability {
            rights: Rights::NONE,
            ..Capability::original(tenant.0, ObjectClass::Tenant)
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
