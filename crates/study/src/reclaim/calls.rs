//! `calls`: the cost of a call into the host, compared with the same engine and `wasmtime-wasi`.
//!
//! A probe makes a call of WASI preview 1 again and again and measures how long all of them took. A
//! cell and stock wasmtime alternate, each with a directory of its own on the same file system, on
//! the same processor.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Capture, Cell, CellConfig, Directory, Exit, Input, Lease, Output, Program, StartRequest,
    Surroundings,
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
pub(crate) struct Calls;

/// The calls, and how many a run makes: about a tenth of a second of stock wasmtime's time.
const CALLS: [(&str, u64); 13] = [
    ("clock_time_get", 500_000),
    ("sched_yield", 500_000),
    ("random_get", 200_000),
    ("poll_oneoff", 200_000),
    ("fd_write", 20_000),
    ("fd_pread", 20_000),
    ("fd_pwrite", 20_000),
    ("fd_filestat_get", 20_000),
    ("fd_readdir", 2_000),
    ("path_filestat_get", 10_000),
    ("path_open", 5_000),
    ("path_unlink_file", 2_000),
    ("path_create_directory", 500),
];

/// Hosts, in the order of the samples of a [`Point`].
const HOSTS: [&str; 2] = ["leasehold", "wasmtime"];
const LEASEHOLD: usize = 0;
const WASMTIME: usize = 1;

/// The limit for all calls together, relative to stock wasmtime: the geometric mean of the ratios.
const MEAN: f64 = 1.1;
/// The limit for one call.
const EACH: f64 = 1.5;
/// Files of the directory: its listing fills a page.
const FILES: usize = 64;
const OUTPUT_BYTES: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(120);

impl Study for Calls {
    fn name(&self) -> &'static str {
        "calls"
    }

    fn paper(&self) -> &'static str {
        "–"
    }

    fn about(&self) -> &'static str {
        "Calls into the host from a guest: in a cell, and on stock wasmtime with its WASI."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let (rounds, part) = if options.quick { (3, 10) } else { (15, 1) };
        let profile: Profile = serde_json::from_value(Value::Object(options.profile.clone()))
            .context("the calibration profile")?;
        let bench = Bench::new(profile, options)?;
        let mut progress = Progress::new(self.name(), CALLS.len() as u64);
        let mut points = Vec::new();
        for (call, count) in CALLS {
            progress.at(call.to_owned());
            points.push(bench.measure(call, count.div_ceil(part), rounds)?);
            progress.step();
        }
        let mut report = Report::new(self, options);
        report.rows = points.iter().flat_map(Point::rows).collect();
        let ratios: Option<Vec<f64>> = points.iter().map(Point::ratio).collect();
        let mean = ratios.as_ref().map(|ratios| {
            let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
            (sum / ratios.len() as f64).exp()
        });
        let dearest = ratios.and_then(|ratios| ratios.into_iter().reduce(f64::max));
        report.findings = vec![
            Finding::at_most(
                "calls, to those on stock wasmtime (geometric mean)",
                Unit::Ratio,
                mean,
                MEAN,
            ),
            Finding::at_most("the dearest of them", Unit::Ratio, dearest, EACH),
        ];
        report.notes.push(format!(
            "medians of {rounds} runs each, in turns; files on {}; warm: every file and name was used \
             before; path_open includes fd_close, path_unlink_file its creation, path_create_directory its \
             removal; wasmtime with epoch interruption, its files held by the calling thread as in `wasmtime run`",
            bench.directory.path().display()
        ));
        report.figure = figure(&points);
        Ok(report)
    }
}

/// The hosts, and a directory for each.
struct Bench {
    cell: Cell,
    leased: Arc<Program>,
    stock: Stock,
    program: stock::Program,
    limits: Limits,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new(profile: Profile, options: &Options) -> Result<Self> {
        let cpu = crate::harness::affinity::processors()?.last().copied();
        let lease = Lease::default();
        let limits = Limits {
            memory_bytes: usize::try_from(lease.memory.reserve.get())?,
            table_elements: usize::try_from(lease.memory.table_elements)?,
        };
        let mut config = CellConfig::new(profile);
        config.cpu = cpu;
        config.code_cache = leasehold_cell::user_code_cache();
        let cell = Cell::start(config)?;
        let stock = Stock::new(Allocation::OnDemand, limits, cpu)?;
        let path = options.guests_dir.join("call-probe.wasm");
        let bytes = fs::read(&path)
            .with_context(|| format!("the guest {} (guests/build makes it)", path.display()))?;
        let leased = cell.load(&path)?;
        let program = stock.load(&bytes)?;
        fs::create_dir_all(&options.out_dir)?;
        let directory = tempfile::tempdir_in(&options.out_dir).context("a directory")?;
        for host in HOSTS {
            let theirs = directory.path().join(host);
            fs::create_dir(&theirs)?;
            for file in 0..FILES {
                fs::write(theirs.join(format!("file-{file:03}")), "")?;
            }
        }
        Ok(Self {
            cell,
            leased,
            stock,
            program,
            limits,
            directory,
        })
    }

