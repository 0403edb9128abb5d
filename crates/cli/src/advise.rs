//! `leasehold advise`: the smallest reservations under which a program does its work, of memory, of
//! reclamation and of the processor.
//!
//! "It is not easy to decide the optimal memory size of memory reservation [...] it needs some
//! testing to get the optimal size before deploying it" (SPC §VI-C). So the program is run under
//! shrinking reservations, as the paper does by hand in figure 8.

mod admission;
mod lease;
mod observe;
mod reservations;
mod search;
mod shared;

use crate::calibrate::profile_or_calibrate;
use crate::exit::Failure;
use crate::output::{say, tell};
use crate::overhead::HostTime;
use crate::report::nanos;
use crate::run::{failure, load, surroundings};
use crate::stores::Stores;
use admission::SoleAdmission;
use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_cell::memory::{HeldMemory, SharedUse, Swap};
use leasehold_cell::{
    Cell, CellConfig, Exit, Input, Lease, Output, Program, StartRequest, Surroundings,
};
use leasehold_lease::{ByteSize, EnvVar, MemoryKind, Nanoseconds, Paging, SharedPages, TenantSpec};
use leasehold_study::plot::{Axis, Figure, Marks, Panel, Series};
use leasehold_study::samples::Spread;
use leasehold_study::unit::Unit;
use search::{STEP, Trial, smallest};
use serde_json::json;
use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The default throughput to keep.
const KEEP: f64 = 0.95;

/// The multiple of its allowed time after which a program is given up.
const PATIENCE: u64 = 4;

/// How often a larger processor reservation is tried where a program takes longer than it may.
const MOST_RAISES: u32 = 4;

/// The shortest patience: other work of the host can delay a short program by much.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// How long a run may take where nothing else is said.
const LONGEST: Duration = Duration::from_secs(60);

/// What the first runs are.
const UNPAGED: &str = "without paging";

/// A shorter program is run again until its runs took this time together, at most so often.
const ENOUGH: Duration = Duration::from_millis(50);
const MOST_RUNS: usize = 99;

/// A run is observed again until observing took this time, at most so many times more.
const LOOKING: Duration = Duration::from_millis(500);
const MOST_LOOKS: usize = 4;

/// The default margin on the largest charge.
const MARGIN: f64 = 0.25;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold advise thumbnail.wasm 64 < picture.png
  leasehold advise --keep 0.8 --svg faults.svg --dir data wordcount.wasm data/text
  leasehold advise --deadline 40ms decoder.wasm frame

The program runs again and again, with the same standard input; its output is discarded. First it
runs without paging, then under memory reservations that shrink. The advised one is the smallest
under which it ends before --deadline, or keeps the part --keep of its speed. If the program has
memory that tenants can share, --tenants of it then run side by side, and the rule of SPC says
whether to conserve that memory (spc) or to lock it (spel). Another run gives the other two
reservations: from what is charged, and from when the processor is used. Under all three the program
must write the same once more.
TIME is a number and a unit, as 500us, 1.5ms or 2s; SIZE as 64KiB or 0.5GiB; RATIO as 0.8.

