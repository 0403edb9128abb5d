//! Executions, programs and tasks of guests: polled when it is their turn, woken, and ended.

use super::Executor;
use super::roots::Teardown;
use super::serving::{Serving, close_arena};
use crate::calls::with_waiting;
use crate::clock::monotonic_ns;
use crate::command::Command;
use crate::dispatch::{Dispatcher, Turn, Work};
use crate::ending::{Cause, Programs};
use crate::execution::{Running, StoppedProgram};
use crate::exit::Exit;
use crate::local;
use crate::memory::{self, AwaitedTransfer, region};
use crate::pools::DirtyRanges;
use crate::programs::{self, Request};
use crate::steps::{begin, step};
use crate::wake_priority::WakePriority;
use crate::worker::Worker;
use leasehold_crossing::{Urgent as _, WakeFlag};
use leasehold_door::on_behalf_of;
use leasehold_exchange::Failure;
use leasehold_kernel::{Errno, ExecutionId, TenantId};
use leasehold_pager_linux::Wanted;
use leasehold_reclaim::GroupId;
use leasehold_reserve::TaskId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

struct Execution {
    tenant: TenantId,
    /// The key of the top-level tenant that it belongs to.
    root: u64,
    task: TaskId,
    /// `None` while it is being polled.
    running: Option<Running>,
    flag: Arc<WakeFlag<Command, WakePriority>>,
    waker: Waker,
    main: bool,
    /// The transfer for which it was suspended.
    awaited: Option<AwaitedTransfer>,
    /// If it answers requests: what it shares with its tenant's maintenance task, and its group.
    worker: Option<(Arc<Worker>, GroupId)>,
}

/// The executions of a cell, and the dispatcher that schedules them.
pub(super) struct Executions {
    all: BTreeMap<u64, Box<Execution>>,
    /// The maintenance tasks that requests wake, by the number of the wake-up.
    pub(super) maintenance: BTreeMap<u64, TaskId>,
    pub(super) dispatcher: Dispatcher,
}

impl Executions {
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        Self {
            all: BTreeMap::new(),
            maintenance: BTreeMap::new(),
            dispatcher,
        }
    }

    /// Makes an execution ready to be polled.
    pub(super) fn wake(&mut self, id: u64, now: u64) {
        if let Some(task) = self.task(id) {
            self.dispatcher.wake(task, now);
        }
    }

    /// The same for a message that another thread has sent.
    pub(super) fn wake_by_message(&mut self, id: u64, sent: u64, now: u64) {
        if let Some(task) = self.task(id) {
            self.dispatcher.wake_by_message(task, sent, now);
        }
    }

    /// The task that a wake-up with this number is for.
    fn task(&self, id: u64) -> Option<TaskId> {
        let task = self.all.get(&id).map(|execution| execution.task);
        task.or_else(|| self.maintenance.get(&id).copied())
    }
}

impl Programs for Executions {
    fn remove(&mut self, execution: u64) -> Option<StoppedProgram> {
        let removed = self.all.remove(&execution)?;
        let now = monotonic_ns();
        self.dispatcher.remove(removed.task, now);
        // It may have been the ready task that made the tenant's next dispatch certain.
        if let Some((worker, arena)) = removed.worker {
            worker.fail(Failure::Ended);
            close_arena(arena);
        }
        let woken = removed.flag.whose().deferral().end();
        woken.into_iter().for_each(|woken| self.wake(woken, now));
        if removed.main {
            programs::with(|programs| programs.templates.remove(&removed.tenant));
        }
        let calls = with_waiting(|calls| calls.remove(&execution));
        local::with(|local| {
            local.woken.remove(&execution);
            if let Some(calls) = calls {
                local.io.reaper.drop_given(calls);
            }
        });
        removed.running.map(StoppedProgram::Stopped)
    }
}

