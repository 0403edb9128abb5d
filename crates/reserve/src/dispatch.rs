//! Dispatching: what changes when another server, or another task of it, runs.

use crate::budget::Budget;
use crate::decision::Decision;
use crate::id::Index;
use crate::scheduler::Scheduler;
use crate::server::State;

impl Scheduler {
    /// Counts the timer that made the scheduler run, if one did, for the server that it
    /// interrupted.
    pub(crate) fn note_timer(&mut self, previous: Index) {
        if self.billing.now() >= self.billing.expiry() {
            self.servers.at_mut(previous).supply.timers += 1;
        }
    }

    /// How many entries of a replenishment queue were processed, if so many replenishments were: without a
    /// queue, one for all periods that passed.
    pub(crate) fn entries(&self, index: Index, replenished: u64) -> u32 {
        match self.servers.at(index).budget {
            Budget::Sporadic(_) => replenished as u32,
            _ => u32::from(replenished > 0),
        }
    }

    /// Lets `next` run after `previous`.
    pub(crate) fn dispatch(
        &mut self,
        previous: Option<Index>,
        next: Option<Index>,
        decision: &mut Decision,
    ) {
        let now = self.billing.now();
        if previous != next {
            if let Some(previous) = previous {
                let server = self.servers.at_mut(previous);
                if server.state == State::Ready {
                    server.supply.preemptions += 1;
                    server.is_preempted = true;
                }
            }
            if let Some(next) = next {
                self.forgo(next);
                let server = self.servers.at_mut(next);
                server.begin_region(self.billing.begin());
                server.is_preempted = false;
                server.supply.dispatches += 1;
                // A deferrable server that was preempted gets its replenishment now.
                let caught_up = server.budget.catch_up(now);
                server.supply.replenishments += caught_up;
                // Any number of periods is one entry.
                decision.replenishments += u32::from(caught_up > 0);
            }
        }
        let is_reserved = |index: Option<Index>| {
            index.is_some_and(|index| !self.servers.at(index).is_background())
        };
        decision.processed +=
            u32::from(is_reserved(previous)) + u32::from(next != previous && is_reserved(next));
        let run = next
            .and_then(|next| self.tasks.first(next))
            .map(|task| self.tasks.id(task));
        decision.switched = run != self.running;
        decision.run = run;
        self.running = run;
        self.current = next;
    }
}
