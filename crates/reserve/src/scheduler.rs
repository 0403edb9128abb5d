//! The scheduler: a state machine from events to decisions.

use alloc::vec::Vec;

use crate::background::Background;
use crate::budget::Budget;
use crate::config::{Config, Shielding};
use crate::contract::{Contract, Nanos};
use crate::decision::Decision;
use crate::id::{Index, NEVER, Refused, ServerId, TaskId};
use crate::ready::{Pending, Ready};
use crate::ring::{Replenishment, Ring, Watch};
use crate::server::{Server, Servers, State};
use crate::slack::Ledger;
use crate::supply::Supply;
use crate::tasks::Tasks;
use crate::timers::Timers;
use crate::urgency::Urgency;

/// Processor reservations on one core.
///
/// It is told what happens, with the time, and says who runs: every event is followed by a call
/// of [`schedule`](Self::schedule), and so is the one-shot timer when it fires. Time never goes
/// back: an earlier instant than the last counts as the last. Instants are below 2⁶² ns.
///
/// Unless said otherwise a call takes constant time, but for finding a place in a heap: O(log n)
/// in the servers of the same priority, or the tasks of the same server.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) servers: Servers,
    /// The replenishment queues, by the places of their servers.
    pub(crate) rings: Vec<Ring>,
    pub(crate) tasks: Tasks,
    pub(crate) ready: Ready,
    pub(crate) pending: Pending,
    /// The timers of the eager scheduler, instead of `pending`.
    pub(crate) timers: Option<Timers>,
    pub(crate) background: Background,
    /// The server whose task runs, `τ_p` in the next invocation.
    pub(crate) current: Option<Index>,
    pub(crate) running: Option<TaskId>,
    /// Until when execution has been accounted for.
    pub(crate) accounted: Nanos,
    /// When the timer fires.
    pub(crate) armed: Nanos,
    pub(crate) ledger: Ledger,
}

impl Scheduler {
    /// A scheduler without servers. Allocates all that it will ever need.
    pub fn new(config: Config) -> Self {
        let Config {
            order,
            shielding,
            servers,
            tasks,
        } = config;
        Scheduler {
            config,
            servers: Servers::new(servers),
            rings: (0..servers).map(|_| Ring::new(1, 0, 1)).collect(),
            tasks: Tasks::new(servers, tasks),
            ready: Ready::new(order, servers),
            pending: Pending::new(order, servers),
            timers: (shielding == Shielding::Eager).then(|| Timers::new(servers, tasks)),
            background: Background::new(servers),
            current: None,
            running: None,
            accounted: 0,
            armed: NEVER,
            ledger: Ledger::default(),
        }
    }

    /// Adds a server with a full budget and no tasks. Whether its contract fits to the others'
    /// is not asked: that is what admission is for.
    ///
    /// # Errors
    /// [`Refused::Servers`] if there are as many as the scheduler was made for.
    pub fn add_server(&mut self, contract: &Contract, now: Nanos) -> Result<ServerId, Refused> {
        let now = now.max(self.accounted);
        let id = self.servers.add()?;
        self.rings[id.index()] = Ring::new(contract.replenishments(), now, contract.budget());
        let server = self.servers.at_mut(id.index);
        server.budget = Budget::new(contract, self.config.order, now);
        server.urgency = Urgency::of_priority(contract.priority());
        server.set_contract(contract);
        let watch = &mut watch(&mut self.timers, id.index);
        let ring = &self.rings[id.index()];
        server.budget.watch_all(ring, now, false, watch);
        self.ledger.admit(contract, now);
        Ok(id)
    }

    /// Adds a server without a reservation: it runs when no reservation can. Its tasks and those
    /// of other background servers take turns of `slice` nanoseconds, 1 at least.
    ///
    /// # Errors
    /// [`Refused::Servers`] if there are as many as the scheduler was made for.
    pub fn add_background(&mut self, slice: Nanos) -> Result<ServerId, Refused> {
        let id = self.servers.add()?;
        self.servers.at_mut(id.index).slice = slice.max(1);
        Ok(id)
    }

    /// Removes a server and all its tasks, in constant time whatever their number; the eager
    /// scheduler visits each.
    ///
    /// If one of them runs, call [`schedule`](Self::schedule) for who runs instead.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed before.
    pub fn remove_server(&mut self, id: ServerId, now: Nanos) -> Result<(), Refused> {
        let index = self.servers.find(id)?;
        self.account(now);
        self.withdraw(index);
        if let Some(contract) = self.servers.at(index).contract() {
            self.ledger.retire(contract, self.accounted);
        }
        if let Some(timers) = &mut self.timers {
            timers.cancel_replenishments(index);
            self.tasks
                .of(index)
                .for_each(|task| timers.cancel_wake_up(task));
        }
        self.tasks.remove_all(index);
        self.servers.remove(index);
        if self.current == Some(index) {
            self.current = None;
        }
        Ok(())
    }

