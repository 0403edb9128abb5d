//! How many mappings there may be at a time, so that there is room for them before a fault.

use crate::reservation::{Kind, Reservation};

/// The mappings that the reservations and areas of now may need.
#[derive(Debug, Clone, Default)]
pub(crate) struct MappingsNeeded {
    /// Within the size of reservations, and of pages that others are charged for.
    count: u64,
    /// Firm reservations.
    firm: u32,
}

impl MappingsNeeded {
    /// Each frame of a reservation can be mapped once by the reservation that holds it, conserves it,
    /// or gave it up for a lock.
    pub(crate) fn add(&mut self, reservation: &Reservation) {
        self.count += u64::from(reservation.size);
        self.firm += u32::from(reservation.kind == Kind::Firm);
    }

    pub(crate) fn remove(&mut self, reservation: &Reservation) {
        self.count -= u64::from(reservation.size);
        self.firm -= u32::from(reservation.kind == Kind::Firm);
    }

    /// Pages that others were charged for are mapped beyond the reservation's frames.
    pub(crate) fn add_pages(&mut self, pages: u32) {
        self.count += u64::from(pages);
    }

    pub(crate) fn remove_pages(&mut self, pages: u32) {
        self.count -= u64::from(pages);
    }

    /// Returns the most mappings on a node of `frames` frames: all firm reservations together borrow no
    /// more frames than there are.
    pub(crate) fn most(&self, frames: u32) -> u64 {
        let borrowable = if self.firm > 0 { frames } else { 0 };
        self.count + u64::from(borrowable)
    }
}

#[cfg(test)]
mod tests {
    use super::MappingsNeeded;
    use crate::reservation::{Contract, Reservation};

    #[test]
    fn firm_reservations_together_borrow_no_more_than_all_frames() {
        let hard = Reservation::new(&Contract::hard(10));
        let firm = Reservation::new(&Contract::firm(5));
        let mut needed = MappingsNeeded::default();
        needed.add(&hard);
        assert_eq!(needed.most(100), 10);
        needed.add(&firm);
        needed.add(&firm);
        assert_eq!(needed.most(100), 120);
        needed.add_pages(7);
        needed.remove(&firm);
        assert_eq!(needed.most(100), 122);
        needed.remove(&firm);
        needed.remove_pages(7);
        assert_eq!(needed.most(100), 10);
    }
}
