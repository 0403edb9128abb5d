//! Joining the replenishments of a server while it runs.
//!
//! A server that has used its budget in pieces gets it back in as many, each with a timer and a
//! dispatch. Joined, pieces that are pending come back together, with the last of them. Nothing comes
//! earlier, so that no window gets more than without it, and all is back within a period.

use crate::budget::Budget;
use crate::contract::{Contract, Nanos};
use crate::id::{NEVER, Refused, ServerId};
use crate::replenishment_queue::{Replenishment, ReplenishmentQueue, Watch};
use crate::scheduler::Scheduler;
use crate::server::State;
use crate::sporadic::Sporadic;
use crate::transitions::watch;

impl Scheduler {
    /// Lets a sporadic server have no more than `most` replenishments from now on. Those beyond that
    /// are joined with the last one, and come with it: if `most` is two, what is available stays
    /// available, and what is pending becomes one. A replenishment later than a period from now
    /// belongs to an overrun, and remains one. Changes nothing if the server's contract has no more
    /// than `most`, nor if the budget comes back as a whole. Zero counts as one.
    ///
    /// Call [`schedule`](Self::schedule) afterwards. O(S).
    ///
    /// # Errors
    /// [`Refused::Stale`] if the server has been removed, [`Refused::Background`] if it has no
    /// contract.
    pub fn join_replenishments(
        &mut self,
        id: ServerId,
        most: u32,
        now: Nanos,
    ) -> Result<(), Refused> {
        let index = self.servers.find(id)?;
        let server = self.servers.at(index);
        let contract = *server.contract().ok_or(Refused::Background)?;
        let most = most.clamp(1, contract.replenishments());
        let Ok(contract) = contract.with_replenishments(most) else {
            return Ok(());
        };
        let Budget::Sporadic(_) = server.budget else {
            return Ok(());
        };
        self.account(now);
        let now = self.billing.now();
        self.withdraw(index);
        let queue = &mut self.replenishments[index as usize];
        let server = self.servers.at_mut(index);
        if let Budget::Sporadic(sporadic) = &mut server.budget {
            *sporadic = sporadic.joined(queue, &contract, now);
        }
        server.set_contract(&contract);
        if let Some(timers) = &mut self.timers {
            timers.cancel_replenishments(index);
        }
        let is_depleted = server.state == State::Depleted;
        server
            .budget
            .watch_all(queue, now, is_depleted, &mut watch(&mut self.timers, index));
        self.reinstate(index);
        Ok(())
    }
}

impl Sporadic {
    fn joined(&self, queue: &mut ReplenishmentQueue, contract: &Contract, now: Nanos) -> Self {
        let mut old = *self;
        // The used part of the head is pending as of now.
        old.suspend(queue, now, &mut Watch::Nothing);
        // A replenishment later than a period from now was an overrun, and stays one: merged with an
        // earlier one it would defer that.
        let latest = match contract.replenishments() < queue.len() {
            true => now + old.period(),
            false => NEVER,
        };
        let mut overrun = old.used();
        let parts = queue.entries().map(|entry| {
            if entry.at > latest {
                overrun += entry.amount;
            }
            Replenishment {
                at: entry.at.clamp(now, latest),
                amount: entry.amount,
            }
        });
        let parts = parts.filter(|part| part.amount > 0);
        let joined = ReplenishmentQueue::of(contract.replenishments(), parts);
        *queue = joined;
        let mut new = Sporadic::new(contract);
        // An overrun may be more than the new head.
        new.charge(queue, overrun, &mut Watch::Nothing);
        new
    }
}
