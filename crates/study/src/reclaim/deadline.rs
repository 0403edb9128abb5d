//! `deadline`: does ending a tenant keep the bound that its lease was charged? (BRR §III)
//!
//! Random guests, hostile ones above all, are started under random leases and killed at random
//! instants, start-up included, several at a time in one cell. Each end is judged twice:
//!
//! - *enforced*: what was charged is within the budget, and nothing was visited that had not been
//!   charged. This must hold always.
//! - *calibrated*: the processor time that the end took is within what was charged for it. The
//!   charge is twice a median and a margin, so this can fail; it may once in 10,000 ends.

pub(crate) mod draw;

use std::path::Path;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::stack::STACK_PAGES;
use leasehold_cell::{Cell, CellConfig, Ended, Exit, Held, StartError, Statement};
use serde_json::Value;

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::random::Random;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, ratio_value};
use crate::harness::unit::Unit;
use draw::{Draw, Guests};

/// The study; see the [module](self).
pub(crate) struct Deadline;

/// Controllers, each of which has one tenant in flight.
const CONTROLLERS: u64 = 4;
/// Kills of one step of progress.
const BATCH: u64 = 50;
/// The sequence starts here, so that a run draws what the run before it drew.
const SEED: u64 = 0x4c65_6173_6568_6f6c;
/// Of so many ends, one may take longer than was charged.
const ENDS_PER_VIOLATION: f64 = 10_000.0;

impl Study for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn paper(&self) -> &'static str {
        "BRR §III"
    }

    fn about(&self) -> &'static str {
        "Kills of random guests at random instants under random leases: what reclamation was \
         predicted to cost at the most, and what it cost in processor time."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let kills: u64 = if options.quick { 400 } else { 100_000 };
        let profile: Profile = serde_json::from_value(Value::Object(options.profile.clone()))
            .context("the calibration profile")?;
        let directory = tempfile::tempdir().context("making a directory for the guests")?;
        let tallies = measure(self.name(), kills, profile, options, directory.path())?;

        let mut whole = Tally::default();
        for tally in &tallies {
            whole.add(tally);
        }
        let mut report = Report::new(self, options);
        report.rows.push(whole.row("all"));
        report.rows.extend(
            draw::names()
                .zip(&tallies)
                .map(|(name, tally)| tally.row(name)),
        );
        report.findings = findings(&whole, kills);
        report.notes.push(format!(
            "seed {SEED:#x}; {CONTROLLERS} tenants at a time in one cell; budgets of 200 µs to \
             50 ms; measured is processor time of the cell's thread until every page was given \
             back, the account by class included; wall time includes the turns of the other \
             tenants"
        ));
        report.notes.push(
            "a tenant that ended by itself before the kill came is judged like the others"
                .to_owned(),
        );
        report.figure = figure(&whole);
        Ok(report)
    }
}

/// Kills `kills` tenants; a tally for each kind of guest.
fn measure(
    name: &'static str,
    kills: u64,
    profile: Profile,
    options: &Options,
    directory: &Path,
) -> Result<Vec<Tally>> {
    let mut config = CellConfig::new(profile);
    config.code_cache = leasehold_cell::user_code_cache();
    let cell = Cell::start(config)?;
    let guests = Guests::load(&cell, &options.guests_dir, directory)?;
    let progress = Mutex::new(Progress::new(name, kills / BATCH));
    let (cell, guests, progress) = (&cell, &guests, &progress);
    let shares: Vec<Result<Vec<Tally>>> = thread::scope(|scope| {
        let controllers: Vec<_> = (0..CONTROLLERS)
            .map(|index| {
                let share = kills * (index + 1) / CONTROLLERS - kills * index / CONTROLLERS;
                let random = Random::new(SEED.wrapping_add(index << 32));
                scope.spawn(move || kill(cell, guests, random, share, progress))
            })
            .collect();
        controllers
            .into_iter()
            .map(|controller| match controller.join() {
                Ok(share) => share,
                Err(_) => Err(anyhow::anyhow!("a controller panicked")),
            })
            .collect()
    });
    let mut tallies: Vec<Tally> = draw::names().map(|_| Tally::default()).collect();
    for share in shares {
        for (tally, share) in tallies.iter_mut().zip(&share?) {
            tally.add(share);
        }
    }
    Ok(tallies)
}

