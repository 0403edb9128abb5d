//! Eager scheduling, the baseline (SPR §III-A): every timer interrupts the running task when it is
//! due, and every invocation processes all expired timers of all servers.

use crate::decision::Decision;
use crate::eager_timers::{Timer, Timers};
use crate::id::{Index, NEVER};
use crate::scheduler::Scheduler;
use crate::server::State;

impl Scheduler {
    pub(crate) fn schedule_eager(&mut self, now: u64) -> Decision {
        self.servers.forget_touched();
        let mut decision = Decision::default();
        self.account(now);
        let previous = self.current;
        if let Some(previous) = previous {
            self.note_timer(previous);
            self.end_slice(previous);
        }
        self.process_timers(&mut decision);
        if self.ready.first().is_none() && self.give_back() {
            self.process_timers(&mut decision);
        }
        let next = self.most_urgent();
        let next = self.begin_fresh_slice(next);
        self.dispatch(previous, next, &mut decision);
        self.arm_eagerly(next, &mut decision);
        decision.touched = self.servers.touched();
        decision
    }

    fn process_timers(&mut self, decision: &mut Decision) {
        while let Some((at, timer)) = self.pop_timer() {
            self.process_timer(at, timer, decision);
        }
    }

    fn pop_timer(&mut self) -> Option<(u64, Timer)> {
        let now = self.billing.now();
        self.timers.as_mut()?.pop(now)
    }

    fn process_timer(&mut self, at: u64, timer: Timer, decision: &mut Decision) {
        decision.timeouts += 1;
        let (index, replenished) = match timer {
            Timer::Replenishment(index) => (index, self.process_replenishment(index)),
            Timer::WakeUp(task) => {
                let Ok(server) = self.tasks.server(self.tasks.id(task)) else {
                    return;
                };
                self.tasks.wake(server.index, task);
                let is_blocked = self.servers.at(server.index).state == State::Blocked;
                let replenished = if is_blocked {
                    self.activate(server.index, at)
                } else {
                    0
                };
                (server.index, replenished)
            }
        };
        decision.replenishments += self.entries(index, replenished);
        decision.processed += u32::from(!self.servers.at(index).is_background());
    }

    /// Processes a due replenishment. For a ready server the interrupt itself suffices: the next
    /// timer is set later.
    fn process_replenishment(&mut self, index: Index) -> u64 {
        let server = self.servers.at(index);
        let queue = &self.replenishments[index as usize];
        let is_available = server.budget.is_available(queue, self.billing.now());
        match server.state {
            State::Depleted if is_available => self.replenish(index),
            _ => self.note_due(index),
        }
    }

    /// Returns the ready server to run; among equals the running one continues.
    fn most_urgent(&self) -> Option<Index> {
        let Some((urgency, index)) = self.ready.first() else {
            return self.background.first();
        };
        let goes_on = |&current: &Index| {
            let server = self.servers.at(current);
            server.state == State::Ready && !server.is_background() && server.urgency == urgency
        };
        Some(self.current.filter(goes_on).unwrap_or(index))
    }

    /// Sets the timer to the depletion of the available budget, or to the next timer of any server.
    fn arm_eagerly(&mut self, next: Option<Index>, decision: &mut Decision) {
        let now = self.billing.now();
        let mut armed = self.timers.as_ref().map_or(NEVER, Timers::earliest);
        if let Some(index) = next {
            let server = self.servers.at(index);
            let left = server
                .budget
                .left(&self.replenishments[index as usize], now);
            armed = armed
                .min(now.saturating_add(left))
                .min(self.turn_end(index));
        }
        self.billing.arm(armed, false);
        decision.timer = (armed != NEVER).then_some(armed);
    }
}
