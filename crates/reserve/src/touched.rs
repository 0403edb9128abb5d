//! Counts the records that an invocation of the scheduler accesses, at each access.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::id::Index;

/// The records that were accessed since counting began: each counts once.
#[derive(Debug)]
pub(crate) struct Touched {
    /// When each was accessed last, by the number of the count.
    last: Vec<AtomicU32>,
    /// The number of this count.
    count: u32,
    /// Atomic only because reading a record accesses it, too.
    records: AtomicU32,
}

impl Touched {
    pub(crate) fn new(records: u32) -> Self {
        Touched {
            last: (0..records).map(|_| AtomicU32::new(0)).collect(),
            count: 1,
            records: AtomicU32::new(0),
        }
    }

    pub(crate) fn note(&self, record: Index) {
        if self.last[record as usize].swap(self.count, Ordering::Relaxed) != self.count {
            self.records.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn forget(&mut self) {
        self.count = self.count.wrapping_add(1);
        self.records = AtomicU32::new(0);
    }
}

#[cfg(test)]
mod tests {
    use super::Touched;

    #[test]
    fn a_record_counts_once_however_often_it_is_accessed() {
        let mut touched = Touched::new(3);
        for record in [0, 2, 0, 2, 2] {
            touched.note(record);
        }
        assert_eq!(touched.count(), 2);
        touched.forget();
        assert_eq!(touched.count(), 0);
        touched.note(2);
        assert_eq!(touched.count(), 1);
    }
}
