//! The loop of a cell's thread: ask the scheduler who runs, and have it run.
//!
//! One turn: hear what other threads want of those who are more urgent than whoever would run,
//! decide ([`crate::dispatch`]), set the one-shot timer for the next decision, and let one task
//! run until it blocks, the timer fires, or something more urgent arrives. A task is an execution,
//! which is polled, or the upkeep of a tenant: building its program ([`crate::starting`]), firing
//! its timers, and taking back what of it has ended ([`crate::ending`]), in steps. Everything
//! between two decisions is charged to the task that ran, host calls and upkeep included: a tenant
//! pays for its own birth, for whom it wakes, and for its own funeral. The controller's commands
//! are charged to nobody, and rationed ([`crate::control_share`]).

use crate::abi::Linkers;
use crate::cell::{CellConfig, Command, Connect, Ended, StartError, StartRequest};
use crate::clock::monotonic_ns;
use crate::control_share::ControlShare;
use crate::dispatch::{Dispatcher, Processor, Promised, Share, Turn, Work};
use crate::ending::{Ending, Programs};
use crate::execution::{Blueprint, Exit, HANDLE_BYTES, Limits, Remains, Running};
use crate::host_share::HostShare;
use crate::local::{self, Holdings};
use crate::memory::{self, MemoryUse, region};
use crate::meter::Held;
use crate::pools::{Leavings, Pools};
use crate::preempt::Preemption;
use crate::range_pool::STEP_PAGES;
use crate::standing::Standing;
use crate::starting::{Client, Starting, Stepped};
use leasehold_crossing::{Inbox, Message, Urgency, Urgent as _, WakeFlag};
use leasehold_kernel::{Errno, ExecutionId, Rights, TenantId};
use leasehold_reserve::TaskId;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wasmtime::Engine;

/// Timers that a tenant's upkeep fires between two looks at the time.
const TIMERS_PER_STEP: u32 = 64;

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
    /// The key of the top-level tenant that it belongs to.
    root: u64,
    task: TaskId,
    /// `None` while it is being polled.
    running: Option<Running>,
    flag: Arc<WakeFlag<Command, Standing>>,
    waker: Waker,
    main: bool,
}

/// A top-level tenant, until everything was taken back from it and its descendants.
struct Root {
    tenant: TenantId,
    share: Share,
    /// Its reservation can be kept.
    promised: Option<Promised>,
    /// The task that builds its program, fires timers and takes back what ended.
    upkeep: TaskId,
    /// Its program, until it is built.
    starting: Option<Box<Starting>>,
    /// Whether the tenant itself has ended.
    ended: bool,
    /// What is being taken back, in the order in which it ended.
    deaths: VecDeque<Death>,
    /// What programs left in the pools that did not come to run, such as a memory beside another
    /// one that was refused.
    leavings: Leavings,
    controlled: Option<Controlled>,
}

/// The controller's side of a top-level tenant.
struct Controlled {
    /// The execution of its own program.
    program: u64,
    ended: Sender<Ended>,
    detailed: bool,
}

/// What is being taken back.
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
        /// Dropped when it is its turn.
        remains: Option<Remains>,
        /// What it left, once it was dropped.
        leavings: Leavings,
    },
}

/// The executions of a cell and the turns that they take.
struct Executions {
    all: HashMap<u64, Execution>,
    dispatcher: Dispatcher,
}

impl Executions {
    /// Has an execution polled when it is its turn.
    fn wake(&mut self, id: u64, now: u64) {
        if let Some(execution) = self.all.get(&id) {
            self.dispatcher.wake(execution.task, now);
        }
    }
}

