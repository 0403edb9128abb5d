//! Tasks: what they compute, and which pages they touch meanwhile.

/// Nanoseconds, since the start or of duration.
pub type Nanos = u64;

/// A millisecond.
pub const MS: Nanos = 1_000_000;

/// Frames per MB.
pub const MB: u32 = 256;

/// Pages of the shared region of SPC §VI-B: 10 MB.
pub const REGION: u32 = 10 * MB;

/// A periodic task `(C, T, D = T)` that reads a shared region.
///
/// A job takes its shared pages in order, one per step of equal length, and in each step touches
/// some of its own pages in turn: code and data that are referenced more often than each shared
/// page (SPC §III-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Processor time of a job (`C`), without what faults take.
    pub execution: Nanos,
    /// Between releases (`T`), and from release to deadline.
    pub period: Nanos,
    /// Frames of its reservation.
    pub reserve: u32,
    /// Pages of its own.
    pub private: u32,
    /// Pages of its own that each step writes to.
    pub touches: u32,
    /// Shared pages that a job reads. The next job goes on behind them.
    pub shared: u32,
}

impl Task {
    /// The same with another reservation.
    #[must_use]
    pub const fn with(self, reserve: u32) -> Task {
        Task { reserve, ..self }
    }

    /// Processor time of the first `steps` steps of a job: those of all add up to `execution`.
    pub(crate) fn part(&self, steps: u32) -> Nanos {
        u64::from(steps) * self.execution / u64::from(self.shared)
    }
}

/// τ1 of SPC §VI-B: `(40 ms, 100 ms)`, reads 10 MB of shared memory in every period.
///
/// The paper does not say how large the task itself is; it found 11 MB to suffice and 10 MB not
/// to (fig. 8a), which 1 MB of private pages explains.
pub const TAU1: Task = Task {
    execution: 40 * MS,
    period: 100 * MS,
    reserve: 11 * MB,
    private: MB,
    touches: 8,
    shared: 10 * MB,
};

/// τ2 of SPC §VI-B: `(100 ms, 500 ms)`, reads 1 MB of the region in every period.
pub const TAU2: Task = Task {
    execution: 100 * MS,
    period: 500 * MS,
    reserve: 2 * MB,
    private: MB,
    touches: 8,
    shared: MB,
};
