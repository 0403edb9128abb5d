//! The request-bound function of a server: its largest demand (SPR §III-G).

use crate::contract::{Contract, Nanos, Policy};

/// `RBF(Δ) = ⌈(Δ + J) / p⌉ · b`: an upper bound on the execution that a server requests within `Δ`
/// of an instant without pending work of its priority or above.
///
/// A sporadic server has `J = 0`: every piece of its budget comes back a period after it was asked
/// for. A deferrable server has `J = p − b`: it can use one budget at the end of a period and the
/// next right after it (the "double hit", SPR §II).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestBound {
    budget: Nanos,
    period: Nanos,
    jitter: Nanos,
}

impl RequestBound {
    /// The bound of the server of `contract`.
    #[must_use]
    pub const fn of(contract: &Contract) -> Self {
        let jitter = match contract.policy() {
            Policy::Sporadic => 0,
            Policy::Deferrable => contract.period() - contract.budget(),
        };
        Self {
            budget: contract.budget(),
            period: contract.period(),
            jitter,
        }
    }

    /// Execution requested within `window` nanoseconds, `window > 0`. Saturates.
    #[inline]
    #[must_use]
    pub const fn within(&self, window: Nanos) -> Nanos {
        let span = window.saturating_add(self.jitter);
        // Servers below the one under analysis usually have longer periods than its response
        // time: no division for them.
        if span <= self.period {
            self.budget
        } else {
            span.div_ceil(self.period).saturating_mul(self.budget)
        }
    }

    /// Two bounds add up to one of the same period and jitter.
    pub(crate) const fn key(&self) -> (Nanos, Nanos) {
        (self.period, self.jitter)
    }

    pub(crate) const fn join(&mut self, other: &Self) {
        self.budget = self.budget.saturating_add(other.budget);
    }

    pub(crate) const fn budget(&self) -> Nanos {
        self.budget
    }

    pub(crate) const fn period(&self) -> Nanos {
        self.period
    }

    pub(crate) const fn jitter(&self) -> Nanos {
        self.jitter
    }
}

#[cfg(test)]
mod tests {
    use super::RequestBound;
    use crate::contract::{Contract, Policy};

    #[test]
    fn a_sporadic_server_requests_one_budget_per_started_period() {
        let bound = RequestBound::of(&Contract::new(3, 10).unwrap());
        let expected = [(1, 3), (10, 3), (11, 6), (20, 6), (21, 9)];
        assert!(
            expected
                .iter()
                .all(|&(window, b)| bound.within(window) == b)
        );
    }

    #[test]
    fn a_deferrable_server_can_request_two_budgets_in_a_row() {
        let contract = Contract::new(3, 10)
            .unwrap()
            .with_policy(Policy::Deferrable);
        let bound = RequestBound::of(&contract);
        let expected = [(1, 3), (3, 3), (4, 6), (13, 6), (14, 9)];
        assert!(
            expected
                .iter()
                .all(|&(window, b)| bound.within(window) == b)
        );
    }

    #[test]
    fn a_server_that_owns_its_processor_requests_all_of_it() {
        for policy in [Policy::Sporadic, Policy::Deferrable] {
            let bound = RequestBound::of(&Contract::new(5, 5).unwrap().with_policy(policy));
            assert!((1..40_u64).all(|window| bound.within(window) == window.div_ceil(5) * 5));
        }
    }
}
