//! When a tenant that failed is started again: after a pause that doubles with each failure.

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
    /// Records a failure; returns the pause before the tenant is started again.
    pub(crate) fn plan(&mut self, now: Instant) -> Duration {
        let ran = self
            .started
            .take()
            .map_or(Duration::ZERO, |started| now.duration_since(started));
        if ran >= RECOVERED {
            self.failures = 0;
        }
        let pause = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
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
    use std::time::Instant;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_recovery() {
        let mut restarts = Restarts::default();
        let mut now = Instant::now();
        let mut expected = FIRST;
        for _ in 0..12 {
            assert_eq!(restarts.plan(now), expected);
            assert!(!restarts.is_due(now) && restarts.is_due(now + expected));
            now += expected;
            restarts.started(now);
            expected = (expected * 2).min(LONGEST);
        }
        assert_eq!(restarts.plan(now + RECOVERED), FIRST);
        assert_eq!(restarts.times(), 12);
    }
}
