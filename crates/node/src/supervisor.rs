//! The one owner of the tenants' handles and of what is wanted of them.

use crate::controller::{Controller, Request, Requests};
use crate::events::Events;
use crate::loader::{Job, Loader, Prepared};
use crate::logs::Logs;
use crate::metrics;
use crate::problem::Problem;
use crate::request_log::RequestLog;
use crate::restarts::Restarts;
use crate::trace::Exporter;
use crate::view::{self, Desired, End, EndBound, ErrorKind, EventKind};
use crate::viewed;
use crate::ward::{Life, Phase, Seen, Ward};
use jiff::Timestamp;
use leasehold_cell::{
    Cell, Ended, Exit, Program, Realtime, Serving, StartError, StartRequest, Surroundings,
    TenantHandle,
};
use leasehold_exchange::Lane;
use leasehold_front::{Front, Site};
use leasehold_lease::{Http, LeaseFile, Listener, Restart, TenantSpec};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Ends that are kept.
const ENDS: usize = 100;
/// How long what is shown stays as it is.
const FRESH: Duration = Duration::from_secs(1);
/// Tenants whose account and memory are asked for at once: two commands each.
const ASKED: usize = 16;
/// Changes that wait for the one before.
const CHANGES: usize = 64;
/// How long requests that are under way keep a tenant whose place a new one takes.
const GRACE: Duration = Duration::from_secs(10);
/// The most tenants of a cell.
const TENANTS: usize = 1024;

/// What decides whether tenants can be kept.
pub trait Admission: Send + Sync {
    /// Tests all tenants together.
    ///
    /// # Errors
    /// When their reservations cannot be kept.
    fn test(&self, tenants: &[TenantSpec]) -> Result<Admitted, Problem>;

    /// Checks what one tenant needs of the host: that its files are where this process reaches them.
    ///
    /// # Errors
    /// When they are not, or what it asks for is only given at the start.
    fn check(&self, tenant: &TenantSpec) -> Result<(), Problem>;

    /// Tests a lease file, and tells the outcome as `leasehold admit --json` does.
    fn report(&self, file: &LeaseFile) -> serde_json::Value;
}

/// Tenants that can be kept together.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// How long the end of each takes at most, in their order.
    pub bounds: Vec<EndBound>,
    /// Whether all reservations can be kept; false only where that is not asked for.
    pub schedulable: bool,
    /// The part of the processor that is reserved.
    pub utilization: f64,
}

/// What does not change while the node runs.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The order of processor reservations.
    pub order: String,
    /// What confines the process.
    pub confinement: String,
    /// The listeners of the lease file.
    pub listeners: Vec<Listener>,
    /// The file that tenants' relative paths are relative to.
    pub leases: PathBuf,
}

/// What a supervisor is made of.
pub struct Parts {
    /// The cell.
    pub cell: Arc<Cell>,
    /// What hands requests to its tenants, if there is a listener.
    pub front: Option<Front>,
    /// What decides whether tenants can be kept.
    pub admission: Arc<dyn Admission>,
    /// What a tenant has around it, its outputs apart.
    pub surroundings: Box<dyn Fn(&TenantSpec) -> Surroundings + Send>,
    /// Where events go.
    pub events: Arc<Events>,
    /// Where the tenants' outputs go.
    pub logs: Arc<Logs>,
    /// The last requests.
    pub requests: Arc<RequestLog>,
    /// What sends spans to a collector, if there is one.
    pub exporter: Option<Arc<Exporter>>,
    /// What does not change.
    pub facts: Facts,
}

/// Why the tenants were not started.
#[derive(Debug)]
pub struct StartFailure {
    /// The tenant that was not.
    pub tenant: String,
    /// Why not.
    pub error: StartError,
}

/// The one owner of the tenants' handles.
pub struct Supervisor {
    parts: Parts,
    loader: Loader,
    waiting: Requests,
    wards: Vec<Ward>,
    ends: VecDeque<End>,
    /// All ends since it began, of the tenants that it knows.
    counted_ends: metrics::Ends,
    started_at: Timestamp,
    schedulable: bool,
    utilization: f64,
    /// A change is being prepared; others wait for it.
    is_changing: bool,
    changes: VecDeque<Request>,
    snapshot: Option<(Instant, Arc<view::Snapshot>)>,
    /// The ward whose account is asked for next.
    asked: usize,
    is_draining: bool,
    is_operated: bool,
}