impl Executor {
    pub(super) fn add_execution(
        &mut self,
        root: u64,
        tenant: TenantId,
        id: u64,
        running: Running,
        main: bool,
    ) -> Result<(), Errno> {
        self.add(root, tenant, id, running, main, None)
    }

    /// Adds an execution that answers requests, and its group.
    pub(super) fn add_worker(
        &mut self,
        root: u64,
        tenant: TenantId,
        id: u64,
        running: Running,
        main: bool,
        worker: (Arc<Worker>, GroupId),
    ) -> Result<(), Errno> {
        self.add(root, tenant, id, running, main, Some(worker))
    }

    fn add(
        &mut self,
        root: u64,
        tenant: TenantId,
        id: u64,
        running: Running,
        main: bool,
        worker: Option<(Arc<Worker>, GroupId)>,
    ) -> Result<(), Errno> {
        let share = &self.roots.get(&root).ok_or(Errno::Gone)?.share;
        let task = self
            .executions
            .dispatcher
            .add(share, Work::Execution(id))
            .map_err(|_| Errno::Limit)?;
        let wake_priority = share.wake_priority().clone();
        let urgency = wake_priority.urgency().level();
        local::with(|local| local.kernel.set_urgency(ExecutionId(id), urgency));
        let flag = Arc::new(WakeFlag::new(id, wake_priority, self.inbox.clone()));
        let waker = Waker::from(flag.clone());
        let execution = Execution {
            tenant,
            root,
            task,
            running: Some(running),
            flag,
            waker,
            main,
            awaited: None,
            worker,
        };
        self.executions.all.insert(id, Box::new(execution));
        Ok(())
    }

    /// Polls an execution until it blocks or is preempted.
    pub(super) fn poll(&mut self, id: u64, turn: &Turn) {
        let Some(execution) = self.executions.all.get_mut(&id) else {
            return;
        };
        let (tenant, root) = (execution.tenant, execution.root);
        if local::with(|local| local.kernel.group_of(tenant).is_err()) {
            // Its tenant has ended and waits to be taken back. Until then it must not run, and must
            // not end by itself, which would drop its store during the end of another tenant.
            let now = monotonic_ns();
            self.executions.dispatcher.block(turn.task, now, None);
            return;
        }
        if let Some(transfer) = execution.awaited.take() {
            execution.flag.begin_poll();
            execution.awaited = transfer.put(&mut Context::from_waker(&execution.waker));
            let woken = execution.flag.end_poll();
            if execution.awaited.is_some() {
                // Something else has woken a program that stands at an instruction of its own.
                if !woken {
                    let now = monotonic_ns();
                    self.executions.dispatcher.block(turn.task, now, None);
                }
                return;
            }
        }
        let Some(mut running) = execution.running.take() else {
            return;
        };
        let withdrawn = {
            let _step = begin(step!("cell", "withdraw regions"));
            withdraw_regions(tenant)
        };
        match withdrawn {
            Ok(true) => {}
            Ok(false) => {
                // It must not run before all regions are withdrawn, which its next turn continues.
                execution.running = Some(running);
                return;
            }
            Err(why) => {
                self.ended(id, Exit::Memory(why), StoppedProgram::Stopped(running));
                return self.act_on_requests(root);
            }
        }
        let (flag, waker) = (execution.flag.clone(), execution.waker.clone());
        let worker = execution.worker.as_ref().map(|(worker, _)| worker.clone());
        if let Some(worker) = &worker {
            worker.begin_poll();
        }
        local::with(|local| local.running = turn.urgency);
        // One that is alone has nobody to wait for it.
        memory::begin_poll(self.roots.len() > 1);
        flag.begin_poll();
        let poll = on_behalf_of(
            || account_number(tenant),
            || running.poll(&self.preemption, &mut Context::from_waker(&waker)),
        );
        let woken = flag.end_poll();
        let wanted = memory::end_poll();
        let left = monotonic_ns();
        if let Some(worker) = worker {
            worker.end_poll();
        }
        self.stalls.spare(&mut self.executions.dispatcher, left);
        match (poll, memory::take_denied()) {
            // A denied page ends it, whatever it did since.
            (poll, Some(reason)) => {
                let stopped = match poll {
                    Poll::Pending => StoppedProgram::Stopped(running),
                    Poll::Ready(finished) => finished.into_parts().1,
                };
                self.ended(id, Exit::Memory(reason), stopped);
            }
            (Poll::Ready(finished), None) => {
                let (exit, stopped) = finished.into_parts();
                self.ended(id, exit, stopped);
            }
            (Poll::Pending, None) => {
                let transfer = wanted.and_then(|wanted| self.await_transfer(root, wanted, &waker));
                let is_awaiting = transfer.is_some();
                if let Some(execution) = self.executions.all.get_mut(&id) {
                    execution.running = Some(running);
                    execution.awaited = transfer;
                }
                // The engine wakes whatever it has suspended.
                if is_awaiting || !woken {
                    let sleeps = || local::with(|local| local.sleeps.of(id));
                    let until = (!is_awaiting).then(sleeps).flatten();
                    let urgency = self.executions.dispatcher.block(turn.task, left, until);
                    if let Some(urgency) = urgency {
                        let urgency = urgency.level();
                        local::with(|local| local.kernel.set_urgency(ExecutionId(id), urgency));
                    }
                }
            }
        }
        self.act_on_requests(root);
        self.charge_for_helpers(root);
        self.pass_on();
        if let Some(root) = self.roots.get_mut(&root) {
            self.pools.claim(&mut root.dirty);
            if !root.dirty.is_clean() {
                self.executions
                    .dispatcher
                    .wake(root.maintenance, monotonic_ns());
            }
        }
    }

