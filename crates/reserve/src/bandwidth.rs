//! Hard constant-bandwidth servers: budget and deadline under earliest deadline first (Abeni and
//! Buttazzo; hard reservations as by Biondi et al.; SPR §V-D).
//!
//! A server has a budget to use by its deadline. When the budget is used up it waits until the
//! deadline, and gets the next budget with the next deadline, one period later.

use crate::contract::{Contract, Nanos};

/// The accounts of a constant-bandwidth server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bandwidth {
    /// The used part of the budget of the present deadline, overruns included.
    used: Nanos,
    deadline: Nanos,
    budget: Nanos,
    period: Nanos,
}

impl Bandwidth {
    pub(crate) const fn new(contract: &Contract, now: Nanos) -> Self {
        Bandwidth {
            used: 0,
            deadline: now + contract.period(),
            budget: contract.budget(),
            period: contract.period(),
        }
    }

    #[inline]
    pub(crate) const fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Returns the instant of the next budget; zero if there is budget.
    #[inline]
    pub(crate) const fn available_at(&self) -> Nanos {
        match self.used / self.budget {
            0 => 0,
            periods => self
                .deadline
                .saturating_add((periods - 1).saturating_mul(self.period)),
        }
    }

    pub(crate) const fn overrun(&self) -> Nanos {
        self.used.saturating_sub(self.budget)
    }

    /// Returns the largest use beyond the replenished budget at any instant of execution from
    /// `from` to `to`: just before a deadline, or at the end.
    pub(crate) fn longest_overrun(&self, from: Nanos, to: Nanos) -> Nanos {
        let used = |at: Nanos| self.used + (at - from);
        let Some(passed) = to.checked_sub(self.deadline) else {
            return used(to).saturating_sub(self.budget);
        };
        let rounds = passed / self.period;
        let last = self.deadline + rounds * self.period;
        let back = (rounds + 1).saturating_mul(self.budget);
        let before = match last > from {
            true => used(last).saturating_sub(back),
            false => 0,
        };
        before.max(used(to).saturating_sub(back.saturating_add(self.budget)))
    }

    pub(crate) const fn left(&self) -> Nanos {
        self.budget.saturating_sub(self.used)
    }

    /// Accounts for execution. A server that is past its deadline when its budget ends goes on
    /// with the next budget and the next deadline. Returns how many replenishments there were.
    #[inline]
    pub(crate) fn charge(&mut self, ran: Nanos, now: Nanos) -> u64 {
        self.used += ran;
        self.replenish(now)
    }

    /// Replenishes a budget that was used up, if the time has come.
    #[inline]
    pub(crate) fn replenish(&mut self, now: Nanos) -> u64 {
        let periods = self.used / self.budget;
        if periods == 0 || self.available_at() > now {
            return 0;
        }
        self.used -= periods * self.budget;
        self.deadline += periods * self.period;
        periods
    }

    /// Resumes the server, with something to run since `at`. If the remaining budget exceeds its
    /// share of the time to the deadline, both start anew (the CBS wake rule).
    #[inline]
    pub(crate) fn resume(&mut self, at: Nanos, now: Nanos) -> u64 {
        let replenished = self.replenish(now);
        if self.used >= self.budget {
            return replenished;
        }
        let share = u128::from(self.deadline.saturating_sub(at)) * u128::from(self.budget);
        if share > u128::from(self.budget - self.used) * u128::from(self.period) {
            return replenished;
        }
        self.used = 0;
        self.deadline = at + self.period;
        replenished + 1
    }

    /// The deadline that the server will have when its timeout at `at` is processed, which is a
    /// replenishment or an activation.
    pub(crate) fn deadline_at(&self, at: Nanos, is_activation: bool) -> Nanos {
        let mut then = *self;
        if is_activation {
            then.resume(at, at);
        } else {
            then.replenish(at);
        }
        then.deadline
    }

    /// When the budget ends if the server runs from now on.
    #[inline]
    pub(crate) const fn depletion(&self, now: Nanos) -> Nanos {
        now + (self.budget - self.used)
    }
}
