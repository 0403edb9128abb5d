//! The processor's time-stamp counter, which ticks at a constant rate whatever the processor does;
//! nanoseconds on processors that have none.
//!
//! It may advance in steps: by 26 cycles, 10 ns, on an AMD EPYC. What is shorter than a step is then
//! measured as none or as one. A single measurement is good for percentiles far above that; the mean
//! of many, which begin anywhere in a step, is good to a fraction of one, provided that what reading
//! the counter takes is taken off the mean and not, down to zero, off each.

use crate::harness::clock;

/// Readings in a row from which is known what reading takes.
const READINGS: usize = 100_000;

/// The counter of this host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cycles {
    /// The mean cost of reading it twice.
    overhead: f64,
    /// The common divisor of all differences of readings.
    step: u64,
    per_nanosecond: f64,
    /// A reading, for a clock that begins with it.
    origin: u64,
    /// Nanoseconds of a cycle, times 2^32.
    scale: u64,
}

impl Cycles {
    /// Measures its rate, its steps, and the cost of reading it; some 20 ms.
    pub(crate) fn calibrate() -> Self {
        let (start, since) = together(before, clock::monotonic_ns);
        while clock::monotonic_ns() - since < 20_000_000 {}
        let (end, until) = together(before, clock::monotonic_ns);
        let (ticks, elapsed) = (end - start, until - since);
        let mut readings: Vec<u64> = (0..READINGS)
            .map(|_| {
                let start = before();
                after() - start
            })
            .collect();
        readings.sort_unstable();
        let step = readings.iter().copied().fold(0, common_divisor);
        // The longest hundredth was interrupted, or may have been.
        let usual = &readings[..READINGS / 100 * 99];
        let per_nanosecond = ticks as f64 / elapsed as f64;
        Self {
            overhead: usual.iter().sum::<u64>() as f64 / usual.len() as f64,
            step: step.max(1),
            per_nanosecond,
            origin: before(),
            scale: ((1_u64 << 32) as f64 / per_nanosecond) as u64,
        }
    }

    /// Returns the time of a clock based on this counter, ns since it was calibrated. The reading
    /// is not fenced, and so as cheap as possible.
    #[inline]
    pub(crate) fn clock_ns(&self) -> u64 {
        let ticks = unfenced().wrapping_sub(self.origin);
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }

    /// Before what is timed.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        before()
    }

    /// Cycles since `start`, with what reading the counter takes.
    #[inline]
    pub(crate) fn stop(&self, start: u64) -> u64 {
        after() - start
    }

    /// A single measurement, less what reading takes: as good as a step of the counter.
    pub(crate) fn net(&self, cycles: u64) -> u64 {
        (cycles as f64 - self.overhead).max(0.0).round() as u64
    }

    /// The mean of `count` measurements that took `total` together, less what reading takes. Nothing
    /// if there are none, or if they took less than that: then they were not measured.
    pub(crate) fn mean(&self, total: u64, count: u64) -> Option<f64> {
        let mean = (count > 0).then(|| total as f64 / count as f64 - self.overhead);
        mean.filter(|&mean| mean >= 0.0)
    }

    pub(crate) fn nanoseconds(&self, cycles: f64) -> f64 {
        cycles / self.per_nanosecond
    }

    /// One line for a note.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{:.2} cycles a nanosecond, in steps of {}, less {:.1} for reading it",
            self.per_nanosecond, self.step, self.overhead
        )
    }
}

/// Two clocks at the same time: of several readings of the first around the second those that are
/// closest, since there may be an interrupt between them, and the first use of a clock takes longer.
pub(crate) fn together(first: impl Fn() -> u64, second: impl Fn() -> u64) -> (u64, u64) {
    let readings = (0..32).map(|_| {
        let (before, second, after) = (first(), second(), first());
        // The processor may read an unfenced counter out of order: then they are far apart.
        (
            after.wrapping_sub(before),
            u64::midpoint(before, after),
            second,
        )
    });
    let closest = readings.min_by_key(|&(apart, ..)| apart);
    closest.map_or((0, 0), |(_, first, second)| (first, second))
}

/// The largest number that both are multiples of; of nothing and a number, that number.
const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The counter, before anything that follows has begun.
#[cfg(target_arch = "x86_64")]
#[inline]
fn before() -> u64 {
    // SAFETY: every x86-64 processor has these instructions; none touches memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        let now = core::arch::x86_64::_rdtsc();
        core::arch::x86_64::_mm_lfence();
        now
    }
}

/// The counter, once everything before it is done.
#[cfg(target_arch = "x86_64")]
#[inline]
fn after() -> u64 {
    // SAFETY: as above.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// The counter, at some time about now.
#[cfg(target_arch = "x86_64")]
#[inline]
fn unfenced() -> u64 {
    // SAFETY: as above.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn unfenced() -> u64 {
    clock::monotonic_ns()
}

#[cfg(not(target_arch = "x86_64"))]
fn before() -> u64 {
    clock::monotonic_ns()
}

#[cfg(not(target_arch = "x86_64"))]
fn after() -> u64 {
    clock::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::{Cycles, common_divisor};

    /// A counter that advances by 26, as some do, and takes 30 to be read.
    const COARSE: Cycles = Cycles {
        overhead: 30.0,
        step: 26,
        per_nanosecond: 2.6,
        origin: 0,
        scale: 0,
    };

    #[test]
    fn the_mean_of_what_is_shorter_than_a_step_is_not_none() {
        // Something of 7 cycles, begun at every place in a step.
        let measured = (0..26).map(|phase| (phase + 37) / 26 * 26);
        let mean = COARSE.mean(measured.sum(), 26).expect("there are some");
        assert!((mean - 7.0).abs() < 1.0, "{mean}");
        // One by one most of them are nothing, and the rest a step.
        let single = (0..26).map(|phase| COARSE.net((phase + 37) / 26 * 26));
        assert!(single.filter(|&cycles| cycles == 0).count() > 13);
    }

    #[test]
    fn nothing_has_no_mean_and_neither_has_less_than_reading_takes() {
        assert_eq!(COARSE.mean(0, 0), None);
        assert_eq!(COARSE.mean(26, 1), None);
    }

    #[test]
    fn a_step_is_what_all_differences_are_multiples_of() {
        assert_eq!([26, 52, 130].into_iter().fold(0, common_divisor), 26);
        assert_eq!([24, 25, 24].into_iter().fold(0, common_divisor), 1);
    }

    #[test]
    fn of_this_hosts_readings_nothing_is_left_less_what_reading_takes() {
        let cycles = Cycles::calibrate();
        assert!(cycles.overhead > 0.0 && cycles.step > 0);
        let nothing = || {
            let start = cycles.start();
            cycles.stop(start)
        };
        // Those that were not interrupted.
        let most = 10.0 * cycles.overhead + cycles.step as f64;
        let readings = (0..20_000)
            .map(|_| nothing())
            .filter(|&taken| (taken as f64) < most);
        let (total, count) = readings.fold((0, 0), |(total, n), taken| (total + taken, n + 1));
        assert!(count > 10_000, "most are short");
        let left = total as f64 / f64::from(count) - cycles.overhead;
        assert!(left.abs() < 0.5 * cycles.overhead, "{left} of {cycles:?}");
    }
}
