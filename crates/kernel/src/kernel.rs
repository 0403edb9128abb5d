//! The kernel of one cell: its state, and the resolution of call arguments.

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{
    Backing, Class, Config, CostModel, Extent, GroupId, Groups, Mode, RawHandle, Resource,
    Statement,
};

use crate::allowance;
use crate::capability::{
    Allowance, Capability, CapabilityKey, Derivation, LEAF, ObjectClass, Selector, Target,
};
use crate::deadline::rearmed::Rearmed;
use crate::derivation::trace;
use crate::execution::{Executions, Role, Wake};
use crate::id::{ExecutionId, TenantId};
use crate::link::{Link, Objects};
use crate::object::channel::state::{Channel, Parcel};
use crate::object::region::state::Region;
use crate::object::semaphore::state::Semaphore;
use crate::object::task::state::Task;
use crate::object::tenant::state::Child;
use crate::object::timer::state::Timer;
use crate::queue::Number;
use crate::refusal::errno;
use crate::table::{self, TableClasses, Vacancy};
use crate::tenant::record::Tenant;
use crate::wait::{ForeignWait, ReservedUnits, Side, Wait};

/// Set-up of a [`Kernel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelConfig {
    /// Set-up of the reclamation groups: arenas, mode, how many tenants there can be.
    pub reclaim: Config,
    /// Most executions at once. Their records are allocated at start, about 120 bytes each.
    pub max_executions: u32,
    /// Most bytes a channel can be made for.
    pub max_channel_bytes: u32,
    /// Most bytes a region can be made with.
    pub max_region_bytes: u64,
    /// Shortest time, in nanoseconds, after which a timer fires: what is shorter is rounded up,
    /// so that no guest makes the host's timer storm.
    pub timer_floor_ns: u64,
}

/// The costs of reclaiming the kernel's objects, in picoseconds each, in bulk: the share of giving
/// its slot's page back. Comes from calibration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelCosts {
    /// Groups, scrub entries, pages.
    pub model: CostModel,
    /// A semaphore.
    pub semaphore_ps: u64,
    /// A channel, without its buffer.
    pub channel_ps: u64,
    /// A region, without its bytes.
    pub region_ps: u64,
    /// A timer.
    pub timer_ps: u64,
    /// A task, without what it runs.
    pub task_ps: u64,
    /// A child tenant's object in its parent and its own record, without its group.
    pub tenant_ps: u64,
    /// A place in a capability table, or what a derived capability holds beside it.
    pub capability_ps: u64,
    /// Capabilities on their way through a channel, per message that has some.
    pub parcel_ps: u64,
    /// An execution, beside its scrub entry.
    pub execution_ps: u64,
}

/// The result of a call that may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It is done.
    Done(T),
    /// The execution waits. It must not run until it appears in
    /// [`next_wake`](Kernel::next_wake), and then makes the same call again (unless it was
    /// [cancelled](Kernel::cancel_wait)).
    ///
    /// A foreign tenant of the object (a tenant that does not end with the object's owner) needs a
    /// link for this: it is refused with [`Errno::Allowance`] if none was granted with its
    /// capability, or all are in use.
    Blocked,
}

/// The reclamation budget of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Account {
    /// The budget it was made with, in nanoseconds.
    pub budget_ns: u64,
    /// The budget that it was charged or set aside for its children, rounded up.
    pub charged_ns: u64,
    /// The budget that it has left, rounded down.
    pub left_ns: u64,
}

/// The classes of what the kernel keeps in groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Classes {
    pub(crate) semaphore: Class<Semaphore>,
    pub(crate) channel: Class<Channel>,
    pub(crate) parcel: Class<Parcel>,
    pub(crate) region: Class<Region>,
    pub(crate) timer: Class<Timer>,
    pub(crate) task: Class<Task>,
    pub(crate) child: Class<Child>,
    pub(crate) tenant: Class<Tenant>,
    pub(crate) derivation: Class<Derivation>,
    pub(crate) allowance: Class<Allowance>,
    pub(crate) table: TableClasses,
    pub(crate) execution: Resource,
    pub(crate) grant: Resource,
}

