//! `memory-speed`: the cost of a memory reservation for a tenant that fits it.
//!
//! Programs that do little but touch memory run to their end as a tenant whose reservation is all
//! the memory that it may have; as one that may have more and therefore pages, but fits its
//! reservation; and in stock wasmtime with either of its allocators. The first touch of every page
//! is part of what is timed, and so is the start of the program.

mod work;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_cell::memory::{HeldMemory, Swap, swap_for};
use leasehold_cell::profile::Profile;
use leasehold_cell::{Cell, CellConfig, Exit, Lease, Program, StartRequest, Surroundings, clock};
use leasehold_lease::{ByteSize, MemoryKind, Nanoseconds, Paging, SharedPages};

use crate::harness::contest;
use crate::harness::experiment::{Options, Study};
use crate::harness::objects;
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, interleaved, ratio_value};
use crate::harness::stock::{self, Allocation, Invocation, Limits, Stock};
use crate::harness::unit::Unit;
use work::Work;

/// The study; see the [module](self).
pub(crate) struct MemorySpeed;

/// The required part of the speed of the faster of the two stock runtimes.
const ENOUGH: f64 = 0.98;
/// More than the pages of any of the programs are charged on any host.
const BUDGET: Nanoseconds = Nanoseconds::new(1_000_000_000).expect("1 s is in range");
const PATIENCE: Duration = Duration::from_secs(60);

struct Scale {
    mebibytes: u64,
    rounds: usize,
}

const FULL: Scale = Scale {
    mebibytes: 64,
    rounds: 61,
};
const QUICK: Scale = Scale {
    mebibytes: 16,
    rounds: 5,
};

/// How a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Leasehold,
    Paged,
    OnDemand,
    Pooling,
}

impl Mode {
    #[cfg(test)]
    const ALL: [Self; 4] = [Self::Leasehold, Self::Paged, Self::OnDemand, Self::Pooling];
    const STOCK: [Self; 2] = [Self::OnDemand, Self::Pooling];

    /// As rows name it.
    const fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Paged => "leasehold-paged",
            Self::OnDemand => "wasmtime-ondemand",
            Self::Pooling => "wasmtime-pooling",
        }
    }
}

/// One program in every mode that this host has.
struct Point {
    work: Work,
    run_ns: Vec<(Mode, Samples)>,
}

impl Study for MemorySpeed {
    fn name(&self) -> &'static str {
        "memory-speed"
    }

    fn paper(&self) -> &'static str {
        "SPC table II, for whole programs"
    }

    fn about(&self) -> &'static str {
        "Programs that do little but touch memory, from the request to start them until they have \
         ended: as tenants within their memory reservation, and in stock wasmtime."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        measure(self, options, if options.quick { &QUICK } else { &FULL })
    }
}

fn measure(study: &MemorySpeed, options: &Options, scale: &Scale) -> Result<Report> {
    let mut report = Report::new(study, options);
    let bench = Bench::new(options, scale)?;
    let turns = Work::ALL.len() * scale.rounds * bench.modes.len();
    let mut progress = Progress::new(study.name(), turns as u64);
    let mut points = Vec::new();
    for work in Work::ALL {
        progress.at(work.name());
        points.push(bench.compare(work, scale, &mut || progress.step())?);
    }
    report.rows = points.iter().flat_map(Point::rows).collect();
    report.findings = points.iter().flat_map(Point::findings).collect();
    report.notes.push(format!(
        "each program has {} MiB of memory and touches all of it; {} runs of each in turns, wall \
         time, on {}; compiled before; stock wasmtime with epoch interruption, as embedders that end \
         guests have it",
        scale.mebibytes,
        scale.rounds,
        contest::core().map_or("any core".to_owned(), |core| format!("core {core}"))
    ));
    report.notes.push(
        "leasehold: the reservation is all the memory that the tenant may have. leasehold-paged: it \
         may have twice as much as is reserved, and what it has fits the reservation"
            .to_owned(),
    );
    report.notes.extend(bench.note.clone());
    report.figure = figure(&points);
    Ok(report)
}

/// A runtime.
enum Host {
    Cell(Box<Cell>, Lease),
    Stock(Box<Stock>, Limits),
}

/// A program, compiled by a runtime.
enum Guest {
    Cell(Arc<Program>),
    Stock(stock::Program),
}

