//! Computes budgets from an observation.

use super::observe::Observed;
use leasehold_lease::{Cpu, Nanoseconds};

/// Budgets of the processor are whole multiples of this, ns.
const GRAIN: u64 = 100_000;

/// The reclamation budget for what was charged at most, with a `margin` of that, ns: in steps of its second
/// digit.
pub(super) fn reclamation(peak_ns: u64, margin: f64) -> u64 {
    let least = (peak_ns as f64 * (1.0 + margin)).ceil() as u64;
    let step = 10u64.pow(least.max(1).ilog10().saturating_sub(1));
    least.div_ceil(step) * step
}

/// The budget of a processor reservation under which a run like the one that was observed takes no longer than
/// `slowest_ns`, ns of every period; at most the period.
///
/// A program waits for `time - used`, with a reservation and without, so that its `used` must fit
/// into the rest of `slowest_ns`. The share is their quotient, and at most the use of the busiest
/// period. On top comes `lost_ns`, what a dispatch and a stop take of each budget: that is no time
/// of the program's.
pub(super) fn processor(observed: &Observed, slowest_ns: u64, period_ns: u64, lost_ns: u64) -> u64 {
    let waits_ns = observed.time_ns.saturating_sub(observed.used_ns);
    let rest_ns = slowest_ns.saturating_sub(waits_ns).max(1);
    let share = (observed.used_ns as f64 / rest_ns as f64).min(1.0);
    let shared_ns = (share * period_ns as f64).ceil() as u64;
    // For a program that only computes, the observed use of single periods is too low.
    let busiest_ns = match waits_ns < observed.time_ns / 10 {
        true => observed.time_ns.min(period_ns),
        false => observed.busy.max().unwrap_or(period_ns),
    };
    let busiest_ns = busiest_ns.saturating_add(busiest_ns / 4);
    let budget_ns = shared_ns.min(busiest_ns).max(1) + lost_ns;
    (budget_ns.div_ceil(GRAIN) * GRAIN).min(period_ns)
}

/// The reservation of so much of every period.
pub(super) fn reservation(budget_ns: u64, period: Nanoseconds) -> Option<Cpu> {
    Cpu::new(Nanoseconds::new(budget_ns)?, period).ok()
}

/// The next smaller budget to try where a cell cannot keep this one, ns: a twentieth of the period less.
pub(super) fn smaller(budget_ns: u64, period_ns: u64) -> Option<u64> {
    let less = (period_ns / 20).max(1);
    let smaller = budget_ns.checked_sub(less)?;
    (smaller >= Cpu::MIN_BUDGET.get()).then_some(smaller)
}

/// The next larger budget to try where the program took longer than it may (`took` and `may` ns), ns.
pub(super) fn larger(budget_ns: u64, (took, may): (u64, u64), period_ns: u64) -> Option<u64> {
    let needed = budget_ns as f64 * took as f64 / may.max(1) as f64;
    let larger = ((needed.ceil() as u64).div_ceil(GRAIN) * GRAIN).min(period_ns);
    (larger > budget_ns).then_some(larger)
}

#[cfg(test)]
mod tests {
    use super::{larger, processor, reclamation, smaller};
    use crate::advise::observe::Observed;
    use leasehold_study::samples::Samples;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_larger_budget_makes_up_for_what_was_too_slow_and_is_no_more_than_a_period() {
        assert_eq!(larger(2 * MS, (3, 2), 10 * MS), Some(3 * MS));
        assert_eq!(larger(8 * MS, (3, 2), 10 * MS), Some(10 * MS));
        assert_eq!(larger(10 * MS, (3, 2), 10 * MS), None);
    }

    fn observed(time_ms: u64, used_ms: u64, busy_ms: &[u64]) -> Observed {
        let busy: Samples = busy_ms.iter().map(|ms| ms * MS).collect();
        Observed {
            start_ns: 0,
            peak_ns: 0,
            time_ns: time_ms * MS,
            used_ns: used_ms * MS,
            busy,
            output: Vec::new(),
        }
    }

    #[test]
    fn a_program_that_computes_gets_the_share_of_its_speed_that_is_to_be_kept() {
        let busy = observed(100, 100, &[10; 10]);
        assert_eq!(processor(&busy, 125 * MS, 10 * MS, 0), 8 * MS);
        // A deadline that it does not make even alone.
        assert_eq!(processor(&busy, 50 * MS, 10 * MS, 0), 10 * MS);
    }

    #[test]
    fn a_program_that_waits_gets_no_more_than_its_busiest_period_takes_and_a_quarter() {
        let waits = observed(100, 20, &[2; 10]);
        assert_eq!(processor(&waits, 105 * MS, 10 * MS, 0), 2_400_000 + 100_000);
        // Bursts may be stretched if there is time.
        let bursts = observed(100, 20, &[10, 0, 0, 0, 0, 10, 0, 0, 0, 0]);
        assert_eq!(processor(&bursts, 120 * MS, 10 * MS, 0), 5 * MS);
        // A short program has one period, and is over in it.
        let short = observed(1, 1, &[1]);
        assert_eq!(processor(&short, 1_050_000, 10 * MS, 0), 1_300_000);
        // What scheduling takes is added: or a budget might promise nothing.
        assert_eq!(processor(&short, 1_050_000, 10 * MS, 130_000), 1_400_000);
    }

    #[test]
    fn a_reclamation_budget_has_its_margin_and_two_digits() {
        assert_eq!(reclamation(2_010_000, 0.25), 2_600_000);
        assert_eq!(reclamation(100, 0.0), 100);
        assert_eq!(reclamation(7, 0.25), 9);
        assert_eq!(reclamation(0, 0.25), 0);
    }

    #[test]
    fn what_a_cell_cannot_keep_is_tried_smaller_until_nothing_is_left() {
        let mut budget = Some(10 * MS);
        let mut tried = 0;
        while let Some(ns) = budget {
            tried += 1;
            budget = smaller(ns, 10 * MS);
        }
        assert_eq!(tried, 20);
    }
}
