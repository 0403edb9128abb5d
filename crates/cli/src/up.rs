//! `leasehold up`: the tenants of a lease file together on one cell, each inside its leases.

mod memory;
mod report;
mod screen;
mod table;

use crate::calibrate::profile_or_calibrate;
use crate::confinement::{self, Needs, Origin};
use crate::costs;
use crate::exit::Failure;
use crate::host_steps;
use crate::interrupt::{Interrupt, LOOK};
use crate::leases::{self, EndBound, Ends};
use crate::memory_admission::MemoryVerdict;
use crate::notify::Notify;
use crate::output;
use crate::output::{say, tell};
use crate::overhead::{HostSteps, HostTime};
use crate::run::{failure, load, surroundings};
use leasehold_cell::memory::MemoryUse;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::{
    Cell, CellConfig, Destination, Ended, Exit, Input, Output, Processor, Realtime, RealtimeLimit,
    StartRequest, TenantHandle,
};
use leasehold_confine::InForce;
use leasehold_lease::{LeaseFile, Nanoseconds, Order, TenantSpec};
use leasehold_reserve::admission::admit;
use memory::Areas;
use screen::{Screen, Stream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Tenants that a cell has places for.
const PLACES: usize = 1024;

/// How often the live table is drawn.
const REFRESH: Duration = Duration::from_millis(500);

/// The interval at which the use of shared pages is recorded.
const OBSERVE: Duration = Duration::from_millis(100);

/// How long killed tenants are waited for. The rest of a tenant whose own reservation takes longer
/// is taken back with the cell, at once.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold up leases.toml
  leasehold up leases.toml --for 10s --core 1
  leasehold up leases.toml --for 1s --json > report.json

Tenants with a `cpu` reservation run inside it; the others share what nobody has reserved. A set
that cannot be kept is not started (see `leasehold admit`), unless --unadmitted is given.
The tenants' own output goes to standard output; the table and the report to standard error.
Without --for it runs until every tenant has ended, or until interrupted (SIGINT, SIGTERM, SIGHUP):
then all are killed, and the report follows. A service manager is told when all are started
($NOTIFY_SOCKET).")]
pub(crate) struct Arguments {
    /// The tenants and their leases.
    #[arg(value_name = "LEASES")]
    leases: PathBuf,

    /// Kill tenants that still run after this time.
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    /// The processor core to run on [default: wherever the system puts it].
    #[arg(long, value_name = "N")]
    core: Option<usize>,

    /// Start the tenants although the admission test does not pass: their reservations may be
    /// missed.
    #[arg(long)]
    unadmitted: bool,

    /// Name the functions on the stack of a trap: the cell walks all of it, which takes up to 4.4 ms, in which
    /// no other tenant runs. Admission allows for it.
    #[arg(long)]
    backtraces: bool,

    /// What one preemption takes from the tenant that is preempted [default: as calibrated].
    #[arg(long, value_name = "TIME")]
    overhead: Option<Nanoseconds>,

    /// How the tenants are preempted: injected (compiled without checks) or epochs
    /// [default: injected].
    #[arg(
        long,
        value_name = "MECHANISM",
        env = "LEASEHOLD_PREEMPT",
        hide_env = true
    )]
    preempt: Option<Mechanism>,

    /// No live table.
    #[arg(long)]
    quiet: bool,

    /// The report as JSON, on standard output, instead of the tenants' output.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    confinement: confinement::Arguments,
}

/// The contents of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Processor reservations: `leasehold up`.
    Processor,
    /// Memory reservations: `leasehold memory`.
    Memory,
}

/// One tenant, from its start to its end.
struct Running<'a> {
    spec: &'a TenantSpec,
    /// How long its end takes at most, wall time from its kill.
    bound: EndBound,
    handle: TenantHandle,
    /// Its processor time at the last observation.
    processor: Option<Processor>,
    /// Its use of memory then.
    memory: Option<MemoryUse>,
    ended: Option<Ended>,
}

/// The host's grants to the cell, and its limit.
struct OnHost<'a> {
    realtime: &'a Realtime,
    confined: &'a InForce,
}

