//! The state of the cell's thread: the kernel, and the waits of executions.
//!
//! Host functions run deep inside the engine, which requires a store's data to be `Send`; the
//! kernel is neither shared nor locked. The kernel is therefore a thread-local of the cell's
//! thread. [`with`] gives access to it for the length of one closure, which never calls back into
//! the engine. Cells share nothing (invariant 8): each has its own thread, and so its own state.

use crate::arena_backing::MapBacking;
use crate::clock::monotonic_ns;
use crate::config::CellConfig;
use crate::dispatch::BACKGROUND_SLICE;
use crate::drift::{Price, Prices};
use crate::host::fs::account::Account;
use crate::host::io::Io;
use crate::memory;
use crate::meter::{Held, Meter, Shared};
use crate::outline::{Limits, Outline};
use crate::refusals::Reservation;
use crate::share::{Shares, Short};
use crate::start_error::StartError;
use crate::steps::caps::COPIED_REGION;
use crate::wasi::http::object::Object;
use crate::wasi::objects::{Bucket, Listing, Subscription};
use crate::wasi::sockets::object::Object as Socket;
use leasehold_crossing::Urgency;
use leasehold_kernel::{Errno, Kernel, KernelConfig, TenantId};
use leasehold_lease::Lease;
use leasehold_pager::PAGE;
use leasehold_preempt as preempt;
use leasehold_reclaim::{Class, Config, GroupId, Refused};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a top-level tenant's arena that stay resident for the next one.
const KEEP_ARENA: usize = 1 << 20;

/// Most bytes of a channel's buffer, which is cleared in one step when it is made.
const MOST_CHANNEL: u32 = COPIED_REGION.most as u32;

/// Most bytes of a region that is mapped. What is copied is shorter ([`COPIED_REGION`]).
const MOST_REGION: u64 = 16 << 20;

/// A timer fires no earlier than this after it was set, ns.
const TIMER_FLOOR: u64 = 50_000;

/// The kernel of a cell.
pub(crate) type CellKernel = Kernel<MapBacking>;

/// The classes of arena objects that belong to WASI rather than to the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Classes {
    pub(crate) pollable: Class<Subscription>,
    pub(crate) listing: Class<Listing>,
    /// Buckets of `wasi:keyvalue`.
    pub(crate) bucket: Class<Bucket>,
    /// The resources of `wasi:http`.
    pub(crate) http: Class<Object>,
    /// The resources of `wasi:sockets`.
    pub(crate) socket: Class<Socket>,
}

/// The state of one cell that its host functions use.
pub(crate) struct Local {
    pub(crate) kernel: CellKernel,
    pub(crate) classes: Classes,
    pub(crate) meter: Meter,
    /// The prices of leases, as factors on the profile.
    pub(crate) prices: Prices,
    pub(crate) sleeps: Sleeps,
    /// The parts of their limited shares that top-level tenants have taken.
    pub(crate) shares: Shares,
    /// The threads that may block.
    pub(crate) io: Arc<Io>,
    /// The files of top-level tenants, by their groups.
    pub(crate) files: BTreeMap<GroupId, Arc<Account>>,
    /// The holdings of each execution.
    pub(crate) holdings: BTreeMap<u64, Holdings>,
    /// Executions that the kernel has woken and that have not been polled since.
    pub(crate) woken: BTreeSet<u64>,
    /// The urgency of the running task.
    pub(crate) running: Urgency,
    /// The number of the next execution; never used again.
    pub(crate) next_execution: u64,
}

thread_local! {
    /// Apart from the thread's own memory, of which every thread of the process would get as much.
    static LOCAL: RefCell<Option<Box<Local>>> = const { RefCell::new(None) };
}

/// Gives this thread its cell state, until [`leave`].
pub(crate) fn enter(local: Local) {
    LOCAL.set(Some(Box::new(local)));
}

/// Takes the cell state away from this thread.
pub(crate) fn leave() -> Option<Local> {
    LOCAL.take().map(|local| *local)
}

