//! `lockscope report`, `compare` and `score`: what traces say.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use leasehold_lockscope::{Bar, Comparison, Report, Score, StackedBars, Trace};
use serde::Serialize;

use crate::command::html::page;
use crate::command::render::{comparison_table, report_text, score_table};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope report create.trace
  lockscope report host.trace runc.trace --svg subsystems.svg
  lockscope report create.trace --html create.html
  lockscope report create.trace --json | jq .shared")]
pub(crate) struct ReportArguments {
    /// Traces.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Print JSON, one line for each trace.
    #[arg(long)]
    json: bool,

    /// Draw the shared locks by subsystem, one bar for each trace.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write a page that needs no other file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Traces {
    /// Traces.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `lockscope report`.
pub(crate) fn report(arguments: &ReportArguments) -> Result<()> {
    let traces = read(&arguments.traces)?;
    let reports: Vec<_> = traces.iter().map(Report::of).collect();
    if let Some(file) = &arguments.svg {
        let svg = by_subsystem(&reports).to_svg();
        std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &arguments.html {
        let scores = traces.iter().map(Score::of);
        let pairs: Vec<_> = reports.iter().cloned().zip(scores).collect();
        let page = page(&pairs, &by_subsystem(&reports));
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
    }
    for report in &reports {
        match arguments.json {
            true => print_json(report)?,
            false => print(&report_text(report))?,
        }
    }
    Ok(())
}

/// `lockscope compare`.
pub(crate) fn compare(arguments: &Traces) -> Result<()> {
    let comparison = Comparison::of(&read(&arguments.traces)?);
    match arguments.json {
        true => print_json(&comparison),
        false => print(&comparison_table(&comparison)),
    }
}

/// `lockscope score`.
pub(crate) fn score(arguments: &Traces) -> Result<()> {
    let mut scores: Vec<_> = read(&arguments.traces)?.iter().map(Score::of).collect();
    scores.sort_by(|one, two| two.score.total_cmp(&one.score));
    match arguments.json {
        true => scores.iter().try_for_each(print_json),
        false => print(&score_table(&scores)),
    }
}

/// Figures 2 and 3 of the paper: bars of one workload stand together.
fn by_subsystem(reports: &[Report]) -> StackedBars {
    let bar = |report: &Report| {
        let layers = report.subsystems.iter();
        Bar {
            name: report.platform.clone(),
            group: report.name.clone(),
            layers: layers
                .map(|(name, total)| (name.clone(), total.per_second))
                .collect(),
        }
    };
    StackedBars {
        title: "Shared locks by kernel subsystem".into(),
        axis: "acquisitions per second".into(),
        bars: reports.iter().map(bar).collect(),
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<Trace>> {
    let read = |file: &PathBuf| Ok(Trace::read(Path::new(file))?);
    files.iter().map(read).collect()
}

fn print_json(value: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string(value)?))
}

/// A reader that has had enough, such as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