    /// Has a transfer made for an execution of this top-level tenant; returns it if it has to be waited for.
    fn await_transfer(&self, root: u64, wanted: Wanted, waker: &Waker) -> Option<AwaitedTransfer> {
        let root = self.roots.get(&root)?;
        let account = local::with(|local| {
            let group = local.kernel.group_of(root.tenant).ok()?;
            local.files.get(&group).cloned()
        })?;
        AwaitedTransfer::begin(wanted, &account).put(&mut Context::from_waker(waker))
    }

    /// Charges a top-level tenant for what I/O threads have done for it since its last turn.
    fn charge_for_helpers(&mut self, key: u64) {
        let Some(root) = self.roots.get(&key) else {
            return;
        };
        let taken = local::with(|local| {
            let group = local.kernel.group_of(root.tenant).ok()?;
            Some(local.files.get(&group)?.take_cpu_ns())
        });
        let charged = root.serving.as_ref().map(Serving::take_charged);
        let outgoing = root.outgoing.as_ref();
        let sent = outgoing.map(|outlet| outlet.outbox().take_charged());
        if let taken @ 1.. = taken.unwrap_or(0) + charged.unwrap_or(0) + sent.unwrap_or(0) {
            let dispatcher = &mut self.executions.dispatcher;
            dispatcher.charge(&root.share, taken, monotonic_ns());
        }
    }

    /// Handles the end of a program: the tenant's main program ends the tenant, a task only itself.
    fn ended(&mut self, id: u64, exit: Exit, stopped: StoppedProgram) {
        let Some(execution) = self.executions.all.get(&id) else {
            return;
        };
        let (root, tenant) = (execution.root, execution.tenant);
        let (main, answers) = (execution.main, execution.worker.is_some());
        if let Some((worker, _)) = &execution.worker {
            worker.ended(&exit);
        }
        if !main {
            return self.end_task(id, exit.code(), Some(stopped));
        }
        self.executions.remove(id);
        let code = exit.code();
        local::with(|local| local.kernel.execution_finished(ExecutionId(id), code));
        let cause = Cause::now(exit);
        match answers {
            true => self.end_request(root, id, tenant, cause, Some(stopped)),
            false => self.end(root, tenant, cause, Some((id, stopped)), None),
        }
    }

