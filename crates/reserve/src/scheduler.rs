//! The scheduler: a state machine from events to decisions.

use alloc::vec::Vec;

use crate::background::Background;
use crate::billing::Billing;
use crate::budget::Budget;
use crate::config::{Config, Shielding};
use crate::contract::{Contract, INSTANT_MAX, Nanos, PERIOD_MAX};
use crate::decision::Decision;
use crate::eager_timers::Timers;
use crate::id::{Index, NEVER, Refused, ServerId, TaskId};
use crate::put_off::PutOff;
use crate::ready::{Pending, Ready};
use crate::replenishment_queue::{Replenishment, ReplenishmentQueue};
use crate::server::{Server, Servers, State};
use crate::supply::Supply;
use crate::tasks::Tasks;
use crate::transitions::watch;
use crate::urgency::Urgency;

/// Processor reservations on one core.
///
/// It receives events with their times and returns the task to run: every event, and every firing
/// of the one-shot timer, is followed by a call of [`schedule`](Self::schedule). Time never goes
/// back: an earlier instant than the last counts as the last. It ends at [`INSTANT_MAX`].
///
/// Unless stated otherwise a call takes constant time, except for finding a place in a heap: O(log
/// n) in the servers of the same priority, or the tasks of the same server.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) servers: Servers,
    /// The replenishment queues, by the places of their servers; of a background server, one that is not used.
    pub(crate) replenishments: Vec<ReplenishmentQueue>,
    pub(crate) tasks: Tasks,
    pub(crate) ready: Ready,
    pub(crate) pending: Pending,
    /// The timers of the eager scheduler, instead of `pending`.
    pub(crate) timers: Option<Timers>,
    pub(crate) background: Background,
    /// The server whose task runs, `τ_p` in the next invocation.
    pub(crate) current: Option<Index>,
    pub(crate) running: Option<TaskId>,
    /// Which server pays for the processor's time.
    pub(crate) billing: Billing,
    /// The time for which the processor has worked for no task while a server was selected.
    pub(crate) spared: Nanos,
    /// The servers to which time is given back when no reservation has both a task and budget.
    pub(crate) put_off: PutOff,
}

impl Scheduler {
    /// Creates a scheduler without servers. Allocates all memory that it will ever need.
    pub fn new(config: Config) -> Self {
        let Config {
            order,
            shielding,
            servers,
            tasks,
            seed,
        } = config;
        Scheduler {
            config,
            servers: Servers::new(servers),
            replenishments: Vec::with_capacity(servers as usize),
            tasks: Tasks::new(servers, tasks),
            ready: Ready::new(order, servers),
            pending: Pending::new(order, servers, seed),
            timers: (shielding == Shielding::Eager).then(|| Timers::new(servers, tasks)),
            background: Background::new(servers),
            current: None,
            running: None,
            spared: 0,
            put_off: PutOff::new(servers),
            billing: Billing::new(),
        }
    }

    /// Makes a shielded scheduler charge interrupts to the servers that they are for, up to
    /// `at_most` nanoseconds each: the usual time between the timer's expiry and the scheduler's
    /// timestamp. By default, 0, they are charged to the interrupted servers, as in SPR.
    ///
    /// In this time a timer for a server of higher urgency takes the processor from the running
    /// one, or wakes the idle processor. Time beyond `at_most` is charged to the running server, which may have deferred the
    /// interrupt in a non-preemptible call.
    #[must_use]
    pub const fn with_interrupt(mut self, at_most: Nanos) -> Self {
        self.billing.set_interrupt(at_most);
        self
    }

    /// Makes a shielded scheduler charge the dispatch of a preempted server, or of none, `takes` nanoseconds
    /// each, to the preempting server when that stops: the usual time between the scheduler's
    /// timestamp and the first instruction of the dispatched task. By default, 0, the preempted
    /// server pays for it, as in SPR.
    #[must_use]
    pub const fn with_redispatch(mut self, takes: Nanos) -> Self {
        self.billing.set_dispatch(takes);
        self
    }

    /// Adds a server with a full budget and no tasks. Does not test whether its contract fits
    /// beside the others: that is the task of admission.
    ///
    /// # Errors
    /// [`Refused::Servers`] if there are as many as the scheduler was made for.
    pub fn add_server(&mut self, contract: &Contract, now: Nanos) -> Result<ServerId, Refused> {
        let now = now.clamp(self.billing.now(), INSTANT_MAX);
        let id = self.add_place()?;
        self.replenishments[id.index()] =
            ReplenishmentQueue::new(contract.replenishments(), now, contract.budget());
        let server = self.servers.at_mut(id.index);
        server.budget = Budget::new(contract, self.config.order, now);
        server.urgency = Urgency::of_priority(contract.priority());
        server.set_contract(contract);
        let watch = &mut watch(&mut self.timers, id.index);
        let queue = &self.replenishments[id.index()];
        server.budget.watch_all(queue, now, false, watch);
        Ok(id)
    }

