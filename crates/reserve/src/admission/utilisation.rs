//! The utilisation of reservations: `Σ b/p`.

use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::contract::{Contract, Nanos};

/// A share of a processor: a fraction of integers, exact or rounded up.
///
/// Exact as long as the common denominator of all periods fits 64 bits, as it does for hand-written
/// periods; beyond it the rest is rounded up to a multiple of 2⁻⁶³, so that a set is refused rather
/// than admitted by a rounding error.
#[derive(Debug, Clone, Copy)]
pub struct Utilisation {
    numerator: u128,
    denominator: u64,
}

impl Utilisation {
    /// The share of one contract; exact.
    #[must_use]
    pub fn of(contract: &Contract) -> Self {
        reduced(contract.budget().into(), contract.period())
    }

    /// The share of all `contracts` together. Cost: `n log n`.
    #[must_use]
    pub fn of_all(contracts: &[Contract]) -> Self {
        let mut shares: Vec<Self> = contracts.iter().map(Self::of).collect();
        // Equal denominators first, so that the common one grows as late as it can.
        shares.sort_unstable_by_key(|share| share.denominator);
        let none = Self {
            numerator: 0,
            denominator: 1,
        };
        shares.iter().fold(none, |sum, share| sum.plus(*share))
    }

    fn plus(self, other: Self) -> Self {
        let common = lcm(self.denominator, other.denominator).unwrap_or(ROUNDED);
        let (left, right) = (self.over(common), other.over(common));
        let sum = left.saturating_add(right);
        if common == ROUNDED {
            return Self {
                numerator: sum,
                denominator: common,
            };
        }
        reduced(sum, common)
    }

    /// The numerator over `denominator`, rounded up.
    fn over(self, denominator: u64) -> u128 {
        if denominator.is_multiple_of(self.denominator) {
            let factor = u128::from(denominator / self.denominator);
            return self.numerator.saturating_mul(factor);
        }
        let (whole, rest) = (
            self.numerator / u128::from(self.denominator),
            self.numerator % u128::from(self.denominator),
        );
        // The rest is below 2⁶⁴ and so is the denominator: no overflow.
        let rest = (rest * u128::from(denominator)).div_ceil(self.denominator.into());
        whole
            .saturating_mul(denominator.into())
            .saturating_add(rest)
    }

    /// Whether this is at most one processor.
    #[must_use]
    pub fn fits(self) -> bool {
        self.numerator <= self.denominator.into()
    }

    /// Returns the part of `window` nanoseconds that this share leaves, rounded down; `None` if the
    /// share is more than a processor.
    #[must_use]
    pub fn left_of(self, window: Nanos) -> Option<Nanos> {
        let free = u128::from(self.denominator).checked_sub(self.numerator)?;
        let left = free * u128::from(window) / u128::from(self.denominator);
        Nanos::try_from(left).ok()
    }

    /// Millionths of a processor, rounded up; saturates.
    #[must_use]
    pub fn millionths(self) -> u64 {
        let (whole, rest) = (
            self.numerator / u128::from(self.denominator),
            self.numerator % u128::from(self.denominator),
        );
        let rest = (rest * 1_000_000).div_ceil(self.denominator.into());
        u64::try_from(whole.saturating_mul(1_000_000).saturating_add(rest)).unwrap_or(u64::MAX)
    }
}

/// By value.
impl PartialEq for Utilisation {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Utilisation {}

impl PartialOrd for Utilisation {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Utilisation {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = self.numerator.saturating_mul(other.denominator.into());
        left.cmp(&other.numerator.saturating_mul(self.denominator.into()))
    }
}

/// The denominator of sums that are not exact.
const ROUNDED: u64 = 1 << 63;

fn reduced(numerator: u128, denominator: u64) -> Utilisation {
    let rest = (numerator % u128::from(denominator)) as u64;
    let divisor = gcd(denominator, rest);
    Utilisation {
        numerator: numerator / u128::from(divisor),
        denominator: denominator / divisor,
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::{ROUNDED, Utilisation};
    use crate::contract::Contract;
    use alloc::vec::Vec;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn contract(budget: u64, period: u64) -> Contract {
        Contract::new(budget, period).unwrap()
    }

    #[test]
    fn three_thirds_of_different_periods_are_exactly_one_processor() {
        let thirds = [contract(10, 30), contract(20, 60), contract(7, 21)];
        let sum = Utilisation::of_all(&thirds);
        assert!(sum.fits());
        assert_eq!(sum.millionths(), 1_000_000);
        assert_eq!(sum.left_of(1 << 60), Some(0));
        let mut more = thirds.to_vec();
        more.push(contract(1, 3_600_000_000_000));
        assert!(!Utilisation::of_all(&more).fits());
    }

    #[test]
    fn periods_without_a_common_multiple_are_rounded_up() {
        // Primes near 10^9 and 10^12: their product exceeds 64 bits.
        let sum = Utilisation::of_all(&[
            contract(1, 999_999_937),
            contract(1, 1_000_000_007),
            contract(1, 999_999_999_989),
        ]);
        assert_eq!(sum.denominator, ROUNDED);
        assert!(sum.fits() && sum.millionths() == 1);
    }

    proptest! {
        #[test]
        fn a_sum_is_never_below_the_exact_one(
            parts in proptest::collection::vec((1..1_000_u64, 0..1_000_u64), 1..12),
        ) {
            let contracts: Vec<Contract> = parts
                .iter()
                .map(|(budget, more)| contract(*budget, budget + more))
                .collect();
            let sum = Utilisation::of_all(&contracts);
            let shares = parts.iter().map(|(b, more)| *b as f64 / (b + more) as f64);
            let expected: f64 = shares.sum();
            prop_assert!((sum.millionths() as f64 - expected * 1e6).abs() < 1.001);
            prop_assert_eq!(sum.fits(), sum.left_of(1).is_some());
            prop_assert!(sum.fits() == (expected <= 1.0) || (expected - 1.0).abs() < 1e-9);
        }
    }
}
