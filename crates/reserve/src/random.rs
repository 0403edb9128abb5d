//! A pseudo-random sequence that its seed repeats: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//!
//! The one generator of the scheduler, the simulator, the studies and the tests of both. It is fast,
//! passes the usual batteries, and keeps no secrets.

/// A sequence of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
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

    /// Below `bound`, all equally likely but for a bias of `bound` in 2⁶⁴; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// From `least` to `most`, both included, all equally likely but for a bias of their distance
    /// in 2⁶⁴; `least` if there is nothing between them.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = u128::from(most.saturating_sub(least)) + 1;
        least + ((u128::from(self.bits()) * span) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix;

    #[test]
    fn a_seed_repeats_the_reference_sequence() {
        let mut random = SplitMix::new(0);
        // The reference implementation's first numbers of seed 0.
        assert_eq!(random.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.bits(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(random.bits(), 0x06c4_5d18_8009_454f);
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_both_ends() {
        let mut random = SplitMix::new(7);
        let draws: [u64; 200] = core::array::from_fn(|_| random.between(3, 5));
        assert!(draws.iter().all(|draw| (3..=5).contains(draw)));
        assert!(draws.contains(&3) && draws.contains(&5));
        let below: [u64; 200] = core::array::from_fn(|_| random.below(4));
        assert!(below.iter().all(|&draw| draw < 4));
        assert!((0..4).all(|number| below.contains(&number)));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(9, 9), 9);
        assert_eq!(random.between(9, 1), 9);
    }
}