    /// Adds a server without a reservation: it runs when no reservation can. Its tasks and those of
    /// other background servers run in time slices of `slice` nanoseconds, at least 1.
    ///
    /// # Errors
    /// [`Refused::Servers`] if there are as many as the scheduler was made for.
    pub fn add_background(&mut self, slice: Nanos) -> Result<ServerId, Refused> {
        let id = self.add_place()?;
        self.servers.at_mut(id.index).slice = slice.max(1);
        Ok(id)
    }

    /// Takes a place for a server, and for its replenishment queue.
    fn add_place(&mut self) -> Result<ServerId, Refused> {
        let id = self.servers.add()?;
        if id.index() == self.replenishments.len() {
            self.replenishments.push(ReplenishmentQueue::new(1, 0, 1));
        }
        Ok(id)
    }

    /// Removes a server and all its tasks, in constant time whatever their number; the eager
    /// scheduler visits each.
    ///
    /// If one of them runs, call [`schedule`](Self::schedule) afterwards.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed before.
    pub fn remove_server(&mut self, id: ServerId, now: Nanos) -> Result<(), Refused> {
        let index = self.servers.find(id)?;
        self.account(now);
        self.withdraw(index);
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

    /// Removes a task. If it runs, call [`schedule`](Self::schedule) afterwards.
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
        self.wake_since(task, now, now)
    }

