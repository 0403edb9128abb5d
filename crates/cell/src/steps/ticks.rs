//! A clock for pieces of work of some nanoseconds: the time-stamp counter, where it advances at one
//! rate.

use crate::clock::monotonic_ns;
use std::sync::OnceLock;

/// How ticks become nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// Nanoseconds of a tick, times 2³².
    scale: u64,
}

/// Ticks: of the time-stamp counter, or nanoseconds.
#[inline]
pub(super) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the instruction is part of the architecture, and no system disables it.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        monotonic_ns()
    }
}

impl Rate {
    /// The rate of this machine, measured once per process in a fifth of a millisecond.
    pub(super) fn here() -> Self {
        static RATE: OnceLock<Rate> = OnceLock::new();
        *RATE.get_or_init(Self::measured)
    }

    fn measured() -> Self {
        const SPAN_NS: u64 = 200_000;
        let (ticks, ns) = both();
        while monotonic_ns() < ns + SPAN_NS {
            std::hint::spin_loop();
        }
        let (later, later_ns) = both();
        let span = u128::from(later_ns - ns) << 32;
        let scale = span / u128::from((later - ticks).max(1));
        Self {
            scale: u64::try_from(scale).unwrap_or(u64::MAX),
        }
    }

    /// Nanoseconds of so many ticks.
    pub(super) fn ns(self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.scale)) >> 32;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The least number of ticks that take at least so many nanoseconds.
    pub(super) fn ticks(self, ns: u64) -> u64 {
        let ticks = (u128::from(ns) << 32).div_ceil(u128::from(self.scale.max(1)));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// Both clocks at one instant, as near as some tries come.
fn both() -> (u64, u64) {
    let tries = (0..100).map(|_| {
        let before = monotonic_ns();
        let ticks = now();
        let after = monotonic_ns();
        (after - before, (ticks, before.midpoint(after)))
    });
    let nearest = tries.min_by_key(|(apart, _)| *apart);
    nearest.map_or((0, 0), |(_, both)| both)
}

#[cfg(test)]
mod tests {
    use super::{Rate, now};
    use crate::clock::monotonic_ns;
    use std::time::Duration;

    #[test]
    fn ticks_advance_as_the_monotonic_clock_does() {
        let rate = Rate::here();
        let (ticks, ns) = (now(), monotonic_ns());
        std::thread::sleep(Duration::from_millis(20));
        let (ticks, ns) = (rate.ns(now() - ticks), monotonic_ns() - ns);
        let ratio = ticks as f64 / ns as f64;
        assert!(
            (0.9..1.1).contains(&ratio),
            "{ticks} ns of ticks in {ns} ns"
        );
    }

    #[test]
    fn a_limit_in_ticks_is_not_below_the_limit() {
        let rate = Rate::here();
        for ns in [1, 100, 12_345, 100_000, 1_000_000_000] {
            let there_and_back = rate.ns(rate.ticks(ns));
            assert!(there_and_back.abs_diff(ns) <= 1, "{ns}: {there_and_back}");
        }
    }
}
