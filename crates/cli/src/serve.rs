//! `leasehold serve`: the tenants of a lease file answer HTTP requests, each under its lease.

mod lines;
mod reached;
mod state;
mod tables;

use crate::access_log::{AccessLog, Form};
use crate::confinement::{Control, Origin, parent};
use crate::costs;
use crate::exit::Failure;
use crate::hindrances::no_descriptors;
use crate::host_steps;
use crate::interrupt::{Hangups, Interrupt, LOOK};
use crate::leases;
use crate::on_host::OnHost;
use crate::opened::{CellOptions, Opened};
use crate::operate::{page, socket};
use crate::output::{self, plain, say, tell};
use crate::requests::Requests;
use crate::rules::{bound, check_page_address, check_served};
use crate::run::{failure, load, load_handler, surroundings};
use crate::stores::Stores;
use crate::up::memory::Areas;
use crate::up::{Running, report};
use leasehold_cell::{Cell, DescriptorPromise, Input, Surroundings};
use leasehold_confine::Thread;
use leasehold_front::{Drained, Front, Options, Sampling, Site, Sockets};
use leasehold_lease::{Http, LeaseFile, ListenAddress, Listener, Nanoseconds, TenantSpec};
use leasehold_node::trace::{Begin, Endpoint, Exporter};
use leasehold_node::view::EventKind;
use leasehold_node::{
    Admitted, Api, Changes, Controller, Events, Facts, First, Keeper, Logs, LongPlaces,
    PageListener, Parts, RequestLog, Server, ServerOptions, Source, Supervisor, Ward,
};
use leasehold_outgoing::{Observer, Sent};
use lines::TenantLines;
use reached::Reached;
use state::State;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long killed tenants, and the access log, are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold serve leases.toml
  leasehold serve leases.toml --log json --grace 5s
  leasehold serve leases.toml --for 60s --json > report.json

Tenants with an `http` table answer requests at the listeners of the file; the others run as under
`leasehold up`. A set that `leasehold admit` refuses is not started, unless --unadmitted is given.
On SIGINT and SIGTERM it accepts no more, finishes the requests under way within --grace, and kills
its tenants; the report follows. A second signal gives these requests up. On SIGHUP it reads the
lease file again, as on `leasehold reload`.
TIME is a number and a unit: 500us, 1.5ms, 2s.

Exit codes: 0 no request was given up at the end, and no tenant failed; 1 one was, or one did, or no
tenant was left that answers requests; 65 a program cannot run here; 66 a file or directory is
missing; 77 the reservations cannot be kept, or a lease does not pay for its program; 78 the lease
file, the profile or the state is wrong.")]
pub(crate) struct Arguments {
    /// The lease file, with listeners.
    #[arg(value_name = "LEASES")]
    leases: PathBuf,

    /// End after this time, as on a signal [default: never].
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    /// How long requests under way may take to finish at the end.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    grace: Nanoseconds,

    /// The form of the access log, on standard error; with `json` every line there is an object.
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    log: Form,

    /// Print the report as one line of JSON, on standard output, and not the tenants' output.
    #[arg(long)]
    json: bool,

    /// The control socket, for `leasehold ps --socket PATH` and the like; `none` makes none
    /// [default: $XDG_RUNTIME_DIR/leasehold/node.sock, or node.sock in the state directory].
    #[arg(long, value_name = "PATH", env = "LEASEHOLD_SOCKET", hide_env = true)]
    socket: Option<PathBuf>,

    /// The address of the page for operators, such as 127.0.0.1:7070, and of the control interface
    /// over TCP; printed with its token [default: none].
    #[arg(long, value_name = "ADDRESS")]
    page: Option<ListenAddress>,

    /// Keep the changes of operators in this directory, and make them again at the next start
    /// [default: they end with the node].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// A directory with programs of tenants that are put later, beside that of the lease file; may be
    /// repeated.
    #[arg(long, value_name = "DIR")]
    programs: Vec<PathBuf>,