/// The runtimes side by side.
struct Bench {
    modes: Vec<(Mode, Host)>,
    /// The cases that are not compared here, and why.
    note: Option<String>,
}

impl Bench {
    fn new(options: &Options, scale: &Scale) -> Result<Self> {
        let core = contest::core();
        let profile = objects::profile(options)?;
        let bytes = scale.mebibytes << 20;
        let limits = Limits {
            memory_bytes: usize::try_from(bytes)?,
            table_elements: 1000,
        };
        let mut lease = Lease::default();
        lease.reclaim.budget = BUDGET;
        lease.memory.reserve = ByteSize::new(bytes).context("the memory is in range")?;
        let mut config = CellConfig::new(profile.clone());
        config.cpu = core;
        let cell = Cell::start(config)?;
        let mut modes = vec![(Mode::Leasehold, Host::Cell(Box::new(cell), lease))];
        let note = match paging_cell(profile, core, bytes, options) {
            Ok(cell) => {
                lease.memory.paging = Some(Paging {
                    limit: ByteSize::new(2 * bytes).context("twice the memory is in range")?,
                    kind: MemoryKind::Hard,
                    shared: SharedPages::None,
                    mappings: Paging::MAPPINGS,
                });
                modes.push((Mode::Paged, Host::Cell(Box::new(cell), lease)));
                None
            }
            Err(error) => Some(format!("no tenant pages on this host: {error:#}")),
        };
        for (mode, allocation) in [
            (Mode::OnDemand, Allocation::OnDemand),
            (Mode::Pooling, Allocation::Pooling),
        ] {
            let stock = Stock::new(allocation, limits, core)?;
            modes.push((mode, Host::Stock(Box::new(stock), limits)));
        }
        Ok(Self { modes, note })
    }

    /// Runs a program in every mode, by turns.
    fn compare(&self, work: Work, scale: &Scale, step: &mut dyn FnMut()) -> Result<Point> {
        let program = work.program(scale.mebibytes);
        let compile = |(_, host): &(Mode, Host)| host.compile(&program);
        let guests: Vec<_> = self.modes.iter().map(compile).collect::<Result<_>>()?;
        let run = |arm: usize| {
            let (mode, host) = &self.modes[arm];
            host.run(&guests[arm])
                .with_context(|| format!("{} in {}", work.name(), mode.name()))
        };
        // A rehearsal for unused slots, and for frames that the host of a virtual machine has not
        // provided yet.
        for arm in interleaved(guests.len(), 2) {
            run(arm)?;
        }
        let mut run_ns: Vec<_> = self
            .modes
            .iter()
            .map(|(mode, _)| (*mode, Samples::new()))
            .collect();
        for arm in interleaved(guests.len(), scale.rounds) {
            run_ns[arm].1.record(run(arm)?);
            step();
        }
        Ok(Point { work, run_ns })
    }
}

/// A cell whose tenants can page.
fn paging_cell(
    profile: Profile,
    core: Option<usize>,
    bytes: u64,
    options: &Options,
) -> Result<Cell> {
    let mut config = CellConfig::new(profile);
    config.cpu = core;
    // One tenant and the one before it, whose frames may still be on their way back.
    let held = 2 * bytes;
    let limit = ByteSize::new(2 * bytes).context("twice the memory is in range")?;
    std::fs::create_dir_all(&options.out_dir).context("the directory of the swap file")?;
    config.memory = Some(HeldMemory {
        bytes: held,
        for_all: false,
        swap: Some(Swap {
            path: options.out_dir.join("memory-speed.swap"),
            bytes: 2 * swap_for(limit),
        }),
    });
    Cell::start(config)
}

impl Host {
    fn compile(&self, program: &str) -> Result<Guest> {
        Ok(match self {
            Self::Cell(cell, lease) => Guest::Cell(cell.compile_for(program.as_bytes(), lease)?),
            Self::Stock(stock, _) => Guest::Stock(stock.load(program.as_bytes())?),
        })
    }

