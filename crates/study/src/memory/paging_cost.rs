//! `paging-cost`: the cost of allocating a page, giving it back, mapping a shared one, and
//! unmapping it, with and without shared-page management (SPC table II).
//!
//! Each cost covers the whole path from a tenant's access to its next instruction: the signal of
//! the fault, the policy, and the system calls that carry out its decision. The kernel's cost for
//! ordinary pages is measured for comparison.

use std::hint::black_box;
use std::path::Path;

use anyhow::{Context, Result};
use leasehold_pager::{Contract, Ending, ReservationId, Sharing};
use leasehold_pager_linux::Features;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::harness::clock::monotonic_ns;
use crate::harness::experiment::{Options, Study};
use crate::harness::mapping::Mapping;
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::priority::on_a_thread_like_a_cells;
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, interleaved, ratio_value};
use crate::harness::unit::Unit;
use crate::memory::paging::Space;

/// The study; see the [module](self).
pub(crate) struct PagingCost;

/// Pages that one step of an end visits, as in a cell.
const STEP_PAGES: u32 = 64;
/// Samples are of many pages, and kept in units of so much of a nanosecond.
const PARTS: u64 = 100;

struct Scale {
    /// Pages that each sample is the mean of.
    pages: u32,
    rounds: usize,
}

const FULL: Scale = Scale {
    pages: 4096,
    rounds: 101,
};
const QUICK: Scale = Scale {
    pages: 1024,
    rounds: 11,
};

/// The operation on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Allocate,
    Free,
    MapShared,
    UnmapShared,
}

impl Operation {
    const ALL: [Operation; 4] = [
        Operation::Allocate,
        Operation::Free,
        Operation::MapShared,
        Operation::UnmapShared,
    ];

    /// As rows name it.
    const fn name(self) -> &'static str {
        match self {
            Operation::Allocate => "allocate",
            Operation::Free => "free",
            Operation::MapShared => "map_shared",
            Operation::UnmapShared => "unmap_shared",
        }
    }

    /// The greatest cost of shared-page management, relative to none.
    const fn bound(self) -> f64 {
        match self {
            Operation::Allocate | Operation::Free => 1.05,
            Operation::MapShared | Operation::UnmapShared => 1.2,
        }
    }
}

/// The manager of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Reservations without shared-page management.
    Plain,
    /// With it.
    Managed,
    /// The kernel, without a reservation.
    Kernel,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Plain, Mode::Managed, Mode::Kernel];

    /// As rows name it.
    const fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Managed => "managed",
            Mode::Kernel => "kernel",
        }
    }
}

/// Most pages that are mapped ahead of a tenant: none, as in the paper, and as in a cell.
const AHEAD: [u32; 2] = [0, 16];

/// One operation under one manager.
struct Point {
    operation: Operation,
    mode: Mode,
    ahead: u32,
    /// Hundredths of a nanosecond, a page.
    cost: Samples,
}

impl Study for PagingCost {
    fn name(&self) -> &'static str {
        "paging-cost"
    }

    fn paper(&self) -> &'static str {
        "SPC table II"
    }

    fn about(&self) -> &'static str {
        "Having a page, giving it back, mapping one that others have and unmapping it: in \
         reservations without and with shared-page management, and by the kernel alone."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let mut report = Report::new(self, options);
        let points = match Features::probe() {
            Ok(_) => measure(self.name(), if options.quick { &QUICK } else { &FULL })?,
            Err(unsupported) => {
                report.notes.push(format!("not measured: {unsupported}"));
                Vec::new()
            }
        };
        report.rows = points.iter().map(|point| point.row(&points)).collect();
        report.findings = findings(&points);
        report.notes.push(
            "ns of a page, each sample the mean over many pages, touched in order; no page is \
             written out, and the areas never are. allocate: the first write to a private page; \
             free: the end of its reservation, in steps of 64 pages; map_shared: the first read of \
             a page that another tenant has; unmap_shared: detaching such pages, which the other \
             keeps. ratio: to plain, with as many pages mapped ahead"
                .to_owned(),
        );
        report.notes.push(
            "kernel: first write to an anonymous page, and its munmap; first read of a page of a \
             shared file that another mapping has (of which the kernel maps 16 at a time), and its \
             munmap"
                .to_owned(),
        );
        report.figure = figure(&points);
        Ok(report)
    }
}

