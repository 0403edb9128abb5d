//! The two clocks that a cell could account by: the monotonic clock, which it does, and one made of
//! the processor's time-stamp counter. Measures the cost of reading each, and their drift.

use std::hint::black_box;

use leasehold_cell::clock::monotonic_ns;

use crate::harness::samples::Samples;
use crate::harness::unit::Unit;
use crate::processor::cycles::{Cycles, together};

/// Readings in a row that are timed together, and how often.
const READINGS: u64 = 10_000;
const ROUNDS: usize = 51;

/// Both clocks, since the counter was calibrated.
pub(crate) struct Clocks {
    counter: Cycles,
    /// The monotonic clock when the counter's began, ns.
    origin: u64,
}

impl Clocks {
    /// Calibrates the counter against the monotonic clock; some 20 ms.
    pub(crate) fn calibrate() -> Self {
        let counter = Cycles::calibrate();
        let (at, ns) = together(|| counter.clock_ns(), monotonic_ns);
        Self {
            origin: ns.saturating_sub(at),
            counter,
        }
    }

    pub(crate) const fn counter(&self) -> &Cycles {
        &self.counter
    }

    /// By how much the counter's clock is ahead of the monotonic one by now, in millionths of the
    /// time since it was calibrated.
    fn ahead_ppm(&self) -> f64 {
        let (at, ns) = together(|| self.counter.clock_ns(), monotonic_ns);
        let elapsed = (ns - self.origin) as f64;
        (at as f64 - elapsed) / elapsed * 1e6
    }

    /// One line for a note, some 20 ms.
    pub(crate) fn comparison(&self) -> String {
        let monotonic = reading_ns(monotonic_ns);
        let counter = reading_ns(|| self.counter.clock_ns());
        let elapsed = (monotonic_ns() - self.origin) as f64;
        format!(
            "a cell reads the monotonic clock once an invocation, which takes {monotonic:.1} ns; a \
             clock made of the time-stamp counter would take {counter:.1} ns, and was {:+.1} \
             millionths off {} after it had been calibrated",
            self.ahead_ppm(),
            Unit::Nanoseconds.humane(elapsed),
        )
    }
}

/// The time of a reading, ns: the median of many rounds.
fn reading_ns(read: impl Fn() -> u64) -> f64 {
    let mut rounds = Samples::new();
    for _ in 0..ROUNDS {
        let since = monotonic_ns();
        for _ in 0..READINGS {
            black_box(read());
        }
        rounds.record(monotonic_ns() - since);
    }
    rounds.p50().unwrap_or(0) as f64 / READINGS as f64
}

#[cfg(test)]
mod tests {
    use super::{Clocks, monotonic_ns};

    #[test]
    fn both_clocks_tell_the_same_time() {
        let clocks = Clocks::calibrate();
        let end = monotonic_ns() + 20_000_000;
        while monotonic_ns() < end {}
        let off = clocks.ahead_ppm();
        assert!(off.abs() < 100.0, "{off} millionths");
        assert!(clocks.comparison().contains("millionths"));
    }
}
