//! `lockscope interfere`: what a worker's performance is while more and more thrashers run beside
//! it, and how many locks they share (LockScope §5.3, figures 4 to 6).

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_lockscope::platform::Platform;
use leasehold_lockscope::{Report, Score};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::command::duration::parse_duration;
use crate::command::record::{self, Common};
use crate::command::render::{new_table, none, rate};
use crate::command::stop::{LOOK, stop_on_signals, stopped};
use crate::command::workloads::{Setting, Workloads};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope interfere --worker ./create.sh --thrasher ./create.sh --add-every 10s --max 3
  lockscope interfere --worker 'ls -R /usr' --thrasher 'ls -R /usr' --json
  lockscope interfere --platform runc --when-ready --pin --writable /srv/test \\
    --worker 'workload --tell file-create /srv/test/{}' --thrasher 'workload file-create /srv/test/{}'

The worker is run over and over, and each run is timed; thrashers are run over and over beside it.
The worker has the first processor to itself; the thrashers take turns on the others. After the last
measurement worker and thrasher are traced together, so that tracing disturbs none.
With --when-ready both run on, on any platform, and the worker prints the line `round` after each
piece of work: these are timed, and what a platform takes to start is not. --pin then gives each its
processor. In a CMD, {} stands for the workload's name: worker, thrasher1, thrasher2, ...")]
pub(crate) struct Interfere {
    /// Command whose run time is measured, as `sh` reads it. It should take a fraction of a second.
    #[arg(long, value_name = "CMD")]
    worker: String,

    /// Command that runs beside it.
    #[arg(long, value_name = "CMD")]
    thrasher: String,

    /// How long each number of thrashers is measured, none first.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    add_every: Duration,

    /// The most thrashers.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=64))]
    max: u32,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    setting: Setting,

    #[command(flatten)]
    common: Common,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Interference {
    name: String,
    worker: String,
    thrasher: String,
    platform: String,
    steps: Vec<Step>,
    /// Acquisitions per second of the locks that worker and one thrasher share.
    shared_per_second: f64,
    shared_locks: u64,
    score: Option<f64>,
    contended_only: bool,
}

/// The worker beside a number of thrashers.
#[derive(Debug, Serialize)]
struct Step {
    thrashers: u32,
    runs: usize,
    median_ms: f64,
    p95_ms: f64,
    /// Median time over that without thrashers.
    slowdown: f64,
}

/// `lockscope interfere`.
pub(crate) fn interfere(arguments: &Interfere) -> Result<()> {
    record::check(&arguments.common)?;
    stop_on_signals()?;
    let steps = match arguments.setting.when_ready {
        true => steps_of_rounds(arguments)?,
        false => steps_of_runs(arguments)?,
    };
    let result = with_sharing(arguments, steps)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&result)?);
    } else {
        print(&result);
    }
    Ok(())
}

/// Times whole runs of the worker.
fn steps_of_runs(arguments: &Interfere) -> Result<Vec<Step>> {
    let platform = arguments.setting.platform;
    if platform != Platform::Host {
        bail!(
            "--platform {}: a run would be mostly the platform's start; \
             give --when-ready, and a worker that prints `round` after each piece of work",
            platform.name()
        );
    }
    let processors = processors()?;
    let mut thrashers = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    for count in 0..=arguments.max {
        if count > 0 {
            let at = (count as usize - 1) % (processors.len() - 1) + 1;
            let command = named(&arguments.thrasher, &format!("thrasher{count}"));
            thrashers.push(Thrasher::start(&command, processors[at])?);
        }
        say(count, arguments);
        let worker = named(&arguments.worker, "worker");
        let times = measure(&worker, processors[0], arguments.add_every)?;
        steps.push(Step::of(count, times, steps.first()));
        if let Some(ended) = thrashers.iter_mut().find_map(Thrasher::ended) {
            bail!("a thrasher ended: {ended}: {}", arguments.thrasher);
        }
        if stopped() {
            break;
        }
    }
    Ok(steps)
}

/// Times the rounds that the worker tells of.
fn steps_of_rounds(arguments: &Interfere) -> Result<Vec<Step>> {
    let mut workloads = Workloads::of(&arguments.setting)?;
    let mut steps: Vec<Step> = Vec::new();
    for count in 0..=arguments.max {
        let (name, command) = match count {
            0 => ("worker".to_owned(), &arguments.worker),
            count => (format!("thrasher{count}"), &arguments.thrasher),
        };
        workloads.add(&name, &named(command, &name))?;
        workloads.launch(false)?;
        let newest = workloads.len() - 1;
        workloads.go(newest)?;
        workloads.until_ready(newest)?;
        workloads.begin(newest)?;
        say(count, arguments);
        let times = measure_rounds(&mut workloads, arguments.add_every)?;
        steps.push(Step::of(count, times, steps.first()));
        if stopped() {
            break;
        }
    }
    workloads.end()?;
    Ok(steps)
}

/// For `time`, and until there are some: the milliseconds between rounds of the first workload.
fn measure_rounds(workloads: &mut Workloads, time: Duration) -> Result<Vec<f64>> {
    /// As many rounds as have a median.
    const FEWEST: usize = 3;
    drop(workloads.launched(0)?.take_rounds());
    let begun = Instant::now();
    let mut rounds = Vec::new();
    while (begun.elapsed() < time || rounds.len() <= FEWEST) && !stopped() {
        std::thread::sleep(LOOK);
        rounds.extend(workloads.launched(0)?.take_rounds());
        for index in 0..workloads.len() {
            if let Some(status) = workloads.launched(index)?.ended()? {
                bail!("a workload ended while it was measured ({status})");
            }
        }
    }
    let between = |pair: &[Instant]| (pair[1] - pair[0]).as_secs_f64() * 1e3;
    Ok(rounds.windows(2).map(between).collect())
}

