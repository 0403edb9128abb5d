//! How much two workloads slow each other when each is slowed by the other one: a closed loop.
//!
//! What a workload costs the other one at its full pace is an upper bound. One that waits half of its time
//! takes its locks half as often and holds them half as much of the time: the other one finds them taken
//! half as often. So what both lose is the solution of two equations, one for each direction, and of two
//! equal workloads neither loses as much as the first guess says.

/// How often the equations are applied, each time going half of the way, so that they do not swing.
const STEPS: usize = 100;

/// What a workload loses for each second of its own work, by the pace of the other one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Loss {
    /// By waits that were measured beside the other one, which was slowed then as well.
    pub(crate) waited: f64,
    /// By waits that are expected beside the other one at its full pace.
    pub(crate) expected: f64,
    /// By locks that move between the caches, if the lock moves as often as its workload takes it, and if
    /// it moves as often as the other one takes it at its full pace.
    pub(crate) moves: Vec<(f64, f64)>,
}

impl Loss {
    /// How many times as long as alone it takes, if it took `mine` times as long so far and the other one
    /// `theirs` times.
    fn slowdown(&self, mine: f64, theirs: f64) -> f64 {
        let moves = self.moves.iter();
        let moving: f64 = moves
            .map(|(own, other)| own.min(other * mine / theirs))
            .sum();
        1.0 + self.waited + self.expected / theirs + moving
    }
}

/// How many times as long as alone each of two takes beside the other one.
pub(crate) fn together(one: &Loss, two: &Loss) -> [f64; 2] {
    let mut slow = [one.slowdown(1.0, 1.0), two.slowdown(1.0, 1.0)];
    for _ in 0..STEPS {
        let next = [
            one.slowdown(slow[0], slow[1]),
            two.slowdown(slow[1], slow[0]),
        ];
        slow = [(slow[0] + next[0]) / 2.0, (slow[1] + next[1]) / 2.0];
    }
    slow
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(expected: f64) -> Loss {
        Loss {
            expected,
            ..Loss::default()
        }
    }

    #[test]
    fn two_that_wait_for_each_other_lose_less_than_beside_one_at_its_full_pace() {
        // x (1 + x) = 2: each finds the other's lock half as often as if only it were slowed.
        let [one, two] = together(&waits(2.0), &waits(2.0));
        assert!((one - 2.0).abs() < 1e-6 && (two - 2.0).abs() < 1e-6);
    }

    #[test]
    fn one_that_does_not_wait_is_at_its_full_pace_for_the_other() {
        let [one, two] = together(&waits(0.5), &waits(0.0));
        assert!((one - 1.5).abs() < 1e-6 && (two - 1.0).abs() < 1e-6);
    }

    #[test]
    fn waits_that_were_measured_are_not_corrected_again() {
        let measured = Loss {
            waited: 0.5,
            ..Loss::default()
        };
        assert!((together(&measured, &measured)[0] - 1.5).abs() < 1e-6);
    }

    #[test]
    fn a_lock_moves_no_more_often_than_the_slower_one_takes_it() {
        let often = Loss {
            moves: vec![(1.0, 0.1)],
            ..Loss::default()
        };
        let seldom = Loss {
            moves: vec![(0.1, 1.0)],
            ..Loss::default()
        };
        let [one, two] = together(&often, &seldom);
        assert!(one < 1.11 && (two - 1.1).abs() < 1e-6, "{one} {two}");
    }
}