/// All modes by turns, for each number of pages that are mapped ahead.
fn measure(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let turns = AHEAD.len() * scale.rounds * Mode::ALL.len();
    let mut progress = Progress::new(name, turns as u64);
    let mut points = Vec::new();
    for ahead in AHEAD {
        progress.at(format!("{ahead} pages ahead"));
        let step = &mut || progress.step();
        let (measured, _) = on_a_thread_like_a_cells(|| compare(scale, ahead, step))?;
        points.extend(measured);
    }
    Ok(points)
}

fn compare(scale: &Scale, ahead: u32, step: &mut (dyn FnMut() + Send)) -> Result<Vec<Point>> {
    let pages = scale.pages;
    let modes = Mode::ALL.into_iter();
    let mut points: Vec<Point> = modes
        .flat_map(|mode| Operation::ALL.map(|operation| Point::new(operation, mode, ahead)))
        .collect();
    // Three tenants, each with all that it touches.
    let space = Space::open(3 * pages, 0, Path::new("."), ahead)?;
    let round = |mode| match mode {
        Mode::Plain => tenants(&space, Sharing::Plain, pages),
        Mode::Managed => tenants(&space, Sharing::Conserve, pages),
        Mode::Kernel => kernel(pages),
    };
    // A rehearsal for tables and code that were not used yet.
    for mode in Mode::ALL {
        round(mode)?;
    }
    for turn in interleaved(Mode::ALL.len(), scale.rounds) {
        let costs = round(Mode::ALL[turn])?;
        let first = turn * Operation::ALL.len();
        for (point, ns) in points[first..].iter_mut().zip(costs) {
            point.cost.record(ns * PARTS / u64::from(pages));
        }
        step();
    }
    space.denied()?;
    Ok(points)
}

/// Nanoseconds of all operations, in their order, on `pages` pages each.
fn tenants(space: &Space, sharing: Sharing, pages: u32) -> Result<[u64; 4]> {
    let paging = space.paging();
    let reserve = || paging.reserve(&Contract::hard(pages));
    let (first, second, third) = (reserve()?, reserve()?, reserve()?);

    let private = paging.create_resident_area(pages, sharing)?;
    let view = space.attach(third, private, pages)?;
    let allocate = timed(|| (0..pages).for_each(|page| view.store(page, 1)));
    let begin = monotonic_ns();
    end(space, third)?;
    let free = monotonic_ns() - begin;

    let shared = paging.create_resident_area(pages, sharing)?;
    let (one, other) = (
        space.attach(first, shared, pages)?,
        space.attach(second, shared, pages)?,
    );
    (0..pages).for_each(|page| one.store(page, 1));
    let map = timed(|| {
        for page in 0..pages {
            black_box(other.load(page));
        }
    });
    let begin = monotonic_ns();
    paging.detach(other.id)?;
    let unmap = monotonic_ns() - begin;
    end(space, second)?;
    end(space, first)?;
    // Freed pages are held again before the next round, so that no round pays for another.
    while !paging.refill(pages)? {}
    Ok([allocate, free, map, unmap])
}

/// Ends a reservation, to the last of its frames.
fn end(space: &Space, id: ReservationId) -> Result<()> {
    while space.paging().end_step(id, STEP_PAGES)? != Ending::Done {}
    Ok(())
}

/// The same by the kernel alone.
fn kernel(pages: u32) -> Result<[u64; 4]> {
    let pages = pages as usize;
    let private = Mapping::new(pages)?;
    let allocate = timed(|| private.touch());
    let free = private.unmap()?;
    let file = memfd_create("leasehold-study", MemfdFlags::CLOEXEC).context("a shared file")?;
    ftruncate(&file, pages as u64 * 4096).context("making a shared file longer")?;
    let one = Mapping::of_file(&file, pages)?;
    one.touch();
    let other = Mapping::of_file(&file, pages)?;
    let map = timed(|| other.read());
    let unmap = other.unmap()?;
    drop(one);
    Ok([allocate, free, map, unmap])
}

fn timed(work: impl FnOnce()) -> u64 {
    let begin = monotonic_ns();
    work();
    monotonic_ns() - begin
}

impl Point {
    fn new(operation: Operation, mode: Mode, ahead: u32) -> Self {
        Self {
            operation,
            mode,
            ahead,
            cost: Samples::new(),
        }
    }

    /// This against the same done by `mode`.
    fn ratio_to(&self, mode: Mode, points: &[Point]) -> Option<f64> {
        let same = |point: &&Point| point.operation == self.operation && point.ahead == self.ahead;
        let base = points
            .iter()
            .filter(same)
            .find(|point| point.mode == mode)?;
        self.cost.ratio_to(&base.cost, 0.5)
    }

