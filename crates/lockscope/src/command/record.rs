//! `lockscope record` and `lockscope attach`: making a trace.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_lockscope::tracer::{
    Cgroup, Hierarchy, Launched, ModeChoice, Offer, Options, Recorder, Target, TracerError,
};
use leasehold_lockscope::{Class, Mode, Trace, Workload};

use crate::command::duration::parse_duration;

/// How often to look whether a workload has ended, or somebody wants to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Set by Ctrl-C and SIGTERM: what was recorded until then is kept.
static STOP: AtomicBool = AtomicBool::new(false);

/// What both ways to record have in common.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// What the workloads are called in tables; the first command if it is not given.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// What the workloads run on, for `compare`: a word of your choice.
    #[arg(long, value_name = "NAME", default_value = "host")]
    pub(crate) platform: String,

    /// Which locks: mutex, rwsem, spin, rw, rtmutex, percpu-rwsem, or all.
    #[arg(
        long,
        value_name = "CLASS",
        default_value = "all",
        value_delimiter = ','
    )]
    pub(crate) class: Vec<String>,

    /// auto, full (every acquisition) or contended (those that had to wait).
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(crate) mode: String,

    /// Size of the table of lock, call site and workload. What does not fit is lost, and counted.
    #[arg(long, value_name = "N", default_value_t = Options::ROWS,
          value_parser = clap::value_parser!(u32).range(16..=4_194_304))]
    pub(crate) rows: u32,

    /// Where the trace goes.
    #[arg(long, short, value_name = "FILE", default_value = "lockscope.trace")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope record --a 'python3 -m compileall -q a' --b 'python3 -m compileall -q b'
  lockscope record --a ./create.sh --b ./create.sh --for 10s --class spin -o create.trace")]
pub(crate) struct Record {
    /// Command of the first workload, run by `sh`.
    #[arg(long, value_name = "CMD")]
    pub(crate) a: String,

    /// Command of the second one.
    #[arg(long, value_name = "CMD")]
    pub(crate) b: String,

    /// For how long; sooner if both end. Then both are killed.
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) time: Duration,

    /// Show what the workloads print.
    #[arg(long)]
    pub(crate) show_output: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope attach --cgroup system.slice/db.service --cgroup system.slice/web.service --for 1m
  lockscope attach --pid 1200 --pid 1300          until Ctrl-C")]
pub(crate) struct Attach {
    /// A control group, with those below it: one workload. Absolute, or below the mount of cgroup2.
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<PathBuf>,

    /// A process, with those that it starts from now on: one workload.
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,

    /// For how long; until Ctrl-C if it is not given.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,

    #[command(flatten)]
    common: Common,
}

/// `lockscope record`.
pub(crate) fn record(arguments: &Record) -> Result<Trace> {
    stop_on_signals()?;
    let commands = [("a", &arguments.a), ("b", &arguments.b)];
    let trace = run_and_record(
        &commands,
        arguments.time,
        arguments.show_output,
        &arguments.common,
    )?;
    save(&trace, &arguments.common.out)?;
    Ok(trace)
}

/// `lockscope attach`.
pub(crate) fn attach(arguments: &Attach) -> Result<Trace> {
    stop_on_signals()?;
    let mut workloads = Vec::new();
    if !arguments.cgroup.is_empty() {
        let hierarchy = Hierarchy::mounted()?;
        for path in &arguments.cgroup {
            let cgroup = hierarchy.open(path)?;
            let what = format!("cgroup {}", cgroup.path().display());
            workloads.push((what, Target::Cgroup(cgroup)));
        }
    }
    for pid in &arguments.pid {
        if !PathBuf::from(format!("/proc/{pid}")).exists() {
            return Err(TracerError::NoProcess(*pid).into());
        }
        workloads.push((format!("process {pid}"), Target::Process(*pid)));
    }
    if workloads.is_empty() {
        bail!("nothing to attach to: give --cgroup or --pid, once for each workload");
    }
    let targets: Vec<_> = workloads
        .iter()
        .map(|(_, target)| vec![target.clone()])
        .collect();
    let mut recorder = load(&arguments.common, &targets)?;
    recorder.attach()?;
    let begun = Instant::now();
    while !STOP.load(Ordering::Relaxed) && arguments.time.is_none_or(|time| begun.elapsed() < time)
    {
        std::thread::sleep(LOOK);
    }
    let ran_ns = begun.elapsed().as_nanos() as u64;
    let described = workloads
        .into_iter()
        .zip('a'..)
        .map(|((what, _), name)| Workload {
            name: name.to_string(),
            what,
            ran_ns,
        });
    let trace = finish(recorder, described.collect(), &arguments.common)?;
    save(&trace, &arguments.common.out)?;
    Ok(trace)
}