/// The outcome of the admission test for the file.
struct Admitted {
    order: Order,
    overhead: HostTime,
    schedulable: bool,
    /// The host's limit on a cell's thread, if the reservations may exceed it.
    host: Option<RealtimeLimit>,
    /// The key of the first reservation that cannot be kept, and its value.
    unkept: Option<String>,
    /// How long the ends of the tenants take at most, and what is reserved for them.
    ends: Ends,
}

pub(crate) fn main(
    arguments: &Arguments,
    view: View,
    profile: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let file = leases::load(&arguments.leases)?;
    check_size(&arguments.leases, &file)?;
    let verdict = MemoryVerdict::of(&file);
    if let (false, Some(why)) = (verdict.fits(), verdict.text()) {
        return Err(Failure::Refused(format!(
            "{}: {why}",
            arguments.leases.display()
        )));
    }
    for directory in file.tenants.iter().flat_map(|tenant| &tenant.dirs) {
        if !directory.host.is_dir() {
            let message = format!("no such directory: {}", directory.host.display());
            return Err(Failure::Missing(message));
        }
    }
    let (profile, path) = profile_or_calibrate(profile)?;
    let overhead = HostTime::of_preemption(arguments.overhead, Some(&profile));
    let fault = HostTime::of_fault(None, Some(&profile));
    let mut steps = HostSteps::of(&file.tenants, fault, Some(&profile));
    if arguments.backtraces {
        if let Some(reason) = steps.no_backtraces() {
            let file = arguments.leases.display();
            return Err(Failure::Refused(format!("{file}: --backtraces: {reason}")));
        }
        steps = steps.with_backtraces();
    }
    let admitted = Admitted::of(&file, overhead, &steps);
    if !admitted.schedulable && !arguments.unadmitted {
        return Err(Failure::Refused(format!(
            "{}: {}the processor reservations cannot all be kept: `leasehold admit` says why, \
             --unadmitted starts them all the same",
            arguments.leases.display(),
            admitted.unkept.as_deref().unwrap_or_default()
        )));
    }
    if let (Some(limit), false) = (admitted.host, arguments.unadmitted) {
        return Err(Failure::Refused(format!(
            "{}: {limit}; --unadmitted starts them all the same",
            arguments.leases.display()
        )));
    }
    let mut config = CellConfig::new(profile);
    config.code_cache = leasehold_cell::user_code_cache();
    if let Some(mechanism) = arguments.preempt {
        config.preemption = mechanism;
    }
    config.backtraces = arguments.backtraces;
    config.cpu = arguments.core;
    config.order = leases::order(file.order);
    config.memory = leases::held_memory(&file.tenants, file.memory);
    config.realtime = true;
    config.admission = !arguments.unadmitted;
    config.ends = admitted.ends.reservation.or(config.ends);
    let notify = Notify::connect();
    let confined = confinement::enter(
        arguments.confinement,
        &Needs {
            tenants: &file.tenants,
            origin: Origin::File(&arguments.leases),
            holds_memory: config.memory.is_some(),
            profile: path.as_deref(),
        },
    )?;
    let cell = Cell::start(config)?;
    confinement::started()?;
    match cell.realtime() {
        Realtime::Refused(reason) => say!(
            "leasehold: the system refused real-time priority ({reason}): reservations hold among \
             the tenants, but other programs of this host can delay them all"
        ),
        Realtime::Granted => {
            if cell.own_core().is_none() {
                let taken = "each processor that the cell may run on is that of another cell with real-time \
                             priority: the reservations of both would be missed";
                if !arguments.unadmitted {
                    return Err(Failure::Refused(format!(
                        "{taken}; --unadmitted starts the tenants all the same"
                    )));
                }
                say!("leasehold: {taken}");
            }
            // Or it would not be here without --unadmitted.
            if let Some(limit) = admitted.host {
                say!(
                    "leasehold: {limit}: the reservations will be missed where others want the processor"
                );
            }
        }
        Realtime::NotAsked => {}
    }

    let screen = Screen::new(!(arguments.quiet || arguments.json));
    let outputs = Outputs::of(&screen, arguments.json);
    let mut tenants = start(&cell, &file, &admitted, &outputs)?;
    // From here on there is something to report. Before, nothing of a guest has run: an interruption
    // ends the process, also in the middle of loading a program.
    let interrupt = Interrupt::listen()?;
    let began = Instant::now();
    for tenant in &tenants {
        tenant.handle.go();
    }
    notify.ready(tenants.len());
    let (mut killed, mut drawn) = (None::<Instant>, None::<Instant>);
    let mut areas = Areas::default();
    let mut observed = None::<Instant>;
    while tenants.iter().any(|tenant| tenant.ended.is_none()) {
        for tenant in &mut tenants {
            tenant.look()?;
        }
        let late = arguments
            .time
            .is_some_and(|time| began.elapsed() >= Duration::from_nanos(time.get()));
        if killed.is_some_and(|killed| killed.elapsed() >= PATIENCE) {
            break;
        }
        if killed.is_none() && (late || interrupt.is_told()) {
            killed = Some(Instant::now());
            notify.stopping();
            for tenant in &tenants {
                tenant.handle.kill();
            }
        }
        if drawn.is_none_or(|drawn| drawn.elapsed() >= REFRESH) {
            drawn = Some(Instant::now());
            draw(&screen, &cell, view, &mut tenants, began.elapsed());
        }
        if tenants.iter().any(Running::pages)
            && observed.is_none_or(|observed| observed.elapsed() >= OBSERVE)
        {
            observed = Some(Instant::now());
            areas.see(cell.shared());
        }
        std::thread::sleep(LOOK);
    }
    let elapsed = began.elapsed();
    outputs.finish(killed.is_some());
    let width = screen.size().map(|(width, _)| width);
    screen.show(&[]);
    let host = OnHost {
        realtime: cell.realtime(),
        confined: &confined,
    };
    if arguments.json {
        let mut json = report::json(&tenants, elapsed, &admitted, &host, &areas);
        json["host_steps"] = host_steps::json(&cell.steps());
        json["end_costs"] = costs::json(&cell.costs());
        tell!("{json}");
    } else {
        let text = match view {
            View::Processor => report::text(&tenants, elapsed, &admitted, &host, width, &areas),
            View::Memory => report::memory_text(&tenants, elapsed, width, &areas),
        };
        let steps = host_steps::text(&cell.steps());
        say!(part "{text}{steps}{}", costs::text(&cell.costs()));
    }
    let failed = tenants.iter().any(|tenant| match &tenant.ended {
        Some(Ended { exit, .. }) => match exit {
            Exit::Code(code) => *code != 0,
            Exit::Killed => false,
            Exit::Trap(_) | Exit::Lease(_) | Exit::Memory(_) => true,
        },
        None => true,
    });
    Ok(ExitCode::from(u8::from(failed)))
}

