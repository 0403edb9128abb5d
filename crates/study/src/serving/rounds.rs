//! Timed rounds: how often a study measures each of its arms, and for how long each time.

use std::fmt;
use std::time::Duration;

use crate::harness::experiment::Options;
use crate::harness::samples::interleaved;

/// The rounds of a study whose arms each run for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// Rounds; each arm runs once in every one.
    pub(crate) count: usize,
    /// The time for which an arm runs in a round.
    pub(crate) time: Duration,
}

impl Rounds {
    /// Returns the rounds of a run with these options: `quick` or `full` ones.
    pub(crate) const fn of(options: &Options, quick: Self, full: Self) -> Self {
        if options.quick { quick } else { full }
    }

    /// The order in which `arms` alternatives take their turns, see [`interleaved`].
    pub(crate) fn turns(self, arms: usize) -> impl Iterator<Item = usize> {
        interleaved(arms, self.count)
    }

    /// The number of turns of `arms` alternatives.
    pub(crate) const fn number_of_turns(self, arms: usize) -> u64 {
        (arms * self.count) as u64
    }
}

/// As notes of reports state it.
impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds of {:?}", self.count, self.time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Rounds;
    use crate::harness::experiment::Options;

    const FULL: Rounds = Rounds {
        count: 10,
        time: Duration::from_secs(5),
    };
    const QUICK: Rounds = Rounds {
        count: 2,
        time: Duration::from_millis(700),
    };

    #[test]
    fn a_quick_run_has_the_quick_rounds_and_any_other_the_full_ones() {
        let quick = Options {
            quick: true,
            ..Options::default()
        };
        assert_eq!(Rounds::of(&quick, QUICK, FULL), QUICK);
        assert_eq!(Rounds::of(&Options::default(), QUICK, FULL), FULL);
    }

    #[test]
    fn there_are_as_many_turns_as_are_announced() {
        assert_eq!(QUICK.turns(3).count() as u64, QUICK.number_of_turns(3));
        assert_eq!(QUICK.to_string(), "2 rounds of 700ms");
    }
}
