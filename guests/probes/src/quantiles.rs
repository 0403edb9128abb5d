//! Quantiles of a fixed number of samples, without an allocator.

use leasehold_hostile::Line;

/// The samples of one round, ns.
pub struct Quantiles<const N: usize> {
    samples: [u64; N],
    count: usize,
}

impl<const N: usize> Quantiles<N> {
    /// No samples, room for `N`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            samples: [0; N],
            count: 0,
        }
    }

    /// Adds a sample. When as many as `wanted` (or `N`) are there, prints them as `NAME COUNT P50
    /// P99 MAX` and begins anew.
    pub fn add(&mut self, name: &str, sample: u64, wanted: u64) {
        self.samples[self.count] = sample;
        self.count += 1;
        if self.count as u64 >= wanted || self.count == N {
            let samples = &mut self.samples[..self.count];
            samples.sort_unstable();
            let at = |part: usize| samples[(samples.len() - 1) * part / 100];
            let (p50, p99, max) = (at(50), at(99), at(100));
            let count = samples.len();
            Line::print(format_args!("{name} {count} {p50} {p99} {max}"));
            self.count = 0;
        }
    }
}

impl<const N: usize> Default for Quantiles<N> {
    fn default() -> Self {
        Self::new()
    }
}
