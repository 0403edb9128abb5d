//! `lockscope agreement`: how well scores predict what `lockscope verify` measured.

use std::path::PathBuf;

use anyhow::{Context, Result};
use leasehold_lockscope::{Agreement, Measured, Pair, Scatter, ScatterPoint, Trace};
use serde::Serialize;

use crate::command::read::print;
use crate::command::render::{agreement_line, pair_table};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope agreement pairs/*.json --held-out image --held-out archive --svg scatter.svg

The trace of a RESULT lies beside it, and its name ends in `.trace` instead of `.json`.")]
pub(crate) struct AgreementArguments {
    /// Results of `lockscope verify --result`.
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,

    /// A workload by which nothing was tuned: pairs whose names contain it are shown separately, too;
    /// may be repeated.
    #[arg(long, value_name = "NAME")]
    held_out: Vec<String>,

    /// The directory of traces of the same pairs that were recorded elsewhere [default: the traces
    /// beside the results].
    #[arg(long, value_name = "DIRECTORY")]
    traces: Option<PathBuf>,

    /// The cost of a write to a cache line that another processor wrote last, in nanoseconds of the
    /// traces' clock [default: as the traces say].
    #[arg(long, value_name = "N")]
    move_ns: Option<u64>,

    /// The loss that may be measured of a workload that loses nothing, as a part of its time.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    noise: f64,

    /// Draw predicted against measured losses.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Everything {
    pairs: Vec<Pair>,
    all: Agreement,
    held_out: Option<Agreement>,
}

/// `lockscope agreement`.
pub(crate) fn agreement(arguments: &AgreementArguments) -> Result<()> {
    let mut pairs = Vec::new();
    for result in &arguments.results {
        let text = std::fs::read_to_string(result)
            .with_context(|| format!("cannot read {}", result.display()))?;
        let measured: Measured = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a result of verify", result.display()))?;
        let beside = result.with_extension("trace");
        let trace = match (&arguments.traces, beside.file_name()) {
            (Some(directory), Some(name)) => directory.join(name),
            _ => beside,
        };
        let mut trace = Trace::read(&trace)?;
        trace.move_ns = arguments.move_ns.or(trace.move_ns);
        pairs.extend(Pair::both(&measured, &trace));
    }
    pairs.sort_by(|one, two| two.predicted.total_cmp(&one.predicted));
    let is_held_out = |pair: &&Pair| {
        let mut names = arguments.held_out.iter();
        names.any(|name| pair.name.split([' ', ':']).any(|part| part == name))
    };
    if let Some(file) = &arguments.svg {
        let points = pairs.iter().map(|pair| ScatterPoint {
            name: pair.name.clone(),
            predicted: pair.predicted,
            measured: pair.measured,
            held_out: is_held_out(&pair),
        });
        let scatter = Scatter {
            points: points.collect(),
            noise: arguments.noise,
        };
        std::fs::write(file, scatter.to_svg())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let held_out: Vec<_> = pairs.iter().filter(is_held_out).cloned().collect();
    let all = Agreement::of(&pairs, arguments.noise);
    let held_out = (!held_out.is_empty()).then(|| Agreement::of(&held_out, arguments.noise));
    if arguments.json {
        let everything = Everything {
            pairs,
            all,
            held_out,
        };
        return print(&(serde_json::to_string(&everything)? + "\n"));
    }
    print(&pair_table(&pairs))?;
    print(&agreement_line("all", &all))?;
    match &held_out {
        Some(held_out) => print(&agreement_line("held out", held_out)),
        None => Ok(()),
    }
}