    /// Send spans of requests to this collector, OTLP over HTTP: http://HOST[:PORT][/PATH]
    /// [default: none].
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,

    /// The part of the requests of which spans are sent, 0 to 1; a client's own decision on its trace
    /// is kept.
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, requires = "otlp")]
    otlp_ratio: f64,

    #[command(flatten)]
    cell: CellOptions,
}

impl Arguments {
    /// The collector of spans. Its name is looked up here, before the process is confined.
    fn collector(&self) -> Result<Option<Endpoint>, Failure> {
        if !(0.0..=1.0).contains(&self.otlp_ratio) {
            let what = format!("--otlp-ratio: found {}; allowed: 0 to 1", self.otlp_ratio);
            return Err(Failure::Configuration(what));
        }
        let collector = self.otlp.as_deref().map(Endpoint::parse).transpose();
        collector.map_err(|error| Failure::Configuration(format!("--otlp: {error}")))
    }

    /// The form of the lines on standard error.
    pub(crate) const fn log(&self) -> Form {
        self.log
    }
}

/// What is started beside the cell.
struct Beside {
    front: Front,
    /// Those of the clients' connections.
    descriptors: Vec<DescriptorPromise>,
    server: Option<Server>,
    outgoing: Requests,
    exporter: Option<Arc<Exporter>>,
}

/// What a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Its tenants answer requests: `leasehold serve`.
    Serve,
    /// They run until they end: `leasehold up` with a control socket.
    Up,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    operate(arguments, Purpose::Serve, profile)
}

/// Runs tenants that answer no requests, as `leasehold up` does, with a control socket.
///
/// # Errors
/// As `leasehold up`.
pub(crate) fn up(
    up: &crate::up::Arguments,
    socket: &Path,
    profile: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let arguments = Arguments {
        leases: up.leases.clone(),
        time: up.time,
        // There are no requests.
        grace: Nanoseconds::MAX,
        log: Form::Text,
        json: up.json,
        socket: Some(socket.to_owned()),
        page: None,
        otlp: None,
        otlp_ratio: 1.0,
        state: None,
        programs: Vec::new(),
        cell: up.cell.clone(),
    };
    operate(&arguments, Purpose::Up, profile)
}