/// Runs `f` on this cell's state. About a nanosecond.
///
/// # Panics
/// Off the cell's thread, and when `f` calls `with` itself: both are defects of this crate.
pub(crate) fn with<R>(f: impl FnOnce(&mut Local) -> R) -> R {
    LOCAL.with(|cell| {
        let mut local = cell.borrow_mut();
        f(local
            .as_mut()
            .expect("host functions run on a cell's thread"))
    })
}

/// Makes a kernel call for the running guest. If the call wakes a more urgent task, the guest is
/// preempted at once; an equally urgent one runs after the guest's time slice. Costs a nanosecond
/// more than [`with`].
pub(crate) fn call<R>(f: impl FnOnce(&mut CellKernel) -> R) -> R {
    let (result, woken, running) = with(|local| {
        let result = f(&mut local.kernel);
        (
            result,
            local.kernel.most_urgent_wake(),
            local.running.level(),
        )
    });
    match woken {
        Some(woken) if woken > running => preempt::request(),
        // No other task may have been ready when the guest was dispatched, so that no timer may be
        // set.
        Some(woken) if woken == running => {
            preempt::no_later_than(monotonic_ns() + BACKGROUND_SLICE.as_nanos() as u64);
        }
        _ => {}
    }
    result
}

/// The part of a tenant's budget that pays for memories which nothing uses.
const UNUSED_PART: u64 = 8;

/// The holdings of executions, by class, and their linear memory. They are given back to the tenant
/// when an execution ends before it, or to the tenant's ancestors when it ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Holdings {
    /// The top-level group that pays.
    root: Option<GroupId>,
    counts: [u64; Held::ALL.len()],
    memory_bytes: u64,
}

impl Holdings {
    /// Adds the holdings of another execution of the same tenant or of a descendant.
    pub(crate) fn join(&mut self, other: &Holdings) {
        self.root = self.root.or(other.root);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.memory_bytes += other.memory_bytes;
    }
}

impl Local {
    /// The state of a cell that has not started anything.
    pub(crate) fn new(config: &CellConfig, io: Arc<Io>) -> Self {
        let profile = &config.profile;
        let kernel_config = KernelConfig {
            reclaim: Config {
                arena_bytes: config.arena_bytes,
                keep_resident: KEEP_ARENA,
                mode: config.mode,
                max_groups: config.max_groups,
            },
            max_executions: u32::try_from(config.max_memories).unwrap_or(u32::MAX),
            max_channel_bytes: MOST_CHANNEL,
            max_region_bytes: MOST_REGION,
            timer_floor_ns: TIMER_FLOOR,
        };
        let mut kernel = Kernel::new(kernel_config, profile.kernel_costs(), MapBacking::default());
        let groups = kernel.groups_mut();
        let slot = |bytes| profile.slot_ps(bytes);
        let classes = Classes {
            pollable: groups.register("pollable", slot(size_of::<Subscription>())),
            listing: groups.register("listing", slot(size_of::<Listing>())),
            bucket: groups.register("bucket", slot(size_of::<Bucket>())),
            http: groups.register("http", slot(size_of::<Object>())),
            socket: groups.register("socket", slot(size_of::<Socket>())),
        };
        let meter =
            Meter::register(|held| groups.register_resource(held.name(), profile.charge_ps(held)));
        Self {
            kernel,
            classes,
            meter,
            prices: Prices::default(),
            sleeps: Sleeps::default(),
            shares: Shares::new(config.max_memories),
            io,
            files: BTreeMap::new(),
            holdings: BTreeMap::new(),
            woken: BTreeSet::new(),
            running: Urgency::BACKGROUND,
            next_execution: 1,
        }
    }

    /// Admits a top-level tenant at this price, with the account of its files.
    ///
    /// # Errors
    /// When its budget does not even pay for an empty tenant, or the kernel has no place for it.
    pub(crate) fn open_root(
        &mut self,
        lease: &Lease,
        price: Price,
        files: Account,
    ) -> Result<(TenantId, GroupId), StartError> {
        let budget = lease.reclaim.budget;
        self.admit_root(lease, price.buys(budget.get()), files)
            .map_err(|errno| {
                // The time that an end takes without anything that its tenant holds.
                let empty_ps = self.kernel.groups().costs().root_ps;
                let enough_ns = price.of(empty_ps.div_ceil(1_000)).max(budget.get() + 1);
                StartError::refused(budget, Some(enough_ns), errno)
            })
    }

