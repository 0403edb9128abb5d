//! Dispatching: what changes when another server, or another task of it, runs.

use crate::decision::Decision;
use crate::id::Index;
use crate::scheduler::Scheduler;
use crate::server::State;

impl Scheduler {
    /// Counts the timer that made the scheduler run, if one did, for the server that it
    /// interrupted.
    pub(crate) fn note_timer(&mut self, previous: Index) {
        if self.accounted >= self.armed {
            self.servers.at_mut(previous).supply.timers += 1;
        }
    }

    /// Lets `next` run after `previous`.
    pub(crate) fn dispatch(
        &mut self,
        previous: Option<Index>,
        next: Option<Index>,
        decision: &mut Decision,
    ) {
        let now = self.accounted;
        if previous != next {
            if let Some(previous) = previous {
                let server = self.servers.at_mut(previous);
                if server.state == State::Ready {
                    server.supply.preemptions += 1;
                    server.is_preempted = true;
                }
            }
            if let Some(next) = next {
                let server = self.servers.at_mut(next);
                // The non-preemptive region begins (SPR Alg. 2 line 5).
                server.dispatched = now.max(self.prepaid_until);
                server.is_preempted = false;
                server.supply.dispatches += 1;
                // What a deferrable server gets back while it is preempted comes now.
                let caught_up = server.budget.catch_up(now);
                server.supply.replenishments += caught_up;
                decision.replenishments += caught_up as u32;
            }
        }
        let touched = |index: Option<Index>| {
            index.is_some_and(|index| !self.servers.at(index).is_background())
        };
        decision.touched +=
            u32::from(touched(previous)) + u32::from(next != previous && touched(next));
        let run = next
            .and_then(|next| self.tasks.first(next))
            .map(|task| self.tasks.id(task));
        decision.switched = run != self.running;
        decision.run = run;
        self.running = run;
        self.current = next;
    }
}