/// The kernel of one cell: tenants, their capability tables and their objects.
///
/// Single-threaded: no operation takes a lock. Every operation takes constant time unless it says
/// otherwise, and nothing is allocated outside the tenants' groups after start, except room for
/// one more top-level tenant in [`admit`](Kernel::admit).
///
/// Two kinds of subject act on it. A *tenant* owns capabilities and objects; every call names
/// the calling tenant. An *execution* is a program that runs for a tenant; calls that may block
/// name it too.
#[derive(Debug)]
pub struct Kernel<B: Backing> {
    pub(crate) groups: Objects<B>,
    pub(crate) executions: Executions,
    pub(crate) rearmed: Rearmed,
    pub(crate) classes: Classes,
    pub(crate) config: KernelConfig,
    pub(crate) costs: KernelCosts,
}

/// The execution that makes a call which may block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    number: Number,
    reserved: Option<ReservedUnits>,
}

impl Call {
    /// Whether something was reserved for this call, so that it need not queue.
    pub(crate) fn has_reserved(&self, object: RawHandle, side: Side) -> bool {
        self.reserved
            .is_some_and(|units| units.object == object && units.side == side)
    }
}

impl<B: Backing> Kernel<B> {
    /// A kernel without tenants.
    ///
    /// # Panics
    /// If the tables for groups and executions cannot be allocated.
    pub fn new(config: KernelConfig, costs: KernelCosts, backing: B) -> Self {
        let mut groups: Objects<B> = Groups::new(config.reclaim, costs.model, backing);
        let part = |places: usize| costs.capability_ps.saturating_mul(places as u64);
        let classes = Classes {
            semaphore: groups.register("semaphore", costs.semaphore_ps),
            channel: groups.register("channel", costs.channel_ps),
            parcel: groups.register("parcel", costs.parcel_ps),
            region: groups.register("region", costs.region_ps),
            timer: groups.register("timer", costs.timer_ps),
            task: groups.register("task", costs.task_ps),
            child: groups.register("child tenant", costs.tenant_ps),
            tenant: groups.register("tenant", costs.tenant_ps),
            derivation: groups.register("derivation", costs.capability_ps),
            allowance: groups.register("allowance", costs.capability_ps),
            table: TableClasses {
                leaf: groups.register("capability table leaf", part(LEAF)),
                node: groups.register("capability table node", part(LEAF * 4)),
            },
            execution: groups.register_resource("execution", costs.execution_ps),
            grant: groups.register_resource("granted link", costs.model.scrub_ps),
        };
        let executions = Executions::new(config.max_executions);
        Kernel {
            groups,
            executions,
            rearmed: Rearmed::default(),
            classes,
            config,
            costs,
        }
    }

    /// The reclamation groups, for what the cell charges and keeps there itself.
    pub const fn groups(&self) -> &Groups<B, Link> {
        &self.groups
    }

    /// The reclamation groups, to charge to them and allocate in them. End tenants with
    /// [`begin_end`](Self::begin_end), not by reclaiming their groups.
    pub const fn groups_mut(&mut self) -> &mut Groups<B, Link> {
        &mut self.groups
    }

    /// The set-up.
    pub const fn config(&self) -> &KernelConfig {
        &self.config
    }

    /// The group that a tenant's objects and charges belong to.
    ///
    /// # Errors
    /// [`Errno::Gone`] if the tenant has ended.
    #[inline]
    pub fn group_of(&self, tenant: TenantId) -> Result<GroupId, Errno> {
        Ok(self.tenant(tenant)?.group)
    }

    /// Budget and charges of a tenant and all below it, by class. Allocates, and takes time
    /// proportional to the tenants below it: for reports; guests get [`account`](Self::account).
    ///
    /// # Errors
    /// [`Errno::Gone`] if the tenant has ended.
    pub fn statement(&self, tenant: TenantId) -> Result<Statement, Errno> {
        let group = self.group_of(tenant)?;
        self.groups.statement(group).ok_or(Errno::Gone)
    }