    fn admit_root(
        &mut self,
        lease: &Lease,
        base_ns: u64,
        files: Account,
    ) -> Result<(TenantId, GroupId), Errno> {
        let tenant = self.kernel.admit(base_ns, lease.memory.limit().get())?;
        let limit = lease.memory.host_limit().get();
        let limited = self.kernel.limit_objects(tenant, limit);
        let root = limited.and_then(|()| self.kernel.group_of(tenant));
        let root = root.inspect_err(|_| self.abandon_root(tenant))?;
        self.shares.open(root, &lease.memory);
        self.files.insert(root, Arc::new(files));
        Ok((tenant, root))
    }

    /// Takes a top-level tenant back that never ran, with everything that it was promised.
    pub(crate) fn abandon_root(&mut self, tenant: TenantId) {
        self.forget_shares(tenant);
        // It has no execution that would have to be told.
        let _ = self.kernel.end(tenant, &mut |_| {});
    }

    /// Charges `tenant` for what `execution` holds from the beginning; `page` is what a page of its linear memory is
    /// charged as.
    ///
    /// # Errors
    /// When the lease does not pay for it. Charges made until then stay among the execution's
    /// holdings.
    pub(crate) fn begin(
        &mut self,
        (tenant, execution): (TenantId, u64),
        outline: &Outline,
        limits: &Limits,
        page: Held,
    ) -> Result<(), Errno> {
        for (held, n) in outline.holdings(limits, page) {
            // The engine's failure to make the second of two memories would free the first: see
            // `Initial`.
            if held == Held::Memory {
                self.hold_memory(tenant, execution, outline.inventory.memory_bytes)?;
            }
            self.hold(tenant, execution, held, n)?;
        }
        Ok(())
    }

    /// Whether the `memory.host` of a top-level tenant was too small for something.
    pub(crate) fn host_is_short(&self, tenant: TenantId) -> bool {
        let group = self.kernel.group_of(tenant).ok();
        let root = group.and_then(|group| self.kernel.groups().root_of(group));
        let account = root.and_then(|root| self.files.get(&root));
        account.is_some_and(|account| account.refusals().first(Reservation::HostMemory).is_some())
    }

    /// Charges `n` of something that an execution is about to hold.
    ///
    /// # Errors
    /// When the tenant's reclamation budget does not allow it; nothing has changed then.
    pub(crate) fn hold(
        &mut self,
        tenant: TenantId,
        execution: u64,
        held: Held,
        n: u64,
    ) -> Result<(), Errno> {
        let group = self.kernel.group_of(tenant)?;
        let root = self.kernel.groups().root_of(group).ok_or(Errno::Gone)?;
        if let Err(short) = self.shares.take(root, held, n) {
            self.record_short(root, short);
            return Err(short.into());
        }
        let class = self.meter.class(held);
        if let Err(refused) = self.kernel.groups_mut().charge(group, class, n) {
            self.shares.give(root, held, n);
            if group == root {
                self.record_refused(tenant, root, refused);
            }
            return Err(leasehold_kernel::errno(refused));
        }
        let holdings = self.holdings.entry(execution).or_default();
        holdings.root = Some(root);
        holdings.counts[held.index()] += n;
        Ok(())
    }

    /// What a memory of `pages` pages is charged, ns at the profile's price.
    fn unused_ns(&self, pages: u64) -> u64 {
        let parts = [(Held::Memory, 1), (Held::MemoryPage, pages)];
        let groups = self.kernel.groups();
        let each_ps = |(held, n)| groups.price_ps(self.meter.class(held)).saturating_mul(n);
        parts.map(each_ps).iter().sum::<u64>().div_ceil(1_000)
    }

    /// Whether a top-level tenant has a place that it was promised, and does not use.
    pub(crate) fn has_promised(&self, tenant: TenantId) -> bool {
        let root = self.kernel.group_of(tenant);
        root.is_ok_and(|root| self.shares.promised(root) > 0)
    }

