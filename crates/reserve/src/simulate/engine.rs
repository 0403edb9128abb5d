//! The loop of events: a processor, a one-shot timer, tasks, and the scheduler that is simulated.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;

use super::behaviour::{Behaviour, Progress, Step};
use super::cost::CostModel;
use super::event::{Cause, Event, Sink};
use crate::{Config, Contract, Nanos, Refused, Scheduler, ServerId, Supply, TaskId};

/// Reactions at one instant after which a simulation counts as stalled.
const PATIENCE: u32 = 1_000_000;

/// The entry of an invocation without a preceding cost.
const FREE_ENTRY: (Cause, Nanos) = (Cause::Call, 0);

/// A server of a [`Simulation`], in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerIndex(u32);

/// A task of a [`Simulation`], in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskIndex(u32);

impl ServerIndex {
    /// The server that is added as number `index`, from 0.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Its number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl TaskIndex {
    /// The task that is added as number `index`, from 0: scripts may name tasks that are added
    /// later.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Its number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// Why a simulation cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetUpError {
    /// The scheduler refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The behaviour could repeat itself for ever at one instant.
    #[error("a behaviour that repeats itself must take time")]
    Timeless,
}

/// Virtual time does not advance: tasks wake each other without running, for example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("virtual time does not go beyond {at} ns")]
pub struct Stalled {
    /// Where it stopped.
    pub at: Nanos,
}

/// A machine in virtual time: see the [module](super).
#[derive(Debug)]
pub struct Simulation<S> {
    scheduler: Scheduler,
    costs: CostModel,
    sink: S,
    /// Until when everything has happened.
    now: Nanos,
    timer: Option<Nanos>,
    running: Option<TaskIndex>,
    servers: Vec<Server>,
    tasks: Vec<Task>,
    /// Index of the task with each slot of the scheduler.
    by_id: Vec<TaskIndex>,
    /// Events from outside, the next one of each task that has any.
    arrivals: BinaryHeap<Reverse<(Nanos, TaskIndex)>>,
    /// Those that have arrived and interrupt no task: until the scheduler is called.
    deferred: VecDeque<(Nanos, TaskIndex)>,
    /// From when on one of them interrupts the task that runs.
    heard_from: Nanos,
    /// Tasks below this have begun.
    begun: usize,
    /// How often the machine has reacted since time advanced to where it is.
    turns: u32,
    turns_at: Nanos,
}

#[derive(Debug)]
struct Server {
    id: ServerId,
    /// The last reported value of its budget.
    budget: Nanos,
    depletions: u64,
}

/// A task's request to the scheduler.
enum Call {
    Suspend(Option<Nanos>),
    Wake(TaskIndex),
}

#[derive(Debug)]
struct Task {
    id: TaskId,
    server: ServerIndex,
    progress: Progress,
    /// Work until its next step.
    remaining: Nanos,
    /// The cache contents that it must reload before it continues its work.
    cold: Nanos,
    /// The cache contents that others must reload after it ran.
    evicts: Nanos,
    /// When it was to be activated.
    planned: Nanos,
    /// Whether there is an activation, past or planned, that it has not completed.
    active: bool,
    /// Whether it has executed since it was activated.
    executed: bool,
    /// Whether it has suspended itself and not run since.
    suspended: bool,
    /// Whether it is suspended until it is woken.
    waiting: bool,
    /// The latest of its deadlines that was reported as missed.
    missed: Option<Nanos>,
    /// Wake-ups that it has not waited for yet.
    wakes: VecDeque<Nanos>,
}

impl<S: Sink> Simulation<S> {
    /// An idle machine at time 0.
    pub fn new(config: Config, costs: CostModel, sink: S) -> Self {
        Self {
            scheduler: Scheduler::new(config).with_interrupt(costs.interrupt + costs.handler),
            costs,
            sink,
            now: 0,
            timer: None,
            running: None,
            servers: Vec::new(),
            tasks: Vec::new(),
            by_id: Vec::new(),
            arrivals: BinaryHeap::new(),
            deferred: VecDeque::new(),
            heard_from: Nanos::MAX,
            begun: 0,
            turns: 0,
            turns_at: 0,
        }
    }

