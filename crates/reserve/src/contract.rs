//! The contract of a reservation: budget, period, priority and policy.

/// Nanoseconds: a duration, or an instant since an origin that the caller fixes.
pub type Nanos = u64;

/// The last instant: 2⁶² ns, 146 years after the origin. The scheduler takes a later one for this one,
/// and a task that sleeps until a later one sleeps until it is woken.
pub const INSTANT_MAX: Nanos = 1 << 62;

/// The longest period that a contract may have: 2⁶⁰ ns, 36 years. Together with [`INSTANT_MAX`] it
/// keeps every sum of the scheduler away from overflow.
pub const PERIOD_MAX: Nanos = 1 << 60;

/// The most replenishments that a sporadic server can be set to track.
pub const REPLENISHMENTS_MAX: u32 = 64;

/// Replenishments that a sporadic server tracks unless told otherwise.
const REPLENISHMENTS_DEFAULT: u32 = 16;

/// The priority of a reservation; a greater value is a higher priority (SPR §III, `σ_h > σ_l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(pub u8);

/// When a reservation gets its budget back (SPR §II).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Used budget is replenished one period after its use began.
    #[default]
    Sporadic,
    /// The whole budget is replenished at every multiple of the period, on the clock that all
    /// servers share. Budget may be used at the end of one period and at the start of the next:
    /// twice the budget in one piece.
    Deferrable,
}

/// The contract of a reservation: `(b, p, σ, η)` and how it is served.
///
/// Its fields are valid together: `0 < b ≤ p`, `η ≤ b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contract {
    budget: Nanos,
    period: Nanos,
    priority: Priority,
    nonpreemptive: Nanos,
    policy: Policy,
    replenishments: u32,
    slice: Nanos,
    longest_step: Nanos,
}

/// Why a contract is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// A reservation of no time would never run.
    #[error("the budget is zero")]
    ZeroBudget,
    /// More time than there is.
    #[error("the budget of {budget} ns is longer than the period of {period} ns")]
    BudgetAbovePeriod {
        /// The budget asked for.
        budget: Nanos,
        /// The period asked for.
        period: Nanos,
    },
    /// The period is longer than [`PERIOD_MAX`].
    #[error("the period of {period} ns is longer than {PERIOD_MAX} ns")]
    LongPeriod {
        /// The period asked for.
        period: Nanos,
    },
    /// A non-preemptive region ends with the budget at the latest (SPR §III-F).
    #[error(
        "the non-preemptive region of {nonpreemptive} ns is longer than the budget of {budget} ns"
    )]
    NonpreemptiveAboveBudget {
        /// The region asked for.
        nonpreemptive: Nanos,
        /// The budget it would have to fit in.
        budget: Nanos,
    },
    /// A sporadic server tracks 1 to [`REPLENISHMENTS_MAX`] replenishments.
    #[error("{replenishments} replenishments; 1 to {REPLENISHMENTS_MAX} can be tracked")]
    Replenishments {
        /// The number asked for.
        replenishments: u32,
    },
}

impl Contract {
    /// Creates a contract for `budget` in every `period`: sporadic, of the lowest priority, fully
    /// preemptive, with 16 replenishments, its tasks first come, first served.
    ///
    /// # Errors
    /// The budget is zero or longer than the period, or the period is too long.
    pub const fn new(budget: Nanos, period: Nanos) -> Result<Self, ContractError> {
        if budget == 0 {
            return Err(ContractError::ZeroBudget);
        }
        if budget > period {
            return Err(ContractError::BudgetAbovePeriod { budget, period });
        }
        if period > PERIOD_MAX {
            return Err(ContractError::LongPeriod { period });
        }
        Ok(Contract {
            budget,
            period,
            priority: Priority(0),
            nonpreemptive: 0,
            policy: Policy::Sporadic,
            replenishments: REPLENISHMENTS_DEFAULT,
            slice: 0,
            longest_step: 0,
        })
    }

    /// Creates the contract that represents the background in admission: without priority, with a
    /// minimal budget, and with steps of at most `longest_step`. No server is made from it.
    #[must_use]
    pub const fn background(longest_step: Nanos) -> Self {
        let Ok(contract) = Contract::new(1, PERIOD_MAX) else {
            unreachable!()
        };
        contract.with_longest_step(longest_step)
    }