impl Programs for Executions {
    fn remove(&mut self, execution: u64) -> Option<Remains> {
        let removed = self.all.remove(&execution)?;
        self.dispatcher.remove(removed.task, monotonic_ns());
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
    /// The top-level tenants, by the controller's key.
    roots: HashMap<u64, Root>,
    keys: HashMap<TenantId, u64>,
    page_ps: u64,
    /// Commands that wait for their share of the time.
    commands: VecDeque<Command>,
    control_share: ControlShare,
    /// With real-time priority: what is left to the host.
    host_share: Option<HostShare>,
    stop: bool,
}

impl Executor {
    /// An executor without tenants, on a thread that has real-time priority or has not.
    ///
    /// # Errors
    /// When something is linked twice.
    pub(crate) fn new(
        config: &CellConfig,
        engine: Engine,
        inbox: Arc<Inbox<Command>>,
        pools: Pools,
        preemption: Preemption,
        realtime: bool,
    ) -> anyhow::Result<Self> {
        let linkers = Linkers::new(&engine)
            .map_err(|error| anyhow::anyhow!("linking the host's functions: {error:#}"))?;
        let executions = u32::try_from(config.max_memories).unwrap_or(u32::MAX);
        let dispatcher = Dispatcher::new(config, executions);
        let interrupter = preemption.interrupter();
        inbox.interrupt_with(move || interrupter.interrupt());
        Ok(Self {
            preemption: Rc::new(preemption),
            linkers: Rc::new(linkers),
            engine,
            inbox,
            pools,
            executions: Executions {
                all: HashMap::new(),
                dispatcher,
            },
            roots: HashMap::new(),
            keys: HashMap::new(),
            page_ps: config.profile.charge_ps(Held::HostPage),
            commands: VecDeque::new(),
            control_share: ControlShare::default(),
            host_share: realtime.then(HostShare::default),
            stop: false,
        })
    }

    /// Runs until the controller has gone and every tenant has been ended.
    pub(crate) fn run(&mut self) {
        while !(self.stop && self.roots.is_empty()) {
            match self.next_turn() {
                (Some(turn), timer) => self.take_turn(turn, timer),
                (None, timer) => self.wait(timer),
            }
        }
    }

    /// Decides what runs, after hearing everything that may matter for that and nothing else: a
    /// message for somebody less urgent stays where it is (SPR §III-E).
    fn next_turn(&mut self) -> (Option<Turn>, Option<u64>) {
        loop {
            let now = monotonic_ns();
            let (turn, timer) = self.executions.dispatcher.decide(now);
            let least = turn.map_or(Urgency::BACKGROUND, |turn| turn.urgency);
            match self.inbox.take(least) {
                Some(Message::Wake(execution)) => self.executions.wake(execution, monotonic_ns()),
                Some(Message::Command(command)) => self.commands.push_back(command),
                None if self.commands.is_empty() => return (turn, timer),
                None => {
                    // Only a reservation was promised anything.
                    let reserved = least > Urgency::BACKGROUND;
                    if let Some(until) = self.control_share.pause(now).filter(|_| reserved) {
                        return (turn, Some(timer.map_or(until, |timer| timer.min(until))));
                    }
                    if let Some(command) = self.commands.pop_front() {
                        // Whoever was selected has no part in what the controller wants.
                        self.executions.dispatcher.pause(now);
                        let kind = command.kind();
                        self.obey(command);
                        let done = monotonic_ns();
                        self.executions.dispatcher.resume(done);
                        self.control_share.obeyed(kind, now, done);
                    }
                }
            }
        }
    }

    fn take_turn(&mut self, turn: Turn, mut timer: Option<u64>) {
        if turn.urgency == Urgency::BACKGROUND
            && let Some(share) = &mut self.host_share
        {
            if let Some(until) = share.pause() {
                self.executions.dispatcher.pause(monotonic_ns());
                self.wait(Some(timer.map_or(until, |timer| timer.min(until))));
                self.executions.dispatcher.resume(monotonic_ns());
                return;
            }
            let look = share.next_look();
            timer = Some(timer.map_or(look, |timer| timer.min(look)));
        }
        // Before the guest is entered: setting the timer makes forgotten who has interrupted it.
        self.preemption.set_timer(timer);
        if !self.inbox.enter_guest(turn.interrupted_from) {
            return;
        }
        self.executions.dispatcher.entered(&turn);
        match turn.work {
            Work::Execution(execution) => self.poll(execution, &turn),
            Work::Upkeep(root) => {
                let inbox = self.inbox.clone();
                self.keep_up(root, &mut || {
                    inbox.is_quiet() && timer.is_none_or(|timer| monotonic_ns() < timer)
                });
            }
        }
        self.inbox.leave_guest();
    }