    /// Adds a server with a reservation.
    ///
    /// # Errors
    /// If the scheduler has no room for it.
    pub fn server(&mut self, contract: &Contract) -> Result<ServerIndex, SetUpError> {
        let id = self.scheduler.add_server(contract, self.now)?;
        Ok(self.added(id, Some(contract)))
    }

    /// Adds a server without a reservation, whose tasks run in time slices of `slice` when no
    /// reservation can run.
    ///
    /// # Errors
    /// If the scheduler has no room for it.
    pub fn background(&mut self, slice: Nanos) -> Result<ServerIndex, SetUpError> {
        let id = self.scheduler.add_background(slice)?;
        Ok(self.added(id, None))
    }

    fn added(&mut self, id: ServerId, contract: Option<&Contract>) -> ServerIndex {
        let index = ServerIndex(self.servers.len() as u32);
        self.servers.push(Server {
            id,
            budget: contract.map_or(0, Contract::budget),
            depletions: 0,
        });
        self.sink.server(index, contract);
        index
    }

    /// Adds a task, which begins when the simulation goes on.
    ///
    /// # Errors
    /// If the scheduler has no room for it, or if its behaviour could repeat itself for ever
    /// without any time passing.
    pub fn task(
        &mut self,
        server: ServerIndex,
        behaviour: Behaviour,
    ) -> Result<TaskIndex, SetUpError> {
        let mut progress = Progress::of(behaviour)?;
        let id = self.scheduler.add_task(self.servers[server.get()].id)?;
        let index = TaskIndex(self.tasks.len() as u32);
        if let Some(at) = progress.next_arrival() {
            self.arrivals.push(Reverse((at, index)));
        }
        if self.by_id.len() <= id.index() {
            self.by_id.resize(id.index() + 1, index);
        }
        self.by_id[id.index()] = index;
        self.tasks.push(Task {
            id,
            server,
            progress,
            remaining: 0,
            cold: 0,
            evicts: 0,
            planned: self.now,
            active: false,
            executed: false,
            suspended: true,
            waiting: false,
            missed: None,
            wakes: VecDeque::new(),
        });
        self.sink.task(index, server);
        Ok(index)
    }

    /// Sets the time that a task preempted by this one spends on reloading caches when it runs
    /// again, before it continues its work.
    pub fn set_eviction(&mut self, task: TaskIndex, cost: Nanos) {
        self.tasks[task.get()].evicts = cost;
    }

    /// Lets time pass until `end`. An overhead that begins before `end` is finished, and at `end`
    /// the account is settled, without cost.
    ///
    /// # Errors
    /// If time does not pass.
    pub fn run_until(&mut self, end: Nanos) -> Result<(), Stalled> {
        self.begin();
        loop {
            let due = self.next_due();
            if due >= end {
                break;
            }
            self.execute(due);
            self.react()?;
        }
        self.execute(end.max(self.now));
        // The timer may be due, but nothing has been interrupted.
        self.scheduler.settle(self.now);
        self.decide(FREE_ENTRY, &CostModel::FREE);
        self.tell_unfinished();
        self.sink.record(&Event::Stopped { at: self.now });
        Ok(())
    }