Exit codes: 0; 1 no reservation is enough; 65 the program cannot run here, or fails by itself; 66 it
is missing; 77 the lease does not pay for it; 78 the profile is wrong.")]
pub(crate) struct Arguments {
    /// The program and its arguments.
    #[arg(
        trailing_var_arg = true,
        required = true,
        value_name = "PROGRAM [ARGUMENT]…"
    )]
    command: Vec<String>,

    /// The part of its speed without paging to keep, 0 to 1 [default: 0.95].
    #[arg(long, value_name = "RATIO", value_parser = ratio, conflicts_with = "deadline")]
    keep: Option<f64>,

    /// The time in which the program is to end, instead of --keep.
    #[arg(long, value_name = "TIME")]
    deadline: Option<Nanoseconds>,

    /// How long a run may take, without paging and under the lease [default: 4 times --deadline, at
    /// least 100ms; else 60s].
    #[arg(long, value_name = "TIME")]
    longest: Option<Nanoseconds>,

    /// Limit on linear memory, in total [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    limit: Option<ByteSize>,

    /// Reclamation budget of the runs; none is advised beyond it.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    budget: Nanoseconds,

    /// What the advised reclamation budget has beyond the largest charge, as a part of it
    /// [default: 0.25].
    #[arg(long, value_name = "RATIO", value_parser = margin)]
    margin: Option<f64>,

    /// The period of the advised processor reservation.
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    period: Nanoseconds,

    /// Write the advised lease file here, too.
    #[arg(long, value_name = "FILE")]
    lease: Option<PathBuf>,

    /// How many memory reservations to try before the search among them.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    points: u32,

    /// How often to run under each; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,

    /// How many tenants will run the program side by side and share memory.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=64))]
    tenants: u32,

    /// The swap file [default: one in the directory for temporary files].
    #[arg(long, value_name = "FILE")]
    swap: Option<PathBuf>,

    /// A directory that the program may use: HOST[::GUEST[::ro]]; may be repeated.
    #[arg(long = "dir", value_name = "DIR")]
    dirs: Vec<leasehold_lease::Directory>,

    /// An environment variable: NAME=VALUE; may be repeated.
    #[arg(long = "env", value_name = "VAR")]
    env: Vec<EnvVar>,

    /// Draw faults and time against the memory reservation.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// How long a run may take that finds nothing in its way.
fn longest(arguments: &Arguments) -> Duration {
    let stated = arguments.longest.map(Nanoseconds::get);
    let times = |deadline: Nanoseconds| deadline.get().saturating_mul(PATIENCE);
    match (stated, arguments.deadline.map(times)) {
        (Some(longest), _) => Duration::from_nanos(longest),
        (None, Some(longest)) => Duration::from_nanos(longest).max(LEAST_PATIENCE),
        (None, None) => LONGEST,
    }
}

/// The program did not end in a run of this kind.
fn endless(longest: Duration, kind: &str) -> Failure {
    Failure::Program(format!(
        "it had not ended after {} {kind}: give it work that ends, or more time with --longest",
        nanos(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX)),
    ))
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|n| *n > 0.0 && *n <= 1.0);
    ratio.ok_or_else(|| format!("found {text:?}; allowed: more than 0 and at most 1"))
}

