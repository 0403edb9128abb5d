//! When a tenant that failed is started again: after a pause that doubles with each failure.
//!
//! A new life has a new reservation, with its whole budget. The pause is therefore no shorter than the period: by then
//! all that the last life used would have been replenished, and no program gets more than its budget by failing.

use std::time::{Duration, Instant};

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// A tenant that ran for so long has recovered: the next pause is the first again.
const RECOVERED: Duration = Duration::from_secs(60);

/// The restarts of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    times: u32,
    /// Failures in a row.
    failures: u32,
    started: Option<Instant>,
    due: Option<Instant>,
}

impl Restarts {
    /// Records a failure of a tenant whose budget is replenished within `period`; returns the pause before the tenant is
    /// started again.
    pub(crate) fn plan(&mut self, now: Instant, period: Duration) -> Duration {
        let ran = self
            .started
            .take()
            .map_or(Duration::ZERO, |started| now.duration_since(started));
        if ran >= RECOVERED {
            self.failures = 0;
        }
        let pause = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST)
            .max(period);
        self.failures += 1;
        self.due = Some(now + pause);
        pause
    }

    /// Restarts of the same tenant, of which none is planned.
    pub(crate) fn after(self, before: &Self) -> Self {
        Self {
            times: before.times,
            ..self
        }
    }

    /// Whether its pause is over.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Whether it will be started again.
    pub(crate) const fn is_due_later(&self) -> bool {
        self.due.is_some()
    }

    /// Records that the tenant was started again.
    pub(crate) fn started(&mut self, now: Instant) {
        self.times += 1;
        self.started = Some(now);
        self.due = None;
    }

    /// Returns the number of times that the tenant was started again.
    pub(crate) const fn times(&self) -> u32 {
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST, LONGEST, RECOVERED, Restarts};
    use std::time::{Duration, Instant};

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_recovery() {
        let mut restarts = Restarts::default();
        let mut now = Instant::now();
        let mut expected = FIRST;
        for _ in 0..12 {
            assert_eq!(restarts.plan(now, Duration::ZERO), expected);
            assert!(!restarts.is_due(now) && restarts.is_due(now + expected));
            now += expected;
            restarts.started(now);
            expected = (expected * 2).min(LONGEST);
        }
        assert_eq!(restarts.plan(now + RECOVERED, Duration::ZERO), FIRST);
        assert_eq!(restarts.times(), 12);
    }

    #[test]
    fn no_tenant_is_started_again_before_its_budget_would_have_come_back() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        for period in [3 * FIRST, 2 * LONGEST] {
            assert_eq!(restarts.plan(now, period), period);
            assert!(!restarts.is_due(now + period - Duration::from_nanos(1)));
            restarts.started(now + period);
        }
    }
}