    /// Runs a program once; from the request to its end, ns.
    fn run(&self, guest: &Guest) -> Result<u64> {
        match (self, guest) {
            (Self::Cell(cell, lease), Guest::Cell(program)) => {
                let request = StartRequest {
                    program: program.clone(),
                    lease: *lease,
                    surroundings: Surroundings::default(),
                };
                let asked_ns = clock::monotonic_ns();
                let ended = cell.start_tenant(request)?.wait()?;
                ensure!(ended.exit == Exit::Code(0), "it ended: {:?}", ended.exit);
                Ok(ended.at_ns - asked_ns)
            }
            (Self::Stock(stock, limits), Guest::Stock(program)) => {
                let invocation = Invocation {
                    args: vec!["guest".to_owned()],
                    dirs: Vec::new(),
                    stdin: bytes::Bytes::new(),
                    limits: *limits,
                    blocking: false,
                };
                let (exit, times) = stock.start(program, invocation)?.wait(PATIENCE)?;
                ensure!(exit == stock::Exit::Code(0), "it ended: {exit:?}");
                Ok(times.stopped_ns - times.started_ns)
            }
            _ => unreachable!("a program is run by what compiled it"),
        }
    }
}

impl Point {
    fn of(&self, mode: Mode) -> Option<&Samples> {
        let found = self.run_ns.iter().find(|(other, _)| *other == mode);
        found.map(|(_, samples)| samples)
    }

    /// Speed in a mode over that of the faster of the stock runtimes.
    fn speed(&self, mode: Mode) -> Option<f64> {
        let stock = Mode::STOCK.into_iter().filter_map(|mode| self.of(mode));
        let best = stock.min_by_key(|samples| samples.p50())?;
        best.ratio_to(self.of(mode)?, 0.5)
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.run_ns.iter().map(|(mode, samples)| {
            row([
                ("guest", self.work.name().into()),
                ("mode", mode.name().into()),
                ("run_ns_p50", samples.p50().into()),
                ("run_ns_p5", samples.quantile(0.05).into()),
                ("run_ns_p95", samples.quantile(0.95).into()),
                ("speed_ratio", ratio_value(self.speed(*mode))),
                ("runs", samples.count().into()),
            ])
        })
    }

    fn findings(&self) -> impl Iterator<Item = Finding> {
        let ours = [Mode::Leasehold, Mode::Paged].into_iter();
        ours.filter(|mode| self.of(*mode).is_some()).map(|mode| {
            Finding::at_least(
                format!(
                    "{}: speed in {} over that of the faster stock wasmtime",
                    self.work.name(),
                    mode.name()
                ),
                Unit::Ratio,
                self.speed(mode),
                ENOUGH,
            )
        })
    }
}

fn figure(points: &[Point]) -> Figure {
    let panel = |point: &Point| Panel {
        y: Axis::linear("start to end", Unit::Nanoseconds),
        marks: Marks::Bars {
            title: "program".to_owned(),
            groups: vec![point.work.name().to_owned()],
            series: point
                .run_ns
                .iter()
                .map(|(mode, samples)| Series {
                    name: mode.name().to_owned(),
                    points: Spread::of_samples(samples)
                        .map(|spread| (0, spread))
                        .into_iter()
                        .collect(),
                })
                .collect(),
        },
    };
    Figure {
        title: "Programs that touch memory, within their reservation".to_owned(),
        panels: points.iter().map(panel).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ENOUGH, MemorySpeed, Mode, Point, Scale, Work, measure};
    use crate::harness::experiment::Options;
    use crate::harness::samples::Samples;

    #[test]
    fn every_program_runs_in_every_mode() {
        let scale = Scale {
            mebibytes: 1,
            rounds: 2,
        };
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options {
            out_dir: directory.path().to_owned(),
            ..Options::default()
        };
        let report = measure(&MemorySpeed, &options, &scale).expect("measured");
        let modes = report.rows.len() / Work::ALL.len();
        assert!(
            modes == Mode::ALL.len() || report.notes.len() == 3,
            "{modes}"
        );
        for row in &report.rows {
            assert_eq!(row["runs"], 2, "{row:?}");
            assert!(row["run_ns_p50"].as_u64().is_some_and(|ns| ns > 0));
        }
    }

    #[test]
    fn speed_is_held_against_the_faster_of_the_stock_runtimes() {
        let times = [100, 125, 98, 200].map(|ns| Samples::from_iter([ns]));
        let point = Point {
            work: Work::ALL[0],
            run_ns: Mode::ALL.into_iter().zip(times).collect(),
        };
        let holds: Vec<_> = point.findings().map(|finding| finding.holds()).collect();
        assert_eq!(holds, [true, false]);
        assert!((point.speed(Mode::Paged).expect("measured") - 98.0 / 125.0).abs() < 1e-9);
        assert!(point.speed(Mode::Leasehold) >= Some(ENOUGH));
    }
}
