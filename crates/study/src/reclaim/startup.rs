//! `startup`: the overhead of groups, charges and leases at the start of real programs (BRR fig.
//! 6).
//!
//! Three ways to run the same compiled program alternate: a cell as it is used (*leased*), the same
//! cell without groups and charges (*plain*), and *wasmtime* as it comes. Start-up is the time from
//! the request until the program has ended; the programs do next to nothing. Giving everything back
//! afterwards is not included.
//!
//! The placement of a host's memory changes its times by a hundredth, which is as much as the
//! bound, and lasts as long as the host. So each block of runs has its own hosts, made in its own
//! order, and the ratio is the median of the blocks' ratios.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Capture, Cell, CellConfig, Exit, Input, Lease, Mode, Output, Program, StartRequest,
    Surroundings, clock,
};
use serde_json::Value;

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, interleaved, ratio_value};
use crate::harness::stock::{self, Allocation, Invocation, Limits, Stock};
use crate::harness::unit::Unit;

/// The study; see the [module](self).
pub(crate) struct Startup;

/// Ways to run a program, in the order of the columns of a [`Point`].
const MODES: [&str; 3] = ["leased", "plain", "wasmtime"];
const LEASED: usize = 0;
const PLAIN: usize = 1;
const WASMTIME: usize = 2;

/// A program, what it is, its arguments, and what it gets on standard input.
const PROGRAMS: [(&str, &str, &[&str], &[u8]); 3] = [
    ("hello", "Rust, module", &[], b""),
    ("hello-p2", "Rust, component", &[], b""),
    (
        "jsonsort",
        "Go, module",
        &["score"],
        br#"[{"score": 2}, {"score": 1}]"#,
    ),
];

/// Runs of each before it counts: pools and caches are then as they stay.
const WARM_UP: usize = 20;
/// Rounds of one step of progress.
const BATCH: usize = 50;
/// Room for what a program prints.
const OUTPUT_BYTES: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

impl Study for Startup {
    fn name(&self) -> &'static str {
        "startup"
    }

    fn paper(&self) -> &'static str {
        "BRR fig. 6"
    }

    fn about(&self) -> &'static str {
        "From the request to start a program until it has ended: in a cell under a lease, in the \
         same cell without groups and charges, and on stock wasmtime."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let (blocks, rounds): (usize, usize) = if options.quick { (4, 50) } else { (40, 250) };
        let profile: Profile = serde_json::from_value(Value::Object(options.profile.clone()))
            .context("the calibration profile")?;
        let steps = blocks * PROGRAMS.len() * rounds.div_ceil(BATCH);
        let mut progress = Progress::new(self.name(), steps as u64);
        let mut points = PROGRAMS.map(|(name, ..)| Point::new(name));
        for block in 0..blocks {
            let bench = Bench::new(profile.clone(), block % 2 == 0)?;
            for ((name, what, arguments, stdin), point) in PROGRAMS.into_iter().zip(&mut points) {
                progress.at(format!("{name} ({what})"));
                let guest = bench.load(options, name, arguments, stdin)?;
                point
                    .blocks
                    .push(bench.measure(&guest, rounds, &mut progress)?);
            }
        }

        let mut report = Report::new(self, options);
        report.rows = points.iter().flat_map(Point::rows).collect();
        report.findings = points.iter().flat_map(Point::findings).collect();
        report.notes.push(format!(
            "{blocks} blocks of {rounds} starts of each in turns, on hosts made anew for every \
             block; ratios are medians of the blocks' ratios; compiled before; memory, stack and code warm from \
             the runs before in all three; all on one processor, the one that asks on any; \
             wasmtime allocates on demand, its default, with epoch interruption"
        ));
        report.figure = figure(&points);
        Ok(report)
    }
}

/// The three hosts, side by side.
struct Bench {
    leased: Cell,
    plain: Cell,
    stock: Stock,
    limits: Limits,
}

/// A program, compiled by each.
struct Guest {
    name: &'static str,
    args: Vec<String>,
    stdin: &'static [u8],
    leased: Arc<Program>,
    plain: Arc<Program>,
    stock: stock::Program,
}

impl Bench {
    /// The hosts; the cell with leases is made before the plain one, or after it.
    fn new(profile: Profile, leased_first: bool) -> Result<Self> {
        let cpu = crate::harness::affinity::processors()?.last().copied();
        let lease = Lease::default();
        let limits = Limits {
            memory_bytes: usize::try_from(lease.memory.reserve.get())?,
            table_elements: usize::try_from(lease.memory.table_elements)?,
        };
        let mut leased = CellConfig::new(profile);
        leased.cpu = cpu;
        leased.code_cache = leasehold_cell::user_code_cache();
        let mut plain = CellConfig::new(Profile::free());
        plain.mode = Mode::Individual;
        plain.cpu = cpu;
        plain.code_cache.clone_from(&leased.code_cache);
        let (leased, plain) = if leased_first {
            let leased = Cell::start(leased)?;
            (leased, Cell::start(plain)?)
        } else {
            let plain = Cell::start(plain)?;
            (Cell::start(leased)?, plain)
        };
        Ok(Self {
            leased,
            plain,
            stock: Stock::new(Allocation::OnDemand, limits, cpu)?,
            limits,
        })
    }

