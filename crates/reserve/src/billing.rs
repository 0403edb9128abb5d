//! Billing: which server pays for each nanosecond of the processor.
//!
//! SPR charges the server that runs for all the time between two invocations of the scheduler
//! (§III-G). Billing departs from that in three ways, each of which moves a cost to the server that
//! causes it:
//!
//! * **The interrupt** of a timer that expires for a more urgent server is billed to that server,
//!   up to the usual cost of an interrupt. The rest is billed to the interrupted server, which may
//!   have deferred the interrupt.
//! * **The dispatch** of a server that had been preempted is paid in advance by the server that
//!   preempted it and has stopped. So is putting the processor to sleep.
//! * **Work for no task**, between [`pause`](Billing::pause) and [`resume`](Billing::resume), is
//!   charged to no server.
//!
//! An idle processor counts as a server that is interrupted, and pays nothing.
//!
//! The invariant: each nanosecond is billed once. `settled` is the instant until which that has
//! happened. Before it, the running server owes `advance`; after it, the time up to `prepaid_until`
//! is paid.

use crate::contract::{INSTANT_MAX, Nanos};
use crate::id::NEVER;

/// The bill of the running server as of an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bill {
    /// Nothing: another server has paid, or no time has passed.
    Nothing,
    /// Nothing, since the processor worked for no task for so long.
    Spared(Nanos),
    /// The time from one instant to another.
    Charged(Nanos, Nanos),
}

/// Which server pays for the processor's time, as far as that is settled.
#[derive(Debug, Clone)]
pub(crate) struct Billing {
    /// The usual cost of an interrupt: the most that is billed to the server that it is for.
    interrupt: Nanos,
    /// The usual cost of a dispatch, which is billed to a server that preempted another.
    dispatch: Nanos,
    /// Until when all time has been billed.
    settled: Nanos,
    /// When the timer expires.
    expiry: Nanos,
    /// Whether it expires because a more urgent server comes due.
    is_for_others: bool,
    /// The debt of the running server for the interrupt that dispatched it: time before `settled`.
    advance: Nanos,
    /// The instant until which another server has paid for the running one.
    prepaid_until: Nanos,
    is_paused: bool,
}

impl Billing {
    pub(crate) const fn new() -> Self {
        Billing {
            interrupt: 0,
            dispatch: 0,
            settled: 0,
            expiry: NEVER,
            is_for_others: false,
            advance: 0,
            prepaid_until: 0,
            is_paused: false,
        }
    }

    pub(crate) const fn set_interrupt(&mut self, usual: Nanos) {
        self.interrupt = usual;
    }

    pub(crate) const fn set_dispatch(&mut self, usual: Nanos) {
        self.dispatch = usual;
    }

    pub(crate) const fn interrupt(&self) -> Nanos {
        self.interrupt
    }

    /// The last instant that was settled.
    #[inline]
    pub(crate) const fn now(&self) -> Nanos {
        self.settled
    }

    /// Returns the instant from which the running server pays for its time itself.
    #[inline]
    pub(crate) fn begin(&self) -> Nanos {
        self.settled.max(self.prepaid_until)
    }

    /// Returns the instant from which the running server pays, including its debt for the
    /// interrupt.
    #[inline]
    pub(crate) fn charged_since(&self) -> Nanos {
        (self.settled - self.advance).max(self.prepaid_until)
    }

    /// Returns the debt of the running server for the interrupt that dispatched it.
    pub(crate) const fn advance(&self) -> Nanos {
        self.advance
    }

    pub(crate) const fn prepaid_until(&self) -> Nanos {
        self.prepaid_until
    }

    /// Settles all time until `now`, but for the last `interrupt` nanoseconds, which
    /// [`dispatched`](Self::dispatched) bills. `is_used` says whether a server runs. Time does not go
    /// back, nor beyond the bound on instants.
    #[inline]
    pub(crate) fn settle(&mut self, now: Nanos, interrupt: Nanos, is_used: bool) -> Bill {
        let from = self.settled;
        let now = now.clamp(from, INSTANT_MAX.max(from));
        self.settled = now;
        if !is_used {
            return Bill::Nothing;
        }
        if self.is_paused {
            return match now - from {
                0 => Bill::Nothing,
                time => Bill::Spared(time),
            };
        }
        let since = from - core::mem::take(&mut self.advance);
        let (from, to) = (since.max(self.prepaid_until), now - interrupt.min(now));
        match from < to {
            true => Bill::Charged(from, to),
            false => Bill::Nothing,
        }
    }

    /// Returns how much of the time until `now` the timer's interrupt of a server that could go on has
    /// taken for another server.
    #[inline]
    pub(crate) fn interrupt_for_others(&self, now: Nanos) -> Nanos {
        if !self.is_for_others || self.is_paused {
            return 0;
        }
        let now = now.min(INSTANT_MAX);
        let since = self.expiry.max(self.begin());
        now.saturating_sub(since).min(self.interrupt)
    }

    /// Bills an interrupt to the newly dispatched server, if there is one.
    #[inline]
    pub(crate) const fn dispatched(&mut self, interrupt: Nanos, is_used: bool) {
        self.advance = if is_used { interrupt } else { 0 };
    }

    /// Pays for the dispatch that begins now; returns what is to be charged for it.
    pub(crate) const fn prepay(&mut self) -> Nanos {
        self.prepaid_until = self.settled + self.dispatch;
        self.dispatch
    }

