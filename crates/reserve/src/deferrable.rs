//! Deferrable servers: the whole budget comes back at every multiple of the period (SPR §II).
//!
//! Nothing is done at those instants: how many have passed is arithmetic, and takes constant time
//! however many they are.

use crate::contract::{Contract, Nanos};
use crate::id::NEVER;

/// A deferrable server's accounts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deferrable {
    /// The budget used in this period, overruns of earlier ones included.
    used: Nanos,
    /// When the budget comes back next.
    boundary: Nanos,
    budget: Nanos,
    period: Nanos,
}

impl Deferrable {
    /// Accounts of a server that begins in the middle of a period, of which it has the whole
    /// budget: periods begin at multiples of their length, whenever the server was made.
    pub(crate) const fn new(contract: &Contract, now: Nanos) -> Self {
        let period = contract.period();
        Deferrable {
            used: 0,
            boundary: (now / period + 1) * period,
            budget: contract.budget(),
            period,
        }
    }

    /// Lets the periods pass that ended by `now`, in which nothing was used; returns how many.
    #[inline]
    pub(crate) fn roll(&mut self, now: Nanos) -> u64 {
        if now < self.boundary {
            return 0;
        }
        let passed = (now - self.boundary) / self.period + 1;
        self.boundary += passed * self.period;
        self.begin_period();
        self.used = self
            .used
            .saturating_sub((passed - 1).saturating_mul(self.budget));
        passed
    }

    /// The budget comes back.
    #[inline]
    fn begin_period(&mut self) {
        self.used = self.used.saturating_sub(self.budget);
    }

    /// Returns the instant of the next budget; zero if there is budget. An overrun of a whole
    /// budget defers it by another period.
    #[inline]
    pub(crate) const fn available_at(&self) -> Nanos {
        if self.used < self.budget {
            return 0;
        }
        let periods = (self.used - self.budget) / self.budget;
        self.boundary
            .saturating_add(periods.saturating_mul(self.period))
    }

    pub(crate) const fn overrun(&self) -> Nanos {
        self.used.saturating_sub(self.budget)
    }

    /// Returns the largest use beyond the replenished budget at any instant of execution from
    /// `from` to `to`: just before the end of a period, or at the end.
    pub(crate) fn longest_overrun(&self, from: Nanos, to: Nanos) -> Nanos {
        let mut then = *self;
        then.roll(from);
        let first = then.boundary.min(to);
        let mut longest = (then.used + (first - from)).saturating_sub(then.budget);
        then.charge(from, to);
        longest = longest.max(then.overrun());
        let last = then.boundary - then.period;
        if last > first {
            let mut before = *self;
            before.charge(from, last - 1);
            longest = longest.max((before.used + 1).saturating_sub(before.budget));
        }
        longest
    }

    /// Returns the budget that is available at `now`.
    pub(crate) fn left(&self, now: Nanos) -> Nanos {
        let mut then = *self;
        then.roll(now);
        then.budget.saturating_sub(then.used)
    }

    /// When the budget comes back next after `now`.
    #[inline]
    pub(crate) fn boundary_after(&self, now: Nanos) -> Nanos {
        let mut then = *self;
        then.roll(now);
        then.boundary
    }

    /// Accounts for execution from `from` to `now` over any number of periods; the overrun of one
    /// is carried into the next. Returns how many replenishments there were.
    #[inline]
    pub(crate) fn charge(&mut self, from: Nanos, now: Nanos) -> u64 {
        let before = self.roll(from);
        if now < self.boundary {
            self.used += now - from;
            return before;
        }
        self.used += self.boundary - from;
        self.begin_period();
        let whole = (now - self.boundary) / self.period;
        self.used += whole * (self.period - self.budget);
        let start = self.boundary + whole * self.period;
        self.boundary = start + self.period;
        self.used += now - start;
        before + whole + 1
    }

    /// Accounts for `time` in this period, beside what was executed.
    #[inline]
    pub(crate) const fn charge_more(&mut self, time: Nanos) {
        self.used += time;
    }

    /// Returns the instant of depletion if the server runs from `now` on, which may be in the
    /// future. If the next period begins by then, or during the interrupt, its budget is included
    /// (SPR §III-B).
    #[inline]
    pub(crate) fn depletion(&self, now: Nanos, interrupt: Nanos) -> Nanos {
        let mut then = *self;
        then.roll(now);
        let end = now + (then.budget - then.used);
        let overrun = then.boundary.saturating_sub(end);
        if overrun > interrupt || overrun >= then.budget {
            end
        } else if then.budget == self.period {
            NEVER
        } else {
            then.boundary + (then.budget - overrun)
        }
    }
}
