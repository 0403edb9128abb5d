//! Giving back the time by which stalls of the host put servers off.
//!
//! Budgets of a stall are gone ([`forgo`](Scheduler::forgo)): replenishments of servers that waited in it are later
//! by as much. A server that needs its whole budget in every period would be late in every later one. So what was put
//! off is given back, at an instant at which no reservation has both a task and budget.
//!
//! That delays no reservation by more than admission says. Its response is counted from the last such instant on
//! (the busy period of response-time analysis), and whenever the entries of a more urgent server's queue are due at
//! that instant or after it, each comes back a period after its use began: in a time `w` the server uses no more
//! than `⌈w / period⌉` budgets. Earlier entries, but not before that instant, are within this. What is given back is
//! what the background would have had.
//!
//! The whole queue comes back earlier, also entries that the stall had not put off. So until an instant a server may
//! get what it would have got without stalls at an instant that is later by all stalls before.
//!
//! Only servers that have slept since get it: one that computes without a pause has no job that would be on time.

use crate::id::Index;
use crate::lists::Lists;
use crate::scheduler::Scheduler;
use crate::server::State;
use crate::transitions::watch;

const ONLY: Index = 0;

/// The servers that have slept since they were put off.
#[derive(Debug)]
pub(crate) struct PutOff(Lists);

impl PutOff {
    pub(crate) fn new(servers: u32) -> Self {
        PutOff(Lists::new(1, servers))
    }

    pub(crate) fn add(&mut self, server: Index) {
        if !self.0.contains(server) {
            self.0.push_back(ONLY, server);
        }
    }

    pub(crate) fn remove(&mut self, server: Index) {
        self.0.remove(server);
    }
}

impl Scheduler {
    /// Gives a server back what it was put off by, at an instant at which no reservation has both a task and
    /// budget. Returns whether there was one: it may be due now.
    ///
    /// One for each decision: the server that stopped and this one are all that it touches.
    #[inline]
    pub(crate) fn give_back(&mut self) -> bool {
        let first = self.put_off.0.pop_front(ONLY);
        if let Some(index) = first {
            self.give_back_to(index);
        }
        first.is_some()
    }

    #[cold]
    fn give_back_to(&mut self, index: Index) {
        let now = self.billing.now();
        let server = self.servers.at_mut(index);
        let queue = &mut self.replenishments[index as usize];
        let watch = &mut watch(&mut self.timers, index);
        server.budget.give_back(queue, now, watch);
        match server.state {
            State::Blocked => self.set_blocked_timeout(index),
            State::Ready | State::Depleted => self.deplete(index),
        }
    }
}
