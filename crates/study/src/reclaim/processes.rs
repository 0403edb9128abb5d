//! `processes`: the cost of ending a Linux process (BRR fig. 2, Linux column).
//!
//! A process that maps one page over and over owns no memory but the kernel's structures; killing
//! it shows the cost of reclaiming those, and the delay of a neighbour that forks processes on the
//! same processor at the time. Leasehold does not take part: the study shows why it exists.

mod map_limit;
mod victims;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::harness::affinity::processors;
use crate::harness::experiment::{Options, Study};
use crate::harness::neighbour::{Distance, Load, Neighbour};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, row};
use crate::harness::samples::{Samples, Spread, ratio_value};
use crate::harness::unit::Unit;
use map_limit::MapLimit;
use victims::Plan;

pub(crate) use map_limit::LIMIT_ROLE;
pub(crate) use victims::ROLE;

/// How long the neighbour is watched undisturbed before each kill.
const QUIET: Duration = Duration::from_millis(20);

/// Forks that the neighbour's workload has at least: some milliseconds, a few slices of the
/// scheduler, so that a shorter end is weighed by its cost to the neighbour.
const WORKLOAD: usize = 32;

/// The study; see the [module](self).
pub(crate) struct Processes;

/// How much is measured.
struct Scale {
    /// Mappings of the victims.
    mappings: &'static [usize],
    /// Mappings that all victims of one point make together, which bounds the time it takes.
    mappings_per_point: usize,
    /// Least and most victims of one point.
    victims: (usize, usize),
    /// How many times longer the end of the largest must take than that of the smallest.
    growth: f64,
    /// How much slower the neighbour must be during the end of the largest.
    slowdown: f64,
}

const FULL: Scale = Scale {
    mappings: &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000],
    mappings_per_point: 3_000_000,
    victims: (10, 100),
    growth: 1000.0,
    slowdown: 1.5,
};
const QUICK: Scale = Scale {
    mappings: &[1, 100, 1000, 10_000],
    mappings_per_point: 200_000,
    victims: (15, 40),
    growth: 10.0,
    slowdown: 1.1,
};

/// Everything known of one number of mappings.
struct Point {
    mappings: usize,
    exit_ns: Samples,
    kernel_bytes: Spread,
    neighbour: Option<Spread>,
}

impl Study for Processes {
    fn name(&self) -> &'static str {
        "processes"
    }

    fn paper(&self) -> &'static str {
        "BRR fig. 2, Linux column"
    }

    fn about(&self) -> &'static str {
        "Death of a Linux process against the number of its mappings of one page: from kill to \
         wait, kernel memory before, and slowdown of a neighbour that forks on the same processor."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let mut report = Report::new(self, options);
        let largest = scale.mappings.iter().copied().max().unwrap_or(1);
        let limit = MapLimit::raise(largest)?;
        let counts: Vec<usize> = scale
            .mappings
            .iter()
            .copied()
            .filter(|count| *count <= limit.mappings())
            .collect();
        if counts.len() < scale.mappings.len() {
            report.notes.push(format!(
                "more than {} mappings were not measured: vm.max_map_count could not be raised",
                limit.mappings()
            ));
        }

        let mut progress = Progress::new(self.name(), counts.len() as u64);
        let mut points = Vec::new();
        for mappings in counts {
            progress.at(format!("{mappings} mappings"));
            points.push(measure(mappings, scale)?);
            progress.step();
        }

        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points, scale);
        report.notes.push(
            "killer, victim and neighbour share one processor, as in the paper; latency is \
             measured without the neighbour; kernel memory is that of objects in slabs (without \
             the superuser's rights: of whole slabs, which is coarser) and of page tables"
                .into(),
        );
        report.figure = figure(&points);
        Ok(report)
    }
}

/// The life of the process that makes victims.
pub(crate) fn child(arguments: &[&str]) -> Result<()> {
    victims::child(arguments)
}

/// The life of the process that keeps the limit of mappings raised.
pub(crate) fn limit_child(arguments: &[&str]) -> Result<()> {
    map_limit::child(arguments)
}

