//! `leasehold up`: the tenants of a lease file together on one cell, each inside its leases.

pub(crate) mod memory;
pub(crate) mod report;
pub(crate) mod screen;
pub(crate) mod table;

use crate::confinement::{Control, Origin};
use crate::costs;
use crate::exit::Failure;
use crate::host_steps;
use crate::interrupt::{Interrupt, LOOK};
use crate::leases::{self, EndBound};
use crate::opened::{Admitted, CellOptions, Opened};
use crate::output;
use crate::output::{say, tell};
use crate::requests::{Prepared, Requests};
use crate::run::{failure, load, surroundings};
use crate::stores::Stores;
use leasehold_cell::memory::MemoryUse;
use leasehold_cell::{
    Cell, Destination, Ended, Exit, Input, Output, Processor, Realtime, StartRequest, Surroundings,
    TenantHandle,
};
use leasehold_confine::InForce;
use leasehold_lease::{LeaseFile, Nanoseconds, TenantSpec};
use leasehold_node::Ward;
use memory::Areas;
use screen::{Screen, Stream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
    pub(crate) leases: PathBuf,

    /// Kill tenants that still run after this time.
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) time: Option<Nanoseconds>,

    /// No live table.
    #[arg(long)]
    quiet: bool,

    /// The report as JSON, on standard output, instead of the tenants' output.
    #[arg(long)]
    pub(crate) json: bool,

    /// Where operators reach it (`leasehold ps --socket PATH`). There is no live table then, lines of
    /// tenants have their names, and `restart` is done [default: nowhere].
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) cell: CellOptions,
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
pub(crate) struct Running<'a> {
    pub(crate) spec: &'a TenantSpec,
    /// How long its end takes at most, wall time from its kill.
    bound: EndBound,
    /// `None` where a supervisor has it.
    handle: Option<TenantHandle>,
    /// Its processor time at the last observation.
    processor: Option<Processor>,
    /// Its use of memory then.
    memory: Option<MemoryUse>,
    pub(crate) ended: Option<Ended>,
}

/// The host's grants to the cell, and its limit.
pub(crate) struct OnHost<'a> {
    pub(crate) realtime: &'a Realtime,
    pub(crate) confined: &'a InForce,
}

