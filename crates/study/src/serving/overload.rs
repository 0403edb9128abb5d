//! `overload`: a tenant that is asked for ten times what its lease lets it answer.
//!
//! What it cannot answer must be refused at once, however long that lasts, and must leave nothing
//! behind: memory, descriptors and mappings of the process stay as they were. At the end the tenant
//! is killed in the midst of its requests.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::harness::child_command::bound;
use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, row};
use crate::harness::samples::Spread;
use crate::harness::unit::Unit;
use crate::serving::serve::load::{Answers, at_rate, closed};
use crate::serving::serve::server::{Server, found, free_address};

/// The study; see the [module](self).
pub(crate) struct Overload;

/// How many times what the tenant can answer is asked for.
const TIMES: f64 = 10.0;
/// Connections that ask; more than the tenant lets wait.
const CONNECTIONS: usize = 64;
/// The longest 99th percentile of the time in which a request is refused, ns.
const REFUSAL_NS: f64 = 5e6;
/// The most by which what the process has may grow: the resident set, and the mappings.
const GROWTH: f64 = 1.05;
/// Time in which the server closes connections that have ended.
const SETTLE: Duration = Duration::from_millis(300);

impl Study for Overload {
    fn name(&self) -> &'static str {
        "overload"
    }

    fn paper(&self) -> &'static str {
        "–"
    }

    fn about(&self) -> &'static str {
        "A tenant with a fifth of a processor that is asked for ten times what it can answer, and killed meanwhile."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let (requests, measured) = match options.quick {
            true => (10_000.0, Duration::from_millis(800)),
            false => (1e6, Duration::from_secs(10)),
        };
        let directory = tempfile::tempdir().context("a directory for a lease file")?;
        let server = start(&options.guests_dir.join("web.wasm"), directory.path())?;
        let mut progress = Progress::new(self.name(), 4);
        progress.at("what it can answer");
        let able = closed(server.target("/"), 4, measured)?.latency_ns.count();
        let able = able as f64 / measured.as_secs_f64();
        let rate = TIMES * able;
        progress.step();
        let time = Duration::from_secs_f64(requests / rate);
        let ask = |part: f64| at_rate(server.target("/"), CONNECTIONS, rate, time.mul_f64(part));
        progress.at("a quarter");
        let mut answers = ask(0.25)?;
        let before = Footprint::of(server.id())?;
        progress.step();
        progress.at("the rest");
        answers.add(&ask(0.75)?);
        let after = Footprint::of(server.id())?;
        progress.step();
        progress.at("a kill");
        let killed = Killed::under_load(server, rate)?;
        progress.step();

        let mut report = Report::new(self, options);
        report.rows.push(row([
            ("able_per_second", able.round().into()),
            ("asked_per_second", rate.round().into()),
            ("requests", answers.count().into()),
            ("answered", answers.latency_ns.count().into()),
            ("refused", answers.refused_ns.count().into()),
            ("refusal_ns_p50", answers.refused_ns.p50().into()),
            ("refusal_ns_p99", answers.refused_ns.p99().into()),
            ("resident_kib_before", before.resident_kib.into()),
            ("resident_kib_after", after.resident_kib.into()),
            ("descriptors_before", before.descriptors.into()),
            ("descriptors_after", after.descriptors.into()),
            ("mappings_before", before.mappings.into()),
            ("mappings_after", after.mappings.into()),
            ("kill_ns", killed.took_ns.into()),
            ("kill_bound_ns", killed.bound_ns.into()),
        ]));
        report.findings = findings(&answers, &before, &after, &killed);
        report.notes.push(format!(
            "reservation 4 ms of 20 ms, 4 requests at a time, 16 waiting; {CONNECTIONS} connections that stay \
             open; a refusal counts from the instant at which it was asked for; footprints after a quarter of \
             the requests and after all, with no connection open; the kill while {rate:.0} requests a second \
             are asked for",
        ));
        if !answers.others.is_empty() {
            let others = answers.others.iter();
            let others: Vec<_> = others
                .map(|(status, count)| format!("{status}: {count}"))
                .collect();
            let note = format!(
                "requests with another status than 200 and 503: {}",
                others.join(", ")
            );
            report.notes.push(note);
        }
        report.figure = figure(&answers);
        Ok(report)
    }
}

