//! What studies draw guests, leases and instants from: the simulator's sequence, with two more kinds of
//! draws.

use leasehold_reserve::simulate::SplitMix;

/// A sequence of pseudo-random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(SplitMix);

impl Random {
    /// The sequence of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// The sequence's next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Below `bound`, all equally likely; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// From `least` to `most`, so that equal factors are equally likely.
    pub(crate) fn log_uniform(&mut self, least: u64, most: u64) -> u64 {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let value = least as f64 * (most as f64 / least as f64).powf(unit);
        (value.round() as u64).clamp(least, most)
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn draws_stay_in_their_range_and_reach_its_ends() {
        let mut random = Random::new(1);
        let draws: Vec<u64> = (0..10_000).map(|_| random.log_uniform(10, 1000)).collect();
        assert!(draws.iter().all(|value| (10..=1000).contains(value)));
        // Half of them below the geometric mean.
        let low = draws.iter().filter(|value| **value < 100).count();
        assert!((4500..5500).contains(&low), "{low}");
    }
}