/// Whether there is a place for every tenant, before any of them takes one.
fn check_size(path: &Path, file: &LeaseFile) -> Result<(), Failure> {
    match file.tenants.len() {
        0..=PLACES => Ok(()),
        found => Err(Failure::Configuration(format!(
            "{}: tenant: found {found} tables [tenant.NAME]; allowed: at most {PLACES} on one cell",
            path.display()
        ))),
    }
}

impl Admitted {
    /// The time from its kill after which nothing of a tenant runs, ns.
    fn effect_ns(&self) -> u64 {
        self.ends.bounds.first().map_or(0, |bound| bound.effect_ns)
    }

    fn of(file: &LeaseFile, overhead: HostTime, steps: &HostSteps) -> Self {
        let claims = leases::claims(&file.tenants, steps);
        let order = leases::order(file.order);
        let report = admit(&claims.all(), order, overhead.overhead());
        let reserved = file.tenants.iter().zip(&claims.reserved);
        let reserved = reserved.filter(|(_, contract)| contract.is_some());
        let unkept = reserved
            .zip(&report.servers)
            .find(|(_, verdict)| !verdict.schedulable())
            .and_then(|((tenant, _), _)| {
                let (name, cpu) = (&tenant.name, tenant.lease.cpu?);
                let (budget, period) = (cpu.budget(), cpu.period());
                Some(format!(
                    "tenant.{name}.cpu: found {budget} in every {period}: "
                ))
            });
        let ends = Ends::of(&file.tenants, steps, overhead, order);
        Self {
            order: file.order,
            overhead,
            schedulable: report.schedulable(),
            host: leases::stopped_by_host(&claims.all()),
            unkept,
            ends,
        }
    }
}

