//! The end of a lane at which exchanges are taken out.

use crate::lane::Lane;
use std::sync::Arc;

/// The end of a lane at which exchanges are taken out: a tenant that answers them, or the promise of one. With
/// the last clone the lane is closed, so that no exchange waits where nothing is going to take it.
#[derive(Clone)]
pub struct Intake(Arc<End>);

struct End(Arc<Lane>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Intake {
    /// A new lane in which at most `most` exchanges wait, at least 1.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(End(Arc::new(Lane::new(most)))))
    }

    /// The lane.
    pub fn lane(&self) -> &Arc<Lane> {
        &self.0.0
    }
}

#[cfg(test)]
mod tests {
    use super::Intake;

    #[test]
    fn a_lane_is_open_as_long_as_anything_may_take_from_it() {
        let intake = Intake::new(1);
        let lane = intake.lane().clone();
        let other = intake.clone();
        drop(intake);
        assert!(!lane.is_closed());
        drop(other);
        assert!(lane.is_closed());
    }
}
