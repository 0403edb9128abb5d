//! How much of the processor Linux lets real-time threads have, and whether reservations ask more.
//!
//! A cell keeps below it by itself in time that nobody reserved, and takes nothing from those who
//! have: so they can be stopped, which whoever starts them should know.

use leasehold_reserve::Contract;
use leasehold_reserve::admission::Utilisation;
use std::fmt;

/// In every `period_us` microseconds, real-time threads run for `runtime_us` and are then stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RealtimeLimit {
    runtime_us: u64,
    period_us: u64,
}

impl RealtimeLimit {
    /// This host's; `None` if it has none, or does not tell.
    pub(super) fn of_host() -> Option<Self> {
        let read = |name| std::fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{name}_us"));
        Self::parse(&read("runtime").ok()?, &read("period").ok()?)
    }

    fn parse(runtime: &str, period: &str) -> Option<Self> {
        // A runtime of -1 is no limit, and neither is the whole period.
        let runtime_us = runtime.trim().parse().ok()?;
        let period_us = period.trim().parse().ok()?;
        let limits = runtime_us < period_us;
        limits.then_some(Self {
            runtime_us,
            period_us,
        })
    }

    /// Whether a thread that gives these reservations what they may ask for is certain to be stopped
    /// at times: they use more than the limit in the long run, or one of them in one piece. Several
    /// that are below it can meet it together.
    pub(super) fn stops(self, reserved: &[Contract]) -> bool {
        let all = u128::from(Utilisation::of_all(reserved).millionths());
        let longest = reserved.iter().map(Contract::budget).max().unwrap_or(0);
        all * u128::from(self.period_us) > u128::from(self.runtime_us) * 1_000_000
            || longest > self.runtime_us.saturating_mul(1000)
    }
}

impl fmt::Display for RealtimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Linux stops real-time threads when they have run for {} of {} ms, and these \
             reservations ask for more: whoever runs then waits, and pays for it. \
             `sysctl kernel.sched_rt_runtime_us=-1` lifts that",
            self.runtime_us / 1000,
            self.period_us / 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::RealtimeLimit;
    use leasehold_reserve::Contract;

    const MS: u64 = 1_000_000;

    fn limit() -> RealtimeLimit {
        RealtimeLimit::parse("950000\n", "1000000\n").expect("a limit")
    }

    #[test]
    fn a_host_without_a_limit_stops_nobody() {
        assert_eq!(RealtimeLimit::parse("-1\n", "1000000\n"), None);
        assert_eq!(RealtimeLimit::parse("1000000", "1000000"), None);
        assert_eq!(RealtimeLimit::parse("", "1000000"), None);
    }

    #[test]
    fn reservations_are_stopped_that_use_more_than_the_limit_in_the_long_run_or_at_once() {
        let contract =
            |budget, period| Contract::new(budget * MS, period * MS).expect("a contract");
        let stops = |reserved: &[Contract]| limit().stops(reserved);
        assert!(!stops(&[]));
        assert!(!stops(&[contract(45, 50), contract(5, 100)]));
        assert!(stops(&[contract(45, 50), contract(6, 100)]));
        assert!(!stops(&[contract(950, 4000)]));
        assert!(stops(&[contract(951, 4000)]));
    }
}