    /// Virtual time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The scheduler's account of a server, as of its last invocation.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn supply(&self, server: ServerIndex) -> Supply {
        self.scheduler
            .supply(self.servers[server.get()].id)
            .expect("servers of a simulation are not removed")
    }

    /// Returns the receiver of events.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Returns the receiver of events, by value.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Lets the tasks that were added since take their first steps, which costs nothing.
    fn begin(&mut self) {
        if self.begun == self.tasks.len() {
            return;
        }
        while self.begun < self.tasks.len() {
            let task = TaskIndex(self.begun as u32);
            self.begun += 1;
            let id = self.tasks[task.get()].id;
            wake(&mut self.scheduler, id, self.now);
            self.tasks[task.get()].suspended = false;
            match self.next_call(task) {
                Some(call @ Call::Suspend(_)) => self.answer(task, call),
                // Waking another task needs the processor: it happens when the task runs.
                Some(Call::Wake(_)) => self.tasks[task.get()].progress.step_back(),
                None => {}
            }
        }
        self.decide(FREE_ENTRY, &CostModel::FREE);
    }

    /// When something happens next.
    fn next_due(&self) -> Nanos {
        let completion = self.running.map_or(Nanos::MAX, |task| {
            let task = &self.tasks[task.get()];
            let work = task.cold.saturating_add(task.remaining);
            self.now.saturating_add(work)
        });
        let arrival = self.arrivals.peek().map_or(Nanos::MAX, |next| next.0.0);
        let timer = self.timer.unwrap_or(Nanos::MAX);
        // Events that fall due during an overhead are noticed after it.
        let soonest = completion.min(arrival).min(timer);
        soonest.min(self.heard_from).max(self.now)
    }

    /// Lets the running task run until `to`.
    fn execute(&mut self, to: Nanos) {
        let from = mem::replace(&mut self.now, to);
        let Some(index) = self.running.filter(|_| from < to) else {
            return;
        };
        let task = &mut self.tasks[index.get()];
        let warm = from + task.cold.min(to - from);
        if from < warm {
            task.cold -= warm - from;
            self.sink.record(&Event::Overhead {
                task: Some(index),
                cause: Cause::Refill,
                from,
                to: warm,
            });
        }
        if warm < to {
            // A task without an end stays so.
            if task.remaining != Nanos::MAX {
                task.remaining -= to - warm;
            }
            if !mem::replace(&mut task.executed, true) {
                self.sink.record(&Event::Activated {
                    task: index,
                    planned: task.planned,
                    at: warm,
                });
            }
            self.sink.record(&Event::Ran {
                task: index,
                from: warm,
                to,
            });
        }
    }

    /// Does what is due now. A task that finishes a step when the timer fires is served first,
    /// since it then calls the scheduler anyway.
    fn react(&mut self) -> Result<(), Stalled> {
        let due = self.now;
        if due > self.turns_at {
            (self.turns, self.turns_at) = (0, due);
        }
        self.turns += 1;
        if self.turns > PATIENCE {
            return Err(Stalled { at: due });
        }
        let finished = self.running.filter(|task| {
            let task = &self.tasks[task.get()];
            task.cold == 0 && task.remaining == 0
        });
        match finished {
            Some(task) => self.call(task),
            None if self.timer.is_some_and(|timer| timer <= due) => self.interrupt(),
            None => {
                self.hear_arrivals();
                if self.heard_from <= due {
                    self.interrupt();
                }
            }
        }
        Ok(())
    }

    /// The running task takes its next step, and calls the scheduler if that is part of it.
    fn call(&mut self, task: TaskIndex) {
        if let Some(call) = self.next_call(task) {
            let entry = self.enter(Cause::Call, self.costs.call);
            self.answer(task, call);
            self.deliver_arrivals();
            self.decide(entry, &self.costs.clone());
        }
    }

    /// The timer or an event from outside interrupts the running task.
    fn interrupt(&mut self) {
        let (at, interrupted) = (self.now, self.running);
        let by_timer = self.timer.is_some_and(|timer| timer <= at);
        let entry = self.enter(Cause::Interrupt, self.costs.interrupt + self.costs.handler);
        self.deliver_arrivals();
        self.decide(entry, &self.costs.clone());
        if by_timer {
            self.sink.record(&Event::TimerInterrupt {
                at,
                to: self.now,
                task: interrupted,
                switched: self.running != interrupted,
            });
        }
    }

    /// Spends the time until the scheduler's timestamp. The scheduler decides which server is
    /// charged.
    fn enter(&mut self, cause: Cause, cost: Nanos) -> (Cause, Nanos) {
        self.now += cost;
        (cause, cost)
    }

    /// Takes steps of a task until it has something to run or wants something of the scheduler.
    fn next_call(&mut self, index: TaskIndex) -> Option<Call> {
        loop {
            let task = &mut self.tasks[index.get()];
            let step = task.progress.next();
            match step {
                Some(Step::Run(0)) => continue,
                Some(Step::Run(work)) => {
                    task.remaining = work;
                    if !task.active {
                        task.activate(self.now);
                    }
                    return None;
                }
                Some(Step::Wake(other)) => return Some(Call::Wake(other)),
                Some(Step::Sleep(_) | Step::SleepUntil(_) | Step::Await) | None => {}
            }
            self.complete(index);
            let task = &mut self.tasks[index.get()];
            let until = match step {
                Some(Step::Sleep(time)) => self.now.saturating_add(time),
                Some(Step::SleepUntil(until)) => until,
                Some(Step::Await) => match task.wakes.pop_front() {
                    Some(woken) => woken,
                    None => {
                        task.waiting = true;
                        return Some(Call::Suspend(None));
                    }
                },
                _ => return Some(Call::Suspend(None)),
            };
            task.activate(until);
            if until > self.now {
                return Some(Call::Suspend(Some(until)));
            }
        }
    }

    /// Does what a task asked for.
    fn answer(&mut self, index: TaskIndex, call: Call) {
        match call {
            Call::Suspend(until) => {
                let task = &mut self.tasks[index.get()];
                task.suspended = true;
                self.scheduler
                    .block(task.id, self.now, until)
                    .expect("tasks of a simulation are not removed");
            }
            Call::Wake(other) => self.deliver(other, self.now),
        }
    }

    /// Takes the next event from outside that has arrived.
    fn next_arrival(&mut self) -> Option<(Nanos, TaskIndex)> {
        let &Reverse((at, index)) = self.arrivals.peek()?;
        if at > self.now {
            return None;
        }
        self.arrivals.pop();
        if let Some(next) = self.tasks[index.get()].progress.next_arrival() {
            self.arrivals.push(Reverse((next, index)));
        }
        Some((at, index))
    }

    /// Notes when the events that have arrived interrupt the task that runs, if they do.
    fn hear_arrivals(&mut self) {
        while let Some((at, index)) = self.next_arrival() {
            self.deferred.push_back((at, index));
            let task = &self.tasks[index.get()];
            let heard = self.scheduler.interrupted_at(task.id, self.now);
            if let Some(from) = heard.expect("tasks of a simulation are not removed")
                && task.waiting
            {
                self.heard_from = self.heard_from.min(from);
            }
        }
    }

    /// Delivers the events from outside that have arrived.
    fn deliver_arrivals(&mut self) {
        while let Some((at, index)) = self.deferred.pop_front() {
            self.deliver(index, at);
        }
        while let Some((at, index)) = self.next_arrival() {
            self.deliver(index, at);
        }
    }

    /// Wakes a task that waits, or lets it find the wake-up when it does.
    fn deliver(&mut self, index: TaskIndex, at: Nanos) {
        let task = &mut self.tasks[index.get()];
        if !mem::replace(&mut task.waiting, false) {
            task.wakes.push_back(at);
            return;
        }
        task.activate(at);
        self.scheduler
            .wake_since(task.id, at, self.now)
            .expect("tasks of a simulation are not removed");
    }

    /// Lets the scheduler decide, now, after the time of the `entry`, and spends what that takes.
    fn decide(&mut self, (cause, entry): (Cause, Nanos), costs: &CostModel) {
        let stamp = self.now;
        // Where an invocation takes no time, there is none to pay for.
        self.scheduler.billing.set_dispatch(costs.redispatch());
        let decision = self.scheduler.schedule(stamp);
        self.heard_from = Nanos::MAX;
        let next = decision.run.map(|id| self.by_id[id.index()]);
        let previous = mem::replace(&mut self.running, next);
        // Part of an interrupt may be charged to the server that it was for.
        let theirs = stamp - self.scheduler.billing.advance();
        self.tell_overhead(previous, cause, stamp - entry, theirs);
        self.tell_overhead(next, cause, theirs, stamp);
        self.timer = decision.timer;
        self.now = stamp + costs.of(&decision);
        self.sink.record(&Event::Decided {
            at: stamp,
            processed: decision.processed,
            touched: decision.touched,
            replenishments: decision.replenishments,
            timeouts: decision.timeouts,
        });
        if let Some(task) = previous {
            self.tell_stop(task, next, stamp);
        }
        if let Some(task) = next {
            let task = &mut self.tasks[task.get()];
            debug_assert!(!task.waiting, "a task that waits is not woken by itself");
            task.suspended = false;
        }
        if self.sink.wants_budgets() {
            self.tell_budgets(stamp);
        }
        // The dispatch of a preempted task is charged to the preempting server.
        let paid = self
            .scheduler
            .billing
            .prepaid_until()
            .clamp(stamp, self.now);
        self.tell_overhead(previous, Cause::Decision, stamp, paid);
        self.tell_overhead(next, Cause::Decision, paid, self.now);
    }

    fn tell_overhead(&mut self, task: Option<TaskIndex>, cause: Cause, from: Nanos, to: Nanos) {
        if from < to {
            self.sink.record(&Event::Overhead {
                task,
                cause,
                from,
                to,
            });
        }
    }

    /// Reports why a task stops running, if it does, and evicts its cache contents.
    fn tell_stop(&mut self, index: TaskIndex, next: Option<TaskIndex>, at: Nanos) {
        let task = &self.tasks[index.get()];
        let server = &mut self.servers[task.server.get()];
        let supply = self.scheduler.supply(server.id);
        let depletions = supply.map_or(server.depletions, |supply| supply.depletions);
        let depleted = mem::replace(&mut server.depletions, depletions) < depletions;
        if depleted {
            let server = task.server;
            self.sink.record(&Event::Depleted { server, at });
        }
        if task.suspended || next == Some(index) {
            return;
        }
        let Some(next) = next.map(|next| &self.tasks[next.get()]) else {
            return;
        };
        let (evicts, other) = (next.evicts, next.server != task.server);
        if !depleted && other {
            self.sink.record(&Event::Preempted { task: index, at });
        }
        let task = &mut self.tasks[index.get()];
        task.cold = task.cold.max(evicts);
    }

    fn tell_budgets(&mut self, at: Nanos) {
        for (index, server) in self.servers.iter_mut().enumerate() {
            let Ok(left) = self.scheduler.budget_left(server.id, at) else {
                continue;
            };
            let before = mem::replace(&mut server.budget, left);
            if before != left {
                self.sink.record(&Event::Budget {
                    server: ServerIndex(index as u32),
                    at,
                    left,
                    replenished: left > before,
                });
            }
        }
    }

    /// The activation of a task is over, if there was one and it has executed.
    fn complete(&mut self, index: TaskIndex) {
        let at = self.now;
        let task = &mut self.tasks[index.get()];
        let due = task.due().filter(|due| *due < at);
        if !mem::replace(&mut task.active, false) || !task.executed {
            return;
        }
        let missed = due.filter(|due| Some(*due) > task.missed);
        task.missed = task.missed.max(missed);
        self.sink.record(&Event::Completed {
            task: index,
            planned: task.planned,
            at,
        });
        if let Some(due) = missed {
            self.sink.record(&Event::Missed {
                task: index,
                due,
                at,
                jobs: 1,
            });
        }
    }

    /// Reports deadlines that passed before their jobs were completed, or even begun.
    fn tell_unfinished(&mut self) {
        let at = self.now;
        for (index, task) in self.tasks.iter_mut().enumerate() {
            let (Some(due), Some(period)) = (task.due(), task.progress.relative_deadline()) else {
                continue;
            };
            let due = match task.missed {
                Some(missed) if missed >= due => {
                    due + ((missed - due) / period + 1).saturating_mul(period)
                }
                _ => due,
            };
            let Some(late) = at.checked_sub(due).filter(|late| *late > 0) else {
                continue;
            };
            let jobs = late.div_ceil(period);
            task.missed = Some(due + (jobs - 1) * period);
            let task = TaskIndex(index as u32);
            self.sink.record(&Event::Missed {
                task,
                due,
                at,
                jobs,
            });
        }
    }
}

impl Task {
    fn activate(&mut self, planned: Nanos) {
        self.planned = planned;
        self.active = true;
        self.executed = false;
    }

    /// When the work of the present activation is due, if it is.
    fn due(&self) -> Option<Nanos> {
        let relative = self.progress.relative_deadline().filter(|_| self.active)?;
        Some(self.planned.saturating_add(relative))
    }
}

/// Wakes a task that is known to the scheduler.
fn wake(scheduler: &mut Scheduler, task: TaskId, now: Nanos) {
    scheduler
        .wake(task, now)
        .expect("tasks of a simulation are not removed");
}
