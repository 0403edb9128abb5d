//! `leasehold calibrate`: the costs of reclamation and preemption on this host.

use crate::exit::Failure;
use crate::output::{say, tell};
use crate::report::nanos;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_attack::steps;
use leasehold_cell::Held;
use leasehold_cell::calibrate::{Drift, Effort, calibrate, check};
use leasehold_cell::profile::{FACTOR, Latency, PreemptionCosts, Profile, ProfileError, StepTime};
use leasehold_cell::steps::{CEILING_NS, RowId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold calibrate
  leasehold calibrate --check
  leasehold calibrate --json --no-store > profile.json

It takes some twenty seconds. Run it on an idle machine: what disturbs it becomes part of prices.

Exit codes: 0; 1 with --check, a cost is higher than the stored profile charges; 78 with --check,
there is no profile of this host, or it is wrong.")]
pub(crate) struct Arguments {
    /// Measure, compare with the stored profile, and store nothing.
    #[arg(long)]
    check: bool,

    /// Print the profile as JSON instead of a table.
    #[arg(long)]
    json: bool,

    /// Measure, and store nothing.
    #[arg(long, conflicts_with = "check")]
    no_store: bool,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let path = path(profile);
    if arguments.check {
        let path = path.ok_or_else(nowhere)?;
        let Some(stored) = load(&path)? else {
            let message = format!(
                "no profile at {}; run `leasehold calibrate`",
                path.display()
            );
            return Err(Failure::Configuration(message));
        };
        let drifts = check(&stored, Effort::Full, &mut progress)?;
        tell!("{}", drift_table(&drifts));
        let longer = longer_steps(&stored, &steps::measure(Effort::Full, &mut progress)?);
        for line in &longer {
            tell!("{line}");
        }
        let holds = drifts.iter().all(|drift| drift.holds) && longer.is_empty();
        tell!(
            "{}",
            if holds {
                "the profile holds"
            } else {
                "the profile no longer holds: run `leasehold calibrate`"
            }
        );
        return Ok(if holds {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        });
    }
    let path = match arguments.no_store {
        true => None,
        false => Some(path.ok_or_else(nowhere)?),
    };
    let mut measured = calibrate(Effort::Full, &mut progress)?;
    measured.steps = steps::measure(Effort::Full, &mut progress)?;
    if let Some(path) = &path {
        measured.save(path).map_err(configuration)?;
    }
    if arguments.json {
        let json = serde_json::to_string_pretty(&measured).map_err(anyhow::Error::from)?;
        tell!("{json}");
    } else {
        tell!("{}", cost_table(&measured));
        tell!(
            "A lease is charged {FACTOR} × the median. A tenant's end is charged {} more, {FACTOR} × what \
             this host adds\nto a piece of work at most, but for one in 10,000.",
            nanos(measured.margin_ns())
        );
        if let Some(costs) = &measured.preemption {
            tell!("{}", preemption_text(costs));
        }
        if let Some(kill) = &measured.kill {
            tell!(
                "The cell obeys a kill within {}, {FACTOR} × the 99th percentile of {}.",
                nanos(measured.kill_ns()),
                kill.samples
            );
        }
        tell!("{}", steps_text(&measured));
        if let Some(path) = path {
            tell!("Stored in {}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The stored profile, and where it is; without one, the first run calibrates.
///
/// A profile of another host or version is measured again, so that a first run on a renewed machine
/// works. A profile that another user could have written is an error, which a person must check.
pub(crate) fn profile_or_calibrate(
    profile: Option<&Path>,
) -> Result<(Profile, Option<PathBuf>), Failure> {
    let path = path(profile);
    match path.as_deref().map(Profile::load) {
        Some(Ok(Some(profile))) => return Ok((profile, path)),
        Some(Ok(None)) => {}
        Some(Err(error @ (ProfileError::Damaged { .. } | ProfileError::Foreign { .. }))) => {
            say!("leasehold: {error}");
        }
        Some(Err(error)) => return Err(configuration(error)),
        None => {
            say!("leasehold: no place for a profile: neither XDG_STATE_HOME nor HOME is set")
        }
    }
    say!("leasehold: measuring what reclaiming and preempting cost on this host (once)");
    let measured = measured_by_child()?;
    if let Some(Err(error)) = path.as_deref().map(|path| measured.save(path)) {
        say!("leasehold: the profile is not kept: {error}");
    }
    Ok((measured, path))
}

/// Calibrates in a process of its own: its threads are not those of a process that is going to be
/// confined.
fn measured_by_child() -> Result<Profile, Failure> {
    let failed = |error| Failure::Host(anyhow::Error::new(error).context("calibrating"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["calibrate", "--json", "--no-store"]);
    // Its lines have the form of this process's.
    let output = output_of(&mut command, |line| say!("{line}")).map_err(failed)?;
    if !output.status.success() {
        let error = anyhow::anyhow!("calibrating: {}", output.status);
        return Err(Failure::Host(error));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::Host(anyhow::Error::new(error).context("calibrating")))
}

/// Runs a command, and passes on what it writes to standard error, a line at a time.
fn output_of(command: &mut Command, each_line: impl Fn(&str) + Send) -> io::Result<Output> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let errors = child.stderr.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let lines = errors.map(|errors| BufReader::new(errors).split(b'\n'));
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                each_line(&String::from_utf8_lossy(&line));
            }
        });
        child.wait_with_output()
    })
}

/// The stored profile, if there is one of this host; says why if there is one that is not.
pub(crate) fn profile_if_usable(profile: Option<&Path>) -> Option<Profile> {
    load(&path(profile)?).unwrap_or_else(|reason| {
        say!("leasehold: {reason}");
        None
    })
}

