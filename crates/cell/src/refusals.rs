//! Counts what a lease refused: by which reservation, how often, and what it took at
//! least.

use std::sync::atomic::{AtomicU64, Ordering};

/// A reservation of a lease that something can be refused for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// `reclaim.budget`, in nanoseconds.
    Budget,
    /// `memory.reserve`, or `memory.limit` of a tenant that pages, in bytes.
    Memory,
    /// `memory.host`, in bytes.
    HostMemory,
    /// `memory.table_elements`.
    TableElements,
    /// `files.open`.
    OpenFiles,
    /// `disk.bytes`.
    DiskBytes,
    /// `disk.files`.
    DiskFiles,
    /// `memory.mappings`.
    Mappings,
}

impl Reservation {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Budget,
        Self::Memory,
        Self::HostMemory,
        Self::TableElements,
        Self::OpenFiles,
        Self::DiskBytes,
        Self::DiskFiles,
        Self::Mappings,
    ];
}

/// How often a reservation refused something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reservation.
    pub reservation: Reservation,
    /// How many requests it refused.
    pub times: u64,
    /// What the first of them took at least, in the unit of the reservation: with less it is refused again. A request of
    /// several parts, such as the start of a task, is refused at the first part that does not fit.
    pub enough: u64,
}

#[derive(Debug, Default)]
struct Count {
    times: AtomicU64,
    /// What it took at least the first time.
    enough: AtomicU64,
}

/// The refusals of one top-level tenant and its descendants, counted on any thread.
#[derive(Debug, Default)]
pub(crate) struct Refusals([Count; Reservation::ALL.len()]);

impl Refusals {
    /// Counts a refused request, which takes at least `enough`.
    pub(crate) fn record(&self, reservation: Reservation, enough: u64) {
        let count = &self.0[reservation as usize];
        if count.times.fetch_add(1, Ordering::AcqRel) == 0 {
            count.enough.store(enough, Ordering::Release);
        }
    }

    /// How many requests it has refused.
    pub(crate) fn times(&self, reservation: Reservation) -> u64 {
        self.0[reservation as usize].times.load(Ordering::Acquire)
    }

    /// The amount that would have sufficed for the first refused request, if there was one.
    pub(crate) fn first(&self, reservation: Reservation) -> Option<u64> {
        let count = &self.0[reservation as usize];
        let refused = count.times.load(Ordering::Acquire) > 0;
        refused.then(|| count.enough.load(Ordering::Acquire))
    }

    /// The refusals, by reservation.
    pub(crate) fn take(&self) -> Vec<Refusal> {
        let refusal = |reservation: Reservation| {
            let count = &self.0[reservation as usize];
            let times = count.times.swap(0, Ordering::AcqRel);
            (times > 0).then(|| Refusal {
                reservation,
                times,
                enough: count.enough.load(Ordering::Acquire),
            })
        };
        Reservation::ALL.into_iter().filter_map(refusal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, Refusals, Reservation};

    #[test]
    fn every_reservation_stands_at_its_number() {
        for (number, reservation) in Reservation::ALL.into_iter().enumerate() {
            assert_eq!(reservation as usize, number);
        }
    }

    #[test]
    fn refusals_are_counted_and_the_first_says_what_was_missing() {
        let refusals = Refusals::default();
        refusals.record(Reservation::Memory, 100);
        refusals.record(Reservation::Memory, 50);
        let refused = Refusal {
            reservation: Reservation::Memory,
            times: 2,
            enough: 100,
        };
        assert_eq!(refusals.take(), [refused]);
        assert_eq!(refusals.take(), []);
    }
}
