//! Admission of hard constant-bandwidth servers under earliest deadline first (SPR §V-D).

use alloc::vec;
use alloc::vec::Vec;

use super::utilisation::Utilisation;
use crate::contract::{Contract, Nanos};

/// Returns for every contract, in the given order, whether its server gets its budget by each of
/// its deadlines, regardless of the behaviour of the others:
///
/// ```text
/// U · p + B + Σ s_k ≤ p,   U = Σ b_k/p_k over all servers,   B = max { η_j | p_j > p }
/// ```
///
/// *Why.* Let the server be always ready from the start of a period on, and let `d` be the end of
/// that period. Let `s` be the last instant before `d` at which no work with a deadline of `d` or
/// earlier was pending; `s` is not after the start of the period, so `d − s ≥ p`. From `s` to `d`
/// the processor does work that arrived after `s` and is due by `d`, except for one non-preemptive
/// region that began before `s` and belongs to a later deadline; its server's period is then longer
/// than `p`. A constant-bandwidth server never requests more than `U_k · (d − s)` in such a window,
/// since the budget that it keeps at a wake-up has the density `U_k` at most (Abeni and Buttazzo,
/// RTSS 1998; the hard variant: Biondi, Melani and Bertogna, SIES 2014). So all of it is done by
/// `d` if `U · (d − s) + B ≤ d − s`, which is hardest for `d − s = p`.
///
/// *Departure* from Baker's test for periodic tasks ("Stack-based scheduling of realtime
/// processes", 1991), where servers of longer periods count through `B` only: a server that wakes
/// up late can keep a deadline that is near, however long its period is. So all of them count.
///
/// *Beyond these:* `s`, the longest [step](Contract::longest_step) that nothing interrupts, over all
/// servers. Each may be in one when its budget ends, and in one more than its share allows.
///
/// Cost: `n log n`.
#[must_use]
pub fn meets_deadlines(contracts: &[Contract]) -> Vec<bool> {
    let shares = Utilisation::of_all(contracts);
    let longer = LongerRegions::of(contracts);
    let steps = all_steps(contracts);
    let meets = |contract: &Contract| {
        let free = shares.left_of(contract.period());
        let blocking = longer.than(contract.period()).saturating_add(steps);
        free.is_some_and(|free| blocking <= free)
    };
    contracts.iter().map(meets).collect()
}

/// `Σ s_k`.
pub(crate) fn all_steps(contracts: &[Contract]) -> Nanos {
    let steps = contracts.iter().map(Contract::longest_step);
    steps.fold(0, Nanos::saturating_add)
}

/// `B` for every period.
pub(crate) struct LongerRegions {
    /// Periods, ascending.
    periods: Vec<Nanos>,
    /// The longest region of each of these periods and all later ones; one more for none.
    longest: Vec<Nanos>,
}

impl LongerRegions {
    pub(crate) fn of(contracts: &[Contract]) -> Self {
        let mut regions: Vec<_> = contracts
            .iter()
            .map(|c| (c.period(), c.nonpreemptive()))
            .collect();
        regions.sort_unstable();
        let mut longest = vec![0; regions.len() + 1];
        for (place, (_, region)) in regions.iter().enumerate().rev() {
            longest[place] = longest[place + 1].max(*region);
        }
        Self {
            periods: regions.into_iter().map(|(period, _)| period).collect(),
            longest,
        }
    }

    /// The longest region of a server whose period is longer than `period`.
    pub(crate) fn than(&self, period: Nanos) -> Nanos {
        self.longest[self.periods.partition_point(|p| *p <= period)]
    }
}

#[cfg(test)]
mod tests {
    use super::meets_deadlines;
    use crate::contract::Contract;

    fn contract(budget: u64, period: u64) -> Contract {
        Contract::new(budget, period).unwrap()
    }

    #[test]
    fn a_processor_can_be_used_to_the_last_nanosecond() {
        let set = [contract(10, 30), contract(20, 40), contract(10, 60)];
        assert_eq!(meets_deadlines(&set), [true; 3]);
        let set = [contract(10, 30), contract(20, 40), contract(11, 60)];
        assert_eq!(meets_deadlines(&set), [false; 3]);
    }

    #[test]
    fn a_step_delays_everybody() {
        // Half the processor is free, as below.
        let set = |step| {
            let last = contract(18, 60).with_longest_step(step);
            [contract(3, 30), contract(4, 40), last]
        };
        assert_eq!(meets_deadlines(&set(15)), [true, true, true]);
        assert_eq!(meets_deadlines(&set(16)), [false, true, true]);
        assert_eq!(meets_deadlines(&set(21)), [false, false, true]);
    }

    #[test]
    fn a_region_delays_only_those_of_shorter_periods() {
        // Half the processor is free: 15 of 30, 20 of 40, 30 of 60.
        let set = |region| {
            let last = contract(18, 60).with_nonpreemptive(region).unwrap();
            [contract(3, 30), contract(4, 40), last]
        };
        assert_eq!(meets_deadlines(&set(15)), [true, true, true]);
        assert_eq!(meets_deadlines(&set(16)), [false, true, true]);
    }
}
