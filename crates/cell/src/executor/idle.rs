//! The work of an idle cell.

use std::time::Duration;

/// Runs `work` step by step until none is left (it returns false), a message arrives, or a
/// reservation is `due` (ns of the clock `now`). Returns how long the cell may sleep afterwards:
/// until it is woken if `None`, and zero if the reservation is due.
pub(super) fn work_until(
    due: Option<u64>,
    now: impl Fn() -> u64,
    mut quiet: impl FnMut() -> bool,
    mut work: impl FnMut() -> bool,
) -> Option<Duration> {
    let left = || due.map(|due| due.saturating_sub(now()));
    while left() != Some(0) && quiet() && work() {}
    left().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::work_until;
    use std::cell::Cell;
    use std::time::Duration;

    /// Of one step of work.
    const STEP: u64 = 10;

    /// Works by a simulated clock, and returns its time afterwards and how long the cell may sleep.
    fn work(due: Option<u64>, steps: u64, wanted_at: u64) -> (u64, Option<Duration>) {
        let clock = Cell::new(0);
        let sleep = work_until(
            due,
            || clock.get(),
            || clock.get() < wanted_at,
            || {
                clock.set(clock.get() + STEP);
                clock.get() < steps * STEP
            },
        );
        (clock.get(), sleep)
    }

    #[test]
    fn what_is_due_is_late_by_a_step_at_the_most() {
        assert_eq!(work(Some(25), 1000, u64::MAX), (30, Some(Duration::ZERO)));
        assert_eq!(work(Some(0), 1000, u64::MAX), (0, Some(Duration::ZERO)));
    }

    #[test]
    fn the_time_that_the_work_took_is_not_slept_again() {
        let rest = Some(Duration::from_nanos(70));
        assert_eq!(work(Some(100), 3, u64::MAX), (30, rest));
        assert_eq!(work(None, 3, u64::MAX), (30, None));
    }

    #[test]
    fn a_waiting_task_waits_for_a_step_at_the_most() {
        assert_eq!(work(None, 1000, 15), (20, None));
    }
}
