//! Paces the return of a background tenant's pages to half of the time.
//!
//! A thread that gives memory back without a break delays every process that allocates memory, on
//! other processors and in other containers too: all share the kernel's locks on free pages and the
//! memory bus. The budget bounds this for a tenant with a reservation. A background tenant gives
//! pages back for at most one time slice, and then pauses for as long, as if another tenant
//! alternated with it. If there is another tenant, the time slice of that tenant is the pause.
//!
//! Only the return of pages is paced. By then the tenant cannot be reached, its slots are free, and
//! no task waits for the processor.

use crate::dispatch::BACKGROUND_SLICE;
use std::mem;

/// Giving back without a break takes no longer than this, ns.
const AT_ONCE_NS: u64 = BACKGROUND_SLICE.as_nanos() as u64;

/// The recent time that a tenant spent on giving back, or on any other work that may take at most
/// half of the time.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The instant at which the pauses equal the time spent on giving back, ns.
    even_at: u64,
    /// Whether it is leaving time out.
    pausing: bool,
    /// How often it began to, since that was last asked.
    pauses: u64,
}

impl Pace {
    /// Returns the end of the present pause, if there is one.
    pub(crate) fn pause(&mut self, now: u64) -> Option<u64> {
        let ahead = self.even_at.saturating_sub(now);
        let was_pausing = self.pausing;
        self.pausing = ahead >= AT_ONCE_NS || was_pausing && ahead > 0;
        self.pauses += u64::from(self.pausing && !was_pausing);
        self.pausing.then_some(self.even_at)
    }

    /// Returns the start of the next pause, if there is none now and giving back continues until
    /// then.
    pub(crate) fn pauses_at(&self, now: u64) -> u64 {
        now + AT_ONCE_NS.saturating_sub(self.even_at.saturating_sub(now))
    }

    /// Records paced work from one instant to another.
    pub(crate) fn gave_back(&mut self, from: u64, to: u64) {
        self.even_at = self.even_at.max(from) + 2 * (to - from);
    }

    /// How many pauses began since this was last asked.
    pub(crate) fn take_pauses(&mut self) -> u64 {
        mem::take(&mut self.pauses)
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_ONCE_NS, Pace};
    use proptest::prelude::{any, proptest};

    const STEP: u64 = AT_ONCE_NS / 100;

    /// Gives back in steps until it has to pause; returns when that is, and until when.
    fn give_back(pace: &mut Pace, mut now: u64) -> (u64, u64) {
        loop {
            if let Some(until) = pace.pause(now) {
                return (now, until);
            }
            assert!(pace.pauses_at(now) > now);
            pace.gave_back(now, now + STEP);
            now += STEP;
        }
    }

    #[test]
    fn giving_back_much_pauses_for_as_much_time_as_it_takes() {
        let mut pace = Pace::default();
        let mut now = 5 * AT_ONCE_NS;
        for _ in 0..10 {
            let (paused, until) = give_back(&mut pace, now);
            assert_eq!(paused, now + AT_ONCE_NS);
            assert_eq!(pace.take_pauses(), 1);
            assert_eq!(until, now + 2 * AT_ONCE_NS);
            assert_eq!(pace.pause(until - 1), Some(until), "a pause is one piece");
            now = until;
        }
    }

    #[test]
    fn a_turn_of_another_task_is_a_pause() {
        let mut pace = Pace::default();
        let mut now = 0;
        for _ in 0..10 {
            for _ in 0..99 {
                assert_eq!(pace.pause(now), None);
                pace.gave_back(now, now + STEP);
                now += STEP;
            }
            now += AT_ONCE_NS;
        }
    }

    proptest! {
        #[test]
        fn in_no_time_is_more_given_back_than_half_of_it_and_one_turn(
            steps in proptest::collection::vec((1..STEP, 0..AT_ONCE_NS, any::<bool>()), 1..400),
        ) {
            let mut pace = Pace::default();
            let mut now = 1;
            let (mut given, mut ends) = (0, vec![(now, 0)]);
            for (length, apart, early) in steps {
                if let Some(until) = pace.pause(now) {
                    // Asking again before it is over changes nothing.
                    now = if early { now + (until - now) / 2 } else { until };
                    continue;
                }
                pace.gave_back(now, now + length);
                now += length;
                given += length;
                for &(since, before) in &ends {
                    assert!(given - before <= (now - since) / 2 + AT_ONCE_NS / 2 + STEP);
                }
                now += apart;
                ends.push((now, given));
            }
        }
    }
}
