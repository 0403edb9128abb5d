//! The loop of a cell's thread: poll what is ready, end what must end, clean what was left.
//!
//! One turn takes in what other threads sent, fires what is due, polls one execution for at most
//! a quantum ([`crate::preempt`]), and takes a bounded number of steps of ending tenants
//! ([`crate::ending`]). A cell with nothing else to do ends tenants at full speed; a busy one
//! takes [`ENDING_SHARE`] steps a turn, so that a tenant's death is not its neighbours' problem.

use crate::abi::Linkers;
use crate::cell::{Command, Connect, Ended, StartError, StartRequest};
use crate::clock::monotonic_ns;
use crate::ending::{Ending, Programs};
use crate::execution::{
    Blueprint, BuildError, Exit, Finished, HANDLE_BYTES, Limits, Remains, Running,
};
use crate::local::{self, Holdings};
use crate::pools::{Pools, Ticket};
use crate::preempt::{Preemption, QUANTUM};
use leasehold_crossing::{Inbox, Message, WakeFlag};
use leasehold_kernel::{Errno, ExecutionId, Rights, TenantId};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wasmtime::Engine;

/// Steps of ending tenants per turn while something else wants to run. A step is the drop of one
/// program, 16 scrub entries or 64 pages: some ten microseconds of a turn of a millisecond.
const ENDING_SHARE: usize = 1;

/// Steps of ending tenants between two looks at the inbox of an otherwise idle cell.
const ENDING_BURST: usize = 64;

/// Timers that fire per turn, so that a tenant with a million of them does not hold up the rest.
const TIMERS_PER_TURN: u32 = 256;

/// Wake-ups that are passed on per turn.
const WAKES_PER_TURN: usize = 256;

/// What a guest asked the executor for, from inside a host call.
pub(crate) enum Request {
    /// Run this new execution; `main` is the one whose end ends its tenant.
    Run {
        tenant: TenantId,
        execution: u64,
        running: Running,
        main: bool,
    },
    /// End this descendant of the caller's tenant, and then poll the caller again.
    End { child: TenantId, caller: u64 },
    /// Stop this task.
    Stop(u64),
}

struct Execution {
    tenant: TenantId,
    /// `None` while it is being polled.
    running: Option<Running>,
    flag: Arc<WakeFlag<Command>>,
    waker: Waker,
    main: bool,
    queued: bool,
}

/// The controller's side of a top-level tenant.
struct Controlled {
    key: u64,
    /// The execution of its own program.
    program: u64,
    ended: Sender<Ended>,
    detailed: bool,
}

/// The executions of a cell, and which of them want to be polled.
#[derive(Default)]
struct Executions {
    all: HashMap<u64, Execution>,
    ready: VecDeque<u64>,
}

impl Executions {
    fn enqueue(&mut self, id: u64) {
        if let Some(execution) = self.all.get_mut(&id)
            && !std::mem::replace(&mut execution.queued, true)
        {
            self.ready.push_back(id);
        }
    }

    fn dequeue(&mut self) -> Option<(u64, &mut Execution)> {
        loop {
            // An execution that was removed may still stand in the queue.
            let id = self.ready.pop_front()?;
            if self.all.contains_key(&id) {
                let execution = self.all.get_mut(&id)?;
                execution.queued = false;
                return Some((id, execution));
            }
        }
    }
}

impl Programs for Executions {
    fn remove(&mut self, execution: u64) -> Option<Remains> {
        let removed = self.all.remove(&execution)?;
        local::with(|local| {
            local.woken.remove(&execution);
            if removed.main {
                local.blueprints.remove(&removed.tenant);
            }
        });
        removed.running.map(Remains::Stopped)
    }
}

/// The executor of one cell.
pub(crate) struct Executor {
    engine: Engine,
    linkers: Rc<Linkers>,
    inbox: Arc<Inbox<Command>>,
    preemption: Rc<Preemption>,
    pools: Pools,
    executions: Executions,
    controlled: HashMap<TenantId, Controlled>,
    by_key: HashMap<u64, TenantId>,
    deaths: VecDeque<Death>,
    messages: Vec<Message<Command>>,
    page_ps: u64,
    stop: bool,
}

/// What is being taken back, in the order in which it ended.
enum Death {
    /// A tenant, and the execution that asked for its end and waits.
    Tenant {
        ending: Box<Ending>,
        caller: Option<u64>,
    },
    /// A task. Until its pages are clean its tenant stays charged for what it held.
    Task {
        tenant: TenantId,
        holdings: Holdings,
        /// Dropped when those that ended earlier are clean, and not before: their end would have
        /// to clean its pages too, for which it was not charged.
        remains: Option<Remains>,
        /// Its pages, once it was dropped.
        ticket: Option<Ticket>,
    },
}