fn margin(text: &str) -> Result<f64, String> {
    let margin = text.parse().ok().filter(|n| (0.0..=100.0).contains(n));
    margin.ok_or_else(|| format!("found {text:?}; allowed: 0 to 100"))
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let spec = spec(arguments)?;
    let mut input = Vec::new();
    if !std::io::stdin().is_terminal() {
        let read = std::io::stdin().read_to_end(&mut input);
        read.context("standard input")?;
    }
    let mut surroundings = surroundings(&spec, &Stores::default());
    surroundings.stdin = Input::Bytes(input.into());
    surroundings.stdout = Output::Discard;
    surroundings.stderr = Output::Discard;
    let (profile, _) = profile_or_calibrate(profile)?;
    let mut config = CellConfig::new(profile.clone());
    config.code_cache = leasehold_cell::user_code_cache();

    let preemption = HostTime::of_preemption(None, Some(&profile));
    let mut subject = Subject {
        cell: Cell::start(config.clone())?,
        program: None,
        lease: spec.lease,
        surroundings,
        runs: arguments.runs,
        patience: longest(arguments),
        longest: longest(arguments),
        lost_ns: 2 * preemption.overhead().per_preemption,
        admission: SoleAdmission::new(profile, preemption),
    };
    subject.prepare(&spec.component)?;
    // Its cost with all of its memory.
    let whole = subject.median(spec.lease)?;
    let unpaged_ns = whole
        .time_ns
        .ok_or_else(|| endless(subject.patience, UNPAGED))?;
    let linear = whole.linear.next_multiple_of(STEP).max(STEP);

    let held = |reserve: u64, limit: u64, tenants: u32| HeldMemory {
        bytes: reserve * u64::from(tenants),
        for_all: false,
        swap: Some(Swap {
            path: swap_path(arguments),
            bytes: (limit / 4 * 5 + STEP) * u64::from(tenants),
        }),
    };
    config.memory = Some(held(linear, linear, 1));
    subject.cell = Cell::start(config.clone())?;
    subject.prepare(&spec.component)?;
    let deadline = arguments.deadline.map(Nanoseconds::get);
    let slowest_ns =
        deadline.unwrap_or_else(|| (unpaged_ns as f64 / arguments.keep.unwrap_or(KEEP)) as u64);
    let patience = slowest_ns.max(unpaged_ns).saturating_mul(PATIENCE);
    subject.patience = Duration::from_nanos(patience).max(LEAST_PATIENCE);
    let enough = |trial: &Trial| trial.time_ns.is_some_and(|time| time <= slowest_ns);
    let (trials, best) = smallest(linear, arguments.points, enough, |reserve| {
        if !arguments.json {
            say!("leasehold: trying {}", size(reserve));
        }
        match reserve < linear {
            true => subject.trial(reserve, linear),
            // With all of it reserved it does not page.
            false => Ok(whole.under(reserve)),
        }
    })?;

    let (tenants, reserve) = (arguments.tenants, best.unwrap_or(linear));
    let limit = linear.max(reserve + STEP);
    config.memory = Some(held(reserve, limit, tenants));
    subject.cell = Cell::start(config.clone())?;
    let shared = shared::observe(&subject, &spec.component, tenants, reserve, limit)?;

    let pages = reserve < linear;
    config.memory = pages.then(|| held(reserve, linear, 1));
    subject.cell = Cell::start(config)?;
    let leased = best.map(|_| {
        let limit = pages.then_some(linear);
        let lease = with_memory(subject.lease, reserve, limit)?;
        subject.lease(arguments, &spec, lease, slowest_ns)
    });
    let leased = leased.transpose()?;
    if let (Some(path), Some(leased)) = (&arguments.lease, &leased) {
        std::fs::write(path, lease::file(&leased.tenant))
            .with_context(|| path.display().to_string())?;
    }

    let advice = Advice {
        leased: leased.as_ref(),
        name: &spec.name,
        linear: whole.linear,
        unpaged_ns,
        slowest_ns,
        trials: &trials,
        best,
        shared: &shared,
    };
    if let Some(path) = &arguments.svg {
        let svg = advice.figure().to_svg()?;
        std::fs::write(path, svg).with_context(|| path.display().to_string())?;
    }
    if arguments.json {
        tell!("{}", advice.json());
    } else {
        tell!(part "{}", advice.text());
    }
    Ok(ExitCode::from(u8::from(best.is_none())))
}

fn spec(arguments: &Arguments) -> Result<TenantSpec, Failure> {
    let [program, args @ ..] = &*arguments.command else {
        return Err(Failure::Configuration(
            "found no program; allowed: PROGRAM and its arguments".into(),
        ));
    };
    for directory in &arguments.dirs {
        if !directory.host.is_dir() {
            let message = format!("no such directory: {}", directory.host.display());
            return Err(Failure::Missing(message));
        }
    }
    let mut lease = Lease::default();
    lease.reclaim.budget = arguments.budget;
    lease.memory.reserve = arguments.limit.unwrap_or(lease.memory.reserve);
    Ok(TenantSpec {
        name: TenantSpec::name_of(Path::new(program)),
        component: PathBuf::from(program),
        args: args.to_vec(),
        env: arguments.env.clone(),
        dirs: arguments.dirs.clone(),
        config: Vec::new(),
        data: Vec::new(),
        keyvalue: None,
        outgoing: None,
        swap: None,
        http: None,
        restart: leasehold_lease::Restart::Never,
        lease,
    })
}

fn swap_path(arguments: &Arguments) -> PathBuf {
    let unnamed = || {
        let name = format!("leasehold-advise.{}", std::process::id());
        std::env::temp_dir().join(name)
    };
    arguments.swap.clone().unwrap_or_else(unnamed)
}