fn operate(
    arguments: &Arguments,
    purpose: Purpose,
    profile: Option<&Path>,
) -> Result<ExitCode, Failure> {
    // Places of the start are compared with those that operators name later.
    let leases = std::path::absolute(&arguments.leases);
    let arguments = &Arguments {
        leases: leases.unwrap_or_else(|_| arguments.leases.clone()),
        ..arguments.clone()
    };
    let is_server = purpose == Purpose::Serve;
    // A signal that comes while a server starts is not its end.
    let reloads = is_server.then(Hangups::listen).transpose()?;
    let State {
        file,
        stated,
        keeper,
        changes,
    } = State::load(arguments.state.as_deref(), &arguments.leases)?;
    if is_server {
        // Operators may have deleted all of the file that answer requests: the node goes on without one.
        let served = check_served(&arguments.leases, &stated);
        let served = served.or_else(|_| check_served(&arguments.leases, &file.tenants));
        served.map_err(Failure::Configuration)?;
    } else {
        for tenant in &file.tenants {
            leases::without_requests(&arguments.leases, tenant)?;
        }
    }
    let saves = keeper.as_ref().map(Keeper::saves);
    let of_file = |error| Failure::of_front(&error, &arguments.leases);
    let Reached {
        stores,
        requests: prepared,
        tenants: reached,
    } = Reached::open(&file, stated, Origin::File(&arguments.leases))?;
    let collector = arguments.collector()?;
    let listeners = if is_server { &*file.listeners } else { &[] };
    let sockets = Sockets::open(listeners).map_err(of_file)?;
    let socket = socket::open(arguments.socket.as_deref())?;
    let page = match (arguments.page, &socket) {
        (Some(address), Some(_)) => Some(page::open(address)?),
        (Some(_), None) => {
            let what = "--page: found no control socket; allowed: with one (--socket)";
            return Err(Failure::Configuration(what.to_owned()));
        }
        (None, _) => None,
    };
    let link = page.as_ref().map(PageListener::link);
    // The sockets of tenants do not listen yet, so the system lets the page have their addresses.
    let page_address = page.as_ref().map(PageListener::address);
    let page_address = page_address.and_then(|address| ListenAddress::try_from(address).ok());
    check_page_address(&file.tenants, page_address).map_err(|message| {
        Failure::Configuration(format!("{}: {message}", arguments.leases.display()))
    })?;
    let site = |tenant: &TenantSpec| {
        let http = tenant.http.clone();
        http.map(|http| {
            (
                Site::new(&tenant.name, &http, tenant.lease.cpu.as_ref()),
                http,
            )
        })
    };
    let sites: Vec<Option<(Arc<Site>, Http)>> = file.tenants.iter().map(site).collect();
    let log = Arc::new(AccessLog::new(arguments.log));
    let (controller, requests) = Controller::new();
    let (events, last_requests) = (Arc::new(Events::default()), Arc::new(RequestLog::default()));
    // The threads that write have to be confined as the controller is in the end.
    let lines: Arc<OnceLock<Arc<TenantLines>>> = Arc::default();
    let printer = {
        let lines = lines.clone();
        Arc::new(move |tenant: &str, line: &leasehold_node::view::LogLine| {
            if let Some(lines) = lines.get() {
                lines.printer()(tenant, line);
            }
        })
    };
    // The lease file is read again, and so are programs that are put beside it.
    let beside_leases = parent(&arguments.leases).to_owned();
    let programs_of = arguments.programs.iter().cloned();
    let control = Control {
        serves: is_server,
        programs: programs_of.chain([beside_leases]).collect(),
        leases: Some(arguments.leases.clone()),
        state: arguments.state.clone(),
        socket: socket.as_ref().map(|socket| socket.path().to_owned()),
        collector: collector.as_ref().map(Endpoint::port),
        page: page_address,
        certificates: Control::of_served(&arguments.leases, &file).certificates,
    };
    let logs = Logs::new(printer);
    let opened = arguments.cell.open(
        (&arguments.leases, &file),
        &reached,
        profile,
        &control,
        |cell| {
            let host = |error: std::io::Error| Failure::Host(error.into());
            let set_aside = |listener: &Listener| {
                let promised = DescriptorPromise::of_listener(listener.connections);
                promised.map_err(|refused| {
                    let message = no_descriptors(&arguments.leases, listener, &refused);
                    Failure::Configuration(message)
                })
            };
            let descriptors = listeners.iter().map(set_aside).collect::<Result<_, _>>()?;
            let exporter = collector.map(|collector| {
                let begin = Begin {
                    core: cell.own_core(),
                    confine: Some(Box::new(|| {
                        leasehold_confine::narrow(Thread::Outgoing).map_err(std::io::Error::other)
                    })),
                };
                Exporter::start(&collector, begin).map(Arc::new)
            });
            let exporter = exporter.transpose().map_err(host)?;
            let observer = exporter
                .clone()
                .map(|spans| -> Observer { Arc::new(move |sent: &Sent| spans.put_sent(sent)) });
            let outgoing = prepared.start(cell.own_core(), observer)?;
            let (records, last) = (log.clone(), last_requests.clone());
            let spans = exporter.clone();
            let options = Options {
                core: cell.own_core(),
                log: Some(Arc::new(move |record| {
                    if let Some(spans) = &spans {
                        spans.put(record);
                    }
                    records.put(record);
                    last.put(record);
                })),
                sampling: exporter
                    .is_some()
                    .then(|| Sampling::of_ratio(arguments.otlp_ratio)),
                begin: Some(Box::new(|| {
                    leasehold_confine::narrow(Thread::Front).map_err(std::io::Error::other)
                })),
            };
            let sites: Vec<_> = sites.iter().flatten().cloned().collect();
            let front = Front::start(sockets, &sites, options).map_err(of_file)?;
            let api = Api {
                controller: controller.clone(),
                events: events.clone(),
                logs: logs.clone(),
                saves,
                long: LongPlaces::default(),
            };
            let options = ServerOptions {
                core: cell.own_core(),
                begin: Some(Box::new(|| {
                    leasehold_confine::narrow(Thread::Control).map_err(std::io::Error::other)
                })),
                page,
            };
            let server = socket.map(|socket| Server::start(socket, api, options));
            let server = server.transpose().map_err(host)?;
            Ok(Beside {
                front,
                descriptors,
                server,
                outgoing,
                exporter,
            })
        },
    )?;
    log.begin();
    let Opened {
        cell,
        admitted,
        confined,
        notify,
        rules,
        beside:
            Beside {
                front,
                descriptors: _descriptors,
                server,
                outgoing,
                exporter,
            },
    } = opened;
    let lines = lines.get_or_init(|| TenantLines::begin(arguments.log, arguments.json));
    logs.begin().map_err(|error| Failure::Host(error.into()))?;
    let cell = Arc::new(cell);
    let kept = keeper.as_ref().map(Keeper::path);
    let started = programs(&cell, &file, &sites, (&changes, kept))?;
    let bounds = admitted.ends.bounds.iter().copied().map(bound);
    let first = Admitted {
        bounds: bounds.collect(),
        schedulable: admitted.schedulable,
        utilization: admitted.utilization,
    };
    let parts = Parts {
        cell: cell.clone(),
        front: Some(front),
        admission: Arc::new(rules),
        surroundings: Box::new(move |spec| around(spec, &stores, &outgoing)),
        events: events.clone(),
        logs,
        requests: last_requests,
        exporter,
        keeper,
        facts: Facts {
            order: file.order.to_string(),
            confinement: confined.to_string(),
            listeners: file.listeners.clone(),
            memory: file.memory,
            code: file.code,
            leases: arguments.leases.clone(),
        },
    };
    let supervisor = Supervisor::new(parts, &controller, requests);
    let mut supervisor = supervisor.map_err(|error| Failure::Host(error.into()))?;
    let refused = supervisor.start(started, &first);
    refused.map_err(|refused| failure(refused.error).of_tenant(&refused.tenant))?;
    let interrupt = match purpose {
        Purpose::Serve => Interrupt::of_server()?,
        Purpose::Up => Interrupt::listen()?,
    };
    let began = Instant::now();
    supervisor.go();
    if let Some(front) = supervisor.front() {
        if is_server {
            say!(part "{}", tables::serving(front.listening(), &file));
        }
        front.serve();
    }
    if let Some(link) = link {
        say!("the page: {link}");
    }
    notify.ready(supervisor.wards().len());

    let mut draining = false;
    let told_twice = loop {
        supervisor.turn(LOOK);
        if reloads.as_ref().is_some_and(Hangups::is_told) {
            supervisor.reload(false, |result| match result {
                Ok(changes) => say!("leasehold: reloaded: {changes}"),
                Err(problem) => say!("leasehold: not reloaded: {}", plain(&problem.to_string())),
            });
        }
        let late = arguments
            .time
            .is_some_and(|time| began.elapsed() >= Duration::from_nanos(time.get()));
        if !draining && (late || interrupt.is_told()) {
            draining = true;
            notify.stopping();
            events.publish(EventKind::Draining, None, None);
            supervisor.drain();
            if let Some(front) = supervisor.front() {
                front.drain(arguments.grace.into());
            }
        }
        let told_twice = interrupt.times() > 1;
        let is_over = supervisor.front().is_none_or(Front::is_over);
        if draining && (is_over || told_twice) {
            break told_twice;
        }
        let works = |ward: &Ward| (ward.site().is_some() || !is_server) && !ward.is_over();
        let waits = supervisor.is_operated() && server.is_some();
        if !draining && !waits && !supervisor.wards().iter().any(works) {
            if is_server {
                say!("leasehold: no tenant is left that answers requests");
            }
            break false;
        }
    };
    let front = supervisor.take_front();
    if let (Some(front), true) = (&front, told_twice || !draining) {
        front.drain(Duration::ZERO);
    }
    let drained = front.map_or(Drained { abandoned: 0 }, Front::wait);
    supervisor.end(PATIENCE);
    drop(server);
    let elapsed = began.elapsed();
    output::finish(true, &lines.destinations());
    log.flush_within(output::patience());
    for (what, lost) in [
        ("the access log", log.lost()),
        ("tenants' output", lines.lost()),
    ] {
        if lost > 0 {
            say!("leasehold: {lost} lines of {what} were lost");
        }
    }
    let host = OnHost {
        realtime: cell.realtime(),
        confined: &confined,
    };
    // What was stopped before this node began has not run.
    let has_run = |ward: &&Ward| ward.ended().is_some() || !ward.is_over();
    let wards = supervisor.wards().iter().filter(has_run);
    let running: Vec<Running<'_>> = wards.map(Running::of).collect();
    let failed = running.iter().any(Running::has_failed) || drained.abandoned > 0;
    let areas = Areas::default();
    let served = tables::Outcome {
        wards: supervisor.wards(),
        drained,
    };
    if arguments.json {
        let mut json = report::json(&running, elapsed, &admitted, &host, &areas);
        json["host_steps"] = host_steps::json(&cell.steps());
        json["end_costs"] = costs::json(&cell.costs());
        if is_server {
            json["serving"] = served.json();
        }
        tell!("{json}");
    } else {
        let text = report::text(&running, elapsed, &admitted, &host, None, &areas);
        let steps = host_steps::text(&cell.steps());
        let costs = costs::text(&cell.costs());
        match purpose {
            Purpose::Serve => output::report!(part "{}\n{text}{steps}{costs}", served.text()),
            Purpose::Up => output::report!(part "{text}{steps}{costs}"),
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// What a tenant has around it, its outputs apart.
fn around(spec: &TenantSpec, stores: &Stores, outgoing: &Requests) -> Surroundings {
    Surroundings {
        stdin: Input::Empty,
        outgoing: outgoing.of(spec),
        ..surroundings(spec, stores)
    }
}

/// Loads the programs of all tenants.
fn programs(
    cell: &Cell,
    file: &LeaseFile,
    sites: &[Option<(Arc<Site>, Http)>],
    (changes, kept): (&Changes, Option<&Path>),
) -> Result<Vec<First>, Failure> {
    let loaded = |(spec, site): (&TenantSpec, &Option<(Arc<Site>, Http)>)| {
        let change = changes.of(&spec.name);
        let program = match site {
            Some(_) => load_handler(cell, &spec.component, &spec.lease),
            None => load(cell, &spec.component, &spec.lease),
        };
        // A table that was put is not in the lease file.
        let place = kept.filter(|_| change.table.is_some());
        let program = program.map_err(|error| {
            let error = error.of_tenant(&spec.name);
            match place {
                Some(path) => error.at(&format!("--state: {}", path.display())),
                None => error,
            }
        })?;
        Ok(First {
            spec: spec.clone(),
            source: Source::of(&program),
            program,
            site: site.as_ref().map(|(site, _)| site.clone()),
            table: change.table,
            is_stopped: change.is_stopped,
        })
    };
    file.tenants.iter().zip(sites).map(loaded).collect()
}
