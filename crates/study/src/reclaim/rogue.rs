//! `rogue`: the cost of ending a hostile tenant, for the host and for its neighbour (BRR fig. 1).

mod attack;
mod duel;
mod runtime;
mod together;
mod trial;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_cell::profile::Profile;
use serde_json::Value;

use crate::harness::experiment::{Options, Study};
use crate::harness::neighbour::Distance;
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, ratio_value};
use crate::harness::unit::Unit;

pub use attack::{Attack, BUDGET, Damage, Runtime, Surroundings, When, hostile, require};
pub use duel::Duel;
pub use runtime::{GuestEnd, lease};
pub use together::{Ending, Pace, Round, Together, Unready};
pub use trial::{Arm, Bench, Effort, Placement, Trial};

/// The largest slowdown of a neighbour while a tenant of Leasehold is ended.
const NEIGHBOUR: f64 = 1.05;

/// The mean number of ready processes above which the machine counts as shared.
const BUSY: f64 = 0.7;

/// The study.
pub struct Rogue;

struct Scale {
    damage: Damage,
    /// For what is judged.
    effort: Effort,
    /// For what it is compared with.
    comparison: Effort,
    placements: &'static [Placement],
}

const FULL: Scale = Scale {
    damage: Damage {
        objects: 1_000_000,
        bytes: 1 << 30,
        files: 10_000,
        tenants: 10_000,
    },
    effort: Effort {
        blocks: 7,
        least: 2,
        most: 10_000,
        // Some guests need a second for what ends in milliseconds; and the slowest hundredth of
        // what a neighbour does in a tenth of a second is forty operations.
        time: Duration::from_millis(8000),
        ending: Duration::from_millis(150),
    },
    comparison: Effort {
        blocks: 3,
        least: 2,
        most: 1000,
        time: Duration::from_millis(1000),
        ending: Duration::from_millis(200),
    },
    placements: &[Placement::OtherCore, Placement::SameCore],
};

const QUICK: Scale = Scale {
    damage: Damage {
        objects: 100_000,
        bytes: 64 << 20,
        files: 1000,
        tenants: 1000,
    },
    effort: Effort {
        blocks: 3,
        least: 1,
        most: 200,
        time: Duration::from_millis(200),
        ending: Duration::from_millis(20),
    },
    comparison: Effort {
        blocks: 2,
        least: 1,
        most: 200,
        time: Duration::from_millis(100),
        ending: Duration::from_millis(20),
    },
    placements: &[Placement::OtherCore],
};

/// One guest in one runtime.
struct Point {
    guest: &'static str,
    arm: Arm,
    /// Whether this is how the runtime is used.
    usual: bool,
    trial: Trial,
}

impl Study for Rogue {
    fn name(&self) -> &'static str {
        "rogue"
    }

    fn paper(&self) -> &'static str {
        "BRR fig. 1"
    }

    fn about(&self) -> &'static str {
        "Hostile guests, ended when their damage is done, in Leasehold and in stock wasmtime: from \
         the kill until everything is returned, and what a neighbour that maps memory feels \
         meanwhile."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let profile: Profile = serde_json::from_value(Value::Object(options.profile.clone()))
            .context("this study needs a calibration profile")?;
        let attacks = hostile(scale.damage);
        require(&attacks, &options.guests_dir)?;
        let bench = Bench::new(
            options.guests_dir.clone(),
            &profile,
            Surroundings::new(b"")?,
            scale.placements,
        )?;
        let load = load_average();
        let furthest = bench.furthest();
        let arms = arms(scale.placements, furthest);
        let trials = attacks.iter().flat_map(|attack| {
            let arms = arms.iter();
            arms.filter(|arm| attack.is_for(arm.runtime))
        });
        let mut progress = Progress::new(self.name(), trials.count() as u64);
        let mut points = Vec::new();
        for attack in &attacks {
            for &arm in arms.iter().filter(|arm| attack.is_for(arm.runtime)) {
                progress.at(format!("{} in {}", attack.name, arm.runtime.name()));
                let usual = arm == Arm::usual(arm.runtime, arm.placement, furthest);
                let judged = is_judged(&arm, usual);
                let effort = if judged {
                    &scale.effort
                } else {
                    &scale.comparison
                };
                points.push(Point {
                    guest: attack.name,
                    arm,
                    usual,
                    trial: bench.hold(attack, arm, effort)?,
                });
                progress.step();
            }
        }
        let mut report = Report::new(self, options);
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points);
        report.notes = NOTES.iter().map(|note| (*note).to_owned()).collect();
        if furthest == Distance::Process {
            report.notes.push(
                "this program may make no memory cgroup here: the neighbour shares that of the \
                 cell, whose pages the kernel keeps on one list under one lock"
                    .into(),
            );
        }
        if let Some(load) = load.filter(|load| *load >= BUSY) {
            report.notes.push(format!(
                "the machine was busy with something else (load average {load} before the first \
                 trial): then the neighbour's slowest operations are those that it delayed"
            ));
        }
        report.figure = figure("Ending hostile tenants", &named(&points));
        Ok(report)
    }
}

