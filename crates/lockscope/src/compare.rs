//! Platforms side by side (LockScope table 5).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::report::Report;
use crate::score::Score;
use crate::trace::{Losses, Mode, Trace};

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

/// The recordings of one workload on one platform.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// How many there were.
    pub recordings: usize,
    /// Shared locks, on average.
    pub shared: f64,
    /// Acquisitions of shared locks per second, on average.
    pub per_second: f64,
    /// The same: in the middle of the recordings, and how far these lie apart.
    pub spread: Spread,
    /// Nines of isolation, of the worst recording that has some; `None` if none has.
    pub score: Option<f64>,
    /// What the recordings together did not see or not keep.
    pub losses: Losses,
}

/// Rates per second of several recordings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// As many are above as below; between two, their mean.
    pub median: f64,
    /// The lowest.
    pub least: f64,
    /// The highest.
    pub most: f64,
}

/// What counts of one recording.
struct Recording {
    shared: f64,
    per_second: f64,
    score: Option<f64>,
    losses: Losses,
}

impl Comparison {
    /// Compares the recordings. Several of one workload on one platform are averaged, as in the
    /// paper (§5.2), and how far they lie apart is told, which the paper does not.
    pub fn of<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut recordings: BTreeMap<_, BTreeMap<_, Vec<Recording>>> = BTreeMap::new();
        let mut modes: BTreeSet<bool> = BTreeSet::new();
        for trace in traces {
            modes.insert(trace.mode == Mode::Full);
            let row = recordings.entry(trace.name.clone()).or_default();
            let cell = row.entry(trace.platform.clone()).or_default();
            cell.push(Recording::of(trace));
        }
        let cells = |row: BTreeMap<String, Vec<Recording>>| {
            let cells = row.into_iter();
            cells
                .filter_map(|(platform, recordings)| Some((platform, Cell::of(&recordings)?)))
                .collect()
        };
        let rows: BTreeMap<String, BTreeMap<String, Cell>> = recordings
            .into_iter()
            .map(|(workload, row)| (workload, cells(row)))
            .collect();
        let platforms: BTreeSet<_> = rows.values().flat_map(|row| row.keys().cloned()).collect();
        Self {
            platforms: platforms.into_iter().collect(),
            rows,
            mixed_modes: modes.len() > 1,
        }
    }
}

impl Recording {
    fn of(trace: &Trace) -> Self {
        let shared = Report::of(trace).shared;
        let score = Score::of(trace);
        Self {
            shared: shared.locks as f64,
            per_second: shared.per_second,
            score: score.measured.then_some(score.score),
            losses: trace.losses,
        }
    }
}

impl Cell {
    /// `None` without a recording.
    fn of(recordings: &[Recording]) -> Option<Self> {
        let mean = |value: fn(&Recording) -> f64| {
            recordings.iter().map(value).sum::<f64>() / recordings.len() as f64
        };
        let rates = recordings.iter().map(|recording| recording.per_second);
        let scores = recordings.iter().filter_map(|recording| recording.score);
        let losses = recordings.iter().map(|recording| recording.losses);
        Some(Self {
            recordings: recordings.len(),
            shared: mean(|recording| recording.shared),
            per_second: mean(|recording| recording.per_second),
            spread: Spread::of(rates.collect())?,
            score: scores.min_by(f64::total_cmp),
            losses: losses.fold(Losses::default(), Losses::with),
        })
    }
}

impl Spread {
    /// `None` of no rates.
    fn of(mut rates: Vec<f64>) -> Option<Self> {
        rates.sort_by(f64::total_cmp);
        let (&least, &most) = (rates.first()?, rates.last()?);
        let (below, above) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        Some(Self {
            median: f64::midpoint(below, above),
            least,
            most,
        })
    }
}