    /// For how many memories of `pages` pages that nothing uses an eighth of a top-level tenant's budget pays; none if it
    /// was promised no places.
    pub(crate) fn most_unused(&self, tenant: TenantId, pages: u64) -> u64 {
        match self.kernel.account(tenant) {
            Ok(account) if self.has_promised(tenant) => {
                account.budget_ns / UNUSED_PART / self.unused_ns(pages).max(1)
            }
            _ => 0,
        }
    }

    /// Charges a top-level tenant for a memory of `pages` pages that nothing uses, as one of `execution`'s. False, and
    /// nothing is charged, if it has less left or no place that it was promised. No refusal is recorded.
    pub(crate) fn hold_unused(&mut self, tenant: TenantId, execution: u64, pages: u64) -> bool {
        let left_ns = self
            .kernel
            .account(tenant)
            .map_or(0, |account| account.left_ns);
        if self.unused_ns(pages) > left_ns || !self.has_promised(tenant) {
            return false;
        }
        let held = |(held, n)| self.hold(tenant, execution, held, n);
        let charged = [(Held::Memory, 1), (Held::MemoryPage, pages)]
            .into_iter()
            .try_for_each(held);
        debug_assert_eq!(charged, Ok(()), "there was enough");
        charged.is_ok()
    }

    /// Takes back the charge for a memory that was [held unused](Self::hold_unused).
    pub(crate) fn release_unused(&mut self, tenant: TenantId, execution: u64, pages: u64) {
        self.release(tenant, execution, Held::Memory, 1);
        self.release(tenant, execution, Held::MemoryPage, pages);
    }

    /// Records that a reservation of a top-level tenant refused something, for which `enough` would have been enough.
    pub(crate) fn record(&self, root: GroupId, reservation: Reservation, enough: u64) {
        if let Some(account) = self.files.get(&root) {
            account.refusals().record(reservation, enough);
        }
    }

    /// Records that a share of a top-level tenant is too small.
    fn record_short(&self, root: GroupId, short: Short) {
        match short {
            Short::Of(Shared::TableElements, enough) => {
                self.record(root, Reservation::TableElements, enough);
            }
            Short::Of(Shared::HostPages, pages) => {
                let enough = pages.saturating_mul(PAGE);
                self.record(root, Reservation::HostMemory, enough);
            }
            // The number of places is the cell's configuration, not the lease's.
            Short::Of(Shared::Places, _) | Short::Gone => {}
        }
    }

    /// Records that the budget of a top-level tenant is too small. Records amounts at the profile's
    /// price, like the budget.
    fn record_refused(&self, tenant: TenantId, root: GroupId, refused: Refused) {
        if let Refused::Budget { needed, left } = refused
            && let Ok(account) = self.kernel.account(tenant)
        {
            let short_ns = needed.0.saturating_sub(left.0).div_ceil(1_000);
            let enough = account.budget_ns.saturating_add(short_ns);
            self.record(root, Reservation::Budget, enough);
        }
    }

    /// Returns the reclamation budget that would have paid for the first refused charge of a living
    /// tenant, ns at the profile's price; `None` if no charge was refused.
    pub(crate) fn budget_refused(&self, tenant: TenantId) -> Option<u64> {
        let group = self.kernel.group_of(tenant).ok()?;
        let root = self.kernel.groups().root_of(group)?;
        let account = self.files.get(&root)?;
        account.refusals().first(Reservation::Budget)
    }

    /// How often the reclamation budget of a living tenant has refused something.
    pub(crate) fn budget_refusals(&self, tenant: TenantId) -> u64 {
        let account = self.root_of(tenant).and_then(|root| self.files.get(&root));
        account.map_or(0, |account| account.refusals().times(Reservation::Budget))
    }

    /// Refunds the charge for something that is no longer held, or was not allocated.
    pub(crate) fn release(&mut self, tenant: TenantId, execution: u64, held: Held, n: u64) {
        let Some(holdings) = self.holdings.get_mut(&execution) else {
            return;
        };
        holdings.counts[held.index()] -= n;
        if let Some(root) = holdings.root {
            self.shares.give(root, held, n);
        }
        self.refund(tenant, held, n);
    }

    fn refund(&mut self, tenant: TenantId, held: Held, n: u64) {
        if let Ok(group) = self.kernel.group_of(tenant) {
            let class = self.meter.class(held);
            self.kernel.groups_mut().refund(group, class, n);
        }
    }

