//! How much one number grows with another one that is zero where it is zero.

use serde::{Deserialize, Serialize};

/// A slope through the origin, by least squares, and those of the blocks that it was measured in.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Slope {
    /// Through the points of all blocks.
    pub all: f64,
    /// The smallest one of a block.
    pub least: f64,
    /// The largest one of a block.
    pub most: f64,
}

impl Slope {
    /// Returns the slope of each block's points, and that of all of them.
    #[must_use]
    pub fn of(blocks: &[Vec<(f64, f64)>]) -> Self {
        let each: Vec<_> = blocks.iter().map(|block| Self::through(block)).collect();
        let points: Vec<_> = blocks.iter().flatten().copied().collect();
        let all = Self::through(&points);
        Self {
            all,
            least: each.iter().copied().fold(all, f64::min),
            most: each.iter().copied().fold(all, f64::max),
        }
    }

    /// Whether every block says that it grows.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.least > 0.0
    }

    /// The slope of the line from the origin with the least squares of distances to the points; zero of points at zero.
    pub(crate) fn through(points: &[(f64, f64)]) -> f64 {
        let square: f64 = points.iter().map(|(x, _)| x * x).sum();
        let product: f64 = points.iter().map(|(x, y)| x * y).sum();
        match square > 0.0 {
            true => product / square,
            false => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_have_its_slope_whatever_their_number() {
        let line = |xs: &[f64]| xs.iter().map(|x| (*x, 0.25 * x)).collect::<Vec<_>>();
        let slope = Slope::of(&[line(&[5.0, 20.0]), line(&[7.0])]);
        assert_eq!((slope.all, slope.least, slope.most), (0.25, 0.25, 0.25));
    }

    #[test]
    fn the_spread_is_of_blocks_and_a_slope_grows_if_each_does() {
        let slope = Slope::of(&[vec![(1.0, 1.0)], vec![(1.0, 3.0)]]);
        assert_eq!((slope.all, slope.least, slope.most), (2.0, 1.0, 3.0));
        assert!(slope.grows());
        assert!(!Slope::of(&[vec![(1.0, 1.0)], vec![(1.0, -0.1)]]).grows());
    }

    #[test]
    fn of_no_delay_there_is_no_slope() {
        assert_eq!(Slope::of(&[vec![(0.0, 3.0)]]), Slope::default());
        assert_eq!(Slope::of(&[]), Slope::default());
    }
}