    /// Ends a task: `remains` if it has ended by itself, otherwise it is stopped.
    pub(super) fn end_task(&mut self, id: u64, code: i32, stopped: Option<StoppedProgram>) {
        let Some(execution) = self.executions.all.get(&id) else {
            return;
        };
        let (tenant, root) = (execution.tenant, execution.root);
        if let Some(root) = self.roots.get_mut(&root)
            && let Some(serving) = &mut root.serving
        {
            serving.forget(id);
        }
        let holdings = local::with(|local| local.holdings.remove(&id));
        let stopped = self.executions.remove(id).or(stopped);
        local::with(|local| local.kernel.execution_finished(ExecutionId(id), code));
        self.bury(
            root,
            Teardown::Task {
                tenant,
                holdings: holdings.unwrap_or_default(),
                stopped: stopped.map(Box::new),
                dirty: DirtyRanges::default(),
            },
        );
    }

    /// Acts on the requests of this top-level tenant's guests.
    fn act_on_requests(&mut self, root: u64) {
        let requests = programs::with(|programs| std::mem::take(&mut programs.requests));
        for request in requests {
            match request {
                Request::Run {
                    tenant,
                    execution,
                    running,
                    main,
                } => {
                    let added = self.add_execution(root, tenant, execution, running, main);
                    debug_assert!(added.is_ok(), "there is a task for every store");
                    self.executions.wake(execution, monotonic_ns());
                }
                Request::End { child, caller } => {
                    let cause = Cause::now(Exit::Killed);
                    self.end(root, child, cause, None, Some(caller));
                }
                Request::Stop(execution) => self.end_task(execution, Exit::Killed.code(), None),
            }
        }
    }

    /// Passes the kernel's wake-ups and timer deadlines on to the scheduler.
    pub(super) fn pass_on(&mut self) {
        let _step = begin(step!("cell", "wake"));
        let now = monotonic_ns();
        while let Some((ExecutionId(execution), _)) = local::with(|local| {
            let wake = local.kernel.next_wake()?;
            // The repeated call determines whether it was woken or its object has gone.
            local.woken.insert(wake.0.0);
            Some(wake)
        }) {
            self.executions.wake(execution, now);
        }
        while let Some((tenant, deadline)) = local::with(|local| local.kernel.next_rearmed()) {
            let root = self.keys.get(&tenant).and_then(|key| self.roots.get(key));
            if let Some(root) = root {
                let dispatcher = &mut self.executions.dispatcher;
                if root.is_owed() {
                    // The maintenance task checks the timers itself, even in a pause that becomes
                    // shorter.
                    dispatcher.wake(root.maintenance, now);
                } else {
                    dispatcher.block(root.maintenance, now, deadline);
                }
            }
        }
    }
}

/// Takes a step towards unmapping the regions that a tenant and its top-level tenant may no longer
/// access. Returns true if none is left.
///
/// # Errors
/// When the regions' places cannot be filled with other memory.
fn withdraw_regions(tenant: TenantId) -> Result<bool, String> {
    if !region::is_any_mapped() {
        return Ok(true);
    }
    let root = local::with(|local| {
        let group = local.kernel.group_of(tenant).ok()?;
        local.kernel.groups().root_of(group)
    });
    root.map_or(Ok(true), |root| {
        region::withdraw(root, &|tenant, selector| {
            local::with(|local| local.kernel.region_mapping(tenant, selector).ok())
        })
    })
}

/// The number of a tenant's account; the greatest if it has none.
fn account_number(tenant: TenantId) -> u64 {
    let number = local::with(|local| {
        let group = local.kernel.group_of(tenant).ok()?;
        let root = local.kernel.groups().root_of(group)?;
        Some(local.files.get(&root)?.number())
    });
    number.unwrap_or(u64::MAX)
}