    /// Adds a task to a server. It is blocked until it is [woken](Self::wake).
    ///
    /// # Errors
    /// [`Refused::Tasks`] if there are as many as the scheduler was made for,
    /// [`Refused::Stale`] if the server has been removed.
    pub fn add_task(&mut self, server: ServerId) -> Result<TaskId, Refused> {
        self.servers.find(server)?;
        self.tasks.add(server)
    }

    /// Removes a task. If it runs, call [`schedule`](Self::schedule) for who runs instead.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed before, or its server has.
    pub fn remove_task(&mut self, task: TaskId, now: Nanos) -> Result<(), Refused> {
        self.block(task, now, None)?;
        let server = self.tasks.server(task)?;
        self.tasks.remove(server.index, task.index);
        Ok(())
    }

    /// Wakes a task: an event activates it (SPR §IV-C). Nothing happens to one that is ready.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub fn wake(&mut self, task: TaskId, now: Nanos) -> Result<(), Refused> {
        let server = self.server_at(task)?;
        if self.tasks.is_ready(task.index) {
            return Ok(());
        }
        self.account(now);
        if let Some(timers) = &mut self.timers {
            timers.cancel_wake_up(task.index);
        }
        self.tasks.wake(server, task.index);
        if self.servers.at(server).state == State::Blocked {
            let at = self.servers.at(server).timeout.min(self.accounted);
            self.activate(server, at);
        }
        Ok(())
    }

    /// Suspends a task, until it is woken or until an instant comes, if one is given. The
    /// task's own call when it runs; on a task that sleeps already it sets another instant.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub fn block(&mut self, task: TaskId, now: Nanos, until: Option<Nanos>) -> Result<(), Refused> {
        let server = self.server_at(task)?;
        self.account(now);
        if self.tasks.first(server) == Some(task.index) {
            self.servers.at_mut(server).turn = 0;
        }
        self.put_to_sleep(server, task.index, until.unwrap_or(NEVER));
        if self.tasks.first(server).is_some() {
            return Ok(());
        }
        match self.servers.at(server).state {
            State::Blocked => self.set_blocked_timeout(server),
            // Another task of the server may be due already: the server goes on with it.
            _ if self.tasks.wake_sleeper(server, self.accounted).is_some() => {}
            _ => self.suspend(server),
        }
        Ok(())
    }

    /// Puts a running task behind the other ready tasks of its server. Nothing happens to one
    /// that does not run.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub fn rotate(&mut self, task: TaskId, now: Nanos) -> Result<(), Refused> {
        let server = self.server_at(task)?;
        self.account(now);
        if self.running == Some(task) && self.tasks.first(server) == Some(task.index) {
            self.take_turn(server);
        }
        Ok(())
    }

    /// Decides who runs (SPR §IV-B): accounts for what ran, processes what is due, selects the
    /// next task and says when the timer must fire.
    ///
    /// The time since the last call is charged to the task that ran, so `now` should be read
    /// before anything else is done.
    pub fn schedule(&mut self, now: Nanos) -> Decision {
        match self.config.shielding {
            Shielding::Eager => self.schedule_eager(now),
            Shielding::Shielded => self.schedule_shielded(now),
        }
    }

    /// The task that runs.
    pub fn running(&self) -> Option<TaskId> {
        self.running
    }

    /// The server of a task.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub fn server_of(&self, task: TaskId) -> Result<ServerId, Refused> {
        let server = self.tasks.server(task)?;
        self.servers.find(server).map(|_| server)
    }

    /// A server's contract.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed, [`Refused::Background`] if it has none.
    pub fn contract(&self, id: ServerId) -> Result<Contract, Refused> {
        self.server(id)?
            .contract()
            .copied()
            .ok_or(Refused::Background)
    }

    /// What a server has been given since it was added.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn supply(&self, id: ServerId) -> Result<Supply, Refused> {
        self.server(id).map(|server| server.supply)
    }

    /// What keeps a server from running, if anything. A timeout that has expired and was not
    /// processed yet counts as pending.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn state(&self, id: ServerId) -> Result<State, Refused> {
        self.server(id).map(|server| server.state)
    }

    /// What a server could use at `now`, without what comes back later; `u64::MAX` for a
    /// background server. What its task ran since the last event is taken off.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn budget_left(&self, id: ServerId, now: Nanos) -> Result<Nanos, Refused> {
        let server = self.server(id)?;
        let left = server.budget.left(&self.rings[id.index()], now);
        let ran = match self.current {
            Some(current) if current == id.index => now.saturating_sub(self.accounted),
            _ => 0,
        };
        Ok(left.saturating_sub(ran))
    }

    /// When a server gets budget back next, if any is pending at the last event.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn next_replenishment(&self, id: ServerId) -> Result<Option<Nanos>, Refused> {
        let server = self.server(id)?;
        let ring = &self.rings[id.index()];
        Ok(server.budget.next_replenishment(ring, self.accounted))
    }

    /// What a server has used beyond its budget and will be taken off the next replenishment.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn overrun(&self, id: ServerId) -> Result<Nanos, Refused> {
        let server = self.server(id)?;
        Ok(server
            .budget
            .overrun(&self.rings[id.index()], self.accounted))
    }

    /// The replenishment queue of a sporadic server, earliest first: what it can use, and from
    /// when on. Their amounts add up to the budget. Nothing for servers that need no queue.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn replenishments(
        &self,
        id: ServerId,
    ) -> Result<impl Iterator<Item = Replenishment>, Refused> {
        let is_sporadic = matches!(self.server(id)?.budget, Budget::Sporadic(_));
        let entries = self.rings[id.index()].entries();
        Ok(entries.filter(move |_| is_sporadic))
    }

    fn server(&self, id: ServerId) -> Result<&Server, Refused> {
        self.servers.find(id).map(|index| self.servers.at(index))
    }

    /// The place of a task's server, if neither has been removed.
    fn server_at(&self, task: TaskId) -> Result<Index, Refused> {
        self.servers.find(self.tasks.server(task)?)
    }
}

