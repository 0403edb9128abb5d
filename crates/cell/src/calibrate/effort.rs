//! How much is measured, and the middle of it.

/// How thoroughly to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A second or so: for tests.
    Quick,
    /// A minute or so.
    Full,
}

impl Effort {
    pub(super) fn samples(self) -> usize {
        match self {
            Effort::Quick => 15,
            Effort::Full => 101,
        }
    }
}

pub(super) fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().unwrap_or(0)
}
