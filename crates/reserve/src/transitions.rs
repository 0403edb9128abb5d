//! The transitions of a server between ready, blocked and depleted (SPR Alg. 1 and 3), and the
//! queues in which it waits.

use crate::billing::Bill;
use crate::contract::Nanos;
use crate::eager_timers::Timers;
use crate::id::{Index, NEVER};
use crate::replenishment_queue::Watch;
use crate::scheduler::Scheduler;
use crate::server::State;
use crate::urgency::Urgency;

/// Returns the observer of a server's replenishments.
pub(crate) fn watch(timers: &mut Option<Timers>, server: Index) -> Watch<'_> {
    match timers {
        None => Watch::Nothing,
        Some(timers) => Watch::Timers(timers, server),
    }
}

impl Scheduler {
    /// Makes a task sleep until an instant, or until it is woken.
    pub(crate) fn put_to_sleep(&mut self, server: Index, task: Index, until: Nanos) {
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

    /// Accounts for the execution since the last event (SPR Alg. 1), and applies its consequences.
    pub(crate) fn account(&mut self, now: Nanos) {
        self.account_but(now, 0);
    }

    /// The same without the last `interrupt` nanoseconds, for which another server pays.
    pub(crate) fn account_but(&mut self, now: Nanos, interrupt: Nanos) {
        let bill = self.billing.settle(now, interrupt, self.current.is_some());
        let Some(index) = self.current else {
            return;
        };
        let now = self.billing.now();
        let (from, to) = match bill {
            Bill::Nothing => return,
            Bill::Spared(time) => return self.spare(index, time),
            Bill::Charged(from, to) => (from, to),
        };
        let server = self.servers.at_mut(index);
        let queue = &mut self.replenishments[index as usize];
        server.supply.used += to - from;
        server.slice_used += to - from;
        server.slice_used_by_all += to - from;
        let is_late = now > self.billing.expiry();
        let overrun = match is_late {
            // Execution beyond the budget's end was an overrun, even if it was replenished
            // meanwhile.
            true => server.budget.longest_overrun(queue, from, to),
            false => 0,
        };
        server.supply.replenishments +=
            server
                .budget
                .charge(queue, (from, to), now, &mut watch(&mut self.timers, index));
        let overrun = match is_late {
            true => overrun,
            false => server.budget.overrun(queue, now),
        };
        server.supply.overrun_max = server.supply.overrun_max.max(overrun);
        self.settle_budget(index);
    }

    /// Applies the consequences of a charge to a server.
    fn settle_budget(&mut self, index: Index) {
        let server = self.servers.at(index);
        let queue = &self.replenishments[index as usize];
        let is_available = server.budget.is_available(queue, self.billing.now());
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

    /// Charges a stopped server for time that is spent for it from now on.
    pub(crate) fn charge_stopped(&mut self, index: Index, time: Nanos) {
        let now = self.billing.now();
        let server = self.servers.at_mut(index);
        let queue = &mut self.replenishments[index as usize];
        server.supply.used += time;
        let watch = &mut watch(&mut self.timers, index);
        server.supply.replenishments += server.budget.charge_more(queue, time, now, watch);
        debug_assert!(server.state != State::Ready, "it has stopped");
        self.settle_budget(index);
    }

    /// Charges a server for the time of helper threads.
    pub(crate) fn charge_helpers(&mut self, index: Index, time: Nanos) {
        let now = self.billing.now();
        let server = self.servers.at_mut(index);
        server.supply.used += time;
        if server.is_background() {
            server.slice_debt = server.slice_debt.saturating_add(time);
            return;
        }
        let queue = &mut self.replenishments[index as usize];
        let watch = &mut watch(&mut self.timers, index);
        server.slice_used = server.slice_used.saturating_add(time);
        if server.state == State::Blocked {
            // Used budget is replenished a period after the activation at the earliest.
            server.supply.replenishments += server.budget.resume(queue, now, now, watch);
        }
        server.supply.replenishments += server.budget.charge_more(queue, time, now, watch);
        self.settle_budget(index);
    }

    /// Defers the region of the server that would have run by the spared time, and processes its
    /// replenishments until then.
    #[cold]
    fn spare(&mut self, index: Index, time: Nanos) {
        let now = self.billing.now();
        self.spared += time;
        let server = self.servers.at_mut(index);
        server.defer_region(time);
        server.supply.replenishments += server.budget.catch_up(now);
        self.forgo(index);
    }

    /// Excludes the time for which the processor worked for no task from the time for which a server had
    /// budget and did not run.
    pub(crate) fn forgo(&mut self, index: Index) {
        let server = self.servers.at_mut(index);
        let time = self.spared - server.spared;
        if time > 0 {
            server.spared = self.spared;
            let queue = &mut self.replenishments[index as usize];
            server.budget.forgo(queue, time, self.billing.now());
        }
    }

    /// Gives a server that is past its deadline when its budget ends the next deadline.
    #[inline]
    fn follow_deadline(&mut self, index: Index) {
        let server = self.servers.at(index);
        if let Some(deadline) = server.budget.deadline()
            && Urgency::of_deadline(deadline) != server.urgency
        {
            self.leave(index);
            self.enter_now(index);
        }
    }

    /// Makes a server with ready tasks and no budget wait for its replenishment (SPR Alg. 1 lines
    /// 15 to 19).
    pub(crate) fn deplete(&mut self, index: Index) {
        let server = self.servers.at_mut(index);
        let queue = &self.replenishments[index as usize];
        if server.state == State::Ready {
            server.supply.depletions += 1;
        }
        server.state = State::Depleted;
        let available = server.budget.available_at(queue);
        self.set_timeout(index, available);
    }

    /// Suspends a server without ready tasks (SPR Alg. 1 lines 5 to 13).
    pub(crate) fn suspend(&mut self, index: Index) {
        let now = self.billing.now();
        self.leave(index);
        let server = self.servers.at_mut(index);
        let queue = &mut self.replenishments[index as usize];
        server.state = State::Blocked;
        server
            .budget
            .suspend(queue, now, &mut watch(&mut self.timers, index));
        if server.budget.is_put_off() {
            self.put_off.add(index);
        }
        self.set_blocked_timeout(index);
    }

    /// Sets the timeout of a blocked server: when its first task wakes up, but not before there
    /// is budget (SPR §III-C, Alg. 1 lines 7 to 9).
    pub(crate) fn set_blocked_timeout(&mut self, index: Index) {
        let server = self.servers.at(index);
        let timeout = match self.tasks.next_wake(index) {
            NEVER => NEVER,
            wake => wake.max(
                server
                    .budget
                    .available_at(&self.replenishments[index as usize]),
            ),
        };
        self.set_timeout(index, timeout);
    }

    /// Activates a blocked server that has a ready task since `at` (SPR Alg. 3); returns how many
    /// replenishments were processed.
    pub(crate) fn activate(&mut self, index: Index, at: Nanos) -> u64 {
        let now = self.billing.now();
        self.set_timeout(index, NEVER);
        let server = self.servers.at_mut(index);
        let queue = &mut self.replenishments[index as usize];
        let before = server.budget.left(queue, at);
        let replenished = server
            .budget
            .resume(queue, at, now, &mut watch(&mut self.timers, index));
        server.supply.replenishments += replenished;
        server.supply.activations += 1;
        if server.budget.is_available(queue, now) {
            let left = match server.budget.deadline() {
                // It may have a new budget.
                Some(_) => server.budget.left(queue, now),
                None => before,
            };
            self.enter(index, at, left);
        } else {
            self.deplete(index);
        }
        replenished
    }

    /// Makes a depleted server ready after its replenishment.
    pub(crate) fn replenish(&mut self, index: Index) -> u64 {
        let now = self.billing.now();
        self.set_timeout(index, NEVER);
        let server = self.servers.at_mut(index);
        let queue = &mut self.replenishments[index as usize];
        let since = server.budget.available_at(queue).min(now);
        let before = server.budget.left(queue, since);
        let replenished = server
            .budget
            .replenish(queue, now, &mut watch(&mut self.timers, index));
        server.supply.replenishments += replenished;
        let left = match server.budget.deadline() {
            Some(_) => server.budget.left(queue, now),
            None => before,
        };
        self.enter(index, since, left);
        replenished
    }

    /// Removes a server from the queue in which it waits.
    pub(crate) fn withdraw(&mut self, index: Index) {
        self.set_timeout(index, NEVER);
        self.leave(index);
        self.put_off.remove(index);
    }

    /// Puts a server back that was withdrawn and changed meanwhile.
    pub(crate) fn reinstate(&mut self, index: Index) {
        let server = self.servers.at(index);
        let queue = &self.replenishments[index as usize];
        let is_available = server.budget.is_available(queue, self.billing.now());
        match server.state {
            State::Blocked => self.set_blocked_timeout(index),
            State::Ready if is_available => self.enter_now(index),
            // Its replenishment has come due at this very instant.
            State::Depleted if is_available => {
                self.replenish(index);
            }
            State::Ready | State::Depleted => self.deplete(index),
        }
    }

    /// Adds a server to the ready ones that becomes ready at this instant.
    fn enter_now(&mut self, index: Index) {
        let now = self.billing.now();
        let left = self
            .servers
            .at(index)
            .budget
            .left(&self.replenishments[index as usize], now);
        self.enter(index, now, left);
    }

    /// Adds a server to the ready ones. It has had a task and budget since an instant, with `left`
    /// of it available then.
    fn enter(&mut self, index: Index, since: Nanos, left: Nanos) {
        if self.servers.at(index).budget.is_put_off() {
            self.put_off.remove(index);
        }
        self.forgo(index);
        let server = self.servers.at_mut(index);
        server.becomes_ready(since, left);
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
        let now = self.billing.now();
        let server = self.servers.at_mut(index);
        if server.state != State::Ready {
            return;
        }
        server.was_ready_until(now);
        if server.is_background() {
            self.background.remove(index);
        } else {
            self.ready.remove(server.urgency, index);
        }
    }

    /// Records that the timer of a replenishment fired without making its server ready.
    pub(crate) fn note_due(&mut self, index: Index) -> u64 {
        let server = self.servers.at_mut(index);
        let queue = &mut self.replenishments[index as usize];
        let mut watch = watch(&mut self.timers, index);
        let noted = match server.state {
            State::Blocked => server
                .budget
                .replenish(queue, self.billing.now(), &mut watch),
            _ => server
                .budget
                .note_due(queue, self.billing.now(), &mut watch),
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
