//! `leasehold serve`: the tenants of a lease file answer HTTP requests, each inside its leases.

mod restarts;
mod tables;

use crate::access_log::{AccessLog, Form};
use crate::confinement::Origin;
use crate::costs;
use crate::exit::Failure;
use crate::host_steps;
use crate::interrupt::{Interrupt, LOOK};
use crate::leases;
use crate::opened::{CellOptions, Opened};
use crate::output::{say, tell};
use crate::run::{failure, load, load_handler};
use crate::stores::Stores;
use crate::up::memory::Areas;
use crate::up::screen::Screen;
use crate::up::{OnHost, Outputs, Running, named, report};
use leasehold_cell::{Cell, Exit, Program, Serving, StartRequest, TenantHandle};
use leasehold_confine::Thread;
use leasehold_exchange::Lane;
use leasehold_front::{Drained, Front, FrontError, Options, Site, Sockets};
use leasehold_lease::{Fresh, Http, LeaseFile, Nanoseconds, Restart, TenantSpec};
use restarts::Restarts;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long killed tenants, and the access log, are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold serve leases.toml
  leasehold serve leases.toml --log json --grace 5s
  leasehold serve leases.toml --for 60s --json > report.json

Tenants with an `http` table answer requests at the file's listeners; the others run as under `up`.
A set whose reservations cannot be kept is not started (see `leasehold admit`).
Told to end (SIGINT, SIGTERM, SIGHUP), it accepts nothing more, finishes the requests that are under
way within --grace, and kills its tenants; the report follows. A second signal ends them at once.
Exit codes: 0 nothing was given up; 1 a request was, or a tenant failed.")]
pub(crate) struct Arguments {
    /// The listeners, the tenants and their leases.
    #[arg(value_name = "LEASES")]
    leases: PathBuf,

    /// End after this time, as a signal does.
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    /// How long requests that are under way may take to finish when it ends.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    grace: Nanoseconds,

    /// The form of the access log, on standard error.
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    log: Form,

    /// The report as JSON, on standard output, instead of the tenants' output.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    cell: CellOptions,
}