impl Executor {
    /// An executor without tenants; `page_ps` is what a page of host memory is charged.
    ///
    /// # Errors
    /// When something is linked twice.
    pub(crate) fn new(
        engine: Engine,
        inbox: Arc<Inbox<Command>>,
        pools: Pools,
        preemption: Preemption,
        page_ps: u64,
    ) -> anyhow::Result<Self> {
        let linkers = Linkers::new(&engine)
            .map_err(|error| anyhow::anyhow!("linking the host's functions: {error:#}"))?;
        Ok(Self {
            preemption: Rc::new(preemption),
            linkers: Rc::new(linkers),
            engine,
            inbox,
            pools,
            executions: Executions::default(),
            controlled: HashMap::new(),
            by_key: HashMap::new(),
            deaths: VecDeque::new(),
            messages: Vec::new(),
            page_ps,
            stop: false,
        })
    }

    /// Runs until the controller has gone and every tenant has been ended.
    pub(crate) fn run(&mut self) {
        while !(self.stop && self.deaths.is_empty()) {
            self.take_messages();
            self.fire_timers();
            self.pass_on_wakes();
            let polled = self.poll_one();
            self.act_on_requests();
            let share = if polled { ENDING_SHARE } else { ENDING_BURST };
            let took_back = self.take_back(share);
            // Who ends wakes others: a turn that took anything back is followed by another.
            if !polled && !took_back && !self.stop {
                self.wait();
            }
        }
    }

    fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.inbox.take(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Wake(execution) => self.executions.enqueue(execution),
                Message::Command(command) => self.obey(command),
            }
        }
        self.messages = messages;
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start {
                key,
                held,
                request,
                started,
                ended,
            } => {
                let result = self.start(key, *request, ended);
                if result.is_ok() && !held {
                    self.go(key);
                }
                // The controller may have gone; then the tenant is ended with the cell.
                let _ = started.send(result);
            }
            Command::Go(key) => self.go(key),
            Command::Kill(key) => {
                if let Some(tenant) = self.by_key.get(&key).copied() {
                    self.end(tenant, Exit::Killed, None, None);
                }
            }
            Command::Statement(key, reply) => {
                let statement = self
                    .by_key
                    .get(&key)
                    .and_then(|tenant| local::with(|l| l.kernel.statement(*tenant).ok()));
                let _ = reply.send(statement);
            }
            Command::Connect(connect) => {
                let result = self.connect(&connect);
                let _ = connect.reply.send(result);
            }
            Command::Shutdown => {
                self.stop = true;
                let tenants: Vec<_> = self.controlled.keys().copied().collect();
                for tenant in tenants {
                    self.end(tenant, Exit::Killed, None, None);
                }
            }
        }
    }

    fn start(
        &mut self,
        key: u64,
        request: StartRequest,
        ended: Sender<Ended>,
    ) -> Result<(), StartError> {
        let budget_ns = request.lease.reclaim.budget.get();
        let refused = |reason: String| StartError::Lease { budget_ns, reason };
        let memory = request.lease.memory.reserve.get();
        let admitted = local::with(|local| {
            let tenant = local.kernel.admit(budget_ns, memory)?;
            let root = local.kernel.group_of(tenant)?;
            let table_elements = request.lease.memory.table_elements;
            local.shares.open(root, table_elements);
            let execution = local.next_execution;
            local.next_execution += 1;
            Ok((tenant, execution))
        });
        let (tenant, execution) = admitted.map_err(|errno: Errno| refused(errno.to_string()))?;
        let call_bytes = match request.lease.reclaim.call_bytes {
            Some(bytes) => bytes.get(),
            None => call_bytes(budget_ns, self.page_ps),
        };
        let blueprint = Rc::new(Blueprint {
            engine: self.engine.clone(),
            linkers: self.linkers.clone(),
            preemption: self.preemption.clone(),
            program: request.program,
            surroundings: request.surroundings,
            limits: Limits {
                call_bytes,
                handles: handles(budget_ns, self.page_ps),
            },
        });
        let built = blueprint.build(tenant, execution).and_then(|running| {
            local::with(|local| {
                local
                    .kernel
                    .register_execution(tenant, ExecutionId(execution))?;
                local.blueprints.insert(tenant, blueprint);
                Ok(running)
            })
        });
        let running = match built {
            Ok(running) => running,
            Err(error) => {
                local::with(|local| local.holdings.remove(&execution));
                self.end(tenant, Exit::Killed, None, None);
                return Err(match error {
                    BuildError::Lease(errno) => refused(errno.to_string()),
                    BuildError::Directory { .. } => StartError::Surroundings(error.to_string()),
                    BuildError::Link(_) => StartError::Program(error.to_string()),
                });
            }
        };
        self.by_key.insert(key, tenant);
        self.controlled.insert(
            tenant,
            Controlled {
                key,
                program: execution,
                ended,
                detailed: request.detailed,
            },
        );
        self.add_execution(tenant, execution, running, true);
        Ok(())
    }

    /// Has a tenant's program polled for the first time.
    fn go(&mut self, key: u64) {
        let controlled = self
            .by_key
            .get(&key)
            .and_then(|tenant| self.controlled.get(tenant));
        if let Some(controlled) = controlled {
            self.executions.enqueue(controlled.program);
        }
    }

    fn add_execution(&mut self, tenant: TenantId, id: u64, running: Running, main: bool) {
        let flag = Arc::new(WakeFlag::new(id, self.inbox.clone()));
        let waker = Waker::from(flag.clone());
        let execution = Execution {
            tenant,
            running: Some(running),
            flag,
            waker,
            main,
            queued: false,
        };
        self.executions.all.insert(id, execution);
    }

    fn connect(&self, connect: &Connect) -> Result<(u32, u32), Errno> {
        let tenant = |key: &u64| self.by_key.get(key).copied().ok_or(Errno::Gone);
        let (client, service) = (tenant(&connect.client)?, tenant(&connect.service)?);
        local::with(|local| {
            let kernel = &mut local.kernel;
            let channel = kernel.channel_create(client, connect.capacity)?;
            let rights = Rights::READ | Rights::WRITE;
            match kernel.connect(client, channel, service, rights, connect.links) {
                Ok(theirs) => Ok((channel.0, theirs.0)),
                Err(errno) => {
                    // The channel was made a moment ago, so it can be dropped.
                    let _ = kernel.capability_drop(client, channel);
                    Err(errno)
                }
            }
        })
    }

    fn fire_timers(&mut self) {
        let now = monotonic_ns();
        local::with(|local| {
            while let Some(execution) = local.sleeps.expire(now) {
                self.executions.enqueue(execution);
            }
            if local.kernel.next_deadline().is_some_and(|when| when <= now) {
                local.kernel.expire(now, TIMERS_PER_TURN);
            }
        });
    }

    fn pass_on_wakes(&mut self) {
        local::with(|local| {
            for _ in 0..WAKES_PER_TURN {
                let Some((ExecutionId(execution), _)) = local.kernel.next_wake() else {
                    break;
                };
                // Whether it was woken or bereaved, the call that it makes again will tell.
                local.woken.insert(execution);
                self.executions.enqueue(execution);
            }
        });
    }

    /// Polls the execution that has waited longest; false if none wants to be polled.
    fn poll_one(&mut self) -> bool {
        let Some((id, execution)) = self.executions.dequeue() else {
            self.preemption.set_timer(None);
            return false;
        };
        let tenant = execution.tenant;
        if local::with(|local| local.kernel.group_of(tenant).is_err()) {
            // Its tenant has ended and waits to be taken back; it must neither run on until then
            // nor end by itself, which would drop its store in the middle of another's end.
            return true;
        }
        let Some(mut running) = execution.running.take() else {
            return true;
        };
        let waker = execution.waker.clone();
        execution.flag.clear();
        let quantum = u64::try_from(QUANTUM.as_nanos()).unwrap_or(u64::MAX);
        self.preemption.set_timer(Some(monotonic_ns() + quantum));
        match running.poll(&self.preemption, &mut Context::from_waker(&waker)) {
            Poll::Pending => {
                if let Some(execution) = self.executions.all.get_mut(&id) {
                    execution.running = Some(running);
                }
            }
            Poll::Ready(finished) => self.finished(id, finished),
        }
        true
    }

    /// A program has ended by itself: the tenant's own program ends the tenant, a task only
    /// itself.
    fn finished(&mut self, id: u64, finished: Finished) {
        let (exit, remains) = finished.into_parts();
        let Some(execution) = self.executions.all.get(&id) else {
            return;
        };
        let (tenant, main) = (execution.tenant, execution.main);
        if main {
            self.executions.remove(id);
            let code = exit.code();
            local::with(|local| local.kernel.execution_finished(ExecutionId(id), code));
            self.end(tenant, exit, Some((id, remains)), None);
        } else {
            self.end_task(id, exit.code(), Some(remains));
        }
    }

    /// Ends a task: `remains` if it has ended by itself, otherwise it is stopped.
    fn end_task(&mut self, id: u64, code: i32, remains: Option<Remains>) {
        let Some(execution) = self.executions.all.get(&id) else {
            return;
        };
        let tenant = execution.tenant;
        let holdings = local::with(|local| local.holdings.remove(&id));
        let remains = self.executions.remove(id).or(remains);
        local::with(|local| local.kernel.execution_finished(ExecutionId(id), code));
        self.deaths.push_back(Death::Task {
            tenant,
            holdings: holdings.unwrap_or_default(),
            remains,
            ticket: None,
        });
    }

    fn act_on_requests(&mut self) {
        let requests = local::with(|local| std::mem::take(&mut local.requests));
        for request in requests {
            match request {
                Request::Run {
                    tenant,
                    execution,
                    running,
                    main,
                } => {
                    self.add_execution(tenant, execution, running, main);
                    self.executions.enqueue(execution);
                }
                Request::End { child, caller } => self.end(child, Exit::Killed, None, Some(caller)),
                Request::Stop(execution) => self.end_task(execution, Exit::Killed.code(), None),
            }
        }
    }

    /// Begins to end a tenant; `program` is its own, if that has ended already, and `caller` the
    /// execution that waits for it.
    fn end(
        &mut self,
        tenant: TenantId,
        exit: Exit,
        program: Option<(u64, Remains)>,
        caller: Option<u64>,
    ) {
        local::with(|local| local.forget_shares(tenant));
        let controlled = self.controlled.remove(&tenant);
        let detailed = controlled
            .as_ref()
            .is_some_and(|controlled| controlled.detailed);
        if let Some(controlled) = &controlled {
            self.by_key.remove(&controlled.key);
        }
        let reply = controlled.map(|controlled| controlled.ended);
        if let Some(ending) = Ending::begin(tenant, exit, program, reply, detailed) {
            self.deaths.push_back(Death::Tenant {
                ending: Box::new(ending),
                caller,
            });
        } else if let Some(caller) = caller {
            self.executions.enqueue(caller);
        }
    }

    /// Takes up to `steps` steps of taking back what ended first; false if there is nothing to.
    fn take_back(&mut self, steps: usize) -> bool {
        let Some(death) = self.deaths.front_mut() else {
            return false;
        };
        let done = match death {
            Death::Tenant { ending, caller } => {
                let done = ending.work(&mut self.executions, &self.pools, steps);
                if ending.is_reusable()
                    && let Some(caller) = caller.take()
                {
                    self.executions.enqueue(caller);
                }
                done
            }
            Death::Task {
                remains, ticket, ..
            } => {
                drop(remains.take());
                let ticket = *ticket.get_or_insert_with(|| self.pools.ticket());
                self.pools.clean_steps(ticket, steps)
            }
        };
        if !done {
            return true;
        }
        match self.deaths.pop_front() {
            Some(Death::Tenant { ending, .. }) => ending.report(),
            Some(Death::Task {
                tenant, holdings, ..
            }) => {
                local::with(|local| local.give_back(tenant, &holdings));
            }
            None => {}
        }
        true
    }

    /// Nothing to do: sleeps until a message comes or something is due.
    fn wait(&mut self) {
        let due = local::with(|local| {
            let deadlines = [local.sleeps.next(), local.kernel.next_deadline()];
            deadlines.into_iter().flatten().min()
        });
        let timeout = due.map(|when| Duration::from_nanos(when.saturating_sub(monotonic_ns())));
        if timeout != Some(Duration::ZERO) {
            self.inbox.wait(timeout);
        }
    }
}

/// What a pending host call may hold when the lease does not say: what an eighth of the budget
/// pays for, at most 16 MiB.
fn call_bytes(budget_ns: u64, page_ps: u64) -> u64 {
    share_of(budget_ns, 8, page_ps).clamp(64 << 10, 16 << 20)
}

/// How many component-model handles a program may have: what a sixteenth of the budget pays for,
/// at most a million.
fn handles(budget_ns: u64, page_ps: u64) -> u64 {
    (share_of(budget_ns, 16, page_ps) / HANDLE_BYTES).clamp(1 << 10, 1 << 20)
}

/// Bytes of the host's memory whose pages a part of the budget pays for.
fn share_of(budget_ns: u64, part: u64, page_ps: u64) -> u64 {
    let pages = (budget_ns * 1000 / part).checked_div(page_ps);
    pages.map_or(u64::MAX, |pages| pages.saturating_mul(4096))
}