const NOTES: [&str; 6] = [
    "the neighbour maps, touches and unmaps pages; for Leasehold, whose cells are processes, in \
     another container: a process in a memory cgroup of its own (and for comparison in the cell's); \
     for wasmtime in a thread of the same process, as embedders run tenants (and for comparison in \
     another container too)",
    "undisturbed is the same neighbour in the same block before each start, seen through windows as \
     long as an end is; a ratio is the median of those of the blocks, with their 5th and 95th \
     percentile",
    "on the same core the end and the neighbour share the processor as any two threads do, in \
     either runtime: nothing here reserves time for either",
    "kernel objects on stock wasmtime are what a plain embedder offers: boxed entries of the \
     store's resource table; a tenant that was not started has no store there",
    "in Leasehold only, since stock wasmtime has neither waits nor capabilities across tenants: \
     `waits` (tasks that wait for a semaphore of their tenant's) and `delegations` (a service's \
     tasks wait for the semaphore of the tenant that is ended); left out: instance-flood, which \
     stock wasmtime would expand without bound",
    "`die` ends by itself: its end is from the trap, what the neighbour feels from its start",
];

/// Returns every runtime as it is used: wasmtime with the most distant neighbour possible, as with
/// a process for each tenant; and a cell with a neighbour that shares its memory cgroup.
fn arms(placements: &[Placement], furthest: Distance) -> Vec<Arm> {
    let runtimes = [Runtime::Leasehold, Runtime::Wasmtime];
    let usual = placements
        .iter()
        .flat_map(|placement| runtimes.map(|runtime| Arm::usual(runtime, *placement, furthest)));
    let with = |runtime, neighbour| Arm {
        runtime,
        placement: Placement::OtherCore,
        neighbour,
    };
    let mut arms: Vec<Arm> = usual.collect();
    for arm in [
        with(Runtime::Wasmtime, furthest),
        with(Runtime::Leasehold, Distance::Process),
    ] {
        if !arms.contains(&arm) {
            arms.push(arm);
        }
    }
    arms
}

/// Whether the finding is about this arm.
fn is_judged(arm: &Arm, usual: bool) -> bool {
    usual && (arm.runtime, arm.placement) == (Runtime::Leasehold, Placement::OtherCore)
}

/// Processes that wanted to run in the last minute, in the mean.
fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