    /// Nothing to do: sleeps until a message comes or something is due.
    fn wait(&mut self, timer: Option<u64>) {
        self.preemption.set_timer(None);
        if self.stop && self.roots.is_empty() {
            return;
        }
        let now = monotonic_ns();
        let timeout = timer.map(|when| Duration::from_nanos(when.saturating_sub(now)));
        // Nobody waits for this, and nobody is there who could pay for it.
        while self.inbox.is_quiet() && memory::refill() {}
        if timeout != Some(Duration::ZERO) {
            self.inbox.wait(timeout);
        }
        if let Some(share) = &mut self.host_share {
            share.slept(now, monotonic_ns());
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start {
                key,
                request,
                promised,
                client,
            } => self.start(key, *request, promised, client),
            Command::Go(key) => self.go(key),
            Command::Kill(key) => self.end_root(key, Exit::Killed),
            Command::Statement(key, reply) => {
                let statement = self
                    .alive(key)
                    .and_then(|tenant| local::with(|l| l.kernel.statement(tenant).ok()));
                let _ = reply.send(statement);
            }
            Command::Processors(keys, reply) => {
                let _ = reply.send(keys.iter().map(|key| self.processor(*key)).collect());
            }
            Command::Memory(key, reply) => {
                let _ = reply.send(self.alive(key).map(memory_use));
            }
            Command::Control(reply) => {
                let _ = reply.send(self.control_share.uses().collect());
            }
            Command::Shared(reply) => {
                let _ = reply.send(memory::shared());
            }
            Command::Connect(connect) => {
                let result = self.connect(&connect);
                let _ = connect.reply.send(result);
            }
            Command::Shutdown => {
                self.stop = true;
                let keys: Vec<_> = self.roots.keys().copied().collect();
                for &key in &keys {
                    self.end_root(key, Exit::Killed);
                }
                // Nobody is left whom taking everything back could delay.
                for key in keys {
                    self.keep_up(key, &mut || true);
                }
            }
        }
    }

    /// Admits a top-level tenant, whose upkeep will build its program.
    fn start(
        &mut self,
        key: u64,
        request: StartRequest,
        promised: Option<Promised>,
        client: Client,
    ) {
        match self.open_root(key, &request, promised) {
            Ok(tenant) => self.begin_start(key, tenant, request, client),
            Err(error) => {
                // The controller may have gone.
                let _ = client.started.send(Err(error));
            }
        }
    }

    /// Sets up what a top-level tenant needs to take turns.
    fn open_root(
        &mut self,
        key: u64,
        request: &StartRequest,
        promised: Option<Promised>,
    ) -> Result<TenantId, StartError> {
        let lease = &request.lease;
        let budget_ns = lease.reclaim.budget.get();
        let (tenant, group) = local::with(|local| {
            let tenant = local.kernel.admit(budget_ns, lease.memory.limit().get())?;
            let root = local.kernel.group_of(tenant)?;
            local.shares.open(root, lease.memory.table_elements);
            Ok((tenant, root))
        })
        .map_err(|errno: Errno| StartError::refused(budget_ns, errno))?;
        if let Err(refused) = memory::admit(group, &lease.memory) {
            local::with(|local| local.kernel.end(tenant, &mut |_| {})).ok();
            return Err(refused);
        }
        let now = monotonic_ns();
        let dispatcher = &mut self.executions.dispatcher;
        let contract = promised.as_ref().map(|promised| &promised.contract);
        let share = dispatcher.share(contract, now).and_then(|share| {
            let upkeep = dispatcher.add(&share, Work::Upkeep(key));
            let upkeep = upkeep.inspect_err(|_| dispatcher.give_back(&share, now))?;
            Ok((share, upkeep))
        });
        let (share, upkeep) = match share {
            Ok(share) => share,
            Err(refused) => {
                if let Some(tenancy) = memory::end(group) {
                    tenancy.give_back();
                }
                local::with(|local| local.kernel.end(tenant, &mut |_| {})).ok();
                return Err(StartError::Processor(refused.to_string()));
            }
        };
        self.keys.insert(tenant, key);
        self.roots.insert(
            key,
            Root {
                tenant,
                share,
                promised,
                upkeep,
                starting: None,
                ended: false,
                deaths: VecDeque::new(),
                leavings: Leavings::default(),
                controlled: None,
            },
        );
        Ok(tenant)
    }

