//! How long requests took: a histogram of fixed size.
//!
//! A bin is a number of nanoseconds with two significant decimal digits, so that its bounds are
//! numbers that people write: counts up to 5 ms or 250 µs are exact, and a quantile is known to a
//! tenth. The bins reach from 1 µs to 1,000 s; what is shorter or longer is in the first or the last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The bins of one decade: 10 to 99.
const DECADE: usize = 90;
/// The decades, from that of the shortest bin on.
const DECADES: usize = 9;
/// The bound of the first decade, ns, and its exponent.
const SHORTEST: u64 = 1_000;
const FIRST: u32 = SHORTEST.ilog10();
const BINS: usize = DECADE * DECADES;

/// A histogram that one thread fills and others read, 6.5 KiB large.
pub(crate) struct Histogram {
    bins: [AtomicU64; BINS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// The bin of a duration: those of its bounds `low < ns ≤ high`.
fn bin_of(ns: u64) -> usize {
    // A bin has its upper bound, as the buckets of Prometheus do.
    let below = ns.saturating_sub(1);
    if below < SHORTEST {
        return 0;
    }
    let exponent = below.ilog10();
    let digits = (below / 10u64.pow(exponent - 1)) as usize;
    let decade = (exponent - FIRST) as usize;
    (decade * DECADE + digits - 10).min(BINS - 1)
}

/// The upper bound of a bin, ns.
fn bound_of(bin: usize) -> u64 {
    let digits = (bin % DECADE + 11) as u64;
    digits * 10u64.pow(FIRST - 1 + (bin / DECADE) as u32)
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            bins: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }

    /// Counts a duration. O(1), without a lock.
    pub(crate) fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.bins[bin_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// What was counted so far. O(bins).
    pub(crate) fn read(&self) -> Distribution {
        let counts: Vec<u64> = self
            .bins
            .iter()
            .map(|bin| bin.load(Ordering::Relaxed))
            .collect();
        Distribution {
            count: counts.iter().sum(),
            counts,
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            max_ns: self.max_ns.load(Ordering::Relaxed),
        }
    }
}

/// How long requests took that were answered, from their head to the end of the response, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// All together.
    pub sum_ns: u64,
    /// The median; this and the other quantiles are at most a tenth too long.
    pub p50_ns: u64,
    /// What 90 % did not exceed.
    pub p90_ns: u64,
    /// What 99 % did not exceed.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// How the times of requests are distributed that were answered, from their heads to the ends of
/// their responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Histogram::new().read()
    }
}

impl Distribution {
    /// How many requests there were.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// What they took together, ns.
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest, ns.
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Count, sum, quantiles and longest. O(bins).
    pub fn summary(&self) -> Latency {
        Latency {
            count: self.count,
            sum_ns: self.sum_ns,
            p50_ns: self.quantile_ns(0.5),
            p90_ns: self.quantile_ns(0.9),
            p99_ns: self.quantile_ns(0.99),
            max_ns: self.max_ns,
        }
    }

    /// An upper bound of the quantile `q`, at most a tenth above it, ns; 0 if there was none.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut before = 0;
        for (bin, count) in self.counts.iter().enumerate() {
            before += count;
            if before >= rank {
                // What the last bin holds has no bound.
                let is_last = bin + 1 == BINS;
                return if is_last {
                    self.max_ns
                } else {
                    bound_of(bin).min(self.max_ns)
                };
            }
        }
        0
    }

    /// How many took at most `ns`: exact where `ns` has at most two significant digits, and is
    /// between 2 µs and 100 s; otherwise of the largest such number below it.
    pub fn at_most(&self, ns: u64) -> u64 {
        let within = self
            .counts
            .iter()
            .enumerate()
            .take_while(|(bin, _)| bound_of(*bin) <= ns);
        within.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{BINS, Distribution, Histogram, bin_of, bound_of};
    use std::time::Duration;

    #[test]
    fn a_bin_has_what_is_above_the_bin_before_it_up_to_its_own_bound() {
        for bin in 0..BINS {
            assert_eq!(bin_of(bound_of(bin)), bin, "its bound");
            assert_eq!(bin_of(bound_of(bin) + 1), (bin + 1).min(BINS - 1), "behind");
        }
        assert_eq!((bin_of(0), bin_of(1), bin_of(u64::MAX)), (0, 0, BINS - 1));
        assert_eq!(
            (bound_of(0), bound_of(BINS - 1)),
            (1_100, 1_000_000_000_000)
        );
    }

    #[test]
    fn counts_up_to_a_number_of_two_digits_are_exact() {
        let histogram = Histogram::new();
        let times = [
            1,
            99_999,
            100_000,
            100_001,
            2_500_000,
            2_500_001,
            70_000_000_000,
        ];
        times
            .into_iter()
            .for_each(|ns| histogram.record(Duration::from_nanos(ns)));
        let read = histogram.read();
        let rows = [
            (100_000, 3),
            (2_500_000, 5),
            (2_600_000, 6),
            (75_000_000_000, 7),
        ];
        for (ns, count) in rows {
            assert_eq!(read.at_most(ns), count, "{ns}");
        }
        assert_eq!(read.count(), 7);
        assert_eq!(read.sum_ns(), times.iter().sum::<u64>());
    }

    #[test]
    fn a_quantile_is_at_most_a_tenth_above_the_true_one() {
        let histogram = Histogram::new();
        let times: Vec<u64> = (1..=20_000u64).map(|n| n * n * 7 + 1_500).collect();
        times
            .iter()
            .for_each(|ns| histogram.record(Duration::from_nanos(*ns)));
        let read = histogram.read();
        for q in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let truth = times[(q * times.len() as f64).ceil() as usize - 1];
            let found = read.quantile_ns(q);
            assert!(
                truth <= found && found <= truth + truth / 10,
                "{q}: {truth} {found}"
            );
        }
        assert_eq!(read.quantile_ns(1.0), read.max_ns());
        assert_eq!(Distribution::default().quantile_ns(0.5), 0);
    }
}