    /// The same with another priority.
    #[must_use]
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The same with another policy.
    #[must_use]
    pub const fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The same with a non-preemptive region of `η` nanoseconds (SPR §III-F).
    ///
    /// # Errors
    /// The region is longer than the budget.
    pub const fn with_nonpreemptive(mut self, nonpreemptive: Nanos) -> Result<Self, ContractError> {
        if nonpreemptive > self.budget {
            return Err(ContractError::NonpreemptiveAboveBudget {
                nonpreemptive,
                budget: self.budget,
            });
        }
        self.nonpreemptive = nonpreemptive;
        Ok(self)
    }

    /// The same with another number of tracked replenishments: `S_i` (SPR §IV-A). A sporadic
    /// server that suspends itself more often in a period gets some of its budget back later.
    ///
    /// # Errors
    /// The number is not in `1..=64`.
    pub const fn with_replenishments(mut self, replenishments: u32) -> Result<Self, ContractError> {
        if replenishments == 0 || replenishments > REPLENISHMENTS_MAX {
            return Err(ContractError::Replenishments { replenishments });
        }
        self.replenishments = replenishments;
        Ok(self)
    }

    /// The same with its tasks taking turns of `slice` nanoseconds; zero: each runs until it
    /// blocks.
    #[must_use]
    pub const fn with_slice(mut self, slice: Nanos) -> Self {
        self.slice = slice;
        self
    }

    /// The same with tasks that have non-preemptible steps of up to `longest_step` nanoseconds,
    /// such as waiting for a page to be read. The part beyond the budget is an overrun.
    #[must_use]
    pub const fn with_longest_step(mut self, longest_step: Nanos) -> Self {
        self.longest_step = longest_step;
        self
    }

    /// Processor time per period, `b`.
    pub const fn budget(&self) -> Nanos {
        self.budget
    }

    /// The replenishment period, `p`.
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// The priority, `σ`.
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// The length of the non-preemptive region, `η`.
    pub const fn nonpreemptive(&self) -> Nanos {
        self.nonpreemptive
    }

    /// When budget comes back.
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// How many replenishments are tracked, `S`.
    pub const fn replenishments(&self) -> u32 {
        self.replenishments
    }

    /// How long one task runs while another of the server is ready; `None`: until it blocks.
    pub const fn slice(&self) -> Option<Nanos> {
        if self.slice == 0 {
            None
        } else {
            Some(self.slice)
        }
    }

    /// The longest non-preemptible step of a task.
    pub const fn longest_step(&self) -> Nanos {
        self.longest_step
    }

    /// Whether it represents the [background](Self::background). One contract with the longest
    /// steps represents all background tenants, since they run one after the other, and only when
    /// no server can.
    pub fn is_background(&self) -> bool {
        *self == Self::background(self.longest_step)
    }

    /// Returns the longest blocking of a server of higher priority by this one: the rest of a
    /// non-preemptive region, and a step that began at its end.
    pub(crate) const fn blocks(&self) -> Nanos {
        self.nonpreemptive.saturating_add(self.longest_step)
    }
}

#[cfg(test)]
mod tests {
    use super::{Contract, ContractError, PERIOD_MAX};

    #[test]
    fn a_contract_is_refused_for_what_is_wrong_with_it() {
        assert_eq!(Contract::new(0, 10), Err(ContractError::ZeroBudget));
        assert_eq!(
            Contract::new(11, 10),
            Err(ContractError::BudgetAbovePeriod {
                budget: 11,
                period: 10
            })
        );
        assert_eq!(
            Contract::new(1, PERIOD_MAX + 1),
            Err(ContractError::LongPeriod {
                period: PERIOD_MAX + 1
            })
        );
        let contract = Contract::new(10, 10).unwrap();
        assert!(contract.with_nonpreemptive(10).is_ok());
        assert!(contract.with_nonpreemptive(11).is_err());
        assert!(contract.with_replenishments(64).is_ok());
        assert!(contract.with_replenishments(0).is_err());
        assert!(contract.with_replenishments(65).is_err());
        assert_eq!(contract.with_slice(0).slice(), None);
    }
}