/// The same lease with this memory reservation, and a limit beyond it if the tenant pages.
fn with_memory(lease: Lease, reserve: u64, limit: Option<u64>) -> Result<Lease, Failure> {
    let sized = |bytes| ByteSize::new(bytes).context("the size of a reservation");
    let mut lease = match limit {
        Some(limit) => paging(lease, sized(limit)?),
        None => lease,
    };
    lease.memory.reserve = sized(reserve)?;
    Ok(lease)
}

/// The same lease of a tenant that pages within a limit.
fn paging(mut lease: Lease, limit: ByteSize) -> Lease {
    lease.memory.paging = Some(Paging {
        limit,
        kind: MemoryKind::Hard,
        shared: SharedPages::None,
        mappings: Paging::MAPPINGS,
    });
    lease
}

/// The program that is run again and again.
struct Subject {
    cell: Cell,
    program: Option<Arc<Program>>,
    lease: Lease,
    surroundings: Surroundings,
    runs: u32,
    /// How long a run may take.
    patience: Duration,
    /// How long one may take that finds nothing in its way.
    longest: Duration,
    /// What a dispatch and a stop take of a budget of the processor, ns.
    lost_ns: u64,
    admission: SoleAdmission,
}

/// One run.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// `None` if it was given up.
    time_ns: Option<u64>,
    /// Bytes of linear memory that it had at its end.
    linear: u64,
    /// Major faults, new pages, and evictions.
    faults: (u64, u64, u64),
}

impl Run {
    fn under(&self, reserve: u64) -> Trial {
        let (major, zero, evicted) = self.faults;
        Trial {
            reserve,
            time_ns: self.time_ns,
            major,
            zero,
            evicted,
        }
    }
}

impl Subject {
    /// Loads the program into a new cell and runs it once, without counting: cold caches would make
    /// the first run look slow, and all reservations fast in comparison.
    fn prepare(&mut self, program: &Path) -> Result<(), Failure> {
        // As it is for tenants that page, so that all runs are of one program.
        let paging = paging(self.lease, self.lease.memory.reserve);
        self.program = Some(load(&self.cell, program, &paging)?);
        match self.run(self.lease)?.time_ns {
            Some(_) => Ok(()),
            None => Err(endless(self.patience, UNPAGED)),
        }
    }

    /// Runs the program under a reservation, within a limit that is larger.
    fn trial(&self, reserve: u64, limit: u64) -> Result<Trial, Failure> {
        let lease = with_memory(self.lease, reserve, Some(limit))?;
        Ok(self.median(lease)?.under(reserve))
    }

    /// The run of the median time; the one that was given up if one was.
    fn median(&self, lease: Lease) -> Result<Run, Failure> {
        let mut runs = Vec::new();
        let mut took = Duration::ZERO;
        while runs.len() < self.runs as usize || took < ENOUGH && runs.len() < MOST_RUNS {
            let run = self.run(lease)?;
            let Some(time_ns) = run.time_ns else {
                return Ok(run);
            };
            took += Duration::from_nanos(time_ns);
            runs.push(run);
        }
        runs.sort_unstable_by_key(|run| run.time_ns);
        Ok(runs[runs.len() / 2])
    }