    /// Records when the timer expires, and for which server.
    #[inline]
    pub(crate) const fn arm(&mut self, expiry: Nanos, is_for_others: bool) {
        self.expiry = expiry;
        self.is_for_others = is_for_others;
    }

    /// When the timer expires.
    #[inline]
    pub(crate) const fn expiry(&self) -> Nanos {
        self.expiry
    }

    pub(crate) const fn pause(&mut self) {
        self.is_paused = true;
    }

    pub(crate) const fn resume(&mut self) {
        self.is_paused = false;
    }
}

#[cfg(test)]
mod tests {
    use super::{Bill, Billing};
    use crate::contract::INSTANT_MAX;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

    const INTERRUPT: u64 = 5;
    const DISPATCH: u64 = 3;

    fn billing() -> Billing {
        let mut billing = Billing::new();
        billing.set_interrupt(INTERRUPT);
        billing.set_dispatch(DISPATCH);
        billing
    }

    #[test]
    fn an_interrupt_is_billed_to_the_server_that_it_dispatches_up_to_what_one_takes() {
        for (late, theirs) in [(2, 2), (5, 5), (9, 5)] {
            let mut billing = billing();
            billing.arm(10, true);
            let interrupt = billing.interrupt_for_others(10 + late);
            assert_eq!(interrupt, theirs);
            let bill = billing.settle(10 + late, interrupt, true);
            assert_eq!(bill, Bill::Charged(0, 10 + late - theirs));
            billing.dispatched(interrupt, true);
            let bill = billing.settle(20, 0, true);
            assert_eq!(bill, Bill::Charged(10 + late - theirs, 20));
        }
    }

    #[test]
    fn a_dispatch_that_is_prepaid_is_not_billed_again() {
        let mut billing = billing();
        assert_eq!(billing.settle(10, 0, true), Bill::Charged(0, 10));
        assert_eq!(billing.prepay(), DISPATCH);
        assert_eq!(billing.settle(12, 0, true), Bill::Nothing);
        assert_eq!(billing.settle(20, 0, true), Bill::Charged(13, 20));
    }

    #[test]
    fn time_neither_goes_back_nor_beyond_its_bound() {
        let mut billing = billing();
        billing.settle(10, 0, true);
        assert_eq!(billing.settle(4, 0, true), Bill::Nothing);
        assert_eq!(billing.now(), 10);
        let bill = billing.settle(u64::MAX, 0, true);
        assert_eq!(bill, Bill::Charged(10, INSTANT_MAX));
        assert_eq!(billing.settle(u64::MAX, 0, true), Bill::Nothing);
    }

    /// What happens next: how much later, and whether a server runs from then on, the timer is for
    /// another server, the dispatch is prepaid, and the processor is paused.
    type Step = (u64, u64, bool, bool, bool, bool);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (
            0..20u64,
            0..30u64,
            any::<bool>(),
            any::<bool>(),
            any::<bool>(),
        );
        let paused = prop::bool::weighted(0.1);
        let step = (step, paused).prop_map(|((a, b, c, d, e), f)| (a, b, c, d, e, f));
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn each_nanosecond_in_which_a_server_runs_is_billed_once(steps in steps()) {
            let mut billing = billing();
            let (mut now, mut is_used, mut is_paused) = (0, false, false);
            // Of each nanosecond: how often it was billed, and how often it should be.
            let mut billed: Vec<(u32, u32)> = Vec::new();
            let mut prepaid = BTreeSet::new();
            for (after, timer, runs, for_others, prepays, pauses) in steps {
                let to = now + after;
                billed.resize(billed.len().max((to + DISPATCH) as usize), (0, 0));
                let interrupt = match is_used {
                    true => billing.interrupt_for_others(to),
                    false => 0,
                };
                prop_assert!(interrupt <= INTERRUPT);
                if is_used && !is_paused {
                    billed[now as usize..to as usize].iter_mut().for_each(|it| it.1 += 1);
                }
                match billing.settle(to, interrupt, is_used) {
                    Bill::Charged(from, until) => {
                        billed[from as usize..until as usize].iter_mut().for_each(|it| it.0 += 1);
                    }
                    Bill::Spared(time) => prop_assert!(is_paused && time == after),
                    Bill::Nothing => {}
                }
                now = to;
                // Without a server that runs on, the interrupt is none for others.
                let runs = runs || interrupt > 0;
                if runs && prepays && interrupt == 0 {
                    prop_assert_eq!(billing.prepay(), DISPATCH);
                    prepaid.extend(now..now + DISPATCH);
                }
                billing.dispatched(interrupt, runs);
                billing.arm(now + timer, for_others);
                match pauses && interrupt == 0 {
                    true => billing.pause(),
                    false => billing.resume(),
                }
                (is_used, is_paused) = (runs, pauses && interrupt == 0);
            }
            // The debt is billed at the end.
            if let Bill::Charged(from, until) = billing.settle(now, 0, is_used) {
                billed[from as usize..until as usize].iter_mut().for_each(|it| it.0 += 1);
            }
            for (at, &(is, should)) in (0..now).zip(&billed) {
                let is = is + u32::from(prepaid.contains(&at));
                prop_assert!(is == should || should == 0, "{is} of {should} at {at}");
            }
        }
    }
}
