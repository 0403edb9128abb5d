//! `batching`: the cost of processing a batch of replenishments (SPR §V-A, table II).
//!
//! Because a shielded scheduler defers replenishments, it may have to process many at once before
//! it dispatches a server. The code that does is timed on queues filled in two ways: *deferred*,
//! where all replenishments but the last came due while the server slept (Alg. 3 lines 1 to 3); and
//! *early*, where all of them will come due while it runs (Alg. 2 lines 1 to 4). An eager scheduler
//! processes them *one by one*, each after an interrupt of its own, which is not timed here.
//!
//! In the simulator the same code processes the same queues. The visited entries and reservations
//! are counted and multiplied by their costs on the simulated machine.

use std::hint::black_box;

use anyhow::Result;
use leasehold_reserve::{Nanos, Policy, SporadicAccount};

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::priority;
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::unit::Unit;
use crate::processor::cycles::Cycles;
use crate::processor::reservation::{
    CELL, MACHINES, Machine, contract, platform_keys, policy_name,
};

/// Capacities of the queue, each with the average cycles that SPR table II has for it.
const TABLE: [(u32, f64); 4] = [(1, 52.0), (4, 61.0), (16, 95.0), (32, 159.0)];
/// Accounts that are prepared, and then timed one after another.
const PREPARED: usize = 64;
/// A sample of more cycles was interrupted: it is counted, and left out.
const INTERRUPTED: u64 = 5_000;
const PERIOD: Nanos = 1_000_000;
/// The simulated machine's clock: the fastest that SPR's test machine has (§V).
const CYCLES_PER_NANOSECOND: f64 = 1.1;

/// The study; see the [module](self).
pub(crate) struct Batching;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batch {
    Deferred,
    Early,
    OneByOne,
}

impl Batch {
    const ALL: [Self; 3] = [Self::Deferred, Self::Early, Self::OneByOne];

    const fn name(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Early => "early",
            Self::OneByOne => "one by one",
        }
    }

    /// How long its server slept after each unit that it ran.
    const fn spacing(self) -> Nanos {
        match self {
            // Each is due when those before it are used up.
            Self::Early => 0,
            Self::Deferred | Self::OneByOne => 9,
        }
    }

    /// When a deferred batch is processed: the last replenishment is not due yet, unless it is the
    /// only one.
    const fn now(ring: u32) -> Nanos {
        let last = PERIOD + 10 * (ring as u64 - 1);
        if ring == 1 { last } else { last - 1 }
    }

    const fn policy(self) -> &'static str {
        match self {
            Self::Deferred | Self::Early => "shielded",
            Self::OneByOne => "eager",
        }
    }
}

struct Point {
    platform: &'static str,
    batch: Batch,
    ring: u32,
    /// One by one, as good as the steps of the counter.
    cycles: Samples,
    average: Option<f64>,
    interrupted: u64,
}

impl Study for Batching {
    fn name(&self) -> &'static str {
        "batching"
    }

    fn paper(&self) -> &'static str {
        "SPR table II"
    }

    fn about(&self) -> &'static str {
        "Processor cycles to process a full queue of S replenishments in a batch."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let samples = if options.quick { 50_000 } else { 1_000_000 };
        let mut report = Report::new(self, options);
        let name = self.name();
        let ((cycles, measured), first) = priority::on_a_thread_like_a_cells(|| {
            let cycles = Cycles::calibrate();
            let points = measured(name, &cycles, samples);
            Ok((cycles, points))
        })?;
        let mut points = simulated(&MACHINES[0]);
        points.extend(measured);
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points);
        report.notes.push(format!(
            "time-stamp counter, {}; a sample of more than {INTERRUPTED} cycles was interrupted by \
             the host and is left out of average, percentiles and maximum",
            cycles.summary()
        ));
        report.notes.push(format!(
            "simulator: entries that are gone through, {} ns each, and {} ns for every time that a \
             reservation is touched, at {CYCLES_PER_NANOSECOND} GHz. cell: the code that a cell's \
             scheduler runs, called by itself on a thread like a cell's; {}",
            MACHINES[0].costs.replenishment,
            MACHINES[0].costs.reservation,
            priority::note(first)
        ));
        report.notes.push(
            "one by one is the sum of S calls without the interrupts that an eager scheduler \
             takes for them; of a deferrable server nothing is queued, it multiplies"
                .into(),
        );
        report.figure = figure(&points);
        Ok(report)
    }
}