    /// Returns the lease under which the program does the same within its allowed time: with the
    /// memory reservation of `lease`, and budgets that one run shows and another run confirms.
    fn lease(
        &mut self,
        arguments: &Arguments,
        spec: &TenantSpec,
        mut lease: Lease,
        slowest_ns: u64,
    ) -> Result<Leased, Failure> {
        let program = load(&self.cell, &spec.component, &lease)?;
        let period_ns = arguments.period.get();
        let period = Duration::from_nanos(period_ns);
        let subject = observe::Subject {
            cell: &self.cell,
            program: &program,
            surroundings: &self.surroundings,
        };
        let observe = |lease| observe::observe(&subject, lease, period, self.longest(lease));
        // The first finds everything cold.
        let first = observe(lease)?;
        let mut observed = observe(lease)?;
        let always_same = first.output == observed.output;
        // While another program of the host has the processor, this one appears to wait.
        let mut took = Duration::from_nanos(observed.time_ns);
        for _ in 0..MOST_LOOKS {
            if took > LOOKING {
                break;
            }
            let again = observe(lease)?;
            took += Duration::from_nanos(again.time_ns);
            let peak_ns = observed.peak_ns.max(again.peak_ns);
            if again.time_ns < observed.time_ns {
                observed = again;
            }
            observed.peak_ns = peak_ns;
        }

        let slowest_ns = match (arguments.deadline, lease.memory.paging) {
            (None, None) => {
                let keep = arguments.keep.unwrap_or(KEEP);
                (observed.time_ns as f64 / keep) as u64
            }
            // The time of paging reduces the time that is available for a share of the processor.
            _ => slowest_ns.max(observed.time_ns),
        };
        let mut cpu_ns = Some(reservations::processor(
            &observed,
            slowest_ns,
            period_ns,
            self.lost_ns,
        ));
        // The observation does not include dispatches: a cell may be unable to keep so much.
        let mut refused = None;
        // Faults take time, and are not seen as a share of the processor.
        let mut raises = match lease.memory.paging {
            Some(_) => MOST_RAISES,
            None => 0,
        };
        while let Some(ns) = cpu_ns {
            lease.cpu = reservations::reservation(ns, arguments.period);
            if let Some(why) = self.admission.refusal(spec, lease) {
                refused.get_or_insert(why);
                cpu_ns = reservations::smaller(ns, period_ns);
                continue;
            }
            match observe(lease) {
                Ok(run) if run.time_ns > slowest_ns && raises > 0 && refused.is_none() => {
                    raises -= 1;
                    let larger = reservations::larger(ns, (run.time_ns, slowest_ns), period_ns);
                    match larger {
                        Some(larger) => cpu_ns = Some(larger),
                        None => break,
                    }
                }
                Ok(_) => break,
                Err(Failure::Refused(why)) => {
                    refused.get_or_insert(why);
                    cpu_ns = reservations::smaller(ns, period_ns);
                }
                Err(failure) => return Err(failure),
            }
        }
        lease.cpu = cpu_ns.and_then(|ns| reservations::reservation(ns, arguments.period));
        let margin = arguments.margin.unwrap_or(MARGIN);
        let mut reclaim_ns = reservations::reclamation(observed.peak_ns, margin);
        let held_ns = loop {
            lease.reclaim.budget = Nanoseconds::new(reclaim_ns).unwrap_or(arguments.budget);
            match observe(lease) {
                Ok(held) if held.output == observed.output || !always_same => break held.time_ns,
                // A share of the budget is for one purpose, such as handles, and may be exhausted
                // before the whole.
                Ok(_) | Err(Failure::Program(_) | Failure::Refused(_))
                    if reclaim_ns < arguments.budget.get() =>
                {
                    reclaim_ns = reclaim_ns.saturating_mul(2);
                }
                Ok(_) => return Err(useless("its output is another under its lease")),
                Err(failure) => return Err(failure),
            }
        };
        let tenant = TenantSpec {
            lease,
            swap: lease.memory.paging.map(|_| {
                let unnamed = || std::env::temp_dir().join(format!("{}.swap", spec.name));
                arguments.swap.clone().unwrap_or_else(unnamed)
            }),
            ..spec.clone()
        };
        if let Some(why) = self.admission.refusal(spec, lease) {
            return Err(Failure::Refused(why));
        }
        Ok(Leased {
            held_ns,
            tenant,
            slowest_ns,
            refused,
            observed,
            margin,
        })
    }