    /// Has a tenant's program built in its own turns.
    fn begin_start(&mut self, key: u64, tenant: TenantId, request: StartRequest, client: Client) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let budget_ns = request.lease.reclaim.budget.get();
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
        let execution = local::with(|local| {
            let execution = local.next_execution;
            local.next_execution += 1;
            execution
        });
        let starting = Starting::new(tenant, execution, blueprint, budget_ns, client);
        root.starting = Some(Box::new(starting));
        self.executions.dispatcher.wake(root.upkeep, monotonic_ns());
    }

    /// Takes the next step of building a top-level tenant's program, and tells the controller when
    /// that is over.
    fn step_start(&mut self, key: u64) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let Some(mut starting) = root.starting.take() else {
            return;
        };
        let tenant = root.tenant;
        let built = match starting.step() {
            Ok(Stepped::Working) => {
                root.starting = Some(starting);
                return;
            }
            Ok(Stepped::Built(running)) => self
                .take_in(key, tenant, &starting, running)
                .map_err(|errno| starting.not_taken(errno)),
            Err(error) => Err(error),
        };
        match built {
            Ok(()) => {
                let program = starting.execution();
                let client = starting.complete();
                if let Some(root) = self.roots.get_mut(&key) {
                    root.controlled = Some(Controlled {
                        program,
                        ended: client.ended,
                        detailed: client.detailed,
                    });
                }
                if !client.held {
                    self.go(key);
                }
                // The controller may have gone; then the tenant is ended with the cell.
                let _ = client.started.send(Ok(()));
            }
            Err(error) => {
                let client = starting.give_up();
                self.end_root(key, Exit::Killed);
                let _ = client.started.send(Err(error));
            }
        }
    }

    /// Takes a program that was built as that of a top-level tenant.
    fn take_in(
        &mut self,
        key: u64,
        tenant: TenantId,
        starting: &Starting,
        running: Running,
    ) -> Result<(), Errno> {
        let execution = starting.execution();
        local::with(|local| {
            local
                .kernel
                .register_execution(tenant, ExecutionId(execution))?;
            local.blueprints.insert(tenant, starting.blueprint());
            Ok::<_, Errno>(())
        })?;
        self.add_execution(key, tenant, execution, running, true)
    }

    /// The tenant with this key, if it has not ended.
    fn alive(&self, key: u64) -> Option<TenantId> {
        let root = self.roots.get(&key)?;
        (!root.ended).then_some(root.tenant)
    }

    /// Has a tenant's program polled for the first time.
    fn go(&mut self, key: u64) {
        let controlled = self
            .roots
            .get(&key)
            .and_then(|root| root.controlled.as_ref());
        if let Some(&Controlled { program, .. }) = controlled {
            self.executions.wake(program, monotonic_ns());
        }
    }

    /// What a tenant has got of the processor.
    fn processor(&self, key: u64) -> Option<Processor> {
        let root = self.roots.get(&key)?;
        let now = monotonic_ns();
        self.executions.dispatcher.processor(&root.share, now)
    }

    fn add_execution(
        &mut self,
        root: u64,
        tenant: TenantId,
        id: u64,
        running: Running,
        main: bool,
    ) -> Result<(), Errno> {
        let share = &self.roots.get(&root).ok_or(Errno::Gone)?.share;
        let task = self
            .executions
            .dispatcher
            .add(share, Work::Execution(id))
            .map_err(|_| Errno::Limit)?;
        let standing = share.standing().clone();
        let urgency = standing.urgency().level();
        local::with(|local| local.kernel.set_urgency(ExecutionId(id), urgency));
        let flag = Arc::new(WakeFlag::new(id, standing, self.inbox.clone()));
        let waker = Waker::from(flag.clone());
        let execution = Execution {
            tenant,
            root,
            task,
            running: Some(running),
            flag,
            waker,
            main,
        };
        self.executions.all.insert(id, execution);
        Ok(())
    }

    fn connect(&self, connect: &Connect) -> Result<(u32, u32), Errno> {
        let tenant = |key: &u64| self.alive(*key).ok_or(Errno::Gone);
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

    /// Polls an execution until it blocks or has to make way.
    fn poll(&mut self, id: u64, turn: &Turn) {
        let Some(execution) = self.executions.all.get_mut(&id) else {
            return;
        };
        let (tenant, root) = (execution.tenant, execution.root);
        if local::with(|local| local.kernel.group_of(tenant).is_err()) {
            // Its tenant has ended and waits to be taken back; it must neither run on until then
            // nor end by itself, which would drop its store in the middle of another's end.
            let now = monotonic_ns();
            self.executions.dispatcher.block(turn.task, now, None);
            return;
        }
        let Some(mut running) = execution.running.take() else {
            return;
        };
        match withdraw_regions(tenant) {
            Ok(true) => {}
            Ok(false) => {
                // Nothing of it may run before all of it has gone: in its next turn.
                execution.running = Some(running);
                return;
            }
            Err(why) => {
                self.ended(id, Exit::Memory(why), Remains::Stopped(running));
                return self.act_on_requests(root);
            }
        }
        let (flag, waker) = (execution.flag.clone(), execution.waker.clone());
        local::with(|local| local.running = turn.urgency);
        flag.begin_poll();
        let poll = running.poll(&self.preemption, &mut Context::from_waker(&waker));
        let woken = flag.end_poll();
        match (poll, memory::take_denied()) {
            // Whatever it did since it was denied a page, it ends for that.
            (poll, Some(reason)) => {
                let remains = match poll {
                    Poll::Pending => Remains::Stopped(running),
                    Poll::Ready(finished) => finished.into_parts().1,
                };
                self.ended(id, Exit::Memory(reason), remains);
            }
            (Poll::Ready(finished), None) => {
                let (exit, remains) = finished.into_parts();
                self.ended(id, exit, remains);
            }
            (Poll::Pending, None) => {
                if let Some(execution) = self.executions.all.get_mut(&id) {
                    execution.running = Some(running);
                }
                if !woken {
                    let until = local::with(|local| local.sleeps.of(id));
                    let now = monotonic_ns();
                    let urgency = self.executions.dispatcher.block(turn.task, now, until);
                    if let Some(urgency) = urgency {
                        let urgency = urgency.level();
                        local::with(|local| local.kernel.set_urgency(ExecutionId(id), urgency));
                    }
                }
            }
        }
        self.act_on_requests(root);
        self.pass_on();
        if let Some(root) = self.roots.get_mut(&root) {
            self.pools.claim(&mut root.leavings);
            if !root.leavings.is_clean() {
                self.executions.dispatcher.wake(root.upkeep, monotonic_ns());
            }
        }
    }

    /// Tells the scheduler what the kernel has found out meanwhile: who can go on, and whose
    /// timers fire when.
    fn pass_on(&mut self) {
        let now = monotonic_ns();
        while let Some((ExecutionId(execution), _)) = local::with(|local| {
            let wake = local.kernel.next_wake()?;
            // Whether it was woken or bereaved, the call that it makes again will tell.
            local.woken.insert(wake.0.0);
            Some(wake)
        }) {
            self.executions.wake(execution, now);
        }
        while let Some((tenant, deadline)) = local::with(|local| local.kernel.next_rearmed()) {
            let root = self.keys.get(&tenant).and_then(|key| self.roots.get(key));
            if let Some(root) = root
                && root.deaths.is_empty()
            {
                // With something to take back it will look at the timers anyway.
                self.executions.dispatcher.block(root.upkeep, now, deadline);
            }
        }
    }

    /// A program runs no more: the tenant's own program ends the tenant, a task only itself.
    fn ended(&mut self, id: u64, exit: Exit, remains: Remains) {
        let Some(execution) = self.executions.all.get(&id) else {
            return;
        };
        let (tenant, main) = (execution.tenant, execution.main);
        if main {
            let root = execution.root;
            self.executions.remove(id);
            let code = exit.code();
            local::with(|local| local.kernel.execution_finished(ExecutionId(id), code));
            self.end(root, tenant, exit, Some((id, remains)), None);
        } else {
            self.end_task(id, exit.code(), Some(remains));
        }
    }

    /// Ends a task: `remains` if it has ended by itself, otherwise it is stopped.
    fn end_task(&mut self, id: u64, code: i32, remains: Option<Remains>) {
        let Some(execution) = self.executions.all.get(&id) else {
            return;
        };
        let (tenant, root) = (execution.tenant, execution.root);
        let holdings = local::with(|local| local.holdings.remove(&id));
        let remains = self.executions.remove(id).or(remains);
        local::with(|local| local.kernel.execution_finished(ExecutionId(id), code));
        self.bury(
            root,
            Death::Task {
                tenant,
                holdings: holdings.unwrap_or_default(),
                remains,
                leavings: Leavings::default(),
            },
        );
    }

    fn bury(&mut self, root: u64, death: Death) {
        if let Some(root) = self.roots.get_mut(&root) {
            root.deaths.push_back(death);
            self.executions.dispatcher.wake(root.upkeep, monotonic_ns());
        }
    }

    /// Does what guests of this top-level tenant asked for.
    fn act_on_requests(&mut self, root: u64) {
        let requests = local::with(|local| std::mem::take(&mut local.requests));
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
                    self.end(root, child, Exit::Killed, None, Some(caller));
                }
                Request::Stop(execution) => self.end_task(execution, Exit::Killed.code(), None),
            }
        }
    }

    /// Begins to end a top-level tenant, if it has not ended yet.
    fn end_root(&mut self, key: u64, exit: Exit) {
        if let Some(tenant) = self.alive(key) {
            self.end(key, tenant, exit, None, None);
        }
    }

    /// Begins to end a tenant of this root; `program` is its own, if that has ended already, and
    /// `caller` the execution that waits for it.
    fn end(
        &mut self,
        key: u64,
        tenant: TenantId,
        exit: Exit,
        program: Option<(u64, Remains)>,
        caller: Option<u64>,
    ) {
        let memory = memory_use(tenant);
        let group = local::with(|local| {
            local.forget_shares(tenant);
            local.kernel.group_of(tenant).ok()
        });
        let tenancy = group.and_then(memory::end);
        let mut controlled = None;
        if let Some(root) = self.roots.get_mut(&key)
            && root.tenant == tenant
        {
            root.ended = true;
            controlled = root.controlled.take();
            self.keys.remove(&tenant);
            if let Some(starting) = root.starting.take() {
                starting.give_up();
            }
        }
        let detailed = controlled
            .as_ref()
            .is_some_and(|controlled| controlled.detailed);
        let reply = controlled.map(|controlled| controlled.ended);
        if let Some(ending) =
            Ending::begin(tenant, exit, program, reply, detailed, (tenancy, memory))
        {
            self.bury(
                key,
                Death::Tenant {
                    ending: Box::new(ending),
                    caller,
                },
            );
        } else if let Some(caller) = caller {
            self.executions.wake(caller, monotonic_ns());
        }
    }

    /// The upkeep of a top-level tenant: builds its program, fires its timers, cleans what it left,
    /// and takes back what of it ended: at least one step, and as long as `go_on` says so and
    /// anything is left to do.
    fn keep_up(&mut self, key: u64, go_on: &mut impl FnMut() -> bool) {
        while let Some(root) = self.roots.get_mut(&key) {
            let now = monotonic_ns();
            let deadline = local::with(|local| local.kernel.next_deadline(root.tenant));
            if deadline.is_some_and(|deadline| deadline <= now) {
                local::with(|local| local.kernel.expire(root.tenant, now, TIMERS_PER_STEP));
                self.pass_on();
            } else if root.starting.is_some() {
                self.step_start(key);
            } else if !root.leavings.is_clean() {
                self.pools.clean(&mut root.leavings, STEP_PAGES);
            } else if !root.deaths.is_empty() {
                self.take_back(key, go_on);
            } else if root.ended {
                self.close_root(key);
            } else {
                self.executions.dispatcher.block(root.upkeep, now, deadline);
                return;
            }
            if !go_on() {
                return;
            }
        }
    }

    /// Takes back what ended first.
    fn take_back(&mut self, key: u64, go_on: &mut impl FnMut() -> bool) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let Some(death) = root.deaths.front_mut() else {
            return;
        };
        let done = match death {
            Death::Tenant { ending, caller } => {
                let done = ending.work(&mut self.executions, &self.pools, go_on);
                if ending.is_reusable()
                    && let Some(caller) = caller.take()
                {
                    self.executions.wake(caller, monotonic_ns());
                }
                done
            }
            Death::Task {
                remains, leavings, ..
            } => {
                if let Some(remains) = remains.take() {
                    drop(remains);
                    self.pools.claim(leavings);
                } else {
                    self.pools.clean(leavings, STEP_PAGES);
                }
                leavings.is_clean()
            }
        };
        if done {
            let death = root.deaths.pop_front();
            let supply = self.executions.dispatcher.supply(&root.share);
            // Whoever hears of the tenant's end may take its place at once.
            if root.ended && root.deaths.is_empty() && root.leavings.is_clean() {
                self.close_root(key);
            }
            match death {
                Some(Death::Tenant { ending, .. }) => ending.report(supply),
                Some(Death::Task {
                    tenant, holdings, ..
                }) => {
                    local::with(|local| local.give_back(tenant, &holdings));
                }
                None => {}
            }
        }
        self.pass_on();
    }

    /// Everything was taken back: the tenant's turns go too.
    fn close_root(&mut self, key: u64) {
        if let Some(root) = self.roots.remove(&key) {
            let now = monotonic_ns();
            let dispatcher = &mut self.executions.dispatcher;
            dispatcher.remove(root.upkeep, now);
            dispatcher.give_back(&root.share, now);
            drop(root.promised);
        }
    }
}

/// Takes a step towards taking what regions a tenant must not see any more from its memory, and those
/// of its top-level tenant; true if nothing is left to take.
///
/// # Errors
/// Why nothing can be had in their place.
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

/// How a tenant uses its memory.
fn memory_use(tenant: TenantId) -> MemoryUse {
    let (account, group) = local::with(|local| {
        let account = local.kernel.memory(tenant).unwrap_or_default();
        (account, local.kernel.group_of(tenant).ok())
    });
    let paged = group.and_then(memory::usage);
    MemoryUse {
        linear_bytes: account.used,
        limit_bytes: account.reserved,
        paging: paged.map(|paged| (paged.account, paged.counts)),
        shared_bytes: paged.map_or(0, |paged| paged.shared_bytes),
        swapped_bytes: paged.map_or(0, |paged| paged.swapped_bytes),
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