/// Every batch and capacity, timed on this host.
fn measured(name: &'static str, cycles: &Cycles, samples: u64) -> Vec<Point> {
    let mut progress = Progress::new(name, (TABLE.len() * Batch::ALL.len()) as u64);
    let mut points = Vec::new();
    for batch in Batch::ALL {
        for (ring, _) in TABLE {
            progress.at(format!("{}, S = {ring}", batch.name()));
            points.push(measure(batch, ring, cycles, samples));
            progress.step();
        }
    }
    points
}

/// Every batch and capacity on a simulated machine.
fn simulated(machine: &Machine) -> Vec<Point> {
    let mut points = Vec::new();
    for batch in Batch::ALL {
        for (ring, _) in TABLE {
            let mut point = Point::new(machine.platform, batch, ring);
            let (touches, entries) = passes(batch, ring);
            let costs = machine.costs;
            let ns = touches * costs.reservation + entries * costs.replenishment;
            let cycles = (ns as f64 * CYCLES_PER_NANOSECOND).round();
            point.cycles.record(cycles as u64);
            point.average = Some(cycles);
            points.push(point);
        }
    }
    points
}

/// How often a batch touches its reservation, and how many entries of the queue it goes through.
fn passes(batch: Batch, ring: u32) -> (u64, u64) {
    let mut account = full(ring, batch.spacing());
    match batch {
        Batch::Deferred => {
            // The head, and what is taken in with it.
            let now = Batch::now(ring);
            (1, 1 + u64::from(account.resume(now, now)))
        }
        Batch::Early => {
            let end = account.depletion(PERIOD);
            let entries = account.replenishments();
            (
                1,
                entries.take_while(|entry| entry.at <= end).count() as u64,
            )
        }
        Batch::OneByOne => {
            let instants = (0..u64::from(ring)).map(|unit| PERIOD + 10 * unit);
            let entries = instants.map(|now| u64::from(account.replenish(now)));
            (u64::from(ring), entries.map(|due| due.min(1)).sum())
        }
    }
}

fn measure(batch: Batch, ring: u32, cycles: &Cycles, samples: u64) -> Point {
    let mut point = Point::new(CELL, batch, ring);
    let full = full(ring, batch.spacing());
    let mut accounts = vec![full.clone(); PREPARED];
    let mut total = 0;
    // The first round is a rehearsal.
    for round in 0..=samples / PREPARED as u64 {
        accounts.fill(full.clone());
        for account in &mut accounts {
            let start = cycles.start();
            process(batch, ring, black_box(account));
            let taken = cycles.stop(start);
            if round == 0 {
                continue;
            }
            if taken > INTERRUPTED {
                point.interrupted += 1;
            } else {
                point.cycles.record(cycles.net(taken));
                total += taken;
            }
        }
    }
    point.average = cycles.mean(total, point.cycles.count());
    point
}

/// An account whose queue is full: its server ran for a unit and slept for `spacing`, `ring`
/// times.
fn full(ring: u32, spacing: Nanos) -> SporadicAccount {
    let budget = u64::from(ring);
    let contract = contract(budget, PERIOD, 0, Policy::Sporadic, ring);
    let mut account = SporadicAccount::new(&contract, 0);
    for unit in 0..budget {
        let now = unit * (spacing + 1);
        account.resume(now, now);
        account.charge(1);
        account.suspend(now + 1);
    }
    account
}

/// The operation that is timed.
#[inline(never)]
fn process(batch: Batch, ring: u32, account: &mut SporadicAccount) {
    match batch {
        Batch::Deferred => {
            let now = Batch::now(ring);
            black_box(account.resume(now, now));
        }
        Batch::Early => {
            black_box(account.depletion(PERIOD));
        }
        Batch::OneByOne => {
            for unit in 0..u64::from(ring) {
                black_box(account.replenish(PERIOD + 10 * unit));
            }
        }
    }
}

impl Point {
    fn new(platform: &'static str, batch: Batch, ring: u32) -> Self {
        Self {
            platform,
            batch,
            ring,
            cycles: Samples::new(),
            average: None,
            interrupted: 0,
        }
    }