    /// The same for an event at `since` that is processed `now`: used budget is replenished a
    /// period after the event, as if the scheduler had been called then.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub(crate) fn wake_since(
        &mut self,
        task: TaskId,
        since: Nanos,
        now: Nanos,
    ) -> Result<(), Refused> {
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
            let since = since.min(self.billing.now());
            let at = self.servers.at(server).timeout.min(since);
            self.activate(server, at);
        }
        Ok(())
    }

    /// Wakes a task by a message from outside of the processor, such as the end of a transfer, that was sent at `since`
    /// and is read `now`. Used budget is replenished a period after the message was sent, as if it had been read then: a
    /// message for a server of lower priority than the running one may be read when that has stopped.
    ///
    /// If the message wakes the idle processor, or interrupts the background, it costs what a timer's interrupt does; the
    /// woken server pays for that as [it pays for one of its timer](Self::with_interrupt). Nothing happens to a task that
    /// is ready. O(S).
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub fn wake_by_message(
        &mut self,
        task: TaskId,
        since: Nanos,
        now: Nanos,
    ) -> Result<(), Refused> {
        let server = self.server_at(task)?;
        let is_asleep = !self.tasks.is_ready(task.index);
        self.wake_since(task, since, now)?;
        self.yield_region(server, since);
        let is_spare = |index: Index| self.servers.at(index).is_background();
        let is_interrupt = self.timers.is_none() && self.current.is_none_or(is_spare);
        if is_asleep && is_interrupt && !self.servers.at(server).is_background() {
            self.charge_helpers(server, self.billing.interrupt());
        }
        Ok(())
    }

    /// Ends the running server's region for a more urgent one that was woken before it began: the decision that began it
    /// did not know.
    fn yield_region(&mut self, woken: Index, since: Nanos) {
        let Some(current) = self.current else {
            return;
        };
        let woken = self.servers.at(woken);
        let is_due = woken.state == State::Ready && !woken.is_background();
        if is_due && woken.urgency < self.servers.at(current).urgency {
            self.servers.at_mut(current).yield_region(since);
        }
    }

    /// Returns from when on an event at `now` that wakes a task must interrupt the running one. `None`: the task could not
    /// run before the next call of the scheduler, which then processes the event [with its time](Self::wake_since).
    ///
    /// A shielded scheduler is interrupted for a server that preempts the running one, now or at
    /// the end of its non-preemptive region. A server that waits for budget or
    /// for the processor preempts no other.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub(crate) fn interrupted_at(
        &self,
        task: TaskId,
        now: Nanos,
    ) -> Result<Option<Nanos>, Refused> {
        let index = self.server_at(task)?;
        let current = self.current.map(|index| (index, self.servers.at(index)));
        let Some((current, running)) = current.filter(|(_, server)| !server.is_background()) else {
            return Ok(Some(now));
        };
        if self.timers.is_some() || current == index {
            return Ok(Some(now));
        }
        let server = self.servers.at(index);
        if server.is_background() || server.state != State::Blocked {
            return Ok(None);
        }
        let urgency = match server.budget.deadline_at(now, true) {
            Some(deadline) => Urgency::of_deadline(deadline),
            None => server.urgency,
        };
        let has_budget = server
            .budget
            .is_available(&self.replenishments[index as usize], now);
        let interrupts = has_budget && urgency < running.urgency;
        Ok(interrupts.then_some(now.max(running.region_end())))
    }

    /// Suspends a task, until it is woken or until an instant comes, if one is given. The
    /// task's own call when it runs; on a task that sleeps already it sets another instant.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the task has been removed, or its server has.
    pub fn block(&mut self, task: TaskId, now: Nanos, until: Option<Nanos>) -> Result<(), Refused> {
        let server = self.server_at(task)?;
        self.account(now);
        let was_first = self.tasks.first(server) == Some(task.index);
        let until = until.filter(|&at| at <= INSTANT_MAX).unwrap_or(NEVER);
        self.put_to_sleep(server, task.index, until);
        if was_first {
            self.hand_over(server);
        }
        if self.tasks.first(server).is_some() {
            return Ok(());
        }
        match self.servers.at(server).state {
            State::Blocked => self.set_blocked_timeout(server),
            _ => {
                self.suspend(server);
                self.give_up_slice(server);
            }
        }
        Ok(())
    }

    /// Suspends charging while the processor works for no task, such as for the admission of a
    /// tenant: until [`resume`](Self::resume) no server is charged. The running task is not
    /// preempted by this, and keeps the rest of its non-preemptive region.
    ///
    /// Otherwise the server that was selected last would pay, and a small budget would be depleted
    /// for many periods.
    pub fn pause(&mut self, now: Nanos) {
        self.account(now);
        self.billing.pause();
    }

    /// Resumes charging. [`schedule`](Self::schedule) decides which task runs.
    pub fn resume(&mut self, now: Nanos) {
        self.account(now);
        self.billing.resume();
    }

    /// Charges the running task for all the time until `now`. The next decision then does not count
    /// as a timer's interrupt, part of which [another server](Self::with_interrupt) may pay.
    pub fn settle(&mut self, now: Nanos) {
        self.account(now);
    }

    /// Charges a server for `time` nanoseconds of processor time that helper threads have spent on its
    /// behalf, beside the time that its tasks run: as of `now`, in one piece.
    ///
    /// The excess over the budget is an overrun, subtracted from the next replenishments (SPR Alg.
    /// 1). For an inactive server the charge counts as an activation at `now`. For a background
    /// server the time counts in its supply and in its time slice. The excess over a slice shortens
    /// its next slices, to an eighth at the least, until it is compensated.
    ///
    /// Call [`schedule`](Self::schedule) afterwards: the budget of the running server ends earlier
    /// by that time. O(S).
    ///
    /// # Errors
    /// [`Refused::Stale`] if the server has been removed.
    pub fn charge(&mut self, id: ServerId, time: Nanos, now: Nanos) -> Result<(), Refused> {
        let index = self.servers.find(id)?;
        self.account(now);
        if time > 0 {
            self.charge_helpers(index, time.min(PERIOD_MAX));
        }
        Ok(())
    }

    /// Decides which task runs (SPR §IV-B): accounts for the execution, processes due timeouts,
    /// selects the next task and computes the time of the timer.
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

    /// Returns the processor time that a server has received since it was added.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn supply(&self, id: ServerId) -> Result<Supply, Refused> {
        let server = self.server(id)?;
        let now = self.billing.now();
        let due = server
            .budget
            .left(&self.replenishments[id.index()], server.timeout.min(now));
        Ok(Supply {
            misses: server.supply.misses + server.missed_until(now, due),
            ..server.supply
        })
    }

    /// Returns the state of a server. An expired timeout that was not processed yet counts as
    /// pending.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn state(&self, id: ServerId) -> Result<State, Refused> {
        self.server(id).map(|server| server.state)
    }

    /// Returns the available budget of a server at `now`, without later replenishments; `u64::MAX`
    /// for a background server. The execution since the last event is subtracted.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn budget_left(&self, id: ServerId, now: Nanos) -> Result<Nanos, Refused> {
        let server = self.server(id)?;
        let left = server.budget.left(&self.replenishments[id.index()], now);
        let ran = match self.current {
            Some(current) if current == id.index => now
                .max(self.billing.now())
                .saturating_sub(self.billing.charged_since()),
            _ => 0,
        };
        Ok(left.saturating_sub(ran))
    }

    /// A server's deadline under earliest deadline first; `None` under fixed priorities and without
    /// a reservation. It only moves to later.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn deadline(&self, id: ServerId) -> Result<Option<Nanos>, Refused> {
        self.server(id).map(|server| server.budget.deadline())
    }

    /// Returns a server's overrun, which is subtracted from the next replenishment.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn overrun(&self, id: ServerId) -> Result<Nanos, Refused> {
        let server = self.server(id)?;
        Ok(server
            .budget
            .overrun(&self.replenishments[id.index()], self.billing.now()))
    }

    /// Returns the replenishment queue of a sporadic server, earliest first: amounts and the
    /// instants from which they are available. The amounts add up to the budget. Empty for servers
    /// without a queue.
    ///
    /// # Errors
    /// [`Refused::Stale`] if it has been removed.
    pub fn replenishments(
        &self,
        id: ServerId,
    ) -> Result<impl Iterator<Item = Replenishment>, Refused> {
        let is_sporadic = matches!(self.server(id)?.budget, Budget::Sporadic(_));
        let entries = self.replenishments[id.index()].entries();
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
