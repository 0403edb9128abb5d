//! Executions that answer requests, built and stopped by the maintenance task of their tenant.
//!
//! The I/O thread puts a request into the tenant's lane and wakes the maintenance task, with the
//! tenant's own urgency. That wakes an execution which waits for a request, or builds another in
//! the tenant's own time. An execution whose client has gone is stopped, whatever it does, and so is
//! one that works on for a second after its response while requests wait for its place. The tenant of one
//! request may work on for 10 ms.

use super::Executor;
use super::executions::Executions;
use crate::clock::monotonic_ns;
use crate::command::Command;
use crate::discarded::Discarded;
use crate::ending::Cause;
use crate::execution::StoppedProgram;
use crate::exit::Exit;
use crate::local;
use crate::programs;
use crate::request_tenant::{Part, RequestTenant};
use crate::serving::{Fresh, Service};
use crate::starting::Starting;
use crate::steps::{begin, step};
use crate::wake_priority::WakePriority;
use crate::warm_memories::WarmMemories;
use crate::worker::Worker;
use leasehold_crossing::WakeFlag;
use leasehold_exchange::Failure;
use leasehold_kernel::{Errno, ExecutionId, TenantId};
use leasehold_reclaim::{GroupId, Nanos};
use leasehold_slots::warm_room::Keeper;
use std::sync::Arc;
use std::task::Waker;

/// Pages of the arena that the resources of one execution may take: three times the largest
/// fields, and a thousand small objects.
const ARENA_PAGES: u64 = 32;

/// Chunks of the arena that it may take.
const ARENA_CHUNKS: u64 = 32;

/// Between two looks at an execution whose request is over its time and has no response, ns.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// How a top-level tenant answers requests.
pub(super) struct Serving {
    service: Service,
    /// The number under which its maintenance task is woken.
    id: u64,
    flag: Arc<WakeFlag<Command, WakePriority>>,
    waker: Waker,
    workers: Vec<Answering>,
    /// What the child tenant of each request has, if each has one.
    part: Option<Part>,
    /// A child tenant in which nothing has run, since the lease did not pay for more than itself.
    spare: Option<RequestTenant>,
    /// The lease did not pay for another execution; there is no point in trying before one ends.
    is_short: bool,
    /// When the maintenance task has to look again, ns.
    look_at: Option<u64>,
    /// When the time of a request may be over, ns; `None` while no execution has one.
    check_at: Option<u64>,
    /// The memories that it keeps for its next requests, if its program has such.
    warm: Option<WarmMemories>,
}

/// An execution that answers requests.
struct Answering {
    execution: u64,
    worker: Arc<Worker>,
    /// Its own tenant, if it has one.
    tenant: Option<RequestTenant>,
}

impl Serving {
    pub(super) fn new(
        service: Service,
        part: Option<Part>,
        warm: Option<WarmMemories>,
        id: u64,
        flag: Arc<WakeFlag<Command, WakePriority>>,
    ) -> Self {
        let waker = Waker::from(flag.clone());
        service.lane().set_waker(&waker);
        Self {
            service,
            id,
            flag,
            waker,
            workers: Vec::new(),
            part,
            spare: None,
            is_short: false,
            look_at: None,
            check_at: None,
            warm,
        }
    }

    /// The memories that it keeps.
    pub(super) fn warm(&mut self) -> Option<&mut WarmMemories> {
        self.warm.as_mut()
    }

    /// Whether the memory of an execution that has ended is kept for the next one.
    pub(super) fn keeps(&self) -> bool {
        self.warm.as_ref().is_some_and(WarmMemories::has_room)
    }

    /// The keeper of these memories.
    pub(super) fn keeper(&self) -> Option<Keeper> {
        self.warm.as_ref().map(WarmMemories::keeper)
    }

    /// Executions that are on their way to requests that wait.
    fn called(&self) -> usize {
        let called = self.workers.iter().filter(|one| one.worker.is_called());
        called.count()
    }