fn measure(mappings: usize, scale: &Scale) -> Result<Point> {
    let cpus = processors()?;
    let (first, last) = (cpus.first().copied(), cpus.last().copied());
    let (Some(workshop), Some(cpu)) = (first, last) else {
        anyhow::bail!("no processor to run on");
    };
    let (least, most) = scale.victims;
    let victims = (scale.mappings_per_point / mappings).clamp(least, most);
    let alone = Plan {
        mappings,
        victims,
        cpu,
        workshop,
        quiet: Duration::ZERO,
    };
    let guest_ends = victims::kill(alone)?;

    let neighbour = Neighbour::start(Load::Spawn, Distance::Process, cpu)?;
    let disturbing = victims::kill(Plan {
        quiet: QUIET,
        ..alone
    })?;
    let diary = neighbour.finish()?;
    ensure!(
        diary.lost == 0,
        "{} operations of the neighbour were lost",
        diary.lost
    );

    Ok(Point {
        mappings,
        exit_ns: guest_ends
            .iter()
            .map(|guest_end| guest_end.dying.end_ns - guest_end.dying.start_ns)
            .collect(),
        kernel_bytes: Spread::of(
            guest_ends
                .iter()
                .map(|guest_end| guest_end.kernel_bytes as f64),
        )
        .context("no victim died")?,
        neighbour: Spread::of(
            disturbing
                .iter()
                .filter_map(|guest_end| diary.slowdown(guest_end.dying, guest_end.quiet, WORKLOAD)),
        ),
    })
}

impl Point {
    fn row(&self) -> crate::harness::report::Row {
        row([
            ("mappings", self.mappings.into()),
            ("exit_ns_p50", self.exit_ns.p50().into()),
            ("exit_ns_p5", self.exit_ns.quantile(0.05).into()),
            ("exit_ns_p95", self.exit_ns.quantile(0.95).into()),
            (
                "kernel_bytes",
                (self.kernel_bytes.median.max(0.0) as u64).into(),
            ),
            (
                "neighbour_ratio",
                ratio_value(self.neighbour.map(|spread| spread.median)),
            ),
        ])
    }
}

fn findings(points: &[Point], scale: &Scale) -> Vec<Finding> {
    let (Some(smallest), Some(largest)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let count = Unit::Count.humane(largest.mappings as f64);
    vec![
        Finding::at_least(
            format!(
                "a process with {count} mappings takes this much longer to die than one with 1"
            ),
            Unit::Ratio,
            largest.exit_ns.ratio_to(&smallest.exit_ns, 0.5),
            scale.growth,
        ),
        Finding::at_least(
            "kernel memory that is to be reclaimed for each mapping",
            Unit::Bytes,
            Some(largest.kernel_bytes.median / largest.mappings as f64),
            100.0,
        ),
        Finding::at_least(
            format!("slowdown of a neighbour while {count} mappings are reclaimed"),
            Unit::Ratio,
            largest.neighbour.map(|spread| spread.median),
            scale.slowdown,
        ),
    ]
}

fn figure(points: &[Point]) -> Figure {
    let panel = |y: Axis, spread: &dyn Fn(&Point) -> Option<Spread>| Panel {
        y,
        marks: Marks::Curves {
            x: Axis::logarithmic("mappings", Unit::Count),
            series: vec![Series {
                name: "Linux".into(),
                points: points
                    .iter()
                    .filter_map(|point| Some((point.mappings as f64, spread(point)?)))
                    .collect(),
            }],
        },
    };
    Figure {
        title: "Death of a Linux process".into(),
        panels: vec![
            panel(
                Axis::logarithmic("kill to wait", Unit::Nanoseconds),
                &|point| Spread::of_samples(&point.exit_ns),
            ),
            panel(Axis::logarithmic("kernel memory", Unit::Bytes), &|point| {
                Some(point.kernel_bytes)
            }),
            panel(
                Axis::linear("neighbour's slowdown", Unit::Ratio),
                &|point| point.neighbour,
            ),
        ],
    }
}