    /// Budget of a tenant: what a guest sees. O(1).
    ///
    /// # Errors
    /// [`Errno::Gone`] if the tenant has ended.
    pub fn account(&self, tenant: TenantId) -> Result<Account, Errno> {
        let &Tenant {
            group, budget_ns, ..
        } = self.tenant(tenant)?;
        let left_ns = self.left_ps(group)? / 1_000;
        Ok(Account {
            budget_ns,
            charged_ns: budget_ns.saturating_sub(left_ns),
            left_ns,
        })
    }

    /// Makes an execution of a tenant's program known. Charges it, and the scrub entry that
    /// stops it.
    ///
    /// # Errors
    /// [`Errno::Gone`], [`Errno::Budget`], [`Errno::Memory`], [`Errno::Limit`] if there are
    /// [`max_executions`](KernelConfig::max_executions), [`Errno::Busy`] if `id` is in use.
    pub fn register_execution(&mut self, tenant: TenantId, id: ExecutionId) -> Result<(), Errno> {
        self.register(tenant, id, Role::Program)
    }

    pub(crate) fn register(
        &mut self,
        tenant: TenantId,
        id: ExecutionId,
        role: Role,
    ) -> Result<(), Errno> {
        let group = self.group_of(tenant)?;
        self.executions.admits(id)?;
        self.groups
            .charge(group, self.classes.execution, 1)
            .map_err(errno)?;
        match self.groups.link(group, Link::Stop(id)) {
            Ok(stop) => {
                self.executions.insert(id, tenant, role, stop);
                Ok(())
            }
            Err(refused) => {
                self.groups.refund(group, self.classes.execution, 1);
                Err(errno(refused))
            }
        }
    }

    /// Takes an execution out of the queue that it waits in, or passes on what was reserved for it. It is not woken
    /// for this. Use it when the execution continues for another reason.
    pub fn cancel_wait(&mut self, id: ExecutionId) {
        if let Some(number) = self.executions.find(id) {
            self.executions.leave(&mut self.groups, number);
        }
    }

    /// The next execution that can go on, each reported once; `None` if there is none.
    pub fn next_wake(&mut self) -> Option<(ExecutionId, Wake)> {
        self.executions.pop_woken()
    }

    /// Sets the urgency of an execution's wake-ups: a number that only the cell interprets, 0 by
    /// default.
    pub fn set_urgency(&mut self, id: ExecutionId, urgency: u64) {
        self.executions.set_urgency(id, urgency);
    }

    /// Returns an upper bound of the urgencies that [`next_wake`](Self::next_wake) has still to
    /// report; `None` if no execution was woken since it last returned `None`. So the cell can tell
    /// at once whether a call woke an urgent execution. O(1).
    pub fn most_urgent_wake(&self) -> Option<u64> {
        self.executions.most_urgent()
    }

    #[inline]
    pub(crate) fn tenant(&self, tenant: TenantId) -> Result<&Tenant, Errno> {
        self.groups.get(tenant.record()).ok_or(Errno::Gone)
    }

    #[inline]
    pub(crate) fn tenant_mut(&mut self, tenant: TenantId) -> Result<&mut Tenant, Errno> {
        self.groups.get_mut(tenant.record()).ok_or(Errno::Gone)
    }

    /// The capability that a selector names.
    #[inline]
    pub(crate) fn find(
        &self,
        tenant: TenantId,
        selector: Selector,
    ) -> Result<(CapabilityKey, &Capability), Errno> {
        self.tenant(tenant)?.table.find(&self.groups, selector)
    }