impl Supervisor {
    /// A supervisor that answers these requests, of which `controller` is the other end. Its threads are
    /// confined as the calling one.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(parts: Parts, controller: &Controller, waiting: Requests) -> std::io::Result<Self> {
        let loader = Loader::start(
            parts.cell.clone(),
            parts.admission.clone(),
            controller.clone(),
        )?;
        Ok(Self {
            parts,
            loader,
            waiting,
            wards: Vec::new(),
            ends: VecDeque::new(),
            counted_ends: metrics::Ends::default(),
            started_at: Timestamp::now(),
            schedulable: true,
            utilization: 0.0,
            is_changing: false,
            changes: VecDeque::new(),
            snapshot: None,
            asked: 0,
            is_draining: false,
            is_operated: false,
        })
    }

    /// Starts these tenants with their programs and sites, in order, or returns why one of them is not.
    /// Those that answer requests wait for the first, the others for [`Supervisor::go`].
    ///
    /// # Errors
    /// When a tenant is not started.
    pub fn start(
        &mut self,
        tenants: Vec<(TenantSpec, Arc<Program>, Option<Arc<Site>>)>,
        admitted: &Admitted,
    ) -> Result<(), StartFailure> {
        self.admitted(admitted);
        for ((spec, program, site), bound) in tenants.into_iter().zip(&admitted.bounds) {
            let mut ward = ward(spec, *bound, program, site);
            let lane = lane(&ward.spec);
            let started = self.begin(&ward, lane.clone());
            let life = started.map_err(|error| StartFailure {
                tenant: ward.name().to_owned(),
                error,
            })?;
            if let Some(site) = &ward.site {
                site.set_lane(lane);
            }
            ward.life = Some(life);
            self.wards.push(ward);
        }
        Ok(())
    }

    /// Lets those run that wait.
    pub fn go(&mut self) {
        self.started_at = Timestamp::now();
        for ward in &mut self.wards {
            ward.since = self.started_at;
            if let (Some(life), None) = (&ward.life, &ward.site) {
                life.handle.go();
            }
            self.parts
                .events
                .publish(EventKind::Started, Some(ward.name()), None);
        }
    }

    /// Does what is asked for at most `patience`, and looks after all tenants.
    pub fn turn(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.waiting.0.recv_timeout(left) {
                Ok(request) => request(self),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(left);
                    break;
                }
            }
            if left.is_zero() {
                break;
            }
        }
        self.look();
    }

    /// The tenants, in the order in which they became known.
    pub fn wards(&self) -> &[Ward] {
        &self.wards
    }

    /// The cell.
    pub fn cell(&self) -> &Arc<Cell> {
        &self.parts.cell
    }

    /// The front, if there is one.
    pub fn front(&self) -> Option<&Front> {
        self.parts.front.as_ref()
    }

    /// The front, to wait for its end.
    pub fn take_front(&mut self) -> Option<Front> {
        self.parts.front.take()
    }

    /// Whether an operator has changed something: the node then waits for more.
    pub fn is_operated(&self) -> bool {
        self.is_operated
    }

    /// From now on nothing is started.
    pub fn drain(&mut self) {
        self.is_draining = true;
        for ward in &mut self.wards {
            ward.restarts = Restarts::default().after(&ward.restarts);
            ward.pending = None;
        }
    }

    /// Kills all tenants, and waits for at most `patience` until they have ended.
    pub fn end(&mut self, patience: Duration) {
        self.drain();
        for ward in &mut self.wards {
            ward.life
                .iter_mut()
                .chain(&mut ward.leaving)
                .for_each(Life::kill);
        }
        let until = Instant::now() + patience;
        while !self.wards.iter().all(Ward::is_gone) && Instant::now() < until {
            self.turn(Duration::from_millis(5));
        }
        self.parts.logs.finish();
    }

    // What operators ask for.

    /// A tenant.
    pub(crate) fn tenant(&mut self, name: &str) -> Result<view::Tenant, Problem> {
        self.snapshot();
        self.at(name).map(|at| self.wards[at].view())
    }

    /// Kills a tenant and keeps it known; its end is sent once it is over. Idempotent.
    pub(crate) fn kill(&mut self, name: &str) -> Result<oneshot::Receiver<End>, Problem> {
        let at = self.at(name)?;
        self.is_operated = true;
        let ward = &mut self.wards[at];
        ward.desired = Desired::Stopped;
        stop(ward);
        ward.life
            .iter_mut()
            .chain(&mut ward.leaving)
            .for_each(Life::kill);
        next_end(ward)
    }

    /// Sends the end of a tenant: the last one if it is not running, or the next.
    pub(crate) fn wait(&mut self, name: &str) -> Result<oneshot::Receiver<End>, Problem> {
        let at = self.at(name)?;
        next_end(&mut self.wards[at])
    }

    /// Takes requests away from a tenant, and ends it when those under way are over, or after `grace`.
    pub(crate) fn drain_tenant(
        &mut self,
        name: &str,
        grace: Duration,
    ) -> Result<view::Tenant, Problem> {
        let at = self.at(name)?;
        self.is_operated = true;
        let ward = &mut self.wards[at];
        ward.desired = Desired::Stopped;
        stop(ward);
        if let Some(life) = &mut ward.life
            && life.phase == Phase::Running
        {
            life.phase = Phase::Draining(Instant::now() + grace);
            self.parts
                .events
                .publish(EventKind::Draining, Some(name), None);
        }
        Ok(self.wards[at].view())
    }

    /// Starts a tenant that was stopped or has ended. Idempotent.
    pub(crate) fn start_again(&mut self, name: &str) -> Result<view::Tenant, Problem> {
        self.may_change()?;
        let at = self.at(name)?;
        self.is_operated = true;
        let ward = &mut self.wards[at];
        ward.desired = Desired::Running;
        if ward
            .life
            .as_ref()
            .is_some_and(|life| life.phase == Phase::Running)
        {
            return Ok(ward.view());
        }
        ward.restarts = Restarts::default().after(&ward.restarts);
        ward.leaving.extend(ward.life.take());
        self.start_anew(at)?;
        Ok(self.wards[at].view())
    }

    /// Kills a tenant and forgets it; whether there was one.
    pub(crate) fn delete(&mut self, name: &str) -> bool {
        let Ok(at) = self.at(name) else {
            return false;
        };
        self.is_operated = true;
        self.wards[at].is_deleted = true;
        self.wards[at].desired = Desired::Stopped;
        self.set_routes();
        let ward = &mut self.wards[at];
        stop(ward);
        ward.life
            .iter_mut()
            .chain(&mut ward.leaving)
            .for_each(Life::kill);
        true
    }

    /// Loads a tenant's program again, and starts a new one in its place.
    pub(crate) fn replace(
        &mut self,
        name: String,
        answer: oneshot::Sender<Result<view::Tenant, Problem>>,
    ) {
        self.change(move |supervisor| {
            let spec = supervisor
                .at(&name)
                .map(|at| (*supervisor.wards[at].spec).clone());
            match spec {
                Ok(spec) => supervisor.install(spec, EventKind::Replaced, move |result| {
                    let _ = answer.send(result.map(|(tenant, _)| tenant));
                }),
                Err(problem) => {
                    let _ = answer.send(Err(problem));
                    supervisor.changed();
                }
            }
        });
    }

    /// Puts a tenant as this text states it, which has one table `[tenant.NAME]`; the answer says whether it
    /// is new. Idempotent.
    pub(crate) fn put(
        &mut self,
        name: String,
        text: String,
        answer: oneshot::Sender<Result<(view::Tenant, bool), Problem>>,
    ) {
        self.change(move |supervisor| match supervisor.parsed(&name, &text) {
            Ok(spec) => {
                let same = |ward: &&Ward| !ward.is_deleted && *ward.spec == spec;
                let unchanged = supervisor.wards.iter().find(same);
                if let Some(ward) = unchanged.filter(|ward| ward.desired == Desired::Running) {
                    let _ = answer.send(Ok((ward.view(), false)));
                    return supervisor.changed();
                }
                supervisor.install(spec, EventKind::Put, move |result| {
                    let _ = answer.send(result);
                });
            }
            Err(problem) => {
                let _ = answer.send(Err(problem));
                supervisor.changed();
            }
        });
    }

    /// A tenant's reclamation account.
    pub(crate) fn statement(&mut self, name: &str) -> Result<view::Statement, Problem> {
        let at = self.at(name)?;
        self.snapshot();
        let seen = &mut self.wards[at].seen;
        if seen.statement.is_none() {
            self.ask(at);
        }
        let statement = self.wards[at].seen.statement.as_ref();
        statement
            .map(viewed::statement)
            .ok_or_else(|| not_running(name))
    }

    /// What a tenant got of the processor.
    pub(crate) fn processor(&mut self, name: &str) -> Result<view::Processor, Problem> {
        let at = self.at(name)?;
        self.snapshot();
        let ward = &self.wards[at];
        let processor = ward.seen.processor.as_ref().filter(|_| ward.life.is_some());
        let view =
            processor.map(|processor| viewed::processor(processor, ward.spec.lease.cpu.as_ref()));
        view.ok_or_else(|| not_running(name))
    }

    /// How a tenant uses its memory, or did when it ended.
    pub(crate) fn memory(&mut self, name: &str) -> Result<view::MemoryUse, Problem> {
        let at = self.at(name)?;
        self.snapshot();
        if self.wards[at].seen.memory.is_none() {
            self.ask(at);
        }
        let ward = &self.wards[at];
        let ended = ward.ended.as_ref().map(|ended| &ended.memory);
        let memory = ward.seen.memory.as_ref().or(ended);
        memory
            .map(|memory| viewed::memory(memory, &ward.spec.lease))
            .ok_or_else(|| not_running(name))
    }

    /// How a tenant's requests went.
    pub(crate) fn requests(&mut self, name: &str) -> Result<view::Requests, Problem> {
        let at = self.at(name)?;
        let site = self.wards[at].site.as_ref();
        let site = site.ok_or_else(|| {
            Problem::new(ErrorKind::Conflict, format!("{name} answers no requests"))
        })?;
        let (waiting, active) = site.load();
        Ok(view::Requests {
            waiting,
            active,
            outcomes: viewed::outcomes(site),
            latency: viewed::latency(site.latency()),
            last: self.parts.requests.last(name),
        })
    }

    /// All that is known; the cell is asked at most once a second.
    pub(crate) fn snapshot(&mut self) -> Arc<view::Snapshot> {
        if let Some((at, snapshot)) = &self.snapshot
            && at.elapsed() < FRESH
        {
            return snapshot.clone();
        }
        self.observe();
        let cell = &self.parts.cell;
        let snapshot = Arc::new(view::Snapshot {
            at: Timestamp::now(),
            node: self.node(),
            tenants: self
                .wards
                .iter()
                .filter(|ward| !ward.is_deleted)
                .map(Ward::view)
                .collect(),
            ends: self.ends.iter().cloned().collect(),
            steps: cell.steps().iter().map(viewed::step).collect(),
            costs: cell.costs().iter().map(viewed::cost).collect(),
            control: cell.control().iter().map(viewed::control).collect(),
            last_event: self.parts.events.newest(),
        });
        if let Some((_, before)) = &self.snapshot {
            self.compare(before, &snapshot);
        }
        self.snapshot = Some((Instant::now(), snapshot.clone()));
        snapshot
    }

    /// All that a page of metrics shows; the cell is asked at most once a second.
    pub(crate) fn observation(&mut self) -> metrics::Observation {
        let snapshot = self.snapshot();
        let known = self.wards.iter().filter(|ward| !ward.is_deleted);
        let sites = known.filter_map(|ward| ward.site.as_ref());
        let front = self.parts.front.as_ref();
        let listeners = front.map(|front| {
            let names = front
                .listening()
                .iter()
                .map(|listening| listening.name.clone());
            names.zip(front.connections()).collect()
        });
        metrics::Observation {
            sites: sites.map(|site| site.snapshot()).collect(),
            listeners: listeners.unwrap_or_default(),
            ends: self.counted_ends.clone(),
            exports: self
                .parts
                .exporter
                .as_ref()
                .map(|exporter| exporter.exports()),
            snapshot: Arc::unwrap_or_clone(snapshot),
        }
    }

    /// The tenants as they are now, with what was last seen of the cell.
    pub(crate) fn tenants(&mut self) -> Vec<view::Tenant> {
        self.snapshot();
        self.wards
            .iter()
            .filter(|ward| !ward.is_deleted)
            .map(Ward::view)
            .collect()
    }

    /// The node.
    pub(crate) fn node(&self) -> view::Node {
        let Facts {
            order, confinement, ..
        } = &self.parts.facts;
        let listening = self
            .parts
            .front
            .as_ref()
            .map(Front::listening)
            .unwrap_or_default();
        let now = Timestamp::now();
        view::Node {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            uptime_ns: now
                .duration_since(self.started_at)
                .as_nanos()
                .try_into()
                .unwrap_or(0),
            order: order.clone(),
            realtime: match self.parts.cell.realtime() {
                Realtime::Granted => "granted".to_owned(),
                Realtime::NotAsked => "not asked".to_owned(),
                Realtime::Refused(reason) => reason.to_string(),
            },
            own_core: self.parts.cell.own_core().map(|core| core as u64),
            confinement: confinement.clone(),
            schedulable: self.schedulable,
            utilization: self.utilization,
            listeners: listening.iter().map(viewed::listener).collect(),
        }
    }

    /// Parses a whole lease file.
    pub(crate) fn validate(&self, text: &str) -> Result<LeaseFile, Problem> {
        Ok(LeaseFile::parse(text, &self.parts.facts.leases)?)
    }

    /// What decides whether tenants can be kept.
    pub(crate) fn admission(&self) -> Arc<dyn Admission> {
        self.parts.admission.clone()
    }

    // Changes: one after the other, prepared on the thread that loads programs.

    fn change(&mut self, change: impl FnOnce(&mut Self) + Send + 'static) {
        match self.is_changing {
            // What asked is told by the loss of its answer.
            true if self.changes.len() >= CHANGES => {}
            true => self.changes.push_back(Box::new(change)),
            false => {
                self.is_changing = true;
                self.is_operated = true;
                change(self);
            }
        }
    }

    /// The change is done, or was given up: the next one begins.
    fn changed(&mut self) {
        self.snapshot = None;
        match self.changes.pop_front() {
            Some(next) => next(self),
            None => self.is_changing = false,
        }
    }

    fn parsed(&self, name: &str, text: &str) -> Result<TenantSpec, Problem> {
        self.may_change()?;
        let Facts {
            listeners, leases, ..
        } = &self.parts.facts;
        let origin = leases.with_file_name(format!("tenant.{name}"));
        let tenants = LeaseFile::parse_tenants(text, &origin, listeners)?;
        let [spec] = <[TenantSpec; 1]>::try_from(tenants).map_err(|tenants| {
            let found = format!(
                "found {} tables [tenant.NAME]; allowed: one, [tenant.{name}]",
                tenants.len()
            );
            Problem::new(ErrorKind::BadLease, found)
        })?;
        if spec.name != name {
            let found = format!(
                "tenant: found [tenant.{}]; allowed: [tenant.{name}]",
                spec.name
            );
            return Err(Problem::new(ErrorKind::BadLease, found));
        }
        let others = || {
            self.wards
                .iter()
                .filter(|ward| !ward.is_deleted && ward.name() != name)
        };
        if others().count() >= TENANTS {
            let message = format!("the cell has {TENANTS} tenants, which is as many as it may");
            return Err(Problem::new(ErrorKind::Refused, message));
        }
        for other in others() {
            let Some((theirs, ours)) = other.spec.http.as_ref().zip(spec.http.as_ref()) else {
                continue;
            };
            let both = |listener: &String| theirs.listeners.contains(listener);
            let route = ours
                .routes
                .iter()
                .find(|route| theirs.routes.contains(route));
            if let (Some(route), true) = (route, ours.listeners.iter().any(both)) {
                let message = format!(
                    "tenant.{name}.http.routes: found {:?}; allowed: a route that is free: tenant.{} has this one",
                    route.to_string(),
                    other.name()
                );
                return Err(Problem::new(ErrorKind::Conflict, message));
            }
        }
        Ok(spec)
    }

    /// Tests a tenant beside all others, loads its program, and starts it in the place of the one that has its
    /// name.
    fn install(
        &mut self,
        spec: TenantSpec,
        kind: EventKind,
        told: impl FnOnce(Result<(view::Tenant, bool), Problem>) + Send + 'static,
    ) {
        let others = self
            .wards
            .iter()
            .filter(|ward| !ward.is_deleted && ward.name() != spec.name);
        let mut all: Vec<TenantSpec> = others.map(|ward| (*ward.spec).clone()).collect();
        all.push(spec.clone());
        let job = Job {
            all: all.clone(),
            loaded: vec![spec.clone()],
            then: Box::new(move |supervisor, prepared| {
                let result =
                    prepared.and_then(|prepared| supervisor.installed(spec, &all, prepared, kind));
                if let Err(problem) = &result {
                    let name = all.last().map(|spec| spec.name.as_str());
                    supervisor.parts.events.publish(
                        EventKind::Refused,
                        name,
                        Some(problem.message.clone()),
                    );
                }
                told(result);
                supervisor.changed();
            }),
        };
        if let Err(problem) = self.loader.put(job) {
            tracing::error!("{problem}");
            self.changed();
        }
    }

    fn installed(
        &mut self,
        spec: TenantSpec,
        all: &[TenantSpec],
        prepared: Prepared,
        kind: EventKind,
    ) -> Result<(view::Tenant, bool), Problem> {
        self.may_change()?;
        let Prepared { admitted, programs } = prepared;
        let Some(program) = programs.into_iter().next() else {
            return Err(Problem::new(ErrorKind::Internal, "no program was loaded"));
        };
        let name = spec.name.clone();
        let bound = admitted.bounds.last().copied();
        let bound = bound.ok_or_else(|| Problem::new(ErrorKind::Internal, "no bound was found"))?;
        let before = self.wards.iter().position(|ward| ward.name() == name);
        let site = spec.http.as_ref().map(|http| {
            let before = before.and_then(|at| self.wards[at].site.as_ref());
            before.map_or_else(|| Site::new(&name, http), |site| site.changed(http))
        });
        let at = match before {
            Some(at) => {
                self.succeed(at, spec, bound, program, site)?;
                at
            }
            None => {
                let mut ward = ward(spec, bound, program, site);
                let lane = lane(&ward.spec);
                let life = self.begin(&ward, lane.clone())?;
                if let Some(site) = &ward.site {
                    site.set_lane(lane);
                } else {
                    life.handle.go();
                }
                ward.life = Some(life);
                self.wards.push(ward);
                self.wards.len() - 1
            }
        };
        self.admitted(&admitted);
        for (spec, bound) in all.iter().zip(&admitted.bounds) {
            let ward = self.wards.iter_mut().find(|ward| ward.name() == spec.name);
            if let Some(ward) = ward {
                ward.bound = *bound;
            }
        }
        self.set_routes();
        self.parts.events.publish(kind, Some(&name), None);
        if self.wards[at].life.is_some() {
            self.parts
                .events
                .publish(EventKind::Started, Some(&name), None);
        }
        Ok((self.wards[at].view(), before.is_none()))
    }

    /// Starts a new life in the place of the present one. Requests wait for it if both cannot be there at once.
    fn succeed(
        &mut self,
        at: usize,
        spec: TenantSpec,
        bound: EndBound,
        program: Arc<Program>,
        site: Option<Arc<Site>>,
    ) -> Result<(), Problem> {
        let mut next = ward(spec, bound, program, site);
        let lane = lane(&next.spec);
        let before = &mut self.wards[at];
        next.restarts = Restarts::default().after(&before.restarts);
        next.ended = before.ended.take();
        next.last_end = before.last_end.take();
        next.waiting = std::mem::take(&mut before.waiting);
        // Two programs that answer nothing would do the same work twice.
        let beside = match &next.site {
            Some(_) => self.begin(&next, lane.clone()),
            None if self.wards[at].life.is_none() => self.begin(&next, None),
            None => Err(StartError::Full("the earlier one is there".to_owned())),
        };
        match beside {
            Ok(life) => {
                if next.site.is_none() {
                    life.handle.go();
                }
                next.ended = None;
                next.life = Some(life);
            }
            Err(StartError::Processor(_) | StartError::Memory(_) | StartError::Full(_)) => {
                next.pending = Some(lane.clone());
            }
            Err(error) => {
                let before = &mut self.wards[at];
                before.ended = next.ended.take();
                before.last_end = next.last_end.take();
                before.waiting = std::mem::take(&mut next.waiting);
                return Err(error.into());
            }
        }
        if let Some(site) = &next.site {
            site.set_lane(lane);
        }
        let before = std::mem::replace(&mut self.wards[at], next);
        self.set_routes();
        if let Some(site) = &before.site {
            site.set_lane(None);
        }
        let now = Instant::now();
        let mut leaving = before.leaving;
        leaving.extend(before.life);
        for life in &mut leaving {
            match (&life.lane, life.phase) {
                (Some(_), Phase::Running) => life.phase = Phase::Draining(now + GRACE),
                (None, _) => life.kill(),
                (Some(_), _) => {}
            }
        }
        self.wards[at].leaving = leaving;
        Ok(())
    }

    // Lives.

    fn begin(&self, ward: &Ward, lane: Option<Arc<Lane>>) -> Result<Life, StartError> {
        let spec = &ward.spec;
        let (stdout, stderr) = self.parts.logs.of(&spec.name).outputs();
        let request = StartRequest {
            program: ward.program.clone(),
            lease: spec.lease,
            surroundings: Surroundings {
                stdout,
                stderr,
                ..(self.parts.surroundings)(spec)
            },
        };
        let handle: TenantHandle = match (&lane, &spec.http) {
            (Some(lane), Some(http)) => {
                let serving = Serving {
                    concurrency: http.concurrency,
                    reuse: http.reuse,
                    ..Serving::default()
                };
                self.parts
                    .cell
                    .start_serving(request, lane.clone(), serving)?
            }
            _ => self.parts.cell.start_held(request)?,
        };
        Ok(Life {
            handle,
            lane,
            spec: spec.clone(),
            bound: ward.bound,
            phase: Phase::Running,
            silent_until: None,
        })
    }

    /// Starts a tenant without a life, or as soon as its earlier lives are over.
    fn start_anew(&mut self, at: usize) -> Result<(), StartError> {
        let lane = match self.wards[at].pending.take() {
            Some(lane) => lane,
            None => lane(&self.wards[at].spec),
        };
        if !self.wards[at].leaving.is_empty() {
            self.wards[at].pending = Some(lane);
            return Ok(());
        }
        let life = self.begin(&self.wards[at], lane.clone())?;
        let ward = &mut self.wards[at];
        match &ward.site {
            Some(site) => site.set_lane(lane),
            None => life.handle.go(),
        }
        ward.life = Some(life);
        ward.ended = None;
        ward.seen = Seen::default();
        ward.since = Timestamp::now();
        self.parts
            .events
            .publish(EventKind::Started, Some(ward.name()), None);
        Ok(())
    }

    fn look(&mut self) {
        let now = Instant::now();
        for at in 0..self.wards.len() {
            let ward = &mut self.wards[at];
            for life in ward.life.iter_mut().chain(&mut ward.leaving) {
                life.drain(now);
                if let Some(said) = life.failed_requests_at(now) {
                    self.parts.logs.of(&life.spec.name).say(&said);
                }
            }
            let mut over = Vec::new();
            let is_over = |life: &mut Life| life.handle.wait_for(Duration::ZERO).ok().flatten();
            for place in (0..ward.leaving.len()).rev() {
                if let Some(ended) = is_over(&mut ward.leaving[place]) {
                    over.push((ward.leaving.swap_remove(place), ended, false));
                }
            }
            if let Some(ended) = ward.life.as_mut().and_then(is_over)
                && let Some(life) = ward.life.take()
            {
                over.push((life, ended, true));
            }
            for (life, ended, is_last) in over {
                self.over(at, &life, ended, is_last);
            }
            let ward = &mut self.wards[at];
            if let (true, Some(end)) = (ward.is_gone(), &ward.last_end) {
                for waiting in ward.waiting.drain(..) {
                    let _ = waiting.send(end.clone());
                }
            }
            self.revive(at, now);
        }
        let before = self.wards.len();
        for ward in self
            .wards
            .iter()
            .filter(|ward| ward.is_deleted && ward.is_gone())
        {
            self.parts
                .events
                .publish(EventKind::Deleted, Some(ward.name()), None);
            self.parts.logs.forget(ward.name());
            self.parts.requests.forget(ward.name());
            self.counted_ends.forget(ward.name());
        }
        self.wards
            .retain(|ward| !(ward.is_deleted && ward.is_gone()));
        if before != self.wards.len() {
            self.snapshot = None;
        }
    }

    /// A life is over: it is told, and the tenant is started again if its lease says so.
    fn over(&mut self, at: usize, life: &Life, ended: Ended, is_last: bool) {
        let end = viewed::end(&life.spec.name, &ended, life.bound, &life.spec.lease);
        let log = self.parts.logs.of(&end.tenant);
        log.finish();
        if let Some(said) = life.failed_requests() {
            log.say(&said);
        }
        if let Some((what, message)) = ended.exit.reason() {
            log.say(&format!("{what}{message}"));
        }
        self.parts.events.publish_end(&end);
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(end.clone());
        self.counted_ends.add(&end);
        let ward = &mut self.wards[at];
        if is_last || ward.last_end.is_none() {
            ward.last_end = Some(end);
        }
        if !is_last {
            return;
        }
        if let (Some(site), None) = (&ward.site, &ward.pending) {
            site.set_lane(None);
        }
        let failed = !matches!(ended.exit, Exit::Killed | Exit::Code(0));
        ward.ended = Some(ended);
        ward.since = Timestamp::now();
        ward.seen = Seen::default();
        let again = ward.desired == Desired::Running && ward.spec.restart == Restart::OnFailure;
        if failed && again && !self.is_draining {
            let pause = ward.restarts.plan(Instant::now());
            let said = format!("started again in {:.1} s", pause.as_secs_f64());
            let state = ward
                .ended
                .as_ref()
                .map_or("", |ended| exit_state(&ended.exit));
            log.say(&format!("{state}; {said}"));
            self.parts.events.publish(
                EventKind::Restarting,
                Some(ward.spec.name.as_str()),
                Some(said),
            );
        }
    }

    /// Starts a tenant whose pause is over, or whose earlier lives are.
    fn revive(&mut self, at: usize, now: Instant) {
        let ward = &self.wards[at];
        if self.is_draining || ward.is_deleted || ward.life.is_some() {
            return;
        }
        let is_restart = ward.restarts.is_due(now);
        if !is_restart && (ward.pending.is_none() || !ward.leaving.is_empty()) {
            return;
        }
        let lane = ward.pending.clone();
        match self.start_anew(at) {
            Ok(()) if is_restart => self.wards[at].restarts.started(now),
            Ok(()) => {}
            // What others hold now may be free later.
            Err(error) => {
                let ward = &mut self.wards[at];
                ward.pending = lane;
                let pause = ward.restarts.plan(now);
                let said = format!("{error}; tried again in {:.1} s", pause.as_secs_f64());
                let name = ward.spec.name.as_str();
                self.parts.logs.of(name).say(&said);
                self.parts
                    .events
                    .publish(EventKind::Refused, Some(name), Some(said));
            }
        }
    }

    /// Asks the cell about its tenants: one command for all, and two for a few of them in turn.
    fn observe(&mut self) {
        let live: Vec<usize> = (0..self.wards.len())
            .filter(|at| self.wards[*at].life.is_some())
            .collect();
        let handles = live
            .iter()
            .filter_map(|at| Some(&self.wards[*at].life.as_ref()?.handle));
        let processors = self.parts.cell.processors(handles);
        for (at, processor) in live.iter().zip(processors) {
            self.wards[*at].seen.processor = processor;
        }
        for step in 0..live.len().min(ASKED) {
            self.ask(live[(self.asked + step) % live.len()]);
        }
        self.asked = self.asked.wrapping_add(ASKED);
    }

    fn ask(&mut self, at: usize) {
        let ward = &mut self.wards[at];
        if let Some(life) = &ward.life {
            ward.seen.memory = life.handle.memory();
            ward.seen.statement = life.handle.statement();
        }
    }

    /// Publishes what got worse between two snapshots.
    fn compare(&self, before: &view::Snapshot, now: &view::Snapshot) {
        for step in &now.steps {
            let earlier = before.steps.iter().find(|earlier| earlier.row == step.row);
            let more = step.exceeded
                - earlier
                    .map_or(0, |earlier| earlier.exceeded)
                    .min(step.exceeded);
            if more > 0 {
                let said = format!("{}: {more} were longer than {} ns", step.row, step.limit_ns);
                self.parts
                    .events
                    .publish(EventKind::StepBeyondRow, None, Some(said));
            }
        }
        for cost in &now.costs {
            let earlier = before
                .costs
                .iter()
                .find(|earlier| earlier.class == cost.class);
            if cost.drifts > earlier.map_or(0, |earlier| earlier.drifts) {
                let said = format!(
                    "{}: new leases are charged {:.2} times the profile",
                    cost.class, cost.price
                );
                self.parts
                    .events
                    .publish(EventKind::Drift, None, Some(said));
            }
        }
    }

    fn set_routes(&self) {
        if let Some(front) = &self.parts.front {
            let wards = self.wards.iter().filter(|ward| !ward.is_deleted);
            let sites: Vec<(Arc<Site>, Http)> = wards
                .filter_map(|ward| ward.site.clone().zip(ward.spec.http.clone()))
                .collect();
            front.set_sites(&sites);
        }
    }

    fn admitted(&mut self, admitted: &Admitted) {
        self.schedulable = admitted.schedulable;
        self.utilization = admitted.utilization;
    }

    fn at(&self, name: &str) -> Result<usize, Problem> {
        let known = |ward: &Ward| !ward.is_deleted && ward.name() == name;
        self.wards
            .iter()
            .position(known)
            .ok_or_else(|| Problem::no_tenant(name))
    }

    fn may_change(&self) -> Result<(), Problem> {
        match self.is_draining {
            true => Err(Problem::new(ErrorKind::Ending, "the node is ending")),
            false => Ok(()),
        }
    }
}

