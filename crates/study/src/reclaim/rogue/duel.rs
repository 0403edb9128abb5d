//! A duel: one hostile guest and one neighbour on a processor, before, during and after the end of the
//! hostile one.

use anyhow::{Context, Result};

use super::runtime::GuestEnd;
use super::together::{Round, took};
use crate::harness::neighbour::Interval;
use crate::harness::plot::envelope;
use crate::harness::samples::Samples;

/// The observations of one end.
#[derive(Debug)]
pub struct Duel {
    /// How the hostile guest ended.
    pub guest_end: GuestEnd,
    /// How many objects it had.
    pub made: Option<u64>,
    /// The neighbour's pictures, in the order of time.
    pictures: Vec<Interval>,
}

impl Duel {
    /// The duel of a round with one hostile guest.
    ///
    /// # Errors
    /// If the round had none.
    pub fn of(round: Round) -> Result<Self> {
        let ending = round.endings.into_iter().next();
        let ending = ending.context("a round without a hostile guest")?;
        let mut pictures = round.pictures;
        // The last is not done.
        pictures.pop();
        Ok(Self {
            guest_end: ending.guest_end,
            made: ending.made,
            pictures,
        })
    }

    /// When the guest was killed, ns.
    fn kill_ns(&self) -> u64 {
        self.guest_end.ending.start_ns
    }

    /// The neighbour's time for each of its pictures in the `span_ns` from the kill on, ns.
    pub fn from_kill(&self, span_ns: u64) -> Samples {
        let start_ns = self.kill_ns();
        let end_ns = start_ns.saturating_add(span_ns);
        took(&self.pictures, Interval { start_ns, end_ns })
    }

    /// The same in the `span_ns` before the kill; without the picture into which the kill falls.
    pub fn before_kill(&self, span_ns: u64) -> Samples {
        let kill_ns = self.kill_ns();
        let whole = self.pictures.iter().filter(|p| p.end_ns <= kill_ns);
        let whole: Vec<Interval> = whole.copied().collect();
        let start_ns = kill_ns.saturating_sub(span_ns);
        let end_ns = kill_ns;
        took(&whole, Interval { start_ns, end_ns })
    }

    /// The slowest of the neighbour's pictures in each of `columns` parts of a span that begins and ends
    /// so many ns after the kill: `(ns after the kill, ns)`, as [`envelope`] has them.
    pub fn slowest(&self, span: (f64, f64), columns: usize) -> Vec<(f64, f64)> {
        let kill_ns = self.kill_ns();
        let after = |ns: u64| ns as f64 - kill_ns as f64;
        let values = self.pictures.iter().map(|picture| {
            let took_ns = picture.end_ns - picture.start_ns;
            (
                after(picture.start_ns),
                after(picture.end_ns),
                took_ns as f64,
            )
        });
        envelope(&values.collect::<Vec<_>>(), span, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::Duel;
    use crate::harness::neighbour::Interval;
    use crate::reclaim::rogue::GuestEnd;

    fn duel() -> Duel {
        // Pictures of 10 ns; the one at 105, when the guest is killed, takes 50.
        let ends = (1..=10)
            .map(|n| n * 10)
            .chain([150])
            .chain((16..=20).map(|n| n * 10));
        let mut start_ns = 0;
        let pictures = ends.map(|end_ns| {
            let picture = Interval { start_ns, end_ns };
            start_ns = end_ns;
            picture
        });
        let guest_end = GuestEnd {
            ending: Interval {
                start_ns: 105,
                end_ns: 160,
            },
            end_ns: 55,
            killed: true,
            reclaimed: None,
            statement: None,
            taken: crate::harness::taken::Taken::default(),
        };
        Duel {
            guest_end,
            made: None,
            pictures: pictures.collect(),
        }
    }

    #[test]
    fn the_picture_into_which_the_kill_falls_counts_as_disturbed() {
        let duel = duel();
        let (from, before) = (duel.from_kill(60), duel.before_kill(60));
        assert_eq!((from.count(), from.max()), (3, Some(50)));
        assert_eq!((before.count(), before.max()), (6, Some(10)));
    }

    #[test]
    fn a_stall_is_seen_for_as_long_as_it_lasts() {
        let steps = duel().slowest((-50.0, 90.0), 14);
        // From the column in which the slow picture begins to the one in which it ends.
        assert_eq!(
            steps,
            [(-50.0, 10.0), (-10.0, 50.0), (50.0, 10.0), (90.0, 10.0)]
        );
    }
}
