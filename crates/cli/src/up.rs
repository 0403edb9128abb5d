//! `leasehold up`: the tenants of a lease file together on one cell, each under its lease.

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
use crate::on_host::OnHost;
use crate::opened::{Admitted, CellOptions, Opened};
use crate::output;
use crate::output::tell;
use crate::requests::{Prepared, Requests};
use crate::run::{failure, load, surroundings};
use crate::stores::Stores;
use leasehold_cell::memory::MemoryUse;
use leasehold_cell::{
    Cell, Destination, Ended, Exit, Input, Output, PendingStart, Processor, StartError,
    StartRequest, Surroundings, TenantHandle,
};
use leasehold_lease::{LeaseFile, Nanoseconds, SharedPages, TenantSpec};
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
  leasehold up leases.toml --memory
  leasehold up leases.toml --for 1s --json > report.json

Tenants with a `cpu` reservation run inside it; the others share what is not reserved. A set that
`leasehold admit` refuses is not started, unless --unadmitted is given.
The output of tenants goes to standard output, the table and the report to standard error.
It runs until every tenant has ended. SIGINT, SIGTERM and SIGHUP kill all; the report follows.
TIME is a number and a unit: 500us, 1.5ms, 2s.

Exit codes: 0 every program returned 0, or was killed as asked; 1 one did not; 65 a program cannot
run here; 66 a file or directory is missing; 77 the reservations cannot be kept, or a lease does not
pay for its program; 78 the lease file or the profile is wrong.")]
pub(crate) struct Arguments {
    /// The lease file.
    #[arg(value_name = "LEASES")]
    pub(crate) leases: PathBuf,

    /// Kill the tenants that still run after this time [default: never].
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) time: Option<Nanoseconds>,

    /// Show memory reservations instead of processor reservations, live and at the end.
    #[arg(long)]
    memory: bool,

    /// Show no live table.
    #[arg(long)]
    quiet: bool,

    /// Print the report as one line of JSON, on standard output, and not the tenants' output.
    #[arg(long)]
    pub(crate) json: bool,

    /// The control socket, for `leasehold ps --socket PATH` and the like. With it there is no live
    /// table, each line of a tenant begins with its name, and `restart` in the leases is kept
    /// [default: none].
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) cell: CellOptions,
}

/// The contents of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Processor reservations.
    Processor,
    /// Memory reservations: `--memory`.
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

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let file = leases::load(&arguments.leases)?;
    let view = match arguments.memory {
        true => View::Memory,
        false => View::Processor,
    };
    for tenant in &file.tenants {
        leases::without_requests(&arguments.leases, tenant)?;
        leases::starts_once(tenant, "up");
    }
    let stores = Stores::open(&file.tenants, Origin::File(&arguments.leases))?;
    let requests = Prepared::read(&file.tenants, Origin::File(&arguments.leases))?;
    let opened = arguments.cell.open(
        (&arguments.leases, &file),
        &file.tenants,
        profile,
        &Control::default(),
        |cell| requests.start(cell.own_core(), None),
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
        output::report!(part "{text}{steps}{}", costs::text(&cell.costs()));
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

/// A start that was begun.
enum Begun {
    UnderWay(PendingStart),
    Over(TenantHandle),
}

impl Begun {
    fn wait(self) -> Result<TenantHandle, StartError> {
        match self {
            Self::UnderWay(pending) => pending.wait(),
            Self::Over(handle) => Ok(handle),
        }
    }
}

/// Starts all tenants, or none: those that were started end with the cell.
fn start<'a>(
    cell: &Cell,
    file: &'a LeaseFile,
    admitted: &Admitted,
    outputs: &Outputs,
) -> Result<Vec<Running<'a>>, Failure> {
    let of = |spec: &TenantSpec, error| failure(error).of_tenant(&spec.name);
    // A start takes the tenant's own time: they take it at the same time.
    let mut begun = Vec::with_capacity(file.tenants.len());
    for spec in &file.tenants {
        let request = StartRequest {
            program: load(cell, &spec.component, &spec.lease)
                .map_err(|error| error.of_tenant(&spec.name))?,
            lease: spec.lease,
            surroundings: outputs.surroundings(spec),
        };
        let pending = cell.begin_held(request).map_err(|error| of(spec, error))?;
        let paging = spec.lease.memory.paging;
        // Admission counts on the frames that a lock gives back when its tenant has started: for those behind it (SPC §IV-B).
        begun.push(
            match paging.is_some_and(|it| it.shared == SharedPages::Lock) {
                true => Begun::Over(pending.wait().map_err(|error| of(spec, error))?),
                false => Begun::UnderWay(pending),
            },
        );
    }
    let all = file.tenants.iter().zip(&admitted.ends.bounds).zip(begun);
    all.map(|((spec, bound), begun)| {
        let handle = begun.wait().map_err(|error| of(spec, error))?;
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
