//! `lockscope record` and `lockscope attach`: making a trace.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_lockscope::tracer::{
    Hierarchy, ModeChoice, Offer, Options, Recorder, Target, TracerError,
};
use leasehold_lockscope::{Class, Mode, Trace, Workload};

use crate::command::duration::parse_duration;
use crate::command::stop::{LOOK, stop_on_signals, stopped};
use crate::command::workloads::{Setting, Workloads};

/// What both ways to record have in common.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// The name of the workloads in tables [default: the first command].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The name of what they run on, in tables [default: the platform].
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,

    /// Which locks: mutex, rwsem, spin, rw, rtmutex, percpu-rwsem, or all.
    #[arg(
        long,
        value_name = "CLASS",
        default_value = "all",
        value_delimiter = ','
    )]
    pub(crate) class: Vec<String>,

    /// Which acquisitions to record: full (every one), contended (those that had to wait) or auto (full
    /// in the lab, else contended).
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(crate) mode: String,

    /// Use the full mode outside the lab without asking: probes in lock functions have frozen machines.
    #[arg(long)]
    pub(crate) yes: bool,

    /// Size of the table of lock, call site and workload. What does not fit is lost, and counted.
    #[arg(long, value_name = "N", default_value_t = Options::ROWS,
          value_parser = clap::value_parser!(u32).range(16..=4_194_304))]
    pub(crate) rows: u32,

    /// The trace.
    #[arg(long, short, value_name = "FILE", default_value = "lockscope.trace")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope record --a 'python3 -m compileall -q a' --b 'python3 -m compileall -q b'
  lockscope record --a ./create.sh --b ./create.sh --for 10s --class spin -o create.trace
  lockscope record --platform runc --writable a --writable b --a 'make -C a' --b 'make -C b'")]
pub(crate) struct Record {
    /// Command of the first workload, as `sh` reads it.
    #[arg(long, value_name = "CMD")]
    pub(crate) a: String,

    /// Command of the second one.
    #[arg(long, value_name = "CMD")]
    pub(crate) b: String,

    /// How long to record; less if both end before. Then both are killed.
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) time: Duration,

    /// Show what the workloads print.
    #[arg(long)]
    pub(crate) show_output: bool,

    #[command(flatten)]
    pub(crate) setting: Setting,

    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope attach --cgroup system.slice/db.service --cgroup system.slice/web.service --for 1m
  lockscope attach --pid 1200 --pid 1300")]
pub(crate) struct Attach {
    #[command(flatten)]
    running: Running,

    /// How long to record [default: until Ctrl-C].
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,

    #[command(flatten)]
    common: Common,
}

/// Workloads that are running already.
#[derive(Debug, clap::Args)]
pub(crate) struct Running {
    /// A control group, with those below it: one workload. Absolute, or below the mount of cgroup2.
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<PathBuf>,

    /// A process, with those that it starts from now on: one workload.
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
}

impl Running {
    /// What each is, and what a tracer is to look at.
    pub(crate) fn targets(&self) -> Result<Vec<(String, Target)>> {
        let mut workloads = Vec::new();
        if !self.cgroup.is_empty() {
            let hierarchy = Hierarchy::mounted()?;
            for path in &self.cgroup {
                let cgroup = hierarchy.open(path)?;
                let what = format!("cgroup {}", cgroup.path().display());
                workloads.push((what, Target::Cgroup(cgroup)));
            }
        }
        for pid in &self.pid {
            if !PathBuf::from(format!("/proc/{pid}")).exists() {
                return Err(TracerError::NoProcess(*pid).into());
            }
            workloads.push((format!("process {pid}"), Target::Process(*pid)));
        }
        if workloads.is_empty() {
            bail!("nothing to attach to: give --cgroup or --pid, once for each workload");
        }
        Ok(workloads)
    }
}

/// Whether recording is allowed, and its trace can be written: asked before anything is started.
pub(crate) fn check(common: &Common) -> Result<()> {
    let choice = parse_mode(&common.mode)?;
    parse_classes(&common.class)?;
    let offer = Offer::of_the_kernel()?;
    let (mode, _) = offer.choose(choice)?;
    Trace::check_writable(&common.out)?;
    if mode == Mode::Full && !offer.is_lab() && !common.yes {
        insist()?;
    }
    Ok(())
}

