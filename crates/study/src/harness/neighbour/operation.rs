//! What a neighbour does, and when.

/// A span of time on [`monotonic_ns`](crate::harness::clock::monotonic_ns).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Its first nanosecond.
    pub start_ns: u64,
    /// The nanosecond after its last.
    pub end_ns: u64,
}

/// One operation of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// When it began, on [`monotonic_ns`](crate::harness::clock::monotonic_ns).
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
}

impl Operation {
    pub(super) fn overlaps(&self, interval: &Interval) -> bool {
        self.start_ns < interval.end_ns && interval.start_ns < self.start_ns + self.duration_ns
    }
}