    fn average(&self) -> Option<f64> {
        self.average.map(|cycles| (cycles * 10.0).round() / 10.0)
    }

    /// Around the average: a single measurement is only as good as the counter's steps.
    fn spread(&self) -> Option<Spread> {
        let single = Spread::of_samples(&self.cycles)?;
        let median = self.average?;
        Some(Spread {
            median,
            p5: single.p5.min(median),
            p95: single.p95.max(median),
        })
    }

    fn row(&self) -> Row {
        let [platform, machine] = platform_keys(self.platform);
        row([
            ("policy", self.batch.policy().into()),
            ("server", policy_name(Policy::Sporadic).into()),
            ("batch", self.batch.name().into()),
            ("s", self.ring.into()),
            ("cycles_avg", self.average().into()),
            ("cycles_max", self.cycles.max().into()),
            ("cycles_p99", self.cycles.p99().into()),
            ("interrupted", self.interrupted.into()),
            platform,
            machine,
        ])
    }
}

fn findings(points: &[Point]) -> Vec<Finding> {
    points
        .iter()
        .filter(|point| point.batch != Batch::OneByOne)
        .filter_map(|point| {
            let (_, bound) = TABLE.into_iter().find(|(ring, _)| *ring == point.ring)?;
            Some(Finding::at_most(
                format!(
                    "{}: average cycles, {}, S = {}, against the paper's",
                    point.platform,
                    point.batch.name(),
                    point.ring
                ),
                Unit::Count,
                point.average(),
                bound,
            ))
        })
        .collect()
}

fn figure(points: &[Point]) -> Figure {
    let mut series: Vec<Series<f64>> = Batch::ALL
        .into_iter()
        .map(|batch| Series {
            name: batch.name().into(),
            points: points
                .iter()
                .filter(|point| point.platform == CELL && point.batch == batch)
                .filter_map(|point| Some((f64::from(point.ring), point.spread()?)))
                .collect(),
        })
        .collect();
    series.push(Series {
        name: "SPR table II".into(),
        points: TABLE
            .into_iter()
            .filter_map(|(ring, cycles)| Some((f64::from(ring), Spread::of([cycles])?)))
            .collect(),
    });
    Figure {
        title: "Processing a batch of replenishments".into(),
        panels: vec![Panel {
            y: Axis::linear("cycles, average", Unit::Count),
            marks: Marks::Curves {
                x: Axis::linear("replenishments, S", Unit::Count),
                series,
            },
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, PERIOD, TABLE, findings, full, measured, passes, simulated};
    use crate::processor::cycles::Cycles;
    use crate::processor::reservation::MACHINES;

    #[test]
    fn queues_are_full_and_their_batches_are_what_they_are_called() {
        for (ring, _) in TABLE {
            let mut account = full(ring, 9);
            assert_eq!(account.replenishments().count(), ring as usize);
            let due = if ring == 1 { 0 } else { ring - 2 };
            let now = Batch::now(ring);
            assert_eq!(account.resume(now, now), due);
            // Early: what is there at one period lasts for the whole budget.
            let early = full(ring, 0);
            assert_eq!(early.depletion(PERIOD), PERIOD + u64::from(ring));
        }
    }

    #[test]
    fn every_batch_is_timed() {
        let points = measured("test", &Cycles::calibrate(), 640);
        assert_eq!(points.len(), Batch::ALL.len() * TABLE.len());
        assert!(points.iter().all(|point| point.cycles.count() > 0));
        assert_eq!(findings(&points).len(), 2 * TABLE.len());
    }

    #[test]
    fn the_simulator_counts_what_a_batch_goes_through() {
        for (ring, _) in TABLE {
            let all = u64::from(ring);
            let due = if ring == 1 { 1 } else { all - 1 };
            assert_eq!(passes(Batch::Deferred, ring), (1, due));
            assert_eq!(passes(Batch::Early, ring), (1, all));
            assert_eq!(passes(Batch::OneByOne, ring), (all, all));
        }
        for finding in findings(&simulated(&MACHINES[0])) {
            assert!(finding.holds(), "{finding}");
        }
    }
}