    /// An execution is given a request, whose time begins.
    fn give(&mut self, now: u64) {
        let timeout = u64::try_from(self.service.serving.timeout.as_nanos()).unwrap_or(u64::MAX);
        let over = now.saturating_add(timeout);
        self.check_at = Some(self.check_at.map_or(over, |at| at.min(over)));
    }

    /// An execution that has responded and goes on, though the time of its request is over. Otherwise it is known
    /// afterwards when to look again.
    fn overdue(&mut self, now: u64) -> Option<u64> {
        let mut next = None;
        for Answering {
            execution, worker, ..
        } in &self.workers
        {
            match worker.time_ends() {
                Some((until, true)) if until <= now => return Some(*execution),
                // The client's side gives it up.
                Some((until, _)) => {
                    let at = until.max(now + LOOK_AGAIN_NS);
                    next = Some(next.map_or(at, |next: u64| next.min(at)));
                }
                None => {}
            }
        }
        self.check_at = next;
        None
    }

    /// From here on a request wakes the maintenance task again.
    fn listen(&self) {
        self.flag.begin_poll();
        self.flag.end_poll();
    }

    /// Something of the tenant has ended: its lease may pay for another execution.
    pub(super) fn relieve(&mut self) {
        self.is_short = false;
    }

    /// The earlier of `deadline` and of the instant at which the maintenance task has to look again.
    pub(super) fn deadline(&self, deadline: Option<u64>) -> Option<u64> {
        deadline.into_iter().chain(self.look_at).min()
    }

    /// Of the executions that have responded and go on, the one that has to end first, and when.
    fn first_lingering(&self) -> Option<(u64, u64)> {
        let workers = self.workers.iter();
        workers
            .filter_map(|one| Some((one.worker.lingers_until()?, one.execution)))
            .min()
    }

    /// Forgets an execution that has ended, and its tenant, which has ended, too.
    pub(super) fn forget(&mut self, execution: u64) {
        let mut workers = self.workers.iter();
        if let Some(at) = workers.position(|one| one.execution == execution)
            && let Some(tenant) = self.workers.swap_remove(at).tenant
        {
            tenant.forget();
        }
        self.relieve();
    }

    /// The tenant of this execution, if it has one of its own.
    fn tenant_of(&self, execution: u64) -> Option<TenantId> {
        let mut workers = self.workers.iter();
        let found = workers.find(|one| one.execution == execution)?;
        found.tenant.as_ref().map(RequestTenant::tenant)
    }

    /// The processor time that the I/O thread has used for the tenant since the last call, ns.
    pub(super) fn take_charged(&self) -> u64 {
        self.service.lane().take_charged()
    }

    /// Ends it: what waits fails.
    pub(super) fn close(self, executions: &mut Executions) {
        executions.maintenance.remove(&self.id);
        // The tenant ends, which pays for what none of its executions holds.
        local::with(|local| local.holdings.remove(&self.id));
        let woken = self.flag.whose().deferral().end();
        let now = monotonic_ns();
        woken
            .into_iter()
            .for_each(|woken| executions.wake(woken, now));
        drop(Discarded::new(Closing(self.service)));
    }
}

/// A lane whose requests fail when this is dropped, whatever else takes from it. The cell's thread leaves that
/// to another.
struct Closing(Service);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.lane().close();
    }
}

/// What a maintenance task does for requests next.
enum Next {
    /// The client of this execution has gone, or it works on after its response for too long.
    Stop(u64),
    /// This execution waits for a request, and there is one.
    Wake(u64),
    /// There is a request, and an execution may be built for it.
    Build,
    Nothing,
}

