//! Units charged, by class.

use crate::class::CLASSES;

/// How many units of each class are charged: to one group, or to all groups below a root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally([u64; CLASSES]);

impl Tally {
    /// Nothing is charged.
    pub(crate) const NONE: Self = Tally([0; CLASSES]);

    /// Units of a class.
    #[inline]
    pub(crate) const fn of(&self, class: u8) -> u64 {
        self.0[class as usize]
    }

    /// Counts units that were charged. Saturates, which only a class that costs nothing can
    /// come to.
    #[inline]
    pub(crate) const fn add(&mut self, class: u8, units: u64) {
        let count = &mut self.0[class as usize];
        *count = count.saturating_add(units);
    }

    /// Takes units off that were refunded.
    #[inline]
    pub(crate) const fn take(&mut self, class: u8, units: u64) {
        let count = &mut self.0[class as usize];
        *count = count.saturating_sub(units);
    }

    /// Adds another tally.
    pub(crate) fn join(&mut self, other: &Tally) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }

    /// Takes another tally, which was counted here, off.
    pub(crate) fn part(&mut self, other: &Tally) {
        for (count, less) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_sub(*less);
        }
    }
}