    /// Checks a capability: class, rights, and that nothing it was derived from was revoked.
    /// O(depth of the derivation).
    #[inline]
    pub(crate) fn resolve(
        &self,
        tenant: TenantId,
        selector: Selector,
        class: ObjectClass,
        rights: Rights,
    ) -> Result<Target, Errno> {
        let (_, capability) = self.find(tenant, selector)?;
        if capability.class != class {
            return Err(Errno::BadClass);
        }
        if !capability.rights.contains(rights) {
            return Err(Errno::Rights);
        }
        trace(&self.groups, capability)
    }

    /// Finds a place for a new capability. If the table has to grow for it, the group must be
    /// able to pay `further` picoseconds (and a chunk) beyond that: so that the caller's own
    /// allocation is not refused after the table has grown.
    #[inline]
    pub(crate) fn vacancy(
        &mut self,
        tenant: TenantId,
        further: u64,
    ) -> Result<(GroupId, Vacancy), Errno> {
        let record = self.tenant(tenant)?;
        match record.table.vacancy(&self.groups) {
            Some(vacancy) => Ok((record.group, vacancy)),
            None => self.grow(tenant, further),
        }
    }

    #[cold]
    fn grow(&mut self, tenant: TenantId, further: u64) -> Result<(GroupId, Vacancy), Errno> {
        let &Tenant {
            group, mut table, ..
        } = self.tenant(tenant)?;
        let parts = u64::from(table.growth());
        let part_ps = self.costs.capability_ps.saturating_mul(LEAF as u64);
        self.afford(
            group,
            parts + 1,
            parts.saturating_mul(part_ps).saturating_add(further),
        )?;
        let grown = table.grow(&mut self.groups, group, self.classes.table);
        self.tenant_mut(tenant)?.table = table;
        grown?;
        Ok((group, table.vacancy(&self.groups).ok_or(Errno::TableFull)?))
    }

    /// The largest charge for an empty tenant in its own group.
    pub(crate) fn empty_tenant_ps(&self) -> u64 {
        if self.config.reclaim.mode == Mode::Individual {
            return 0;
        }
        let leaf_ps = self.costs.capability_ps.saturating_mul(LEAF as u64);
        let chunks_ps = self.costs.model.chunk_ps.saturating_mul(2);
        leaf_ps
            .saturating_add(self.costs.tenant_ps)
            .saturating_add(chunks_ps)
    }

    /// Returns whether a group can certainly pay `ps` in at most `allocations` allocations. Calls
    /// that allocate more than once ask first, so that a refusal for want of budget leaves nothing
    /// charged.
    pub(crate) fn afford(&self, group: GroupId, allocations: u64, ps: u64) -> Result<(), Errno> {
        if self.config.reclaim.mode == Mode::Individual {
            // Creating objects is not charged.
            return Ok(());
        }
        let chunks = self.costs.model.chunk_ps.saturating_mul(allocations);
        if self.left_ps(group)? >= ps.saturating_add(chunks) {
            Ok(())
        } else {
            Err(Errno::Budget)
        }
    }

    /// The budget that a group has left, in picoseconds. O(1), unlike a statement.
    fn left_ps(&self, group: GroupId) -> Result<u64, Errno> {
        Ok(self.groups.left(group).ok_or(Errno::Gone)?.0)
    }

    /// Puts a capability into a vacancy of a tenant's table.
    #[inline]
    pub(crate) fn install(
        &mut self,
        tenant: TenantId,
        vacancy: Vacancy,
        capability: Capability,
    ) -> Result<Selector, Errno> {
        let filled = table::fill(&mut self.groups, vacancy, capability);
        let (selector, following) = filled.ok_or(Errno::Gone)?;
        self.tenant_mut(tenant)?.table.filled(vacancy, following);
        Ok(selector)
    }