fn start(guest: &Path, directory: &Path) -> Result<Server> {
    let (guest, address) = (found(guest)?, free_address()?);
    let leases = directory.join("overload.toml");
    let text = format!(
        "[listener.main]\naddress = \"{address}\"\nper_source = 1024\n\n\
         [tenant.web]\ncomponent = {guest:?}\nreclaim = {{ budget = \"500ms\" }}\n\
         cpu = {{ budget = \"4ms\", period = \"20ms\" }}\n\
         http = {{ routes = [\"/*\"], concurrency = 4, queue = 16 }}\n"
    );
    fs::write(&leases, text)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--log", "none", "--json", "--grace", "1ms"]);
    command.arg(leases);
    Server::spawn(bound(&command)?, "overload", address, directory)
}

/// What a process has of the host.
struct Footprint {
    resident_kib: u64,
    descriptors: u64,
    mappings: u64,
}

impl Footprint {
    /// Of a process without connections.
    fn of(process: u32) -> Result<Self> {
        thread::sleep(SETTLE);
        let directory = Path::new("/proc").join(process.to_string());
        let status = fs::read_to_string(directory.join("status"))?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|text| text.split_whitespace().next()?.parse().ok());
        let maps = fs::read_to_string(directory.join("maps"))?;
        Ok(Self {
            resident_kib: resident.context("no resident set")?,
            descriptors: fs::read_dir(directory.join("fd"))?.count() as u64,
            mappings: maps.lines().count() as u64,
        })
    }
}

/// The end of a tenant in the midst of its requests, as the server reports it.
struct Killed {
    took_ns: u64,
    bound_ns: u64,
    effect: f64,
}

impl Killed {
    fn under_load(server: Server, rate: f64) -> Result<Self> {
        let address = server.target("/").address;
        let load = thread::spawn(move || {
            let target = crate::serving::serve::load::Target { address, path: "/" };
            // The connections are cut.
            let _ = at_rate(target, CONNECTIONS, rate, Duration::from_secs(1));
        });
        thread::sleep(Duration::from_millis(500));
        let report = server.finish()?;
        load.join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))?;
        let report: Value = serde_json::from_str(&report).context("the report of a server")?;
        let tenant = &report["tenants"][0];
        let number = |key: &str| {
            let value = tenant[key].as_u64();
            value.with_context(|| format!("no {key} in {tenant}"))
        };
        Ok(Self {
            took_ns: number("reclaim_wall_ns")?,
            bound_ns: number("reclaim_bound_ns")?,
            effect: number("effect_wall_ns")? as f64 / number("effect_bound_ns")?.max(1) as f64,
        })
    }
}

fn findings(
    answers: &Answers,
    before: &Footprint,
    after: &Footprint,
    killed: &Killed,
) -> Vec<Finding> {
    let refused = answers.refused_ns.count();
    let growth = |value: fn(&Footprint) -> u64| value(after) as f64 / value(before).max(1) as f64;
    vec![
        Finding::at_least(
            "part of the requests that was refused",
            Unit::Ratio,
            Some(refused as f64 / answers.count().max(1) as f64),
            0.5,
        ),
        Finding::at_most(
            "99th percentile of the time to a refusal",
            Unit::Nanoseconds,
            answers.refused_ns.p99().map(|ns| ns as f64),
            REFUSAL_NS,
        ),
        Finding::at_most(
            "requests that failed in another way",
            Unit::Count,
            Some((answers.failed - refused) as f64),
            0.0,
        ),
        Finding::at_most(
            "resident set after all requests, over that after a quarter",
            Unit::Ratio,
            Some(growth(|footprint| footprint.resident_kib)),
            GROWTH,
        ),
        Finding::at_most(
            "mappings after all requests, over those after a quarter",
            Unit::Ratio,
            Some(growth(|footprint| footprint.mappings)),
            GROWTH,
        ),
        Finding::at_most(
            "descriptors more than after a quarter",
            Unit::Count,
            Some(after.descriptors.saturating_sub(before.descriptors) as f64),
            0.0,
        ),
        Finding::at_most(
            "time of the kill until nothing ran, over its bound",
            Unit::Ratio,
            Some(killed.effect),
            1.0,
        ),
        Finding::at_most(
            "time of the kill until everything was returned, over its bound",
            Unit::Ratio,
            Some(killed.took_ns as f64 / killed.bound_ns.max(1) as f64),
            1.0,
        ),
    ]
}

fn figure(answers: &Answers) -> Figure {
    let points = Spread::of_samples(&answers.refused_ns).map(|spread| (0, spread));
    Figure {
        title: "Overload".to_owned(),
        panels: vec![Panel {
            y: Axis::linear("time to a refusal", Unit::Nanoseconds),
            marks: Marks::Bars {
                title: "server".to_owned(),
                groups: vec![String::new()],
                series: vec![Series {
                    name: "leasehold".to_owned(),
                    points: points.into_iter().collect(),
                }],
            },
        }],
    }
}
