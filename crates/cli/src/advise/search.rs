//! The search for the smallest sufficient reservation.

/// The result of a run under one reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trial {
    /// Size of the reservation, bytes.
    pub(crate) reserve: u64,
    /// How long the program took, ns; `None` if it was given up.
    pub(crate) time_ns: Option<u64>,
    /// Pages read from the swap file.
    pub(crate) major: u64,
    /// Pages made, or made anew.
    pub(crate) zero: u64,
    /// Pages evicted.
    pub(crate) evicted: u64,
}

/// The least reservation worth trying, and the step between two of them, bytes: a wasm page.
pub(crate) const STEP: u64 = 64 << 10;

/// Sizes from `largest` down to [`STEP`], at equal factors: each in whole steps, the largest first.
pub(crate) fn sizes(largest: u64, points: u32) -> Vec<u64> {
    let largest = largest.next_multiple_of(STEP).max(STEP);
    let (steps, points) = (largest / STEP, points.max(2));
    let mut sizes: Vec<u64> = (0..points)
        .map(|n| {
            let part = f64::from(n) / f64::from(points - 1);
            ((steps as f64).powf(1.0 - part).round() as u64).max(1) * STEP
        })
        .collect();
    sizes.dedup();
    sizes
}

/// Tries sizes until the smallest that is enough is known to within a thirty-second of it, or a
/// step. Those that were tried are in `trials`, the largest first.
///
/// A size is recommended only if every larger one that was tried is sufficient, too: a fast run
/// below the cliff may be an accident. None is recommended if the largest is not sufficient.
///
/// # Errors
/// Those of `attempt`.
pub(crate) fn smallest<E>(
    largest: u64,
    points: u32,
    enough: impl Fn(&Trial) -> bool,
    mut attempt: impl FnMut(u64) -> Result<Trial, E>,
) -> Result<(Vec<Trial>, Option<u64>), E> {
    let mut trials = Vec::new();
    for size in sizes(largest, points) {
        let trial = attempt(size)?;
        trials.push(trial);
        // Smaller ones take longer still.
        if trial.time_ns.is_none() {
            break;
        }
    }
    loop {
        let good = trials.iter().take_while(|trial| enough(trial)).count();
        let Some(best) = good.checked_sub(1).map(|last| trials[last].reserve) else {
            return Ok((trials, None));
        };
        let Some(next) = trials.get(good).map(|trial| trial.reserve) else {
            return Ok((trials, Some(best)));
        };
        let gap = best - next;
        if gap <= STEP.max(best / 32) {
            return Ok((trials, Some(best)));
        }
        let middle = next + (gap / 2 / STEP).max(1) * STEP;
        trials.insert(good, attempt(middle)?);
    }
}

#[cfg(test)]
mod tests {
    use super::{STEP, Trial, sizes, smallest};
    use std::convert::Infallible;

    /// A program that is as fast as it gets from `cliff` bytes on.
    fn program(cliff: u64) -> impl FnMut(u64) -> Result<Trial, Infallible> {
        move |reserve| {
            let short = cliff.saturating_sub(reserve) / STEP;
            Ok(Trial {
                reserve,
                time_ns: (short < 200).then_some(1000 + 100 * short),
                major: short,
                zero: 0,
                evicted: short,
            })
        }
    }

    fn fast(trial: &Trial) -> bool {
        trial.time_ns.is_some_and(|time| time <= 1050)
    }

    #[test]
    fn the_cliff_is_found_wherever_it_is() {
        for cliff in [1, 2, 3, 17, 100, 255, 256] {
            let (trials, best) =
                smallest(256 * STEP, 8, fast, program(cliff * STEP)).expect("no errors");
            let best = best.expect("the largest is enough") / STEP;
            assert!(
                best >= cliff && best <= cliff + 1 + cliff / 31,
                "{best} for {cliff}"
            );
            assert!(trials.is_sorted_by(|a, b| a.reserve > b.reserve));
            assert!(trials.len() < 24, "{} trials", trials.len());
        }
    }

    #[test]
    fn nothing_is_recommended_if_the_largest_is_not_enough() {
        let (_, best) = smallest(16 * STEP, 4, fast, program(17 * STEP)).expect("no errors");
        assert_eq!(best, None);
    }

    #[test]
    fn what_is_given_up_ends_the_way_down() {
        let (trials, best) =
            smallest(1024 * STEP, 6, fast, program(1024 * STEP)).expect("no errors");
        assert_eq!(best, Some(1024 * STEP));
        // 1024, 256, and then nothing smaller, however short the search among the larger ones was.
        assert_eq!(trials.last().map(|trial| trial.reserve), Some(256 * STEP));
    }

    #[test]
    fn sizes_go_down_to_a_step_in_equal_factors() {
        assert_eq!(sizes(1, 5), [STEP]);
        assert_eq!(sizes(16 * STEP, 5), [16, 8, 4, 2, 1].map(|n| n * STEP));
        assert_eq!(sizes(16 * STEP - 1, 2), [16, 1].map(|n| n * STEP));
    }
}