    /// How long a run may take under this lease: longer with a part of the processor than with all of it.
    fn longest(&self, lease: Lease) -> Duration {
        let parts = lease
            .cpu
            .map_or(1, |cpu| cpu.period().get().div_ceil(cpu.budget().get()));
        let longest = self.longest.max(self.patience);
        longest.saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX))
    }

    fn run(&self, lease: Lease) -> Result<Run, Failure> {
        let program = self.program.clone().context("a program was loaded")?;
        let tenant = self
            .cell
            .start_held(StartRequest {
                program,
                lease,
                surroundings: self.surroundings.clone(),
            })
            .map_err(failure)?;
        let began = leasehold_cell::clock::monotonic_ns();
        tenant.go();
        let ended = match tenant.wait_for(self.patience).map_err(failure)? {
            Some(ended) => ended,
            None => {
                tenant.kill();
                tenant.wait().map_err(failure)?
            }
        };
        let time_ns = match &ended.exit {
            Exit::Killed => None,
            Exit::Code(0) => Some(ended.at_ns.saturating_sub(began)),
            Exit::Code(code) => return Err(useless(&format!("exited with {code}"))),
            Exit::Trap(why) | Exit::Lease(why) | Exit::Memory(why) => return Err(useless(why)),
        };
        let counts = ended.memory.paging.map(|(_, counts)| counts);
        let counts = counts.unwrap_or_default();
        Ok(Run {
            time_ns,
            linear: ended.memory.linear_bytes,
            faults: (counts.major, counts.zero, counts.evicted),
        })
    }
}

/// A program that does not do its work has no use for a reservation.
fn useless(why: &str) -> Failure {
    Failure::Program(format!("the program did not end well: {why}"))
}

/// A lease that was tried, and the run from which it was made.
struct Leased {
    tenant: TenantSpec,
    observed: observe::Observed,
    margin: f64,
    /// How long it took under the lease, ns.
    held_ns: u64,
    /// How long it was to take at the most, ns.
    slowest_ns: u64,
    /// Why it has no larger processor reservation, or none, if one was refused.
    refused: Option<String>,
}

impl Leased {
    fn text(&self) -> String {
        let observed = &self.observed;
        let busy = |q| nanos(observed.busy.quantile(q).unwrap_or(0));
        let has_none = self.tenant.lease.cpu.is_none();
        let none = self.refused.as_ref().map(|why| {
            let why = crate::output::plain(why);
            match has_none {
                true => format!("\nprocessor: no reservation in this period can be kept: {why}"),
                false => format!("\nprocessor: a larger reservation would be refused: {why}"),
            }
        });
        let none = none.unwrap_or_default();
        let late = match self.held_ns > self.slowest_ns {
            true => format!(
                ", which is LONGER than it was to take, {}: no larger reservation was found to help",
                nanos(self.slowest_ns)
            ),
            false => String::new(),
        };
        let share = 100.0 * observed.used_ns as f64 / observed.time_ns.max(1) as f64;
        format!(
            "reclamation: it needs {} to start, and was charged {} at most; the budget has {:.0} % more, or a \
             power of two times that, if it needed it\n\
             processor: it used up to {} of {} ({share:.0} %); in a period {} (median), {} (most){none}\n\
             under this lease it did the same in {}{late}:\n\n{}",
            nanos(observed.start_ns),
            nanos(observed.peak_ns),
            100.0 * self.margin,
            nanos(observed.used_ns),
            nanos(observed.time_ns),
            busy(0.5),
            busy(1.0),
            nanos(self.held_ns),
            lease::file(&self.tenant)
        )
    }

    fn json(&self) -> serde_json::Value {
        let observed = &self.observed;
        let lease = &self.tenant.lease;
        json!({
            "start_ns": observed.start_ns,
            "peak_ns": observed.peak_ns,
            "margin_ratio": self.margin,
            "reclaim_budget_ns": lease.reclaim.budget.get(),
            "time_ns": observed.time_ns,
            "used_ns": observed.used_ns,
            "busy_ns_p50": observed.busy.p50(),
            "busy_ns_max": observed.busy.max(),
            "cpu_budget_ns": lease.cpu.map(|cpu| cpu.budget().get()),
            "cpu_period_ns": lease.cpu.map(|cpu| cpu.period().get()),
            "cpu_refused": self.refused,
            "leased_ns": self.held_ns,
            "allowed_ns": self.slowest_ns,
            "file": lease::file(&self.tenant),
        })
    }
}

