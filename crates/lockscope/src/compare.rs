//! Platforms side by side (LockScope table 5).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::report::Report;
use crate::score::Score;
use crate::trace::{Mode, Trace};

/// Table 5: one row for each workload, one column for each platform.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// In alphabetical order.
    pub platforms: Vec<String>,
    /// By workload, then by platform.
    pub rows: BTreeMap<String, BTreeMap<String, Cell>>,
    /// Whether some traces saw every acquisition and others only waits: their numbers then cannot
    /// be compared.
    pub mixed_modes: bool,
}

/// The recordings of one workload on one platform, on average.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cell {
    /// How many there were.
    pub recordings: u32,
    /// Shared locks.
    pub shared: f64,
    /// Acquisitions of shared locks per second.
    pub per_second: f64,
    /// Nines of isolation, of the worst recording.
    pub score: f64,
}

impl Comparison {
    /// Compares the recordings. Several of one workload on one platform are averaged, as in the
    /// paper (§5.2).
    pub fn of<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut rows: BTreeMap<String, BTreeMap<String, Cell>> = BTreeMap::new();
        let mut modes: BTreeSet<bool> = BTreeSet::new();
        for trace in traces {
            let (report, score) = (Report::of(trace), Score::of(trace));
            modes.insert(trace.mode == Mode::Full);
            let row = rows.entry(trace.name.clone()).or_default();
            let cell = row.entry(trace.platform.clone()).or_default();
            cell.add(&report, score.score);
        }
        let platforms: BTreeSet<_> = rows.values().flat_map(|row| row.keys().cloned()).collect();
        Self {
            platforms: platforms.into_iter().collect(),
            rows,
            mixed_modes: modes.len() > 1,
        }
    }
}

impl Cell {
    fn add(&mut self, report: &Report, score: f64) {
        let before = f64::from(self.recordings);
        let mean = |old: f64, new: f64| (old * before + new) / (before + 1.0);
        self.shared = mean(self.shared, report.shared.locks as f64);
        self.per_second = mean(self.per_second, report.shared.per_second);
        self.score = if self.recordings == 0 {
            score
        } else {
            self.score.min(score)
        };
        self.recordings += 1;
    }
}
