//! The request bounds of many servers together, and straight lines below and above their sum.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::request_bound::RequestBound;
use crate::contract::Nanos;

/// One processor, in the fixed-point unit of [`Line`]'s rates.
const ONE: u128 = 1 << 64;

/// The sum of request bounds. Servers of the same period and jitter are one term, so that a
/// thousand tenants of one kind cost as much as one.
#[derive(Debug, Default)]
pub(crate) struct Interference {
    terms: Vec<RequestBound>,
    /// Where the term of a period and jitter is.
    places: BTreeMap<(Nanos, Nanos), usize>,
    line: Line,
}

impl Interference {
    pub(crate) fn add(&mut self, bound: RequestBound) {
        self.line.add(&bound);
        let next = self.terms.len();
        let place = *self.places.entry(bound.key()).or_insert(next);
        match self.terms.get_mut(place) {
            Some(term) => term.join(&bound),
            None => self.terms.push(bound),
        }
    }

    /// Number of terms: what [`Self::within`] costs.
    pub(crate) fn terms(&self) -> u64 {
        self.terms.len() as u64
    }

    /// Returns the requests of all servers within `window` nanoseconds; saturates.
    pub(crate) fn within(&self, window: Nanos) -> Nanos {
        self.terms
            .iter()
            .fold(0, |sum, term| sum.saturating_add(term.within(window)))
    }

    pub(crate) fn line(&self) -> Line {
        self.line
    }
}

/// Straight lines that enclose a sum of request bounds, since for every one of them
/// `b/p · (Δ + J) ≤ RBF(Δ) ≤ b/p · (Δ + J) + b`.
///
/// They enclose the solution of eq. (1) as well, before any iteration: Sjödin and Hansson start the
/// iteration at the lower one ("Improved response-time analysis calculations", RTSS 1998); the
/// upper one is a response-time bound by itself (Bini, Nguyen, Richard and Baruah, "A response-time
/// bound in fixed-priority scheduling with arbitrary deadlines", IEEE TC 2009).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Line {
    /// `Σ b/p`, rounded down and up, in units of 2⁻⁶⁴.
    rate_below: u128,
    rate_above: u128,
    /// `Σ b/p·J`, rounded down, and `Σ (b/p·J + b)`, rounded up.
    offset_below: u128,
    offset_above: u128,
}

impl Line {
    fn add(&mut self, bound: &RequestBound) {
        let of_one = Self::of(bound);
        self.rate_below += of_one.rate_below;
        self.rate_above += of_one.rate_above;
        self.offset_below += of_one.offset_below;
        self.offset_above += of_one.offset_above;
    }

    /// The lines without one of the bounds that were added.
    pub(crate) fn without(mut self, bound: &RequestBound) -> Self {
        let of_one = Self::of(bound);
        self.rate_below -= of_one.rate_below;
        self.rate_above -= of_one.rate_above;
        self.offset_below -= of_one.offset_below;
        self.offset_above -= of_one.offset_above;
        self
    }

    fn of(bound: &RequestBound) -> Self {
        let (budget, period) = (u128::from(bound.budget()), u128::from(bound.period()));
        let late = budget * u128::from(bound.jitter());
        Self {
            rate_below: (budget << 64) / period,
            rate_above: (budget << 64).div_ceil(period),
            offset_below: late / period,
            offset_above: late.div_ceil(period) + budget,
        }
    }

    /// No `x` below this satisfies `own + Σ RBF(x) ≤ x`; `None`: none at all does, or none that
    /// is a [`Nanos`].
    pub(crate) fn least(&self, own: Nanos) -> Option<Nanos> {
        let free = ONE.checked_sub(self.rate_below)?;
        let offset = u128::from(own) + self.offset_below;
        match free {
            0 => (offset == 0).then_some(0),
            _ => crossing(offset, free, false),
        }
    }

    /// An `x` that satisfies `own + Σ RBF(x) ≤ x`, if the upper line shows that there is one.
    pub(crate) fn sufficient(&self, own: Nanos) -> Option<Nanos> {
        let free = ONE.checked_sub(self.rate_above).filter(|free| *free > 0)?;
        crossing(u128::from(own) + self.offset_above, free, true)
    }
}

/// `offset / (free / ONE)`: where a line from `offset` meets the diagonal.
fn crossing(offset: u128, free: u128, up: bool) -> Option<Nanos> {
    let offset = u64::try_from(offset).ok()?;
    let scaled = u128::from(offset) << 64;
    let x = if up {
        scaled.div_ceil(free)
    } else {
        scaled / free
    };
    Nanos::try_from(x).ok()
}

#[cfg(test)]
mod tests {
    use super::Interference;
    use crate::admission::request_bound::RequestBound;
    use crate::contract::{Contract, Policy};
    use alloc::vec::Vec;
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    fn bounds() -> impl Strategy<Value = Vec<RequestBound>> {
        let bound =
            (1..200_u64, 0..200_u64, any::<bool>()).prop_map(|(budget, more, deferrable)| {
                let policy = if deferrable {
                    Policy::Deferrable
                } else {
                    Policy::Sporadic
                };
                RequestBound::of(
                    &Contract::new(budget, budget + more)
                        .unwrap()
                        .with_policy(policy),
                )
            });
        proptest::collection::vec(bound, 1..12)
    }

    proptest! {
        #[test]
        fn a_sum_is_the_sum_of_its_bounds(bounds in bounds(), window in 1..5_000_u64) {
            let mut sum = Interference::default();
            bounds.iter().for_each(|bound| sum.add(*bound));
            let expected: u64 = bounds.iter().map(|bound| bound.within(window)).sum();
            prop_assert_eq!(sum.within(window), expected);
        }

        #[test]
        fn the_lines_enclose_the_least_solution(bounds in bounds(), own in 1..100_u64) {
            let mut sum = Interference::default();
            bounds.iter().for_each(|bound| sum.add(*bound));
            let solution = (1..20_000_u64).find(|x| own + sum.within(*x) <= *x);
            if let (Some(least), Some(solution)) = (sum.line().least(own), solution) {
                prop_assert!(least <= solution, "{least} {solution}");
            }
            prop_assert!(sum.line().least(own).is_some() || solution.is_none());
            if let Some(sufficient) = sum.line().sufficient(own) {
                prop_assert!(own + sum.within(sufficient) <= sufficient);
            }
        }
    }
}
