//! Sporadic servers: used budget is replenished one period after its use began (SPR §II, §IV).

use crate::contract::{Contract, Nanos};
use crate::id::NEVER;
use crate::replenishment_queue::{ReplenishmentQueue, Watch};

/// The part of a sporadic server that is not in its replenishment queue.
///
/// Invariant: after every operation `used` is less than the head's amount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sporadic {
    /// The used part of the head, `u` (SPR §IV-A). A positive value before the head is due is an
    /// overrun.
    used: Nanos,
    period: Nanos,
    /// By how much its replenishments were put off for time that the processor worked for no task, and were
    /// not given back; at most a period.
    put_off: Nanos,
}

impl Sporadic {
    pub(crate) const fn new(contract: &Contract) -> Self {
        Sporadic {
            used: 0,
            period: contract.period(),
            put_off: 0,
        }
    }

    /// Excludes `time`, in which the processor worked for no task, from the time for which the server has
    /// waited with budget. Otherwise it would use the budgets of all periods that the time was long, one after
    /// the other, at the expense of less urgent servers. Up to a period in all can be
    /// [given back](Self::give_back): short stalls do not put a server off for good.
    pub(crate) fn forgo(&mut self, queue: &mut ReplenishmentQueue, time: Nanos, now: Nanos) {
        let head = queue.head().at;
        queue.delay_due(time, now);
        self.put_off = (self.put_off + (queue.head().at - head)).min(self.period);
    }

    /// Returns whether replenishments were put off by more than was given back.
    #[inline]
    pub(crate) const fn is_put_off(&self) -> bool {
        self.put_off > 0
    }

    /// Makes the replenishments that are not due earlier by what was put off, but not earlier than `now`: an
    /// instant at which no server has both a task and budget.
    pub(crate) fn give_back(
        &mut self,
        queue: &mut ReplenishmentQueue,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) {
        queue.advance_pending(core::mem::take(&mut self.put_off), now, watch);
    }

    #[inline]
    pub(crate) const fn used(&self) -> Nanos {
        self.used
    }

    #[inline]
    pub(crate) const fn period(&self) -> Nanos {
        self.period
    }

    /// Returns the overrun.
    pub(crate) const fn overrun(&self, queue: &ReplenishmentQueue, now: Nanos) -> Nanos {
        if queue.head().at > now { self.used } else { 0 }
    }

    /// Returns the largest use beyond the replenished budget at any instant of execution from
    /// `from` to `to`: just before an entry becomes due, or at the end. A used entry is replenished
    /// every period from its time on.
    pub(crate) fn longest_overrun(
        &self,
        queue: &ReplenishmentQueue,
        from: Nanos,
        to: Nanos,
    ) -> Nanos {
        let used = |at: Nanos| self.used + (at - from);
        let (mut longest, mut before, mut back) = (0, 0, 0);
        for entry in queue.entries() {
            if let Some(rounds) = to.checked_sub(entry.at).map(|time| time / self.period) {
                let at = entry.at + rounds * self.period;
                if at > from {
                    let back = (rounds * queue.total()).saturating_add(before);
                    longest = longest.max(used(at).saturating_sub(back));
                }
                back += (rounds + 1).saturating_mul(entry.amount);
            }
            before += entry.amount;
        }
        longest.max(used(to).saturating_sub(back))
    }

    /// Returns the available budget.
    pub(crate) fn left(&self, queue: &ReplenishmentQueue, now: Nanos) -> Nanos {
        queue
            .entries()
            .take_while(|entry| entry.at <= now)
            .map(|entry| entry.amount)
            .sum::<Nanos>()
            .saturating_sub(self.used)
    }