    /// Returns holdings to the shares of their top-level tenant.
    pub(crate) fn give_shares(&mut self, holdings: &Holdings) {
        let Some(root) = holdings.root else {
            return;
        };
        for held in Held::ALL {
            self.shares.give(root, held, holdings.counts[held.index()]);
        }
    }

    /// Forgets the shares of an ending tenant. The pools clean the places of a top-level tenant,
    /// and its end waits for its files.
    pub(crate) fn forget_shares(&mut self, tenant: TenantId) -> Option<Arc<Account>> {
        let group = self.kernel.group_of(tenant).ok()?;
        self.shares.forget(group);
        self.files.remove(&group)
    }

    /// Charges linear memory to the tenant's reservation.
    ///
    /// # Errors
    /// [`Errno::Memory`] when it has less left.
    pub(crate) fn hold_memory(
        &mut self,
        tenant: TenantId,
        execution: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        if let Err(errno) = self.kernel.take_memory(tenant, bytes) {
            // Only top-level refusals are recorded: the parent chooses a child's reservation.
            if let Some(root) = self.root_of(tenant)
                && self.kernel.group_of(tenant) == Ok(root)
                && let Ok(memory) = self.kernel.memory(tenant)
            {
                let enough = memory.used.saturating_add(bytes);
                self.record(root, Reservation::Memory, enough);
            }
            return Err(errno);
        }
        self.holdings.entry(execution).or_default().memory_bytes += bytes;
        if let Some(root) = self.root_of(tenant) {
            memory::lend(root, bytes);
        }
        Ok(())
    }

    /// Returns linear memory to the tenant's reservation.
    pub(crate) fn release_memory(&mut self, tenant: TenantId, execution: u64, bytes: u64) {
        if let Some(holdings) = self.holdings.get_mut(&execution) {
            holdings.memory_bytes -= bytes;
        }
        self.give_memory(tenant, bytes);
    }

    fn give_memory(&mut self, tenant: TenantId, bytes: u64) {
        self.kernel.give_memory(tenant, bytes);
        if let Some(root) = self.root_of(tenant) {
            memory::restore(root, bytes);
        }
    }

    /// The top-level group of a tenant.
    fn root_of(&self, tenant: TenantId) -> Option<GroupId> {
        let group = self.kernel.group_of(tenant).ok()?;
        self.kernel.groups().root_of(group)
    }

    /// Refunds to a tenant what one of its executions held.
    pub(crate) fn give_back(&mut self, tenant: TenantId, holdings: &Holdings) {
        self.give_shares(holdings);
        for held in Held::ALL {
            self.refund(tenant, held, holdings.counts[held.index()]);
        }
        self.give_memory(tenant, holdings.memory_bytes);
    }

    /// Gives everything that an execution held back to its tenant, because it never ran.
    pub(crate) fn release_all(&mut self, tenant: TenantId, execution: u64) {
        if let Some(holdings) = self.holdings.remove(&execution) {
            self.give_back(tenant, &holdings);
        }
    }
}

/// The deadlines of sleeping executions: at most one each, however many waits it has. The scheduler
/// is told of the deadline when the execution's turn ends.
#[derive(Debug, Default)]
pub(crate) struct Sleeps {
    deadlines: BTreeMap<u64, u64>,
}

impl Sleeps {
    /// The deadline of an execution, ns.
    pub(crate) fn of(&self, execution: u64) -> Option<u64> {
        self.deadlines.get(&execution).copied()
    }
}

/// The deadline of one waiting execution; removed when the wait is over or abandoned.
#[derive(Debug)]
pub(crate) struct Sleep {
    execution: u64,
    set: bool,
}

impl Sleep {
    pub(crate) fn new(execution: u64) -> Self {
        Self {
            execution,
            set: false,
        }
    }

    /// Polls the execution again at `when` (ns of the monotonic clock), unless it is woken first.
    pub(crate) fn until(&mut self, when: u64) {
        self.set = true;
        with(|local| local.sleeps.deadlines.insert(self.execution, when));
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.set {
            with(|local| local.sleeps.deadlines.remove(&self.execution));
        }
    }
}