/// Where the tenants' own output goes.
struct Outputs {
    stdout: Output,
    stderr: Output,
}

impl Outputs {
    /// Above the table, if it would be written to that terminal; discarded if it would mix with the
    /// report.
    fn of(screen: &Screen, mute: bool) -> Self {
        let to = |stream, name, otherwise| {
            let above = screen.above(stream);
            above.map_or(otherwise, |above| Output::To(Destination::new(name, above)))
        };
        Self {
            stdout: match mute {
                true => Output::Discard,
                false => to(Stream::Output, "leasehold-out", Output::Stdout),
            },
            stderr: to(Stream::Error, "leasehold-err", Output::Stderr),
        }
    }

    /// Waits until all of it is out, as [`output::finish`] does.
    fn finish(&self, killed: bool) {
        let destinations: Vec<_> = [&self.stdout, &self.stderr]
            .into_iter()
            .filter_map(|output| match output {
                Output::To(destination) => Some(destination),
                _ => None,
            })
            .collect();
        output::finish(killed, &destinations);
    }
}

/// Starts all tenants, or none: those that were started end with the cell.
fn start<'a>(
    cell: &Cell,
    file: &'a LeaseFile,
    admitted: &Admitted,
    outputs: &Outputs,
) -> Result<Vec<Running<'a>>, Failure> {
    let mut running = Vec::with_capacity(file.tenants.len());
    for (spec, bound) in file.tenants.iter().zip(&admitted.ends.bounds) {
        let mut surroundings = surroundings(spec);
        surroundings.stdin = Input::Empty;
        surroundings.stdout = outputs.stdout.clone();
        surroundings.stderr = outputs.stderr.clone();
        let handle = cell
            .start_held(StartRequest {
                program: load(cell, &spec.component, &spec.lease)
                    .map_err(|error| named(&spec.name, error))?,
                lease: spec.lease,
                surroundings,
            })
            .map_err(|error| named(&spec.name, failure(error)))?;
        running.push(Running {
            spec,
            bound: *bound,
            handle,
            processor: None,
            memory: None,
            ended: None,
        });
    }
    Ok(running)
}

/// Draws the live table, if there is a screen. Queries only the shown tenants, because a query is a
/// command that precedes all tenants.
fn draw(screen: &Screen, cell: &Cell, view: View, tenants: &mut [Running<'_>], elapsed: Duration) {
    /// Lines that are no tenants: the header, how many more there are, a summary, and the cursor.
    const OTHER_LINES: usize = 4;
    let Some((width, height)) = screen.size() else {
        return;
    };
    let shown = report::shown(tenants, height.saturating_sub(OTHER_LINES).max(1));
    let processors = cell.processors(shown.iter().map(|&at| &tenants[at].handle));
    for (&at, processor) in shown.iter().zip(processors) {
        tenants[at].processor = processor;
        if view == View::Memory
            && let Some(memory) = tenants[at].handle.memory()
        {
            tenants[at].memory = Some(memory);
        }
    }
    screen.show(&report::live(tenants, &shown, view, elapsed, width));
}

/// The failure of one of several tenants.
fn named(name: &str, failure: Failure) -> Failure {
    let of = |message: String| format!("tenant.{name}: {message}");
    match failure {
        Failure::Program(message) => Failure::Program(of(message)),
        Failure::Missing(message) => Failure::Missing(of(message)),
        Failure::Refused(message) => Failure::Refused(of(message)),
        Failure::Configuration(message) => Failure::Configuration(of(message)),
        Failure::Host(error) => Failure::Host(error.context(format!("tenant.{name}"))),
    }
}

impl Running<'_> {
    /// Checks whether it has ended.
    fn look(&mut self) -> Result<(), Failure> {
        if self.ended.is_none() {
            self.ended = self.handle.wait_for(Duration::ZERO).map_err(failure)?;
        }
        Ok(())
    }
}