/// Runs the named commands beside each other in control groups of their own and records them.
pub(crate) fn run_and_record(
    commands: &[(&str, &String)],
    time: Duration,
    show_output: bool,
    common: &Common,
) -> Result<Trace> {
    let groups = Groups::create(commands)?;
    let targets: Vec<_> = groups
        .each
        .iter()
        .map(|group| vec![Target::Cgroup(group.clone())])
        .collect();
    let mut recorder = load(common, &targets)?;
    let mut launched = Vec::new();
    for ((name, command), group) in commands.iter().zip(&groups.each) {
        let shell = ["sh", "-c", command.as_str()].map(OsString::from);
        launched.push(Launched::stopped(name, &shell, group, show_output)?);
    }
    recorder.attach()?;
    for workload in &mut launched {
        workload
            .go()
            .context("a workload is gone before it began")?;
    }
    wait(&mut launched, time)?;
    let described = commands
        .iter()
        .zip(&launched)
        .map(|((name, command), launched)| Workload {
            name: (*name).to_owned(),
            what: (*command).clone(),
            ran_ns: launched.ran_ns(),
        });
    let trace = finish(recorder, described.collect(), common)?;
    for ((name, command), launched) in commands.iter().zip(&launched) {
        if let Some(how) = launched.failure() {
            eprintln!("lockscope: workload {name} failed ({how}): {command}");
        }
    }
    groups.end()?;
    Ok(trace)
}

/// Until all have ended, the time is over, or somebody stops it.
fn wait(launched: &mut [Launched], time: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time && !STOP.load(Ordering::Relaxed) {
        let mut running = false;
        for workload in launched.iter_mut() {
            running |= workload.ended()?.is_none();
        }
        if !running {
            break;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Chooses the mode, says which and why, and loads the tracer.
fn load(common: &Common, targets: &[Vec<Target>]) -> Result<Recorder> {
    let offer = Offer::of_the_kernel()?;
    let (mode, why) = offer.choose(parse_mode(&common.mode)?)?;
    let name = match mode {
        Mode::Full => "full",
        Mode::Contended => "contended",
    };
    eprintln!("lockscope: {name} mode: {why}");
    let classes = parse_classes(&common.class)?;
    if mode == Mode::Full && classes == [Class::PercpuRwsem] {
        return Err(TracerError::NoClass {
            classes,
            mode: name,
        }
        .into());
    }
    let options = Options {
        mode,
        classes,
        rows: common.rows,
    };
    Ok(Recorder::load(&offer, &options, targets)?)
}

fn finish(recorder: Recorder, workloads: Vec<Workload>, common: &Common) -> Result<Trace> {
    let first = workloads.first().map(|workload| workload.what.clone());
    let name = common.name.clone().or(first).unwrap_or_default();
    Ok(recorder.finish(workloads, name, common.platform.clone())?)
}

fn save(trace: &Trace, file: &std::path::Path) -> Result<()> {
    trace.write(file)?;
    eprintln!("lockscope: wrote {}", file.display());
    Ok(())
}

pub(crate) fn stop_on_signals() -> Result<()> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed)).context("cannot handle signals")
}

/// Whether somebody wants to stop.
pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

fn parse_mode(text: &str) -> Result<ModeChoice> {
    Ok(match text {
        "auto" => ModeChoice::Auto,
        "full" => ModeChoice::Only(Mode::Full),
        "contended" => ModeChoice::Only(Mode::Contended),
        other => bail!("--mode: found {other:?}; allowed: auto, full, contended"),
    })
}

/// No class stands for all.
fn parse_classes(names: &[String]) -> Result<Vec<Class>> {
    let mut classes = Vec::new();
    for name in names {
        if name == "all" {
            return Ok(Vec::new());
        }
        let class = Class::ALL
            .into_iter()
            .find(|class| class.to_string() == *name);
        let allowed = Class::ALL.map(|class| class.to_string()).join(", ");
        classes.push(
            class.with_context(|| format!("--class: found {name:?}; allowed: all, {allowed}"))?,
        );
    }
    Ok(classes)
}

/// Control groups of one run: one for each workload, in one of their own.
struct Groups {
    parent: Cgroup,
    each: Vec<Cgroup>,
    ended: bool,
}

impl Groups {
    fn create(commands: &[(&str, &String)]) -> Result<Self> {
        let hierarchy = Hierarchy::mounted()?;
        let parent = format!("lockscope-{}", std::process::id());
        let mut groups = Self {
            parent: hierarchy.create(&parent)?,
            each: Vec::new(),
            ended: false,
        };
        for (name, _) in commands {
            groups
                .each
                .push(hierarchy.create(&format!("{parent}/{name}"))?);
        }
        Ok(groups)
    }

    fn end(mut self) -> Result<()> {
        self.ended = true;
        self.remove()
    }

    fn remove(&self) -> Result<()> {
        for group in self.each.iter().chain([&self.parent]) {
            group.end()?;
        }
        Ok(())
    }
}

/// Whatever happened, no workload is left running.
impl Drop for Groups {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.remove()
        {
            eprintln!("lockscope: {error:#}");
        }
    }
}