/// Who is told about a server's replenishments.
pub(crate) fn watch(timers: &mut Option<Timers>, server: Index) -> Watch<'_> {
    match timers {
        None => Watch::Nobody,
        Some(timers) => Watch::Timers(timers, server),
    }
}

/// What an event does to a server.
impl Scheduler {
    fn put_to_sleep(&mut self, server: Index, task: Index, until: Nanos) {
        match &mut self.timers {
            None => self.tasks.block(server, task, until),
            Some(timers) => {
                self.tasks.block(server, task, NEVER);
                timers.cancel_wake_up(task);
                if until != NEVER {
                    timers.set_wake_up(task, until);
                }
            }
        }
    }

    /// Accounts for what ran since the last event (SPR Alg. 1), and sees to what that changes.
    pub(crate) fn account(&mut self, now: Nanos) {
        let from = self.accounted;
        let now = from.max(now);
        self.accounted = now;
        let Some(index) = self.current.filter(|_| now > from) else {
            return;
        };
        let server = self.servers.at_mut(index);
        let ring = &mut self.rings[index as usize];
        server.supply.used += now - from;
        server.turn += now - from;
        if !server.is_background() {
            self.ledger.used += now - from;
        }
        // A timer that fired in time leaves no overrun.
        if now > self.armed && server.state == State::Ready {
            let overrun = now.saturating_sub(server.budget.depletion(ring, from));
            server.supply.overrun_max = server.supply.overrun_max.max(overrun);
        }
        server.supply.replenishments +=
            server
                .budget
                .charge(ring, from, now, &mut watch(&mut self.timers, index));
        let is_available = server.budget.is_available(ring, now);
        match server.state {
            State::Ready if is_available => self.follow_deadline(index),
            State::Ready => {
                self.leave(index);
                self.deplete(index);
            }
            // It ran on after the event that blocked it, until the scheduler was called.
            State::Blocked => self.suspend(index),
            State::Depleted => self.deplete(index),
        }
    }

    /// A server that is past its deadline when its budget ends goes on with the next deadline.
    #[inline]
    fn follow_deadline(&mut self, index: Index) {
        let server = self.servers.at(index);
        if let Some(deadline) = server.budget.deadline()
            && Urgency::of_deadline(deadline) != server.urgency
        {
            self.leave(index);
            self.enter(index);
        }
    }

    /// A server with ready tasks has no budget: it waits for its replenishment (SPR Alg. 1 lines
    /// 15 to 19).
    fn deplete(&mut self, index: Index) {
        let now = self.accounted;
        let server = self.servers.at_mut(index);
        let ring = &self.rings[index as usize];
        if server.state == State::Ready {
            server.supply.depletions += 1;
        }
        let overrun = server.budget.overrun(ring, now);
        server.supply.overrun_max = server.supply.overrun_max.max(overrun);
        server.state = State::Depleted;
        let available = server.budget.available_at(ring);
        self.set_timeout(index, available);
    }