    fn measure(&self, call: &'static str, count: u64, rounds: usize) -> Result<Point> {
        let mut call_ps = HOSTS.map(|_| Samples::new());
        // One of each, which does not count.
        for host in interleaved(HOSTS.len(), 1) {
            self.run(host, call, count)?;
        }
        for host in interleaved(HOSTS.len(), rounds) {
            let took_ns = self.run(host, call, count)?;
            call_ps[host].record(took_ns * 1_000 / count);
        }
        Ok(Point { call, call_ps })
    }

    /// The time for so many calls, ns.
    fn run(&self, host: usize, call: &str, count: u64) -> Result<u64> {
        let args = vec!["call-probe".to_owned(), call.to_owned(), count.to_string()];
        let directory = self.directory.path().join(HOSTS[host]);
        let output = match host {
            LEASEHOLD => self.in_cell(args, &directory),
            _ => self.in_wasmtime(args, &directory),
        };
        let output = output.with_context(|| format!("{call} in {}", HOSTS[host]))?;
        let took = output.trim().strip_prefix("took ").map(str::parse);
        match took {
            Some(Ok(took)) => Ok(took),
            _ => bail!("{call} in {}: {output}", HOSTS[host]),
        }
    }

    fn in_cell(&self, args: Vec<String>, directory: &Path) -> Result<String> {
        let output = Capture::new(OUTPUT_BYTES);
        let ended = self
            .cell
            .start_tenant(StartRequest {
                program: self.leased.clone(),
                lease: Lease::default(),
                surroundings: Surroundings {
                    args,
                    stdin: Input::Empty,
                    stdout: Output::Capture(output.clone()),
                    dirs: vec![Directory {
                        host: directory.to_owned(),
                        guest: "/".to_owned(),
                        write: true,
                    }],
                    ..Surroundings::default()
                },
            })?
            .wait()?;
        let text = String::from_utf8_lossy(&output.bytes()).into_owned();
        ensure!(ended.exit == Exit::Code(0), "{:?}: {text}", ended.exit);
        Ok(text)
    }

    fn in_wasmtime(&self, args: Vec<String>, directory: &Path) -> Result<String> {
        let running = self.stock.start(
            &self.program,
            Invocation {
                args,
                dirs: vec![(directory.to_owned(), "/".to_owned())],
                stdin: bytes::Bytes::new(),
                limits: self.limits,
                blocking: true,
            },
        )?;
        running.wait_for_output("\n", PATIENCE)?;
        let output = running.output();
        running.wait(PATIENCE)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

/// A call on both hosts.
struct Point {
    call: &'static str,
    call_ps: [Samples; HOSTS.len()],
}

impl Point {
    /// The median in a cell to that on stock wasmtime.
    fn ratio(&self) -> Option<f64> {
        self.call_ps[LEASEHOLD].ratio_to(&self.call_ps[WASMTIME], 0.5)
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        HOSTS.iter().enumerate().map(|(host, name)| {
            let samples = &self.call_ps[host];
            let ns = |ps: Option<u64>| ps.map(|ps| ps as f64 / 1_000.0);
            row([
                ("call", self.call.into()),
                ("host", (*name).into()),
                ("call_ns_p50", ns(samples.p50()).into()),
                ("call_ns_p5", ns(samples.quantile(0.05)).into()),
                ("call_ns_p95", ns(samples.quantile(0.95)).into()),
                ("leasehold_ratio", ratio_value(self.ratio())),
            ])
        })
    }
}

fn figure(points: &[Point]) -> Figure {
    let series = |host: usize| Series {
        name: HOSTS[host].to_owned(),
        points: points
            .iter()
            .enumerate()
            .filter_map(|(at, point)| {
                let ns = |ps: f64| ps / 1_000.0;
                let spread = Spread::of_samples(&point.call_ps[host])?;
                let spread = Spread {
                    median: ns(spread.median),
                    p5: ns(spread.p5),
                    p95: ns(spread.p95),
                };
                Some((at, spread))
            })
            .collect(),
    };
    Figure {
        title: "Calls into the host".to_owned(),
        panels: vec![Panel {
            y: Axis::logarithmic("a call", Unit::Nanoseconds),
            marks: Marks::Bars {
                title: "call".to_owned(),
                groups: points.iter().map(|point| point.call.to_owned()).collect(),
                series: (0..HOSTS.len()).map(series).collect(),
            },
        }],
    }
}