/// The results.
struct Advice<'a> {
    leased: Option<&'a Leased>,
    name: &'a str,
    linear: u64,
    unpaged_ns: u64,
    slowest_ns: u64,
    trials: &'a [Trial],
    best: Option<u64>,
    shared: &'a [SharedUse],
}

impl Advice<'_> {
    fn speed(&self, trial: &Trial) -> Option<f64> {
        trial
            .time_ns
            .map(|time| self.unpaged_ns as f64 / time.max(1) as f64)
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "reserve",
            "time",
            "speed",
            "major faults",
            "new pages",
            "evicted",
            "",
        ]);
        for trial in self.trials {
            table.add_row([
                size(trial.reserve),
                trial.time_ns.map_or("given up".into(), nanos),
                self.speed(trial).map_or("–".into(), |n| format!("{n:.2}")),
                trial.major.to_string(),
                trial.zero.to_string(),
                trial.evicted.to_string(),
                match self.best {
                    Some(best) if best == trial.reserve => "← smallest that is enough".into(),
                    _ => String::new(),
                },
            ]);
        }
        for column in table.column_iter_mut().take(6) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let summary = format!(
            "{} has {} of linear memory and takes {} without paging; it may take {}",
            self.name,
            size(self.linear),
            nanos(self.unpaged_ns),
            nanos(self.slowest_ns),
        );
        let advice = match self.best {
            Some(best) if best >= self.linear => {
                format!("memory = {{ reserve = \"{}\" }}", size(best))
            }
            Some(best) => format!(
                "memory = {{ reserve = \"{}\", limit = \"{}\", swap = … }}",
                size(best),
                size(self.linear),
            ),
            None => "no reservation is enough: it is too slow without paging".to_owned(),
        };
        let shared = shared::text(self.shared);
        let leased = self.leased.map(Leased::text).unwrap_or_default();
        format!("{table}\n{summary}\n{advice}\n{shared}{leased}")
    }

    fn json(&self) -> serde_json::Value {
        let trials: Vec<_> = self
            .trials
            .iter()
            .map(|trial| {
                json!({
                    "reserve_bytes": trial.reserve,
                    "time_ns": trial.time_ns,
                    "speed_ratio": self.speed(trial),
                    "major_faults": trial.major,
                    "zero_faults": trial.zero,
                    "evicted": trial.evicted,
                })
            })
            .collect();
        json!({
            "program": self.name,
            "linear_bytes": self.linear,
            "unpaged_ns": self.unpaged_ns,
            "slowest_ns": self.slowest_ns,
            "trials": trials,
            "reserve_bytes": self.best,
            "shared": shared::json(self.shared),
            "lease": self.leased.map(Leased::json),
        })
    }

    fn figure(&self) -> Figure {
        let panel = |title: &str, unit, value: &dyn Fn(&Trial) -> Option<u64>| {
            let points = self.trials.iter().rev().filter_map(|trial| {
                let value = value(trial)?;
                Some((trial.reserve as f64, Spread::of([value as f64])?))
            });
            Panel {
                y: Axis::linear(title, unit),
                marks: Marks::Curves {
                    x: Axis::logarithmic("reservation", Unit::Bytes),
                    series: vec![Series {
                        name: self.name.to_owned(),
                        points: points.collect(),
                    }],
                },
            }
        };
        Figure {
            title: format!("{} under shrinking memory reservations", self.name),
            panels: vec![
                panel("major faults", Unit::Count, &|trial| Some(trial.major)),
                panel("time", Unit::Nanoseconds, &|trial| trial.time_ns),
            ],
        }
    }
}

/// A size for people: exact, in the largest unit that needs no fraction.
fn size(bytes: u64) -> String {
    ByteSize::new(bytes).map_or_else(|| "0".to_owned(), |size| size.to_string())
}