/// Asks whether the full mode is to be used here.
fn insist() -> Result<()> {
    const WARNING: &str = "the full mode puts probes into this machine's lock functions, which has \
                           frozen machines";
    if !io::stdin().is_terminal() {
        bail!("{WARNING}; give --yes if it may");
    }
    eprint!("lockscope: {WARNING}. Go on? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("stopped: --mode contended is safe everywhere"),
    }
}

/// `lockscope record`.
pub(crate) fn record(arguments: &Record) -> Result<Trace> {
    check(&arguments.common)?;
    stop_on_signals()?;
    let commands = [("a", arguments.a.as_str()), ("b", arguments.b.as_str())];
    let trace = run_and_record(
        &commands,
        arguments.time,
        arguments.show_output,
        &arguments.setting,
        &arguments.common,
    )?;
    save(&trace, &arguments.common.out)?;
    Ok(trace)
}

/// `lockscope attach`.
pub(crate) fn attach(arguments: &Attach) -> Result<Trace> {
    stop_on_signals()?;
    let workloads = arguments.running.targets()?;
    check(&arguments.common)?;
    let targets: Vec<_> = workloads
        .iter()
        .map(|(_, target)| vec![target.clone()])
        .collect();
    let mut recorder = load(&arguments.common, &targets)?;
    recorder.attach()?;
    let begun = Instant::now();
    while !stopped() && arguments.time.is_none_or(|time| begun.elapsed() < time) {
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
            own_ns: 0,
        });
    let trace = finish(recorder, described.collect(), "host", &arguments.common)?;
    save(&trace, &arguments.common.out)?;
    Ok(trace)
}

/// Runs the named commands beside each other, each on the platform and in a control group of its own,
/// and records them.
pub(crate) fn run_and_record(
    commands: &[(&str, &str)],
    time: Duration,
    show_output: bool,
    setting: &Setting,
    common: &Common,
) -> Result<Trace> {
    let mut workloads = Workloads::of(setting)?;
    for (name, command) in commands {
        workloads.add(name, command)?;
    }
    let mut recorder = load(common, &workloads.targets())?;
    workloads.launch(show_output)?;
    let all = 0..workloads.len();
    if setting.when_ready {
        all.clone().try_for_each(|index| workloads.go(index))?;
        all.clone()
            .try_for_each(|index| workloads.until_ready(index))?;
        if let Some(time) = setting.alone {
            workloads.measure_rounds(time)?;
        }
        recorder.attach()?;
        match setting.alone {
            Some(_) => workloads.resume(workloads.len())?,
            None => all.clone().try_for_each(|index| workloads.begin(index))?,
        }
    } else {
        recorder.attach()?;
        all.clone().try_for_each(|index| workloads.go(index))?;
    }
    workloads.wait(time)?;
    let trace = finish(
        recorder,
        workloads.described(),
        setting.platform.name(),
        common,
    )?;
    workloads.end()?;
    Ok(trace)
}

/// Chooses the mode, says which and why, and loads the tracer.
pub(crate) fn load(common: &Common, targets: &[Vec<Target>]) -> Result<Recorder> {
    let offer = Offer::of_the_kernel()?;
    let (mode, why) = offer.choose(parse_mode(&common.mode)?)?;
    let name = match mode {
        Mode::Full => "full",
        Mode::Contended => "contended",
    };
    eprintln!("lockscope: {name} mode: {why}");
    let inlined = offer.inlined();
    if mode == Mode::Full && !inlined.is_empty() {
        let inlined = inlined.join(", ");
        eprintln!("lockscope: no holds that end in what this kernel inlines: {inlined}");
    }
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

pub(crate) fn finish(
    recorder: Recorder,
    workloads: Vec<Workload>,
    platform: &str,
    common: &Common,
) -> Result<Trace> {
    let first = workloads.first().map(|workload| workload.what.clone());
    let name = common.name.clone().or(first).unwrap_or_default();
    let column = common.column.clone().unwrap_or_else(|| platform.to_owned());
    Ok(recorder.finish(workloads, name, column)?)
}

fn save(trace: &Trace, file: &std::path::Path) -> Result<()> {
    trace.write(file)?;
    eprintln!("lockscope: wrote {}", file.display());
    Ok(())
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
pub(crate) fn parse_classes(names: &[String]) -> Result<Vec<Class>> {
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