/// A tenant of a server, which may be started several times.
struct Tenant<'a> {
    running: Running<'a>,
    program: Arc<Program>,
    site: Option<Arc<Site>>,
    restarts: Restarts,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let file = leases::load(&arguments.leases)?;
    check(&arguments.leases, &file)?;
    let of_file = |error| unusable(&arguments.leases, &error);
    let stores = Stores::open(&file.tenants, Origin::File(&arguments.leases))?;
    let sockets = Sockets::open(&file.listeners).map_err(of_file)?;
    let site = |tenant: &TenantSpec| {
        let http = tenant.http.clone();
        http.map(|http| (Site::new(&tenant.name, &http), http))
    };
    let sites: Vec<Option<(Arc<Site>, Http)>> = file.tenants.iter().map(site).collect();
    let log = Arc::new(AccessLog::new(arguments.log));
    let opened = arguments
        .cell
        .open(&arguments.leases, &file, profile, |cell| {
            let records = log.clone();
            let options = Options {
                core: cell.own_core(),
                log: Some(Arc::new(move |record| records.put(record))),
                begin: Some(Box::new(|| {
                    leasehold_confine::narrow(Thread::Front).map_err(std::io::Error::other)
                })),
            };
            let sites: Vec<_> = sites.iter().flatten().cloned().collect();
            Front::start(sockets, &sites, options).map_err(of_file)
        })?;
    log.begin();
    let front = &opened.beside;
    let screen = Screen::new(false);
    let outputs = Outputs::of(&screen, arguments.json, stores);
    let mut tenants = start(&opened, &file, &sites, &outputs)?;
    let interrupt = Interrupt::listen()?;
    let began = Instant::now();
    for tenant in tenants.iter().filter(|tenant| tenant.site.is_none()) {
        tenant.running.handle.go();
    }
    say!(part "{}", tables::serving(front.listening(), &file));
    front.serve();
    opened.notify.ready(tenants.len());

    let mut draining = false;
    let told_twice = loop {
        for tenant in &mut tenants {
            tenant.look(&opened.cell, &outputs, draining)?;
        }
        let late = arguments
            .time
            .is_some_and(|time| began.elapsed() >= Duration::from_nanos(time.get()));
        if !draining && (late || interrupt.is_told()) {
            draining = true;
            opened.notify.stopping();
            front.drain(arguments.grace.into());
        }
        let told_twice = interrupt.times() > 1;
        if draining && (front.is_over() || told_twice) {
            break told_twice;
        }
        let serves = |tenant: &Tenant<'_>| tenant.site.is_some() && !tenant.is_over();
        if !draining && !tenants.iter().any(serves) {
            say!("leasehold: no tenant is left that answers requests");
            break false;
        }
        std::thread::sleep(LOOK);
    };
    if told_twice || !draining {
        front.drain(Duration::ZERO);
    }
    let Opened {
        cell,
        admitted,
        confined,
        beside: front,
        ..
    } = opened;
    let drained = front.wait();
    end(&mut tenants)?;
    let elapsed = began.elapsed();
    outputs.finish(true);
    log.flush_within(Duration::from_secs(1));
    if log.lost() > 0 {
        say!(
            "leasehold: {} lines of the access log were lost",
            log.lost()
        );
    }
    let host = OnHost {
        realtime: cell.realtime(),
        confined: &confined,
    };
    let restarts: Vec<u32> = tenants
        .iter()
        .map(|tenant| tenant.restarts.times())
        .collect();
    let failed = tenants.iter().any(|tenant| tenant.running.has_failed()) || drained.abandoned > 0;
    let running: Vec<Running<'_>> = tenants.into_iter().map(|tenant| tenant.running).collect();
    let areas = Areas::default();
    let served = tables::Outcome {
        sites: &sites,
        restarts: &restarts,
        drained,
    };
    if arguments.json {
        let mut json = report::json(&running, elapsed, &admitted, &host, &areas);
        json["host_steps"] = host_steps::json(&cell.steps());
        json["end_costs"] = costs::json(&cell.costs());
        json["serving"] = served.json(&file);
        tell!("{json}");
    } else {
        let text = report::text(&running, elapsed, &admitted, &host, None, &areas);
        let steps = host_steps::text(&cell.steps());
        say!(part "{}\n{text}{steps}{}", served.text(&file), costs::text(&cell.costs()));
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// What only a server needs of a lease file.
fn check(path: &Path, file: &LeaseFile) -> Result<(), Failure> {
    let refused = |what: String| Failure::Configuration(format!("{}: {what}", path.display()));
    let http = || {
        file.tenants
            .iter()
            .filter_map(|tenant| Some((tenant, tenant.http.as_ref()?)))
    };
    if http().next().is_none() {
        let allowed = "at least one table [tenant.NAME.http]";
        return Err(refused(format!(
            "tenant: found no tenant that answers requests; allowed: {allowed}"
        )));
    }
    match http().find(|(_, http)| http.fresh == Fresh::Tenant) {
        Some((tenant, _)) => Err(refused(format!(
            "tenant.{}.http.fresh: found \"tenant\"; allowed: \"instance\", which is all that this version has",
            tenant.name
        ))),
        None => Ok(()),
    }
}

fn unusable(path: &Path, error: &FrontError) -> Failure {
    let message = format!("{}: {error}", path.display());
    match error {
        FrontError::Unreadable { .. } => Failure::Missing(message),
        FrontError::Address { .. } | FrontError::Thread(_) => {
            Failure::Host(anyhow::anyhow!(message))
        }
        _ => Failure::Configuration(message),
    }
}

/// Starts all tenants, or none: those that were started end with the cell. Tenants that answer
/// requests wait for the first; the others wait for [`TenantHandle::go`].
fn start<'a>(
    opened: &Opened<Front>,
    file: &'a LeaseFile,
    sites: &[Option<(Arc<Site>, Http)>],
    outputs: &Outputs,
) -> Result<Vec<Tenant<'a>>, Failure> {
    let cell = &opened.cell;
    let mut tenants = Vec::with_capacity(file.tenants.len());
    let bounds = &opened.admitted.ends.bounds;
    for ((spec, bound), site) in file.tenants.iter().zip(bounds).zip(sites) {
        let site = site.as_ref().map(|(site, _)| site.clone());
        let program = match site {
            Some(_) => load_handler(cell, &spec.component, &spec.lease),
            None => load(cell, &spec.component, &spec.lease),
        };
        let program = program.map_err(|error| named(&spec.name, error))?;
        let handle = start_one(cell, spec, &program, site.as_ref(), outputs)?;
        tenants.push(Tenant {
            running: Running::new(spec, *bound, handle),
            program,
            site,
            restarts: Restarts::default(),
        });
    }
    Ok(tenants)
}