    /// Makes an object, and its original capability.
    #[inline]
    pub(crate) fn create<T: 'static>(
        &mut self,
        caller: TenantId,
        class: ObjectClass,
        slots: Class<T>,
        object: T,
    ) -> Result<Selector, Errno> {
        let tenant = self.tenant_mut(caller)?;
        let group = tenant.group;
        let Some(fresh) = tenant.table.take_fresh() else {
            let (group, vacancy) = self.vacancy(caller, self.costs.dearest())?;
            let object = self.groups.alloc(group, slots, object).map_err(errno)?;
            return self.install(caller, vacancy, Capability::original(object.raw(), class));
        };
        match self.groups.alloc(group, slots, object) {
            Ok(object) => {
                let original = Capability::original(object.raw(), class);
                let filled = table::fill(&mut self.groups, fresh, original);
                filled.map(|(selector, _)| selector).ok_or(Errno::Gone)
            }
            Err(refused) => {
                self.tenant_mut(caller)?.table.leave_fresh();
                Err(errno(refused))
            }
        }
    }

    /// Allocates the bytes of a channel or region, if the caller can pay for the rest as well.
    pub(crate) fn buffer(
        &mut self,
        caller: TenantId,
        bytes: u64,
        object_ps: u64,
    ) -> Result<Extent, Errno> {
        let group = self.group_of(caller)?;
        let length = usize::try_from(bytes).map_err(|_| Errno::TooLarge)?;
        let pages = bytes
            .div_ceil(leasehold_reclaim::PAGE as u64)
            .saturating_add(1);
        let pages_ps = self.costs.model.page_ps.saturating_mul(pages);
        self.vacancy(caller, pages_ps.saturating_add(object_ps))?;
        self.afford(group, 2, pages_ps.saturating_add(object_ps))?;
        self.groups.alloc_bytes(group, length).map_err(errno)
    }

    /// Runs a call that may block.
    pub(crate) fn blocking<T>(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        call: impl FnOnce(&mut Self, &Call) -> Result<Outcome<T>, Errno>,
    ) -> Result<Outcome<T>, Errno> {
        let number = self.executions.find(execution).ok_or(Errno::Invalid)?;
        if self
            .executions
            .get(number)
            .is_none_or(|execution| execution.tenant != caller)
        {
            return Err(Errno::Invalid);
        }
        let reserved = self.executions.resume(&mut self.groups, number);
        let result = call(self, &Call { number, reserved });
        if let Some(ReservedUnits { object, side, .. }) = reserved {
            // The unused rest is granted to the next in the queue.
            self.executions.settle(&mut self.groups, object, side);
        }
        result
    }

    /// Queues the calling execution for an object.
    pub(crate) fn block<T>(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        call: &Call,
        target: &Target,
        side: Side,
        need: u32,
    ) -> Result<Outcome<T>, Errno> {
        let owner = target.object.group();
        let foreign = if self.ends_with(self.group_of(caller)?, owner) {
            None
        } else {
            let allowance = target.allowance.ok_or(Errno::Allowance)?;
            allowance::take(&mut self.groups, allowance)?;
            match self.groups.link(owner, Link::Wake(execution)) {
                Ok(link) => Some(ForeignWait { link, allowance }),
                Err(_) => {
                    allowance::put_back(&mut self.groups, allowance);
                    return Err(Errno::Allowance);
                }
            }
        };
        let wait = Wait {
            object: target.object,
            side,
            need,
            foreign,
        };
        self.executions
            .enqueue(&mut self.groups, call.number, wait)?;
        Ok(Outcome::Blocked)
    }

    /// Whether `group` ends at the latest when `other` does. O(depth of the tenant).
    pub(crate) fn ends_with(&self, group: GroupId, other: GroupId) -> bool {
        let mut at = Some(group);
        while let Some(group) = at {
            if group == other {
                return true;
            }
            at = self.groups.parent_of(group);
        }
        false
    }
}

impl KernelCosts {
    /// The most that any single object costs.
    const fn dearest(&self) -> u64 {
        let costs = [
            self.semaphore_ps,
            self.channel_ps,
            self.region_ps,
            self.timer_ps,
            self.task_ps,
            self.tenant_ps,
            self.capability_ps,
        ];
        let (mut most, mut at) = (0, 0);
        while at < costs.len() {
            if costs[at] > most {
                most = costs[at];
            }
            at += 1;
        }
        most
    }
}