    /// A server has no ready tasks any more (SPR Alg. 1 lines 5 to 13).
    fn suspend(&mut self, index: Index) {
        let now = self.accounted;
        self.leave(index);
        let server = self.servers.at_mut(index);
        let ring = &mut self.rings[index as usize];
        let overrun = server.budget.overrun(ring, now);
        server.supply.overrun_max = server.supply.overrun_max.max(overrun);
        server.state = State::Blocked;
        server
            .budget
            .suspend(ring, now, &mut watch(&mut self.timers, index));
        self.set_blocked_timeout(index);
    }

    /// Sets the timeout of a blocked server: when its first task wakes up, but not before there
    /// is budget (SPR §III-C, Alg. 1 lines 7 to 9).
    pub(crate) fn set_blocked_timeout(&mut self, index: Index) {
        let server = self.servers.at(index);
        let timeout = match self.tasks.next_wake(index) {
            NEVER => NEVER,
            wake => {
                let available = server.budget.available_at(&self.rings[index as usize]);
                if available > self.accounted {
                    wake.max(available)
                } else {
                    wake
                }
            }
        };
        self.set_timeout(index, timeout);
    }

    /// A blocked server has a ready task again, since `at` (SPR Alg. 3); returns how many
    /// replenishments were processed.
    pub(crate) fn activate(&mut self, index: Index, at: Nanos) -> u64 {
        let now = self.accounted;
        self.set_timeout(index, NEVER);
        let server = self.servers.at_mut(index);
        let ring = &mut self.rings[index as usize];
        let replenished = server
            .budget
            .resume(ring, at, now, &mut watch(&mut self.timers, index));
        server.supply.replenishments += replenished;
        server.supply.activations += 1;
        if server.budget.is_available(ring, now) {
            self.enter(index);
        } else {
            self.deplete(index);
        }
        replenished
    }

    /// A depleted server has budget again.
    pub(crate) fn replenish(&mut self, index: Index) -> u64 {
        let now = self.accounted;
        self.set_timeout(index, NEVER);
        let server = self.servers.at_mut(index);
        let ring = &mut self.rings[index as usize];
        let replenished = server
            .budget
            .replenish(ring, now, &mut watch(&mut self.timers, index));
        server.supply.replenishments += replenished;
        self.enter(index);
        replenished
    }

    /// Takes a server from wherever it waits.
    pub(crate) fn withdraw(&mut self, index: Index) {
        self.set_timeout(index, NEVER);
        self.leave(index);
    }

    /// Puts a server back that was withdrawn and changed meanwhile.
    pub(crate) fn reinstate(&mut self, index: Index) {
        let server = self.servers.at(index);
        let ring = &self.rings[index as usize];
        match server.state {
            State::Blocked => self.set_blocked_timeout(index),
            State::Ready if server.budget.is_available(ring, self.accounted) => self.enter(index),
            State::Ready | State::Depleted => self.deplete(index),
        }
    }

    /// Puts a server among the ready ones.
    fn enter(&mut self, index: Index) {
        let server = self.servers.at_mut(index);
        server.state = State::Ready;
        if server.is_background() {
            self.background.push_back(index);
        } else {
            if let Some(deadline) = server.budget.deadline() {
                server.urgency = Urgency::of_deadline(deadline);
            }
            self.ready.push_back(server.urgency, index);
        }
    }

    /// Takes a server from among the ready ones, if it is there.
    fn leave(&mut self, index: Index) {
        let server = self.servers.at(index);
        if server.state != State::Ready {
            return;
        }
        if server.is_background() {
            self.background.remove(index);
        } else {
            self.ready.remove(server.urgency, index);
        }
    }

    /// The timer of a replenishment fired that does not make its server ready.
    pub(crate) fn note_due(&mut self, index: Index) -> u64 {
        let server = self.servers.at_mut(index);
        let ring = &mut self.rings[index as usize];
        let mut watch = watch(&mut self.timers, index);
        let noted = match server.state {
            State::Blocked => server.budget.replenish(ring, self.accounted, &mut watch),
            _ => server.budget.note_due(ring, self.accounted, &mut watch),
        };
        server.supply.replenishments += noted;
        noted
    }

    /// Sets a server's timeout; `NEVER`: it has none. The eager scheduler has timers instead.
    fn set_timeout(&mut self, index: Index, at: Nanos) {
        if self.timers.is_some() {
            return;
        }
        let server = self.servers.at_mut(index);
        server.timeout = at;
        if server.is_background() {
            self.background.set_timeout(index, at);
            return;
        }
        self.pending.remove(server.urgency, index);
        if at != NEVER {
            let is_activation = server.state == State::Blocked;
            if let Some(deadline) = server.budget.deadline_at(at, is_activation) {
                server.urgency = Urgency::of_deadline(deadline);
            }
            self.pending.set(server.urgency, index, at);
        }
    }
}
