//! The reclamation budget of one group, and why a request is refused.

use crate::nanos::Picos;

/// Why a request was refused. A refused request changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The charge does not fit in what is left of the group's reclamation budget (BRR §III).
    #[error("reclamation budget: {needed} needed, {left} left")]
    Budget {
        /// The charge of the request.
        needed: Picos,
        /// What the group has left.
        left: Picos,
    },
    /// The arena is full, or the backing has no memory for another arena.
    #[error("out of arena memory")]
    Memory,
    /// The record table holds as many groups as it was made for.
    #[error("too many groups")]
    TooManyGroups,
    /// The group has ended.
    #[error("the group has ended")]
    Stale,
}

/// Budget of one group in picoseconds: `charged + carved + left = total` always.
///
/// Budgets of children are carved out of the parent's when they are opened, so a charge touches
/// its own group only and never walks to an ancestor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    total: u64,
    left: u64,
    /// The least that was ever left.
    least_left: u64,
    carved: u64,
    /// The part of the charges that paid for arena pages which were never touched before: they stay
    /// resident when a child group ends, so its parent inherits this part of the charge.
    resident: u64,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub(crate) const fn new(total: Picos) -> Self {
        Budget {
            total: total.0,
            left: total.0,
            least_left: total.0,
            carved: 0,
            resident: 0,
        }
    }

    #[inline]
    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) const fn carved(&self) -> u64 {
        self.carved
    }

    pub(crate) const fn resident(&self) -> u64 {
        self.resident
    }

    pub(crate) const fn charged(&self) -> u64 {
        self.total - self.left - self.carved
    }

    /// The most that was ever charged and carved at once.
    pub(crate) const fn peak(&self) -> u64 {
        self.total - self.least_left
    }

    /// Returns whether `ps` more can be charged; `None` stands for a charge beyond `u64`.
    #[inline]
    pub(crate) fn admit(&self, ps: Option<u64>) -> Result<u64, Refused> {
        match ps {
            Some(ps) if ps <= self.left => Ok(ps),
            needed => Err(self.refusal(needed)),
        }
    }

    #[cold]
    fn refusal(&self, needed: Option<u64>) -> Refused {
        Refused::Budget {
            needed: Picos(needed.unwrap_or(u64::MAX)),
            left: Picos(self.left),
        }
    }

    /// Charges `ps`, which was admitted.
    #[inline]
    pub(crate) fn spend(&mut self, ps: u64) {
        debug_assert!(ps <= self.left, "charged without admission");
        self.left -= ps;
        self.least_left = self.least_left.min(self.left);
    }

    /// Records that `ps` of the charges pays for pages that were never touched before.
    #[inline]
    pub(crate) fn settle(&mut self, ps: u64) {
        self.resident += ps;
    }

    /// Takes a charge of `ps` back.
    pub(crate) fn refund(&mut self, ps: u64) {
        debug_assert!(ps <= self.charged(), "refunded more than was charged");
        self.left += ps;
    }

    /// Sets `ps`, which was admitted, aside for a child.
    pub(crate) fn carve(&mut self, ps: u64) {
        debug_assert!(ps <= self.left, "carved without admission");
        self.left -= ps;
        self.least_left = self.least_left.min(self.left);
        self.carved += ps;
    }

    /// Takes an ended child's budget back, except for what its pages in the arena still cost.
    pub(crate) fn rejoin(&mut self, child: &Budget) {
        debug_assert!(
            child.resident <= child.charged(),
            "pages beyond the child's charges"
        );
        self.carved -= child.total;
        self.left += child.total - child.resident;
        self.resident += child.resident;
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Refused};
    use crate::nanos::Picos;

    #[test]
    fn the_peak_is_the_most_that_was_charged_and_carved_at_once() {
        let mut budget = Budget::new(Picos(100));
        assert_eq!(budget.peak(), 0);
        budget.spend(30);
        budget.refund(20);
        assert_eq!((budget.charged(), budget.peak()), (10, 30));
        budget.carve(15);
        assert_eq!(budget.peak(), 30);
        budget.spend(10);
        assert_eq!((budget.charged(), budget.peak()), (20, 35));
        budget.rejoin(&Budget::new(Picos(15)));
        assert_eq!(
            (budget.charged(), budget.carved(), budget.peak()),
            (20, 0, 35)
        );
    }

    #[test]
    fn a_charge_of_exactly_what_is_left_is_admitted_and_one_more_is_not() {
        let mut budget = Budget::new(Picos(10));
        let ps = budget.admit(Some(10)).expect("fits");
        budget.spend(ps);
        assert_eq!(
            budget.admit(Some(1)),
            Err(Refused::Budget {
                needed: Picos(1),
                left: Picos(0)
            })
        );
        assert!(budget.admit(Some(0)).is_ok());
    }

    #[test]
    fn an_ended_child_leaves_the_charge_for_its_pages_with_its_parent() {
        let mut parent = Budget::new(Picos(100));
        parent.carve(60);
        let mut child = Budget::new(Picos(60));
        child.spend(50);
        child.settle(20);
        parent.rejoin(&child);
        assert_eq!(
            (parent.left(), parent.carved(), parent.charged()),
            (80, 0, 20)
        );
    }
}