fn say(thrashers: u32, arguments: &Interfere) {
    eprintln!(
        "lockscope: {thrashers} thrashers, {:?}",
        arguments.add_every
    );
}

/// The command of the workload of this name.
fn named(command: &str, name: &str) -> String {
    command.replace("{}", name)
}

impl Step {
    /// From the times in milliseconds; `first` is the step without thrashers, unless this is it.
    fn of(thrashers: u32, mut times: Vec<f64>, first: Option<&Step>) -> Self {
        times.sort_by(f64::total_cmp);
        let median = quantile(&times, 0.5);
        Self {
            thrashers,
            runs: times.len(),
            median_ms: median,
            p95_ms: quantile(&times, 0.95),
            slowdown: median / first.map_or(median, |first| first.median_ms),
        }
    }
}

/// Adds what worker and thrasher share.
fn with_sharing(arguments: &Interfere, steps: Vec<Step>) -> Result<Interference> {
    let names = ["worker", "thrasher1"];
    let run = |command: &String, name| {
        let command = named(command, name);
        match arguments.setting.when_ready {
            true => command,
            false => forever(&command),
        }
    };
    let [worker, thrasher] = [
        run(&arguments.worker, names[0]),
        run(&arguments.thrasher, names[1]),
    ];
    let commands = [(names[0], worker.as_str()), (names[1], thrasher.as_str())];
    let (setting, common) = (&arguments.setting, &arguments.common);
    let trace = record::run_and_record(&commands, arguments.add_every, false, setting, common)?;
    trace.write(&arguments.common.out)?;
    let (report, score) = (Report::of(&trace), Score::of(&trace));
    Ok(Interference {
        name: trace.name.clone(),
        worker: arguments.worker.clone(),
        thrasher: arguments.thrasher.clone(),
        platform: trace.platform.clone(),
        steps,
        shared_per_second: report.shared.per_second,
        shared_locks: report.shared.locks,
        score: score.measured.then_some(score.score),
        contended_only: score.upper_bound,
    })
}

fn print(result: &Interference) {
    let mut table = new_table(&["thrashers", "runs", "median ms", "p95 ms", "slowdown"]);
    for step in &result.steps {
        table.add_row([
            step.thrashers.to_string(),
            step.runs.to_string(),
            format!("{:.2}", step.median_ms),
            format!("{:.2}", step.p95_ms),
            format!("{:.2}", step.slowdown),
        ]);
    }
    println!("{table}");
    println!(
        "worker and one thrasher share {} locks, taken {} times per second{}; {} nines of isolation",
        result.shared_locks,
        rate(result.shared_per_second),
        if result.contended_only {
            " after a wait"
        } else {
            ""
        },
        result
            .score
            .map_or_else(none, |score| format!("{score:.2}"))
    );
}

/// Runs the worker again and again for `time`: the milliseconds that each run took.
fn measure(command: &str, processor: usize, time: Duration) -> Result<Vec<f64>> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || (begun.elapsed() < time && !stopped()) {
        let run = Instant::now();
        let status = spawn(command, processor)?.wait()?;
        if !status.success() {
            bail!("the worker failed ({status}): {command}");
        }
        times.push(run.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// The first processor is the worker's.
fn processors() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("cannot tell the processors")?;
    let processors: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    match processors.len() {
        0 | 1 => bail!("worker and thrashers need two processors; allowed here: {processors:?}"),
        _ => Ok(processors),
    }
}

/// A command that runs again and again until it is dropped.
struct Thrasher {
    child: Child,
}

impl Thrasher {
    fn start(command: &str, processor: usize) -> Result<Self> {
        let child = spawn(&forever(command), processor)?;
        Ok(Self { child })
    }

    fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(status.to_string())
    }
}

impl Drop for Thrasher {
    fn drop(&mut self) {
        // It has a process group of its own: what it started goes with it.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        drop(self.child.wait());
    }
}

/// `sh` runs `command` until it fails.
fn forever(command: &str) -> String {
    format!("while ( {command} ); do :; done")
}

/// Starts `command` in a process group of its own, on `processor`.
fn spawn(command: &str, processor: usize) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(processor);
    // What is started inherits the processor, from its first instruction on.
    sched_setaffinity(None, &only)?;
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {command:?}"));
    sched_setaffinity(None, &before)?;
    child
}

/// Of sorted values; zero of none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    let at = (last * share).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_compared_with_the_one_without_thrashers() {
        let first = Step::of(0, vec![2.0, 1.0, 3.0], None);
        assert_eq!((first.median_ms, first.slowdown), (2.0, 1.0));
        let second = Step::of(1, vec![5.0, 4.0, 1.0], Some(&first));
        assert_eq!(
            (second.median_ms, second.slowdown, second.runs),
            (4.0, 2.0, 3)
        );
    }

    #[test]
    fn every_place_of_the_name_in_a_command_is_filled() {
        assert_eq!(
            named("rm {}; touch {}", "worker"),
            "rm worker; touch worker"
        );
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let sorted = [1.0, 2.0, 3.0, 10.0];
        assert_eq!(quantile(&sorted, 0.5), 3.0);
        assert_eq!(quantile(&sorted, 0.95), 10.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
