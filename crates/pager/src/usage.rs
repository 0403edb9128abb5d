//! The use of a shared area by its sharers, on which the rule decides.

use crate::rule::{Technique, choose};

/// Observed use of an area, in pages (SPC §IV-C, fig. 6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    samples: u64,
    /// Over all samples and all sharers: pages mapped.
    sum: u128,
    peak: u32,
}

impl Usage {
    /// Adds one observation: the pages that each sharer has mapped now.
    pub fn observe(&mut self, mapped: impl IntoIterator<Item = u32>) {
        self.samples += 1;
        for pages in mapped {
            self.sum += u128::from(pages);
            self.peak = self.peak.max(pages);
        }
    }

    /// Observations so far.
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// The most pages that a sharer was seen to use.
    pub const fn peak(&self) -> u32 {
        self.peak
    }

    /// `n·Avg(S)`: the sum over the sharers of the pages that each uses on average, rounded down.
    pub fn total_average(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.samples.max(1))).unwrap_or(u64::MAX)
    }

    /// What the rule says for an area of `max` pages; `None` before the first observation.
    pub fn choice(&self, max: u32) -> Option<Technique> {
        (self.samples > 0).then(|| choose(max.into(), self.total_average()))
    }
}
