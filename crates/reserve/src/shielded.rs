//! Shielded scheduling (SPR §III-B to §III-F, §IV-B): a timer fires only to switch at once, and at
//! most one timeout is processed, that of the server which runs next. An invocation therefore
//! touches at most two reservations: the previous one and the next one.
//!
//! A timeout that is processed always makes its server ready: it is the instant from which the
//! server has a task *and* budget. An overrun larger than a replenishment is settled when it is
//! charged (SPR Alg. 1 continues until the rest is less than the head), which defers the timeout.
//! So nothing has to be undone when it expires, and no third reservation is touched.

use crate::contract::{Contract, INSTANT_MAX, Nanos};
use crate::decision::Decision;
use crate::id::{Index, NEVER};
use crate::scheduler::Scheduler;
use crate::server::State;
use crate::urgency::Urgency;

impl Scheduler {
    pub(crate) fn schedule_shielded(&mut self, now: Nanos) -> Decision {
        self.servers.forget_touched();
        let mut decision = Decision::default();
        let interrupt = self.interrupt_for_others(now);
        self.account_but(now, interrupt);
        let previous = self.current;
        if let Some(previous) = previous {
            self.note_timer(previous);
            self.end_slice(previous);
        }
        let next = self.select(&mut decision);
        let next = self.begin_fresh_slice(next);
        // An interrupt for another server is a dispatch of that server, never the resumption of a
        // preempted one.
        if interrupt == 0 {
            self.charge_redispatch(previous, next);
        }
        self.dispatch(previous, next, &mut decision);
        // The server that runs now pays for it, even if it is the interrupted one.
        self.billing.dispatched(interrupt, next.is_some());
        decision.region_end = next.map_or(0, |next| self.servers.at(next).region_end());
        self.arm(next, &mut decision);
        decision.touched = self.servers.touched();
        debug_assert!(decision.timeouts <= 1 && decision.touched <= Some(2));
        decision
    }

    /// Returns the part of the time until `now` in which the timer interrupted the running server, or woke the idle
    /// processor, because a more urgent server came due.
    ///
    /// The interrupted server did not cause this time. If it were charged, a preemption storm could
    /// take its budget (SPR attack A3), or the time of the background. Charged to the preempting server, every
    /// preemption costs the attacker as much as it takes. The dispatched server has been due for as long: the
    /// schedule is the one in which it is dispatched when its timer expires.
    fn interrupt_for_others(&self, now: Nanos) -> Nanos {
        let is_ready = |index: Index| self.servers.at(index).state == State::Ready;
        match self.current.is_none_or(is_ready) {
            true => self.billing.interrupt_for_others(now),
            false => 0,
        }
    }

    /// Charges the preempting server, which has stopped, for the dispatch of the server that it
    /// preempted, or for putting the processor to sleep that it woke. The decision, the timer and the switch are part
    /// of the preemption's cost, like its interrupt, and not of the preempted server's execution.
    fn charge_redispatch(&mut self, previous: Option<Index>, next: Option<Index>) {
        let is_return = |next: Index| self.servers.at(next).is_preempted;
        let has_stopped = |previous: &Index| {
            let previous = self.servers.at(*previous);
            previous.state != State::Ready && !previous.is_background()
        };
        if let Some(previous) = previous.filter(has_stopped)
            && next.is_none_or(is_return)
        {
            let cost = self.billing.prepay();
            if cost > 0 {
                self.charge_stopped(previous, cost);
            }
        }
    }

    /// Selects the server that runs next; processes its timeout if that has expired.
    fn select(&mut self, decision: &mut Decision) -> Option<Index> {
        let now = self.billing.now();
        let current = self.current.map(|index| (index, self.servers.at(index)));
        let current = current.filter(|(_, server)| server.state == State::Ready);
        if let Some((index, server)) = current
            && server.is_nonpreemptive(now)
        {
            // Timeouts of other servers wait until the region ends (SPR §III-F).
            return Some(index);
        }
        let first = self.ready.first();
        let least = first.map_or(Urgency::LEAST, |(urgency, _)| urgency);
        if let Some((urgency, index)) = self.pending.most_urgent_expired(now)
            && urgency < least
        {
            self.process_timeout(index, decision);
            return Some(index);
        }
        if let Some((urgency, index)) = first {
            // Among equals the running one continues.
            return match current {
                Some((current, server)) if server.urgency == urgency => Some(current),
                _ => Some(index),
            };
        }
        if self.give_back()
            && let Some((_, index)) = self.pending.most_urgent_expired(now)
        {
            self.process_timeout(index, decision);
            return Some(index);
        }
        if let Some(index) = self.background.first() {
            return Some(index);
        }
        let index = self.background.expired(now)?;
        self.process_timeout(index, decision);
        Some(index)
    }