    fn row(&self, points: &[Point]) -> Row {
        let ns = |q| {
            self.cost
                .quantile(q)
                .map(|parts| parts as f64 / PARTS as f64)
        };
        row([
            ("operation", self.operation.name().into()),
            ("mode", self.mode.name().into()),
            ("ns_p50", ns(0.5).into()),
            ("ratio", ratio_value(self.ratio_to(Mode::Plain, points))),
            ("ns_p5", ns(0.05).into()),
            ("ns_p95", ns(0.95).into()),
            (
                "kernel_ratio",
                ratio_value(self.ratio_to(Mode::Kernel, points)),
            ),
            ("ahead", self.ahead.into()),
            ("platform", "linux".into()),
        ])
    }
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ahead in AHEAD {
        for operation in Operation::ALL {
            let managed = points.iter().find(|point| {
                point.operation == operation && point.mode == Mode::Managed && point.ahead == ahead
            });
            findings.push(Finding::at_most(
                format!(
                    "{}, {ahead} pages ahead: with shared-page management against without",
                    operation.name()
                ),
                Unit::Ratio,
                managed.and_then(|point| point.ratio_to(Mode::Plain, points)),
                operation.bound(),
            ));
        }
    }
    findings
}

fn figure(points: &[Point]) -> Figure {
    let spread = |point: &Point| {
        let Spread { median, p5, p95 } = Spread::of_samples(&point.cost)?;
        let ns = |parts: f64| parts / PARTS as f64;
        Some(Spread {
            median: ns(median),
            p5: ns(p5),
            p95: ns(p95),
        })
    };
    let panel = |ahead: u32| {
        let series = |mode: Mode| Series {
            name: mode.name().to_owned(),
            points: points
                .iter()
                .filter(|point| point.mode == mode && point.ahead == ahead)
                .filter_map(|point| {
                    let group = Operation::ALL
                        .iter()
                        .position(|one| *one == point.operation)?;
                    Some((group, spread(point)?))
                })
                .collect(),
        };
        Panel {
            y: Axis::linear(format!("a page, {ahead} mapped ahead"), Unit::Nanoseconds),
            marks: Marks::Bars {
                title: "operation".into(),
                groups: Operation::ALL.map(|one| one.name().to_owned()).into(),
                series: Mode::ALL.map(series).into(),
            },
        }
    };
    Figure {
        title: "What a page costs".into(),
        panels: AHEAD.map(panel).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, Mode, Operation, Point, Scale, findings, measure};
    use crate::harness::samples::Samples;
    use leasehold_pager_linux::Features;

    #[test]
    fn every_operation_is_measured_in_every_mode() {
        if let Err(unsupported) = Features::probe() {
            eprintln!("skipped: {unsupported}");
            return;
        }
        let scale = Scale {
            pages: 100,
            rounds: 2,
        };
        let points = measure("test", &scale).expect("measured");
        let all = AHEAD.len() * Mode::ALL.len() * Operation::ALL.len();
        assert_eq!(points.len(), all);
        for point in &points {
            let row = point.row(&points);
            assert!(
                point.cost.count() == 2 && row["ns_p50"].as_f64() > Some(0.0),
                "{row:?}"
            );
            assert!(row["ratio"].is_f64(), "{row:?}");
        }
        assert!(
            findings(&points)
                .iter()
                .all(|finding| !finding.value.is_nan())
        );
    }

    #[test]
    fn a_claim_compares_with_the_same_without_management() {
        let point = |operation, mode, ahead, cost| Point {
            cost: Samples::from_iter([cost]),
            ..Point::new(operation, mode, ahead)
        };
        let points = [
            point(Operation::MapShared, Mode::Plain, 0, 1000),
            point(Operation::MapShared, Mode::Managed, 0, 1190),
            point(Operation::MapShared, Mode::Plain, 16, 100),
            point(Operation::MapShared, Mode::Managed, 16, 130),
        ];
        let found = findings(&points);
        let of = |claim: &str| {
            found
                .iter()
                .find(|f| f.claim.starts_with(claim))
                .expect("it")
        };
        assert!(of("map_shared, 0").holds() && !of("map_shared, 16").holds());
        assert!(of("allocate, 0").value.is_nan() && !of("allocate, 0").holds());
    }
}
