//! A pseudo-random sequence that its seed repeats: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//!
//! Studies draw guests, leases and instants from it. It is fast, passes the usual batteries, and
//! keeps no secrets.

/// A sequence of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence's next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, all equally likely (but for a bias of `bound` in 2⁶⁴); 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// From `least` to `most`, so that equal factors are equally likely.
    pub fn log_uniform(&mut self, least: u64, most: u64) -> u64 {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let value = least as f64 * (most as f64 / least as f64).powf(unit);
        (value.round() as u64).clamp(least, most)
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_repeats_its_sequence() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits(), random.bits()]
        };
        // The reference implementation's first numbers of seed 0.
        let reference = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!(draw(0), reference);
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_its_ends() {
        let mut random = Random::new(1);
        let draws: Vec<u64> = (0..10_000).map(|_| random.log_uniform(10, 1000)).collect();
        assert!(draws.iter().all(|value| (10..=1000).contains(value)));
        // Half of them below the geometric mean.
        let low = draws.iter().filter(|value| **value < 100).count();
        assert!((4500..5500).contains(&low), "{low}");
        let all: std::collections::BTreeSet<u64> = (0..100).map(|_| random.below(4)).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(random.below(0), 0);
    }
}