/// Starts and kills tenants one after the other until `kills` were alive when the kill came.
fn kill(
    cell: &Cell,
    guests: &Guests,
    mut random: Random,
    kills: u64,
    progress: &Mutex<Progress>,
) -> Result<Vec<Tally>> {
    let mut tallies: Vec<Tally> = draw::names().map(|_| Tally::default()).collect();
    let mut killed = 0;
    while killed < kills {
        let Draw {
            kind,
            request,
            after,
        } = guests.draw(&mut random);
        let tally = &mut tallies[kind];
        let budget_ns = request.lease.reclaim.budget.get();
        let tenant = match cell.start_tenant(request) {
            Ok(tenant) => tenant,
            Err(StartError::Lease { .. }) => {
                tally.refused_starts += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if !after.is_zero() {
            thread::sleep(after);
        }
        tenant.kill();
        let ended = tenant.wait()?;
        tally.judge(&ended, budget_ns)?;
        if ended.exit == Exit::Killed {
            killed += 1;
            if killed % BATCH == 0
                && let Ok(mut progress) = progress.lock()
            {
                progress.step();
            }
        }
    }
    Ok(tallies)
}

/// The results for the ends of one kind of guest, or of all.
#[derive(Default)]
struct Tally {
    kills: u64,
    ended_first: u64,
    refused_starts: u64,
    enforced_violations: u64,
    calibrated_violations: u64,
    predicted_ns: Samples,
    measured_ns: Samples,
    wall_ns: Samples,
    /// Largest quotient of measured and predicted.
    worst: Option<f64>,
    /// Measured times of predictions in [2ⁿ, 2ⁿ⁺¹) ns, by n.
    by_prediction: Vec<Samples>,
}

impl Tally {
    /// Counts one end.
    fn judge(&mut self, ended: &Ended, budget_ns: u64) -> Result<()> {
        let statement = &ended.statement;
        let reclaimed = &ended.reclaimed;
        let (predicted, measured) = (reclaimed.predicted_ns, reclaimed.returned.cpu_ns);
        ensure!(predicted > 0, "the profile charges nothing");
        match ended.exit {
            Exit::Killed => self.kills += 1,
            _ => self.ended_first += 1,
        }
        let visited = Visited {
            groups: reclaimed.groups,
            scrubbed: reclaimed.scrubbed,
            pages: reclaimed.pages - reclaimed.arena_pages,
        };
        if predicted > budget_ns || !visited.is_within(&Visited::charged(statement)) {
            self.enforced_violations += 1;
            tracing::warn!(?ended, budget_ns, "more than was charged");
        }
        if measured > predicted {
            self.calibrated_violations += 1;
            tracing::info!(?ended, "longer than was charged");
        }
        self.predicted_ns.record(predicted);
        self.measured_ns.record(measured);
        self.wall_ns.record(reclaimed.returned.wall_ns);
        let quotient = measured as f64 / predicted as f64;
        self.worst = Some(self.worst.map_or(quotient, |worst| worst.max(quotient)));
        let class = predicted.ilog2() as usize;
        if self.by_prediction.len() <= class {
            self.by_prediction.resize(class + 1, Samples::new());
        }
        self.by_prediction[class].record(measured);
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.ended_first += other.ended_first;
        self.refused_starts += other.refused_starts;
        self.enforced_violations += other.enforced_violations;
        self.calibrated_violations += other.calibrated_violations;
        self.predicted_ns.add(&other.predicted_ns);
        self.measured_ns.add(&other.measured_ns);
        self.wall_ns.add(&other.wall_ns);
        self.worst = match (self.worst, other.worst) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let classes = self.by_prediction.len().max(other.by_prediction.len());
        self.by_prediction.resize(classes, Samples::new());
        for (mine, theirs) in self.by_prediction.iter_mut().zip(&other.by_prediction) {
            mine.add(theirs);
        }
    }

    fn row(&self, guest: &str) -> Row {
        row([
            ("guest", guest.into()),
            ("kills", self.kills.into()),
            ("ended_first", self.ended_first.into()),
            ("refused_starts", self.refused_starts.into()),
            ("enforced_violations", self.enforced_violations.into()),
            ("calibrated_violations", self.calibrated_violations.into()),
            ("predicted_ns_p50", self.predicted_ns.p50().into()),
            ("predicted_ns_p99", self.predicted_ns.p99().into()),
            ("predicted_ns_max", self.predicted_ns.max().into()),
            ("measured_ns_p50", self.measured_ns.p50().into()),
            ("measured_ns_p99", self.measured_ns.p99().into()),
            ("measured_ns_max", self.measured_ns.max().into()),
            ("wall_ns_p50", self.wall_ns.p50().into()),
            ("wall_ns_p99", self.wall_ns.p99().into()),
            ("wall_ns_max", self.wall_ns.max().into()),
            ("measured_to_predicted_ratio_max", ratio_value(self.worst)),
        ])
    }
}

/// The objects that an end had to visit, or may visit under its charge.
struct Visited {
    groups: u64,
    scrubbed: u64,
    /// Of linear memories, stacks and what the engine keeps. Those of the arena are paid for by the objects in
    /// it, whose number does not tell the pages.
    pages: u64,
}

impl Visited {
    /// The visits that the account pays for.
    fn charged(statement: &Statement) -> Self {
        let count = |name: &str| {
            let charges = statement.rows.iter().filter(|row| row.name == name);
            charges.map(|row| row.count).sum::<u64>()
        };
        // A program's stack is part of what its store costs.
        let stacks = count(Held::Store.name()) * STACK_PAGES as u64;
        // An element takes 8 bytes, and a table that grew may have room for twice as many.
        let tables = (2 * count(Held::TableElement.name())).div_ceil(512);
        let engine = tables + count(Held::HostPage.name());
        Self {
            groups: statement.groups,
            scrubbed: count("scrub entry"),
            pages: count(Held::MemoryPage.name()) + stacks + engine,
        }
    }

    fn is_within(&self, charged: &Self) -> bool {
        self.groups <= charged.groups
            && self.scrubbed <= charged.scrubbed
            && self.pages <= charged.pages
    }
}

fn findings(whole: &Tally, kills: u64) -> Vec<Finding> {
    vec![
        Finding::at_least(
            "kills of random guests at random instants",
            Unit::Count,
            Some(whole.kills as f64),
            kills as f64,
        ),
        Finding::at_most(
            "ends that were charged more than the budget, or visited more than was charged",
            Unit::Count,
            Some(whole.enforced_violations as f64),
            0.0,
        ),
        Finding::at_most(
            "ends that took more processor time than was charged",
            Unit::Count,
            Some(whole.calibrated_violations as f64),
            whole.kills as f64 / ENDS_PER_VIOLATION,
        ),
    ]
}

fn figure(whole: &Tally) -> Figure {
    let middle = |class: usize| 1.5 * (1u64 << class) as f64;
    let classes = || whole.by_prediction.iter().enumerate();
    let measured = classes()
        .filter_map(|(class, samples)| Some((middle(class), Spread::of_samples(samples)?)));
    let point = |value: f64| Spread {
        median: value,
        p5: value,
        p95: value,
    };
    let largest = classes()
        .filter_map(|(class, samples)| Some((middle(class), point(samples.max()? as f64))));
    let bound = classes()
        .filter(|(_, samples)| samples.count() > 0)
        .map(|(class, _)| (middle(class), point(middle(class))));
    let series = |name: &str, points| Series {
        name: name.to_owned(),
        points,
    };
    Figure {
        title: "Kills at random instants".to_owned(),
        panels: vec![Panel {
            y: Axis::logarithmic("processor time of the end", Unit::Nanoseconds),
            marks: Marks::Curves {
                x: Axis::logarithmic("charged for the end", Unit::Nanoseconds),
                series: vec![
                    series("charged", bound.collect()),
                    series("measured", measured.collect()),
                    series("largest", largest.collect()),
                ],
            },
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::Visited;
    use leasehold_cell::Statement;
    use leasehold_reclaim::{Picos, Row};

    #[test]
    fn visiting_more_than_was_charged_is_a_violation() {
        let row = |name, count| Row {
            name,
            count,
            ps: Picos(count),
        };
        let charged = Visited::charged(&Statement {
            budget: Picos(1000),
            charged: Picos(1000),
            carved: Picos(0),
            left: Picos(0),
            peak: Picos(1000),
            groups: 2,
            rows: vec![
                row("scrub entry", 3),
                row("memory_page", 16),
                row("chunk", 1),
            ],
        });
        let visited = |groups, scrubbed, pages| Visited {
            groups,
            scrubbed,
            pages,
        };
        assert!(visited(2, 3, 16).is_within(&charged));
        assert!(!visited(3, 3, 16).is_within(&charged));
        assert!(!visited(2, 4, 16).is_within(&charged));
        assert!(!visited(2, 3, 17).is_within(&charged));
    }
}