fn start_one(
    cell: &Cell,
    spec: &TenantSpec,
    program: &Arc<Program>,
    site: Option<&Arc<Site>>,
    outputs: &Outputs,
) -> Result<TenantHandle, Failure> {
    let request = StartRequest {
        program: program.clone(),
        lease: spec.lease,
        surroundings: outputs.surroundings(spec),
    };
    let started = match (site, &spec.http) {
        (Some(site), Some(http)) => {
            let lane = Arc::new(Lane::new(http.queue as usize));
            let serving = Serving {
                concurrency: http.concurrency,
                reuse: http.reuse,
                ..Serving::default()
            };
            let started = cell.start_serving(request, lane.clone(), serving);
            if started.is_ok() {
                site.set_lane(Some(lane));
            }
            started
        }
        _ => cell.start_held(request),
    };
    started.map_err(|error| named(&spec.name, failure(error)))
}

impl Tenant<'_> {
    /// Whether it has ended and is not started again.
    fn is_over(&self) -> bool {
        self.running.ended.is_some() && !self.restarts.is_due_later()
    }

    /// Sees whether it has ended, and starts it again when its lease says so and its pause is over.
    fn look(&mut self, cell: &Cell, outputs: &Outputs, draining: bool) -> Result<(), Failure> {
        let spec = self.running.spec;
        if self.running.ended.is_none() {
            self.running.look()?;
            let Some(ended) = &self.running.ended else {
                return Ok(());
            };
            if let Some(site) = &self.site {
                site.set_lane(None);
            }
            let failed = !matches!(ended.exit, Exit::Killed | Exit::Code(0));
            if failed && spec.restart == Restart::OnFailure && !draining {
                let pause = self.restarts.plan(Instant::now());
                say!(
                    "leasehold: tenant.{}: {}; started again in {:.1} s",
                    spec.name,
                    self.running.state(),
                    pause.as_secs_f64()
                );
            }
        }
        if draining || !self.restarts.is_due(Instant::now()) {
            return Ok(());
        }
        match start_one(cell, spec, &self.program, self.site.as_ref(), outputs) {
            Ok(handle) => {
                if self.site.is_none() {
                    handle.go();
                }
                self.running.again(handle);
                self.restarts.started(Instant::now());
            }
            // What others hold now may be free later.
            Err(error @ Failure::Refused(_)) => {
                let pause = self.restarts.plan(Instant::now());
                say!(
                    "leasehold: {error}; tried again in {:.1} s",
                    pause.as_secs_f64()
                );
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Kills what still runs, and waits for its end.
fn end(tenants: &mut [Tenant<'_>]) -> Result<(), Failure> {
    for tenant in tenants
        .iter()
        .filter(|tenant| tenant.running.ended.is_none())
    {
        tenant.running.handle.kill();
    }
    let until = Instant::now() + PATIENCE;
    while tenants.iter().any(|tenant| tenant.running.ended.is_none()) && Instant::now() < until {
        for tenant in tenants.iter_mut() {
            tenant.running.look()?;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