    /// A program for each of the hosts.
    fn load(
        &self,
        options: &Options,
        name: &'static str,
        arguments: &[&str],
        stdin: &'static [u8],
    ) -> Result<Guest> {
        let path = options.guests_dir.join(name).with_extension("wasm");
        let bytes = fs::read(&path)
            .with_context(|| format!("the guest {} (guests/build makes it)", path.display()))?;
        let args = std::iter::once(&name).chain(arguments);
        Ok(Guest {
            name,
            args: args.map(|arg| (*arg).to_owned()).collect(),
            stdin,
            leased: self.leased.load(&path)?,
            plain: self.plain.load(&path)?,
            stock: self.stock.load(&bytes)?,
        })
    }

    fn measure(&self, guest: &Guest, rounds: usize, progress: &mut Progress) -> Result<Block> {
        for mode in interleaved(MODES.len(), WARM_UP) {
            self.start(guest, mode)?;
        }
        let mut startup_ns = MODES.map(|_| Samples::new());
        for (turn, mode) in interleaved(MODES.len(), rounds).enumerate() {
            startup_ns[mode].record(self.start(guest, mode)?);
            if (turn + 1) % (BATCH * MODES.len()) == 0 {
                progress.step();
            }
        }
        Ok(startup_ns)
    }

    /// Runs the program once; from the request to its end, ns.
    fn start(&self, guest: &Guest, mode: usize) -> Result<u64> {
        match mode {
            LEASED => in_cell(&self.leased, &guest.leased, guest),
            PLAIN => in_cell(&self.plain, &guest.plain, guest),
            _ => {
                let running = self.stock.start(
                    &guest.stock,
                    Invocation {
                        args: guest.args.clone(),
                        dirs: Vec::new(),
                        stdin: guest.stdin.into(),
                        limits: self.limits,
                        blocking: false,
                    },
                )?;
                let (exit, times) = running.wait(PATIENCE)?;
                ensure!(exit == stock::Exit::Code(0), "{}: {exit:?}", guest.name);
                Ok(times.stopped_ns - times.started_ns)
            }
        }
    }
}

fn in_cell(cell: &Cell, program: &Arc<Program>, guest: &Guest) -> Result<u64> {
    let request = StartRequest {
        program: program.clone(),
        lease: Lease::default(),
        surroundings: Surroundings {
            args: guest.args.clone(),
            stdin: Input::Bytes(guest.stdin.into()),
            stdout: Output::Capture(Capture::new(OUTPUT_BYTES)),
            ..Surroundings::default()
        },
    };
    let asked_ns = clock::monotonic_ns();
    let ended = cell.start_tenant(request)?.wait()?;
    ensure!(
        ended.exit == Exit::Code(0),
        "{}: {:?}",
        guest.name,
        ended.exit
    );
    Ok(ended.at_ns - asked_ns)
}

/// The start-up times of a block in every mode, ns.
type Block = [Samples; MODES.len()];

/// One program in every mode.
struct Point {
    program: &'static str,
    blocks: Vec<Block>,
}

impl Point {
    /// Nothing measured yet.
    fn new(program: &'static str) -> Self {
        Self {
            program,
            blocks: Vec::new(),
        }
    }

    /// The times of all blocks.
    fn startup_ns(&self, mode: usize) -> Samples {
        let mut all = Samples::new();
        for block in &self.blocks {
            all.add(&block[mode]);
        }
        all
    }

    /// Of each block, the median under a lease over that of another mode.
    fn leased_to(&self, mode: usize) -> Option<Spread> {
        let of = |block: &Block| block[LEASED].ratio_to(&block[mode], 0.5);
        Spread::of(self.blocks.iter().filter_map(of))
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        MODES.iter().enumerate().map(|(mode, name)| {
            let samples = self.startup_ns(mode);
            let ratio = self.leased_to(mode);
            row([
                ("program", self.program.into()),
                ("mode", (*name).into()),
                ("startup_ns_p50", samples.p50().into()),
                ("startup_ns_p5", samples.quantile(0.05).into()),
                ("startup_ns_p95", samples.quantile(0.95).into()),
                ("starts", samples.count().into()),
                ("leased_ratio", ratio_value(ratio.map(|it| it.median))),
                ("leased_ratio_p5", ratio_value(ratio.map(|it| it.p5))),
                ("leased_ratio_p95", ratio_value(ratio.map(|it| it.p95))),
            ])
        })
    }

    fn findings(&self) -> [Finding; 2] {
        let to = |base: usize| self.leased_to(base).map(|ratio| ratio.median);
        let program = self.program;
        [
            Finding::at_most(
                format!("start of {program} under a lease, to that without groups and charges"),
                Unit::Ratio,
                to(PLAIN),
                1.01,
            ),
            Finding::at_most(
                format!("start of {program} under a lease, to that on stock wasmtime"),
                Unit::Ratio,
                to(WASMTIME),
                1.0,
            ),
        ]
    }
}

fn figure(points: &[Point]) -> Figure {
    let bar = |point: &Point, mode: usize| Series {
        name: MODES[mode].to_owned(),
        points: Spread::of_samples(&point.startup_ns(mode))
            .map(|spread| (0, spread))
            .into_iter()
            .collect(),
    };
    let panel = |point: &Point| Panel {
        y: Axis::linear("start to end", Unit::Nanoseconds),
        marks: Marks::Bars {
            title: "program".to_owned(),
            groups: vec![point.program.to_owned()],
            series: (0..MODES.len()).map(|mode| bar(point, mode)).collect(),
        },
    };
    Figure {
        title: "Start of real programs".to_owned(),
        panels: points.iter().map(panel).collect(),
    }
}