/// Where the profile is kept, if there is a place for it.
pub(crate) fn path(profile: Option<&Path>) -> Option<PathBuf> {
    profile.map(Path::to_owned).or_else(Profile::default_path)
}

fn nowhere() -> Failure {
    Failure::Configuration(
        "no place for a profile: found neither XDG_STATE_HOME nor HOME; allowed: one of them, \
         --profile FILE, or `calibrate --no-store`"
            .into(),
    )
}

fn load(path: &Path) -> Result<Option<Profile>, Failure> {
    Profile::load(path).map_err(configuration)
}

fn configuration(error: ProfileError) -> Failure {
    Failure::Configuration(error.to_string())
}

fn progress(what: &str) {
    say!("  measuring {what}");
}

fn picos(ps: u64) -> String {
    match ps {
        0..10_000 => format!("{:.2} ns", ps as f64 / 1e3),
        10_000..10_000_000 => format!("{:.0} ns", ps as f64 / 1e3),
        _ => format!("{:.1} µs", ps as f64 / 1e6),
    }
}

fn table(header: &'static [&'static str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn cost_table(profile: &Profile) -> Table {
    let costs = &profile.median_ps;
    let mut table = table(&["to take back", "median", "charged"]);
    let mut row = |name: &str, median: u64, charged: u64| {
        table.add_row([name.to_owned(), picos(median), picos(charged)]);
    };
    row(
        "tenant",
        costs.tenant,
        FACTOR * costs.tenant + profile.margin_ns() * 1000,
    );
    row("descendant group", costs.group, FACTOR * costs.group);
    row("scrub entry", costs.scrub, FACTOR * costs.scrub);
    row("arena chunk", costs.chunk, FACTOR * costs.chunk);
    row("arena page", costs.arena_page, FACTOR * costs.arena_page);
    for held in Held::ALL {
        let median = costs.held.get(held.name()).copied().unwrap_or(0);
        row(
            &held.name().replace('_', " "),
            median,
            profile.charge_ps(held),
        );
    }
    table
}

fn preemption_text(costs: &PreemptionCosts) -> String {
    let part = |part: Latency| format!("{} ({})", nanos(part.p99_ns), nanos(part.p50_ns));
    format!(
        "A preemption ({mechanism}{realtime}) takes {all} at the 99th percentile (the median is \
         {median}):\n  timer to scheduler {interrupt}, decision {decision}, switch {switch}.",
        mechanism = costs.mechanism,
        realtime = match costs.realtime {
            true => ", with real-time priority",
            false => ", WITHOUT real-time priority: other programs' turns are in it",
        },
        all = nanos(costs.per_preemption_ns()),
        median = nanos(costs.median_ns()),
        interrupt = part(costs.interrupt),
        decision = part(costs.decision),
        switch = part(costs.switch),
    )
}

/// The measurements of host steps: how many rows, the longest of them, and those that are too long.
fn steps_text(profile: &Profile) -> String {
    /// How many rows are shown.
    const SHOWN: usize = 5;
    let mut rows: Vec<(&String, &StepTime)> = profile.steps.iter().collect();
    rows.sort_by_key(|(_, time)| std::cmp::Reverse(time.p99_ns));
    let is_measured = |row: &RowId| profile.step_time(*row).is_some();
    let (measured, all) = (
        RowId::all().filter(is_measured).count(),
        RowId::all().count(),
    );
    let longest = rows.iter().take(SHOWN);
    let longest = longest.map(|(title, time)| format!("{title} {}", nanos(time.p99_ns)));
    let longest: Vec<_> = longest.collect();
    let ceiling = nanos(CEILING_NS);
    let mut text = format!(
        "Host steps: {measured} of {all} rows have a time, {FACTOR} × what 99 of 100 steps took at most at \
         the caps; the others\nmay take {ceiling}. The longest: {}.",
        longest.join(", "),
    );
    for (title, time) in rows.iter().filter(|(_, time)| time.exceeds()) {
        let p99 = nanos(time.p99_ns);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\nThe step {title} takes {p99}: MORE than {ceiling}. Tenants that can reach it are admitted with so long a step."
        );
    }
    text
}

/// The rows whose steps take longer now than the stored profile allows, a line for each.
fn longer_steps(stored: &Profile, now: &BTreeMap<String, StepTime>) -> Vec<String> {
    let both = now
        .iter()
        .filter_map(|(title, now)| Some((title, stored.steps.get(title)?, now)));
    let longer = both.filter(|(_, stored, now)| {
        let allowed = stored.bound_ns().max(FACTOR * stored.p99_ns);
        now.p99_ns > allowed
    });
    longer
        .map(|(title, stored, now)| {
            let (stored, now) = (nanos(stored.p99_ns), nanos(now.p99_ns));
            format!("the host step {title} takes {now}, stored were {stored}")
        })
        .collect()
}

fn drift_table(drifts: &[Drift]) -> Table {
    let mut table = table(&["to take back", "stored", "now", "ratio", "holds"]);
    for drift in drifts {
        table.add_row([
            drift.name.clone(),
            picos(drift.stored_ps),
            picos(drift.now_ps),
            format!("{:.2}", drift.ratio()),
            if drift.holds { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::output_of;
    use std::process::Command;
    use std::sync::Mutex;

    #[test]
    fn no_line_of_a_process_that_calibrates_goes_past_the_form_of_the_log() {
        let lines = Mutex::new(Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo result; printf two >&2"]);
        let each_line = |line: &str| lines.lock().expect("lines").push(line.to_owned());
        let output = output_of(&mut command, each_line).expect("it ran");
        assert_eq!(output.stdout, b"result\n");
        assert_eq!(lines.into_inner().expect("lines"), ["one", "two"]);
    }
}