fn ward(spec: TenantSpec, bound: EndBound, program: Arc<Program>, site: Option<Arc<Site>>) -> Ward {
    Ward {
        spec: Arc::new(spec),
        bound,
        desired: Desired::Running,
        program,
        site,
        life: None,
        leaving: Vec::new(),
        pending: None,
        restarts: Restarts::default(),
        since: Timestamp::now(),
        ended: None,
        last_end: None,
        waiting: Vec::new(),
        seen: Seen::default(),
        is_deleted: false,
    }
}

/// A lane for the requests of a tenant, if it answers any.
fn lane(spec: &TenantSpec) -> Option<Arc<Lane>> {
    let http = spec.http.as_ref()?;
    Some(Arc::new(Lane::new(http.queue as usize)))
}

/// Neither a request nor a restart reaches it any more.
fn stop(ward: &mut Ward) {
    ward.pending = None;
    ward.restarts = Restarts::default().after(&ward.restarts);
    if let Some(site) = &ward.site {
        site.set_lane(None);
    }
}

/// The next end of a tenant, or the last if it is not running.
fn next_end(ward: &mut Ward) -> Result<oneshot::Receiver<End>, Problem> {
    let (sender, receiver) = oneshot::channel();
    match (ward.is_gone(), &ward.last_end) {
        (false, _) => ward.waiting.push(sender),
        (true, Some(end)) => {
            let _ = sender.send(end.clone());
        }
        (true, None) => return Err(not_running(ward.name())),
    }
    Ok(receiver)
}

fn not_running(name: &str) -> Problem {
    Problem::new(ErrorKind::Conflict, format!("tenant {name} is not running"))
}

const fn exit_state(exit: &Exit) -> &'static str {
    match exit {
        Exit::Code(_) => "exited",
        Exit::Trap(_) => "trapped",
        Exit::Lease(_) => "out of lease",
        Exit::Memory(_) => "memory failed",
        Exit::Killed => "killed",
    }
}