    /// Accounts for `ran` nanoseconds of execution (SPR Alg. 1 lines 1 to 4): depleted heads are
    /// replenished one period after their own time. At most one round over the queue for any `ran`:
    /// whole rounds defer every entry by a period each.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        queue: &mut ReplenishmentQueue,
        ran: Nanos,
        watch: &mut Watch<'_>,
    ) {
        self.used += ran;
        if self.used >= queue.total() {
            let rounds = self.used / queue.total();
            self.used -= rounds * queue.total();
            queue.delay_all(rounds.saturating_mul(self.period), watch);
        }
        while queue.head().amount <= self.used {
            self.used -= queue.head().amount;
            let at = queue.head().at.saturating_add(self.period);
            queue.recycle_head(at, watch);
        }
    }

    /// Suspends the server, which has nothing to run. Its used budget is replenished one period
    /// after it was first available; the rest stays (SPR Alg. 1 lines 10 to 13). An overrun stays
    /// too.
    #[inline]
    pub(crate) fn suspend(
        &mut self,
        queue: &mut ReplenishmentQueue,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) {
        let head = queue.head();
        if self.used > 0 && head.at <= now {
            let at = head.at.saturating_add(self.period);
            queue.split_head(self.used, at, watch);
            self.used = 0;
        }
    }

    /// Resumes the server, with something to run since `at` (SPR Alg. 3 lines 1 to 5): due entries
    /// are merged into one, whose replenishment counts from `at` on. Returns how many entries were
    /// merged.
    ///
    /// An overrun is used budget of the head, whose own replenishment would be due one period after
    /// the head is. If the server slept until then, the overrun is settled, and `used` is reset:
    /// the case that SPR §IV-C mentions and leaves out. It is safe: an overrun happens before the
    /// head is due, so a window of one period that contains it ends before `at`.
    #[inline]
    pub(crate) fn resume(
        &mut self,
        queue: &mut ReplenishmentQueue,
        at: Nanos,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u32 {
        if at >= queue.head().at.saturating_add(self.period) {
            self.used = 0;
        }
        let merged = queue.merge_due(now, watch);
        let head = queue.head().at;
        if head <= now {
            queue.delay_head(at.min(now).max(head));
        }
        merged
    }

    /// Replenishes a depleted server (SPR Alg. 3 lines 1 to 3; line 5 has no effect then). Returns
    /// how many entries became due, including the head.
    #[inline]
    pub(crate) fn replenish(
        &mut self,
        queue: &mut ReplenishmentQueue,
        now: Nanos,
        watch: &mut Watch<'_>,
    ) -> u32 {
        // The head has come due, and what is merged into it.
        1 + queue.merge_due(now, watch)
    }

    /// Returns the instant of depletion if the server runs from now on, with all replenishments
    /// until then (early replenishment, SPR Alg. 2 lines 1 to 4).
    ///
    /// The paper stops at the end of the queue. A server that was delayed long enough consumes
    /// replenishments of its own present execution: the walk continues with these, so that no timer
    /// fires in between. At most three rounds over the queue.
    pub(crate) fn depletion(&self, queue: &ReplenishmentQueue, now: Nanos) -> Nanos {
        let mut end = now + (queue.head().amount - self.used);
        for i in 1..queue.len() {
            let entry = queue.entry(i);
            if end < entry.at {
                return end;
            }
            end += entry.amount;
        }
        if end < queue.head().at.saturating_add(self.period) {
            return end;
        }
        self.depletion_beyond(queue, end)
    }

    /// The same from `end` on, when all entries were used once and the first is due again.
    #[cold]
    fn depletion_beyond(&self, queue: &ReplenishmentQueue, mut end: Nanos) -> Nanos {
        // A round takes `total` and puts every entry off by `period`: how many rounds until one
        // entry is no longer due when its turn comes?
        let gap = self.period - queue.total();
        let mut rounds = NEVER;
        let mut turn = end;
        for entry in queue.entries() {
            let due = entry.at.saturating_add(self.period);
            if turn < due {
                rounds = 0;
                break;
            }
            let Some(more) = (turn - due).checked_div(gap) else {
                // As much budget as there is time: it never ends.
                turn += entry.amount;
                continue;
            };
            rounds = rounds.min(more + 1);
            turn += entry.amount;
        }
        if rounds == NEVER {
            return NEVER;
        }
        end = end.saturating_add(rounds.saturating_mul(queue.total()));
        for entry in queue.entries() {
            if end
                < entry
                    .at
                    .saturating_add((rounds + 1).saturating_mul(self.period))
            {
                break;
            }
            end = end.saturating_add(entry.amount);
        }
        end
    }
}