pub(crate) fn main(
    arguments: &Arguments,
    view: View,
    profile: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let file = leases::load(&arguments.leases)?;
    for tenant in &file.tenants {
        leases::without_requests(&arguments.leases, tenant)?;
        let command = match view {
            View::Processor => "up",
            View::Memory => "memory",
        };
        leases::starts_once(tenant, command);
    }
    let stores = Stores::open(&file.tenants, Origin::File(&arguments.leases))?;
    let requests = Prepared::read(&file.tenants, Origin::File(&arguments.leases))?;
    let opened = arguments.cell.open(
        &arguments.leases,
        &file,
        profile,
        &Control::default(),
        |cell| requests.start(cell.own_core()),
    )?;
    let Opened {
        cell,
        admitted,
        confined,
        notify,
        beside: requests,
        ..
    } = opened;

    let screen = Screen::new(!(arguments.quiet || arguments.json));
    let outputs = Outputs::of(&screen, arguments.json, stores, requests);
    let mut tenants = start(&cell, &file, &admitted, &outputs)?;
    // From here on there is something to report. Before, nothing of a guest has run: an interruption
    // ends the process, also in the middle of loading a program.
    let interrupt = Interrupt::listen()?;
    let began = Instant::now();
    for handle in handles(&tenants) {
        handle.go();
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
            for handle in handles(&tenants) {
                handle.kill();
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
    screen.clear();
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
    let failed = tenants.iter().any(Running::has_failed);
    Ok(ExitCode::from(u8::from(failed)))
}

/// Where the tenants' own output goes, and their stores.
pub(crate) struct Outputs {
    stdout: Output,
    stderr: Output,
    stores: Stores,
    requests: Requests,
}

impl Outputs {
    /// Above the table, if it would be written to that terminal; discarded if it would mix with the
    /// report.
    pub(crate) fn of(screen: &Screen, mute: bool, stores: Stores, requests: Requests) -> Self {
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
            stores,
            requests,
        }
    }

    /// What a tenant has around it, with its output going here.
    pub(crate) fn surroundings(&self, spec: &TenantSpec) -> Surroundings {
        Surroundings {
            stdin: Input::Empty,
            stdout: self.stdout.clone(),
            stderr: self.stderr.clone(),
            outgoing: self.requests.of(spec),
            ..surroundings(spec, &self.stores)
        }
    }

    /// Waits until all of it is out, as [`output::finish`] does.
    pub(crate) fn finish(&self, killed: bool) {
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
    let of = |spec: &TenantSpec, error| named(&spec.name, failure(error));
    // A start takes the tenant's own time: they take it at the same time.
    let mut begun = Vec::with_capacity(file.tenants.len());
    for spec in &file.tenants {
        let request = StartRequest {
            program: load(cell, &spec.component, &spec.lease)
                .map_err(|error| named(&spec.name, error))?,
            lease: spec.lease,
            surroundings: outputs.surroundings(spec),
        };
        begun.push(cell.begin_held(request).map_err(|error| of(spec, error))?);
    }
    let all = file.tenants.iter().zip(&admitted.ends.bounds).zip(begun);
    all.map(|((spec, bound), pending)| {
        let handle = pending.wait().map_err(|error| of(spec, error))?;
        Ok(Running::new(spec, *bound, handle))
    })
    .collect()
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
    let handles = shown.iter().filter_map(|&at| tenants[at].handle.as_ref());
    let processors = cell.processors(handles);
    for (&at, processor) in shown.iter().zip(processors) {
        tenants[at].processor = processor;
        if view == View::Memory
            && let Some(memory) = tenants[at].handle.as_ref().and_then(TenantHandle::memory)
        {
            tenants[at].memory = Some(memory);
        }
    }
    screen.show(&report::live(tenants, &shown, view, elapsed, width));
}

fn handles<'a>(tenants: &'a [Running<'_>]) -> impl Iterator<Item = &'a TenantHandle> {
    tenants.iter().filter_map(|tenant| tenant.handle.as_ref())
}

/// The failure of one of several tenants.
pub(crate) fn named(name: &str, failure: Failure) -> Failure {
    at(&format!("tenant.{name}"), failure)
}

/// A failure whose cause is in this place.
pub(crate) fn at(place: &str, failure: Failure) -> Failure {
    let of = |message: String| format!("{place}: {message}");
    match failure {
        Failure::Program(message) => Failure::Program(of(message)),
        Failure::Missing(message) => Failure::Missing(of(message)),
        Failure::Refused(message) => Failure::Refused(of(message)),
        Failure::Configuration(message) => Failure::Configuration(of(message)),
        Failure::Host(error) => Failure::Host(error.context(place.to_owned())),
    }
}

impl<'a> Running<'a> {
    /// A tenant that has been started.
    pub(crate) const fn new(spec: &'a TenantSpec, bound: EndBound, handle: TenantHandle) -> Self {
        Self {
            spec,
            bound,
            handle: Some(handle),
            processor: None,
            memory: None,
            ended: None,
        }
    }

    /// A tenant of a supervisor, as it is at the end.
    pub(crate) fn of(ward: &'a Ward) -> Self {
        let bound = ward.bound();
        Self {
            spec: ward.spec(),
            bound: EndBound {
                effect_ns: bound.effect_ns,
                returned_ns: bound.returned_ns,
            },
            handle: None,
            processor: ward.processor(),
            memory: ward.memory(),
            ended: ward.ended().cloned(),
        }
    }

    /// Whether it has ended with an error, or not at all.
    pub(crate) fn has_failed(&self) -> bool {
        match &self.ended {
            Some(Ended { exit, .. }) => match exit {
                Exit::Code(code) => *code != 0,
                Exit::Killed => false,
                Exit::Trap(_) | Exit::Lease(_) | Exit::Memory(_) => true,
            },
            None => true,
        }
    }

    /// Checks whether it has ended.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        if let (None, Some(handle)) = (&self.ended, &self.handle) {
            self.ended = handle.wait_for(Duration::ZERO).map_err(failure)?;
        }
        Ok(())
    }
}