impl Executor {
    /// Begins to answer requests, in a tenant whose start has succeeded.
    pub(super) fn begin_serving(&mut self, key: u64, service: Service, starting: &Starting) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let template = starting.template();
        let memory = template.kept_memory(root.tenant);
        programs::with(|programs| programs.templates.insert(root.tenant, template));
        let id = starting.execution();
        let flag = WakeFlag::new(id, root.share.wake_priority().clone(), self.inbox.clone());
        self.executions.maintenance.insert(id, root.maintenance);
        let part = match service.serving.fresh {
            Fresh::Instance => None,
            // A tenant that lives has a lease to divide.
            Fresh::Tenant => Part::of(root.tenant, service.serving.concurrency).ok(),
        };
        let warm = memory.filter(|_| part.is_none()).map(|(keeper, pages)| {
            let holder = (root.tenant, id);
            WarmMemories::new(keeper, holder, pages, service.serving.concurrency)
        });
        root.serving = Some(Serving::new(service, part, warm, id, Arc::new(flag)));
    }

    /// Takes a step towards answering requests; false if there is none to take now.
    pub(super) fn serve(&mut self, key: u64) -> bool {
        match self.next_for_requests(key) {
            Next::Stop(execution) => {
                let _step = begin(step!("cell", "serve: stop"));
                self.stop_worker(key, execution);
            }
            Next::Wake(execution) => {
                let _step = begin(step!("cell", "wake"));
                self.executions.wake(execution, monotonic_ns());
            }
            Next::Build => self.build_worker(key),
            Next::Nothing => return false,
        }
        true
    }

    fn next_for_requests(&mut self, key: u64) -> Next {
        let Some(root) = self.roots.get_mut(&key).filter(|root| !root.ended) else {
            return Next::Nothing;
        };
        let Some(serving) = &mut root.serving else {
            return Next::Nothing;
        };
        serving.listen();
        if let Some(at) = serving.check_at {
            let now = monotonic_ns();
            if at <= now
                && let Some(overdue) = serving.overdue(now)
            {
                return Next::Stop(overdue);
            }
        }
        serving.look_at = serving.check_at;
        let mut workers = serving.workers.iter();
        if let Some(gone) = workers.find(|one| one.worker.is_abandoned()) {
            return Next::Stop(gone.execution);
        }
        if serving.part.is_some()
            && let Some((until, execution)) = serving.first_lingering()
        {
            if until <= monotonic_ns() {
                return Next::Stop(execution);
            }
            serving.look_at = serving.deadline(Some(until));
        }
        // Making or waking more would only delay those that are on their way.
        let waiting = serving.service.lane().len();
        if waiting == 0 || waiting <= serving.called() {
            return Next::Nothing;
        }
        let mut workers = serving.workers.iter();
        if let Some(idle) = workers.find(|one| one.worker.take_idle()) {
            let execution = idle.execution;
            serving.give(monotonic_ns());
            return Next::Wake(execution);
        }
        // What has ended goes first: its places are those of the next.
        let is_full = serving.workers.len() >= serving.service.serving.concurrency as usize;
        let to_drop = root.teardowns.back().is_some_and(|last| !last.gives_back());
        match is_full || to_drop || serving.is_short {
            false => {
                serving.give(monotonic_ns());
                Next::Build
            }
            true => match serving.first_lingering() {
                Some((until, execution)) if until <= monotonic_ns() => Next::Stop(execution),
                lingering => {
                    serving.look_at = serving.deadline(lingering.map(|(until, _)| until));
                    Next::Nothing
                }
            },
        }
    }

    /// Ends an execution that answers, and its tenant, if it has one of its own.
    fn stop_worker(&mut self, key: u64, execution: u64) {
        let root = self.roots.get(&key);
        let serving = root.and_then(|root| root.serving.as_ref());
        match serving.and_then(|serving| serving.tenant_of(execution)) {
            Some(tenant) => {
                let cause = Cause::now(Exit::Killed);
                self.end_request(key, execution, tenant, cause, None);
            }
            None => self.end_task(execution, Exit::Killed.code(), None),
        }
    }

    /// Ends the tenant of a request; `stopped` is its program, if that has ended by itself.
    pub(super) fn end_request(
        &mut self,
        key: u64,
        execution: u64,
        tenant: TenantId,
        cause: Cause,
        stopped: Option<StoppedProgram>,
    ) {
        let program = stopped.map(|stopped| (execution, stopped));
        self.end(key, tenant, cause, program, None);
        let root = self.roots.get_mut(&key);
        if let Some(serving) = root.and_then(|root| root.serving.as_mut()) {
            serving.forget(execution);
        }
    }

    /// Builds an execution that takes the request which waits. If the lease does not pay for it,
    /// the request waits for one that ends; if there is none, it fails.
    fn build_worker(&mut self, key: u64) {
        let _step = begin(step!("cell", "serve: build"));
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let Some(serving) = &mut root.serving else {
            return;
        };
        let parent = root.tenant;
        let own = match (serving.part, serving.spare.take()) {
            (None, _) => None,
            (Some(_), Some(spare)) => Some(spare),
            (Some(part), None) => match RequestTenant::create(parent, part) {
                Ok(own) => Some(own),
                Err(_) => return self.is_short(key),
            },
        };
        let tenant = own.as_ref().map_or(parent, RequestTenant::tenant);
        let execution = local::with(|local| {
            let execution = local.next_execution;
            local.next_execution += 1;
            execution
        });
        let identity = (tenant, execution);
        let worker = Worker::new(serving.service.clone(), identity, serving.waker.clone());
        self.lend_warm(key);
        let made = self.make_worker(key, parent, identity, &worker);
        if let Some(root) = self.roots.get_mut(&key)
            && let Some(serving) = &mut root.serving
        {
            match made {
                Ok(()) => serving.workers.push(Answering {
                    execution,
                    worker,
                    tenant: own,
                }),
                Err(()) => serving.spare = own,
            }
        }
        match made {
            Ok(()) => self.executions.wake(execution, monotonic_ns()),
            Err(()) => {
                local::with(|local| local.release_all(tenant, execution));
                self.give_warm_back(key);
                self.is_short(key);
            }
        }
    }

    /// The lease did not pay for an execution.
    fn is_short(&mut self, key: u64) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let Some(serving) = &mut root.serving else {
            return;
        };
        if !serving.workers.is_empty() || !root.teardowns.is_empty() {
            serving.is_short = true;
        } else if let Some(mut refused) = serving.service.lane().take() {
            refused.fail(Failure::Refused);
            drop(Discarded::new(refused));
        }
    }

    /// Charges for an execution of `parent`'s program, builds it, and adds it to those of the cell.
    fn make_worker(
        &mut self,
        key: u64,
        parent: TenantId,
        (tenant, execution): (TenantId, u64),
        worker: &Arc<Worker>,
    ) -> Result<(), ()> {
        let template = programs::with(|programs| programs.templates.get(&parent).cloned());
        let template = template.ok_or(())?;
        worker.charge()?;
        let arena = open_arena(tenant).map_err(drop)?;
        let built = template.build_worker((tenant, execution), arena, worker);
        let made = built.map_err(drop).and_then(|running| {
            local::with(|local| {
                let id = ExecutionId(execution);
                local.kernel.register_execution(tenant, id).map_err(drop)
            })?;
            let worker = (worker.clone(), arena);
            let main = tenant != parent;
            let added = self.add_worker(key, tenant, execution, running, main, worker);
            added.map_err(|_| {
                local::with(|local| local.kernel.execution_finished(ExecutionId(execution), 0));
            })?;
            if main {
                // For tasks that the request starts.
                programs::with(|programs| programs.templates.insert(tenant, template));
            }
            Ok(())
        });
        if made.is_err() {
            close_arena(arena);
        }
        made
    }
}

/// Opens the group of what the handles of an execution stand for.
///
/// # Errors
/// When the lease does not pay for it.
fn open_arena(tenant: TenantId) -> Result<GroupId, Errno> {
    local::with(|local| {
        let parent = local.kernel.group_of(tenant)?;
        let groups = local.kernel.groups_mut();
        let costs = groups.costs();
        let ps = costs.page_ps * ARENA_PAGES + costs.chunk_ps * ARENA_CHUNKS;
        groups
            .open_child(parent, Nanos(ps.div_ceil(1000)))
            .map_err(leasehold_kernel::errno)
    })
}

/// Frees all objects of a group at once.
pub(super) fn close_arena(group: GroupId) {
    local::with(|local| {
        local
            .kernel
            .groups_mut()
            .reclaim(group, &mut |_: &mut _, _| {})
    });
}
