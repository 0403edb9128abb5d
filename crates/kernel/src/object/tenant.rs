//! Child tenants: groups whose lease is carved from the creator's, seen as objects.
//!
//! The object lives in the creator's group and stays when the child ends, so that its exit can
//! still be queried.

pub(crate) mod state;

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{Backing, GroupId, Handle, Nanos};

use crate::capability::{ObjectClass, Selector};
use crate::id::{ExecutionId, TenantId};
use crate::kernel::{Kernel, Outcome};
use crate::object::tenant::state::Child;
use crate::object::timer::state::Timer;
use crate::queue::Queue;
use crate::refusal::errno;
use crate::tenant::record::{Parent, TENANT_DEPTH, Tenant};
use crate::wait::Side;

impl<B: Backing> Kernel<B> {
    /// Creates a child tenant with a reclamation budget and a memory reservation, both carved
    /// from the caller's.
    ///
    /// # Errors
    /// [`Errno::Budget`] if the caller has less left, or the child's budget does not pay for an
    /// empty tenant, [`Errno::Memory`], [`Errno::Depth`] beyond [`TENANT_DEPTH`],
    /// [`Errno::Limit`] if there are too many tenants, [`Errno::TableFull`].
    pub fn tenant_create(
        &mut self,
        caller: TenantId,
        budget_ns: u64,
        memory_bytes: u64,
    ) -> Result<Selector, Errno> {
        let &Tenant {
            group,
            depth,
            memory,
            ..
        } = self.tenant(caller)?;
        if depth >= TENANT_DEPTH {
            return Err(Errno::Depth);
        }
        if memory.reserved - memory.used < memory_bytes {
            return Err(Errno::Memory);
        }
        let costs = &self.costs;
        let budget = Nanos(budget_ns).to_picos().0;
        let all_ps = [costs.model.group_ps, costs.timer_ps, costs.tenant_ps]
            .iter()
            .fold(budget, |sum, ps| sum.saturating_add(*ps));
        if budget < self.empty_tenant_ps() {
            return Err(Errno::Budget);
        }
        let (_, vacancy) = self.vacancy(caller, all_ps)?;
        self.afford(group, 2, all_ps)?;
        let alarm = self
            .groups
            .alloc(group, self.classes.timer, Timer::alarm(caller))
            .map_err(errno)?;
        let child = Child {
            tenant: None,
            alarm,
            exit: None,
            ended: false,
            waiters: Queue::default(),
        };
        let child = match self.groups.alloc(group, self.classes.child, child) {
            Ok(child) => child,
            Err(refused) => {
                self.groups.free(alarm);
                return Err(errno(refused));
            }
        };
        let parent = Parent {
            tenant: caller,
            child,
            alarm,
        };
        let opened = self.open_below(group, parent, depth + 1, budget_ns, memory_bytes);
        let tenant = match opened {
            Ok(tenant) => tenant,
            Err(errno) => {
                self.groups.free(child);
                self.groups.free(alarm);
                return Err(errno);
            }
        };
        if let Some(child) = self.groups.get_mut(child) {
            child.tenant = Some(tenant);
        }
        if let Some(alarm) = self.groups.get_mut(alarm) {
            alarm.stand_for(tenant);
        }
        self.tenant_mut(caller)?.memory.used += memory_bytes;
        let original = crate::capability::Capability::original(child.raw(), ObjectClass::Tenant);
        self.install(caller, vacancy, original)
    }

    fn open_below(
        &mut self,
        group: GroupId,
        parent: Parent,
        depth: u8,
        budget_ns: u64,
        memory_bytes: u64,
    ) -> Result<TenantId, Errno> {
        let below = self
            .groups
            .open_child(group, Nanos(budget_ns))
            .map_err(errno)?;
        let opened = self.open_tenant(below, Some(parent), depth, budget_ns, memory_bytes);
        if opened.is_err() {
            self.groups.reclaim(below, &mut |_: &mut _, _| {});
        }
        opened
    }

    /// The child tenant behind a capability, for the cell to start a program in. Needs
    /// [`Rights::WRITE`].
    ///
    /// # Errors
    /// [`Errno::Gone`] if it has ended, and those of using a capability.
    pub fn tenant_of(&self, caller: TenantId, tenant: Selector) -> Result<TenantId, Errno> {
        let target = self.resolve(caller, tenant, ObjectClass::Tenant, Rights::WRITE)?;
        self.living(Handle::from_raw(target.object))
    }

    /// The exit code of a child's program, or waits for it. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// [`Errno::Gone`] if the child has ended before its program exited, those of using a
    /// capability, and of [waiting](Outcome::Blocked).
    pub fn tenant_wait(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        tenant: Selector,
    ) -> Result<Outcome<i32>, Errno> {
        self.blocking(caller, execution, |kernel, call| {
            let target = kernel.resolve(caller, tenant, ObjectClass::Tenant, Rights::READ)?;
            let child = kernel.groups.get(Handle::<Child>::from_raw(target.object));
            let child = child.ok_or(Errno::Gone)?;
            match child.exit {
                Some(code) => Ok(Outcome::Done(code)),
                None if child.ended => Err(Errno::Gone),
                None => kernel.block(caller, execution, call, &target, Side::Tenant, 0),
            }
        })
    }

    /// Says which tenant the caller may end with this capability; the cell then
    /// [ends](Self::begin_end) it. Needs [`Rights::END`].
    ///
    /// # Errors
    /// [`Errno::Gone`] if it has ended, and those of using a capability.
    pub fn tenant_end(&self, caller: TenantId, tenant: Selector) -> Result<TenantId, Errno> {
        let target = self.resolve(caller, tenant, ObjectClass::Tenant, Rights::END)?;
        self.living(Handle::from_raw(target.object))
    }

    /// Delegates a capability to a child tenant; returns the selector in the child's table.
    /// Needs [`Rights::WRITE`] on the child. Otherwise like [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`Errno::Gone`] if it has ended, those of using a capability, and of `connect`.
    pub fn tenant_grant(
        &mut self,
        caller: TenantId,
        tenant: Selector,
        capability: Selector,
        rights: Rights,
        links: u32,
    ) -> Result<Selector, Errno> {
        let to = self.tenant_of(caller, tenant)?;
        self.connect(caller, capability, to, rights, links)
    }

    fn living(&self, child: Handle<Child>) -> Result<TenantId, Errno> {
        let tenant = self
            .groups
            .get(child)
            .and_then(|child| child.tenant)
            .ok_or(Errno::Gone)?;
        self.tenant(tenant)?;
        Ok(tenant)
    }

    /// Records that the program of a tenant has exited.
    pub(crate) fn program_exited(&mut self, tenant: TenantId, exit_code: i32) {
        let Ok(&Tenant {
            parent: Some(parent),
            ..
        }) = self.tenant(tenant)
        else {
            return;
        };
        if let Some(child) = self.groups.get_mut(parent.child) {
            child.exit.get_or_insert(exit_code);
            self.executions
                .settle(&mut self.groups, parent.child.raw(), Side::Tenant);
        }
    }

    /// Records that a child ends: its creator gets the memory back, and its waiters are woken.
    pub(crate) fn child_ended(&mut self, parent: &Parent, memory_bytes: u64) {
        self.give_memory(parent.tenant, memory_bytes);
        if let Some(child) = self.groups.get_mut(parent.child) {
            child.ended = true;
            self.executions
                .settle(&mut self.groups, parent.child.raw(), Side::Tenant);
        }
    }
}