    /// Makes a server ready whose timeout has expired.
    fn process_timeout(&mut self, index: Index, decision: &mut Decision) {
        let server = self.servers.at(index);
        let replenished = match server.state {
            State::Blocked => {
                let at = server.timeout;
                self.tasks.wake_sleeper(index, self.billing.now());
                self.activate(index, at)
            }
            _ => self.replenish(index),
        };
        debug_assert_eq!(self.servers.at(index).state, State::Ready);
        decision.timeouts += 1;
        decision.replenishments += self.entries(index, replenished);
    }

    /// Returns the instant at which the running server's budget ends, or at which it must yield
    /// then.
    fn depletion(&self, index: Index) -> Nanos {
        let server = self.servers.at(index);
        let since = self.billing.charged_since();
        let interrupt = self.billing.interrupt();
        let queue = &self.replenishments[index as usize];
        let end = server.budget.depletion(queue, since, interrupt);
        match (server.budget.deadline(), server.contract()) {
            (Some(deadline), Some(contract)) if end.saturating_add(interrupt) >= deadline => {
                self.depletion_beyond(index, contract, end, deadline)
            }
            _ => end,
        }
    }

    /// The same for a constant-bandwidth server that is past its deadline when its budget ends.
    ///
    /// It continues with its next budget and a later deadline, and so on. After `k` budgets it
    /// stops if their end precedes their deadline, or yields to a server with an earlier deadline.
    /// Both conditions are monotone in `k`, so that the least `k` is found by arithmetic and by
    /// bisection: O(log²), however late the server is.
    #[cold]
    fn depletion_beyond(
        &self,
        index: Index,
        contract: &Contract,
        end: Nanos,
        deadline: Nanos,
    ) -> Nanos {
        let (budget, period) = (contract.budget(), contract.period());
        let region = self.servers.at(index).region_end();
        let waiting = self.ready.first_deadline_but(index).unwrap_or(NEVER);
        let end_of = |k: u64| end.saturating_add(k.saturating_mul(budget));
        let gives_way = |k: u64| {
            let deadline = deadline.saturating_add((k + 1).saturating_mul(period));
            let waits = if waiting < deadline { end_of(k) } else { NEVER };
            let comes = self.pending.earliest_above(Urgency::of_deadline(deadline));
            waits.min(comes).max(end_of(k)).max(region)
        };
        let must = |k: u64| gives_way(k) <= end_of(k + 1);
        let late = end + self.billing.interrupt() - deadline;
        let stops = late.checked_div(period - budget).map_or(NEVER, |k| k + 1);
        let (mut low, mut high) = (0, stops.min(INSTANT_MAX / budget));
        while low < high {
            let middle = low + (high - low) / 2;
            match must(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        match low < stops {
            true if must(low) => gives_way(low),
            true => NEVER,
            false => end_of(stops),
        }
    }

    /// Sets the timer (SPR Alg. 2).
    fn arm(&mut self, next: Option<Index>, decision: &mut Decision) {
        let now = self.billing.now();
        let (expiry, is_for_others) = match next {
            None => {
                let (reserved, background) = (self.pending.earliest(), self.background.earliest());
                (reserved.min(background), reserved < background)
            }
            Some(index) => {
                let server = self.servers.at(index);
                // A budget that is shorter than the interrupt is depleted at once.
                let depletion = self.depletion(index).max(now + 1);
                let preemption = if server.is_background() {
                    self.pending.earliest()
                } else {
                    let waiting = match self.ready.first() {
                        Some((urgency, _)) if urgency < server.urgency => now,
                        _ => NEVER,
                    };
                    self.pending
                        .earliest_above(server.urgency)
                        .min(waiting)
                        .max(server.region_end())
                };
                let own = depletion.min(self.turn_end(index));
                (own.min(preemption), preemption < own)
            }
        };
        self.billing.arm(expiry, is_for_others);
        decision.timer = (expiry != NEVER).then_some(expiry);
    }
}
