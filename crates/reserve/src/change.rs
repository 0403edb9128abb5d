//! Changing a contract while its server runs.
//!
//! The rule: *budget used under the old contract is replenished as the old contract stated, and
//! only once.* Budget is a number of units, each of which is available or pending, and a unit that
//! is used is pending for a period.
//!
//! * A smaller budget takes units away, pending ones first and of those the latest first, then
//!   available ones. The pending old units therefore never exceed the new budget.
//! * A larger budget adds units that are pending: they come one new period after the change, as
//!   if they had just been used.
//! * A constant-bandwidth server gets a new budget at its next deadline, which is late enough for
//!   the rest of the old budget to be within its share.
//! * The new period counts for units that are used from now on, as if the server had become
//!   active by the change.
//!
//! So no window as long as the shorter period gets more than the larger budget, and no window after
//! the change, as long as the new period, more than the new budget (of a sporadic server; of the
//! others twice that, as without a change). And the smaller of both budgets is always guaranteed:
//! kept units are available when the old contract stated. The new contract holds in full once the
//! longer of both periods has passed.

use crate::bandwidth::Bandwidth;
use crate::budget::Budget;
use crate::config::Order;
use crate::contract::{Contract, Nanos, Policy};
use crate::deferrable::Deferrable;
use crate::id::{NEVER, Refused, ServerId};
use crate::replenishment_queue::{Replenishment, ReplenishmentQueue, Watch};
use crate::scheduler::Scheduler;
use crate::server::State;
use crate::sporadic::Sporadic;
use crate::transitions::watch;
use crate::urgency::Urgency;

impl Scheduler {
    /// Replaces a server's contract. Priority, non-preemptive region and slice change at once.
    /// A smaller budget takes effect at once, on what is pending first; a larger one when a new
    /// period has passed, or, of a constant-bandwidth server, the deadline. No window as long as the
    /// shorter period gets more than the larger budget by it (of a deferrable server, than two), so that
    /// changing often gives nothing.
    ///
    /// Call [`schedule`](Self::schedule) afterwards. O(S).
    ///
    /// # Errors
    /// [`Refused::Stale`] if the server has been removed, [`Refused::Background`] if it has no
    /// contract.
    pub fn change_server(
        &mut self,
        id: ServerId,
        contract: &Contract,
        now: Nanos,
    ) -> Result<(), Refused> {
        let index = self.servers.find(id)?;
        if self.servers.at(index).contract().is_none() {
            return Err(Refused::Background);
        }
        self.account(now);
        let now = self.billing.now();
        self.withdraw(index);
        let queue = &mut self.replenishments[index as usize];
        let server = self.servers.at_mut(index);
        server.budget = changed(&server.budget, queue, contract, self.config.order, now);
        server.urgency = Urgency::of_priority(contract.priority());
        server.set_contract(contract);
        if let Some(timers) = &mut self.timers {
            timers.cancel_replenishments(index);
        }
        let queue = &self.replenishments[index as usize];
        let is_depleted = server.state == State::Depleted;
        server
            .budget
            .watch_all(queue, now, is_depleted, &mut watch(&mut self.timers, index));
        self.reinstate(index);
        Ok(())
    }
}

/// The accounts of a server under a new contract.
fn changed(
    budget: &Budget,
    queue: &mut ReplenishmentQueue,
    contract: &Contract,
    order: Order,
    now: Nanos,
) -> Budget {
    let mut budget = *budget;
    budget.catch_up(now);
    match (order, contract.policy(), &budget) {
        (Order::EarliestDeadline, _, Budget::Bandwidth(old)) => {
            Budget::Bandwidth(Bandwidth::changed(old, contract, now))
        }
        (_, Policy::Sporadic, Budget::Sporadic(old)) => {
            Budget::Sporadic(old.changed(queue, contract, now))
        }
        (_, Policy::Deferrable, Budget::Deferrable(old)) => {
            Budget::Deferrable(old.changed(contract, now))
        }
        (_, Policy::Sporadic, old) => {
            // The unused budget stays, the rest is pending.
            let left = old.left(queue, now).min(contract.budget());
            let overrun = old.overrun(queue, now);
            let parts = [
                (now, left),
                (now + contract.period(), contract.budget() - left),
            ];
            let parts = parts.map(|(at, amount)| Replenishment { at, amount });
            let capacity = contract.replenishments();
            *queue =
                ReplenishmentQueue::of(capacity, parts.into_iter().filter(|part| part.amount > 0));
            let mut sporadic = Sporadic::new(contract);
            sporadic.charge(queue, overrun, &mut Watch::Nothing);
            Budget::Sporadic(sporadic)
        }
        (_, Policy::Deferrable, old) => {
            let left = old.left(queue, now).min(contract.budget());
            let used = contract.budget() - left + old.overrun(queue, now);
            Budget::Deferrable(Deferrable::with(contract, used, now + contract.period()))
        }
    }
}

impl Sporadic {
    fn changed(&self, queue: &mut ReplenishmentQueue, contract: &Contract, now: Nanos) -> Self {
        let mut old = *self;
        // The used part of the head is pending as of now.
        old.suspend(queue, now, &mut Watch::Nothing);
        let keep = contract.budget().min(queue.total());
        // If only the number of entries changes, a replenishment later than a period from now was
        // an overrun, and stays one: merged with an earlier one it would defer that.
        let same = contract.budget() == queue.total() && contract.period() == old.period();
        let latest = match same && contract.replenishments() < queue.len() {
            true => now + old.period(),
            false => NEVER,
        };
        let mut overrun = old.used();
        let added = Replenishment {
            at: queue.last().at.max(now + contract.period()),
            amount: contract.budget() - keep,
        };
        let mut room = keep;
        let kept = queue.entries().map(|entry| {
            let amount = entry.amount.min(room);
            room -= amount;
            if entry.at > latest {
                overrun += amount;
            }
            Replenishment {
                at: entry.at.clamp(now, latest),
                amount,
            }
        });
        let parts = kept.chain([added]).filter(|entry| entry.amount > 0);
        let renewed = ReplenishmentQueue::of(contract.replenishments(), parts);
        *queue = renewed;
        let mut new = Sporadic::new(contract);
        // An overrun may be more than the new head.
        new.charge(queue, overrun, &mut Watch::Nothing);
        new
    }
}

impl Deferrable {
    fn changed(&self, contract: &Contract, now: Nanos) -> Self {
        let left = self.left(now).min(contract.budget());
        let used = contract.budget() - left + self.overrun();
        // The accounts have caught up: the old contract's next budget is all that comes then.
        Deferrable::with(contract, used, self.boundary_after(now)).with_next(self.next())
    }
}

impl Bandwidth {
    /// Returns the accounts with a deadline so late that the remaining budget is within its share
    /// of the time until then.
    fn changed(old: &Bandwidth, contract: &Contract, now: Nanos) -> Self {
        let left = old.left().min(contract.budget());
        let used = contract.budget() - left + old.overrun();
        let (budget, period) = (u128::from(contract.budget()), u128::from(contract.period()));
        let share = (u128::from(left) * period).div_ceil(budget) as Nanos;
        Bandwidth::with(contract, used, old.deadline().max(now + share))
    }
}