impl Point {
    fn row(&self) -> Row {
        let trial = &self.trial;
        let end = trial.end_ns();
        let (disturbed, undisturbed) = trial.felt();
        let reclaimed = |part: fn(&leasehold_cell::Reclaimed) -> u64| -> Samples {
            let costs = trial
                .guest_ends()
                .filter_map(|guest_end| guest_end.reclaimed.as_ref());
            costs.map(part).collect()
        };
        let p50 = trial.ratio(0.5);
        let p99 = trial.ratio(0.99);
        row([
            ("runtime", self.arm.runtime.name().into()),
            ("guest", self.guest.into()),
            ("placement", self.arm.placement.name().into()),
            ("neighbour", self.arm.neighbour.name().into()),
            ("ends", trial.guest_ends().count().into()),
            ("end_ns_p50", end.p50().into()),
            ("end_ns_max", end.max().into()),
            (
                "reusable_ns_p50",
                reclaimed(|r| r.reusable.wall_ns).p50().into(),
            ),
            (
                "returned_cpu_ns_max",
                reclaimed(|r| r.returned.cpu_ns).max().into(),
            ),
            ("predicted_ns_p50", trial.predicted_ns().p50().into()),
            ("neighbour_p50_ratio", ratio_value(p50.map(|s| s.median))),
            ("neighbour_p99_ratio", ratio_value(p99.map(|s| s.median))),
            ("neighbour_p99_ratio_p5", ratio_value(p99.map(|s| s.p5))),
            ("neighbour_p99_ratio_p95", ratio_value(p99.map(|s| s.p95))),
            ("neighbour_max_ns", disturbed.max().into()),
            ("undisturbed_max_ns", undisturbed.max().into()),
            ("blocks", trial.blocks.len().into()),
            ("operations", disturbed.count().into()),
        ])
    }
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let judged = |point: &&Point| is_judged(&point.arm, point.usual);
    for point in points.iter().filter(judged) {
        findings.push(Finding::at_most(
            format!("the neighbour's p99 while `{}` is ended", point.guest),
            Unit::Ratio,
            point.trial.ratio(0.99).map(|blocks| blocks.median),
            NEIGHBOUR,
        ));
    }
    let shares = points
        .iter()
        .filter_map(|point| Some((point.guest, point.trial.share_of_prediction()?)));
    let worst = shares.max_by(|a, b| a.1.total_cmp(&b.1));
    findings.push(Finding::at_most(
        format!(
            "processor time of an end over its prediction, at the most (`{}`)",
            worst.map_or("none", |(guest, _)| guest)
        ),
        Unit::Ratio,
        worst.map(|(_, share)| share),
        1.0,
    ));
    findings
}

fn named(points: &[Point]) -> Vec<(&'static str, Runtime, &Trial)> {
    let apart = points
        .iter()
        .filter(|point| point.arm.placement == Placement::OtherCore && point.usual);
    apart
        .map(|point| (point.guest, point.arm.runtime, &point.trial))
        .collect()
}

/// Bars of both runtimes for each guest: how long the end took, and the neighbour's worst.
/// Guests appear in the order of their first trial.
pub fn figure(title: &str, trials: &[(&'static str, Runtime, &Trial)]) -> Figure {
    let mut guests: Vec<&str> = Vec::new();
    for (guest, ..) in trials {
        if !guests.contains(guest) {
            guests.push(guest);
        }
    }
    // A panel is wide enough for the names of half a dozen guests.
    let columns = guests.len().div_ceil(6).max(1);
    let share = guests.len().div_ceil(columns).max(1);
    let panel = |guests: &[&str], y: Axis, value: &dyn Fn(&Trial) -> Option<Spread>| {
        let series = |runtime: Runtime| Series {
            name: runtime.name().into(),
            points: trials
                .iter()
                .filter(|trial| trial.1 == runtime)
                .filter_map(|(guest, _, trial)| {
                    let group = guests.iter().position(|name| name == guest)?;
                    Some((group, value(trial)?))
                })
                .collect(),
        };
        Panel {
            y,
            marks: Marks::Bars {
                title: "guest".into(),
                groups: guests.iter().map(|guest| (*guest).to_owned()).collect(),
                series: vec![series(Runtime::Leasehold), series(Runtime::Wasmtime)],
            },
        }
    };
    let mut panels = Vec::new();
    for guests in guests.chunks(share) {
        panels.push(panel(
            guests,
            Axis::logarithmic("kill to everything returned", Unit::Nanoseconds),
            &|trial| Spread::of_samples(&trial.end_ns()),
        ));
    }
    for guests in guests.chunks(share) {
        panels.push(panel(
            guests,
            Axis::logarithmic("neighbour's p99 over undisturbed", Unit::Ratio),
            &|trial| trial.ratio(0.99),
        ));
    }
    Figure {
        title: title.into(),
        panels,
    }
}
