//! The one owner of the tenants' handles and of what is wanted of them.

mod absent;
mod changes;
mod lives;
mod orders;
mod pending;
mod reload;
mod shown;
mod starts;
mod succession;
#[cfg(test)]
mod tests;

use crate::birth::{Birth, Cause};
use crate::controller::{Controller, Request, Requests};
use crate::desired::{self, Keeper};
use crate::events::Events;
use crate::killers::Killers;
use crate::life::{Life, Phase};
use crate::loader::Loader;
use crate::logs::Logs;
use crate::metrics;
use crate::problem::Problem;
use crate::request_log::RequestLog;
use crate::restarts::Restarts;
use crate::source::{Loaded, Source};
use crate::trace::Exporter;
use crate::view::{self, Desired, End, EndBound, ErrorKind, EventKind};
use crate::ward::Ward;
use jiff::Timestamp;
use leasehold_cell::{Cell, Program, StartError, Surroundings};
use leasehold_exchange::Intake;
use leasehold_front::{Front, Site};
use leasehold_lease::{ByteSize, LeaseFile, Listener, SharedPages, TenantSpec};
use orders::{Asked, Order, Orders};
use pending::{Brings, Changes};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use succession::Succession;
use tokio::sync::oneshot;

/// Ends that are kept.
const ENDS: usize = 100;
/// How long requests under way keep a tenant whose place a new one takes.
const GRACE: Duration = Duration::from_secs(10);
/// Lease files that wait to be parsed, of megabytes at the most.
const PARSED: usize = 8;
/// The most tenants of a cell.
const TENANTS: usize = 1024;
/// The most bytes of all tables that operators have put: each change writes them to the state file, and the next start
/// [reads](crate::desired) it.
const MOST_TABLE_BYTES: usize = 16 << 20;

/// The admission of tenants: the decision whether they can be kept together.
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

    /// Rehearses the start of one tenant as if it were alone: tens of milliseconds for a large program.
    ///
    /// # Errors
    /// Why it could not be started even if no other life were there.
    fn rehearse(&self, tenant: &TenantSpec) -> Result<(), StartError>;

    /// Reads the lease file of the node again, and checks what concerns all of it.
    ///
    /// # Errors
    /// When it cannot be read, or is no lease file of a node.
    fn read(&self) -> Result<LeaseFile, Problem>;

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

/// The facts of a node, which do not change while it runs.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The order of processor reservations.
    pub order: String,
    /// What confines the process.
    pub confinement: String,
    /// The listeners of the lease file.
    pub listeners: Vec<Listener>,
    /// The host memory that the lease file states for all of them.
    pub memory: Option<ByteSize>,
    /// The limit on the code of all their programs that it states.
    pub code: Option<ByteSize>,
    /// The lease file, whose directory tenants' relative paths are relative to.
    pub leases: PathBuf,
}

impl Facts {
    /// Parses the text of one tenant, which may take seconds.
    ///
    /// # Errors
    /// When it is not the table `[tenant.NAME]` of a lease file.
    fn parse_tenant(&self, name: &str, text: &str) -> Result<TenantSpec, Problem> {
        let origin = self.leases.with_file_name(format!("tenant.{name}"));
        let tenants = LeaseFile::parse_tenants(text, &origin, &self.listeners)?;
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
        Ok(spec)
    }
}

/// The parts of a supervisor.
pub struct Parts {
    /// The cell.
    pub cell: Arc<Cell>,
    /// The front, which hands requests to tenants, if there is a listener.
    pub front: Option<Front>,
    /// The admission of tenants.
    pub admission: Arc<dyn Admission>,
    /// What a tenant has around it, its outputs apart.
    pub surroundings: Box<dyn Fn(&TenantSpec) -> Surroundings + Send>,
    /// Where events go.
    pub events: Arc<Events>,
    /// Where the tenants' outputs go.
    pub logs: Arc<Logs>,
    /// The last requests.
    pub requests: Arc<RequestLog>,
    /// The thread that sends spans to a collector, if there is one.
    pub exporter: Option<Arc<Exporter>>,
    /// The keeper of operators' changes beyond the end of the node, if they are kept.
    pub keeper: Option<Keeper>,
    /// The facts of the node.
    pub facts: Facts,
}

/// A tenant of the start.
pub struct First {
    /// The tenant's program, surroundings and lease.
    pub spec: TenantSpec,
    /// Its program.
    pub program: Arc<Program>,
    /// The program's file, read before the program was loaded.
    pub source: Source,
    /// The tenant as the front knows it, if it answers requests.
    pub site: Option<Arc<Site>>,
    /// The tenant's table, if an operator put it.
    pub table: Option<String>,
    /// Whether an operator has stopped it: it is not started.
    pub is_stopped: bool,
}

/// What is told once it is known.
pub(crate) type Told<T> = oneshot::Receiver<Result<T, Problem>>;

/// Why the tenants were not started.
#[derive(Debug)]
pub struct StartFailure {
    /// The tenant that was not.
    pub tenant: String,
    /// The reason.
    pub error: StartError,
}

/// The one owner of the tenants' handles.
pub struct Supervisor {
    parts: Parts,
    loader: Loader,
    killers: Killers,
    /// Held by each lease file that waits to be parsed, beside the supervisor.
    parsing: Arc<()>,
    waiting: Requests,
    wards: Vec<Ward>,
    ends: VecDeque<End>,
    /// All ends since it began, of the tenants that it knows.
    counted_ends: metrics::Ends,
    reloads: metrics::Reloads,
    /// How many lives have ended.
    lives_over: u64,
    /// Lives that were begun for a change that was refused, while they end.
    discarded: Vec<Life>,
    /// Such lives before they have begun.
    unborn: Vec<Birth>,
    /// The tenants of a change, while they are started.
    succession: Option<Succession>,
    started_at: Timestamp,
    schedulable: bool,
    utilization: f64,
    /// The change that is being prepared, and others that wait for it.
    changes: Changes<Request>,
    /// Orders of operators since the first of these changes was asked for.
    orders: Orders,
    snapshot: Option<(Instant, Arc<view::Snapshot>)>,
    /// The ward whose account is asked for next.
    asked: usize,
    is_draining: bool,
    is_operated: bool,
    /// What is wanted of the tenants has changed since it was written.
    is_unwritten: bool,
}

impl Supervisor {
    /// Creates a supervisor that answers these requests, of which `controller` is the other end. Its threads
    /// are confined as the calling one.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(
        mut parts: Parts,
        controller: &Controller,
        waiting: Requests,
    ) -> std::io::Result<Self> {
        if let Some(keeper) = &mut parts.keeper {
            keeper.begin()?;
        }
        let keeper = parts.keeper.as_ref();
        let is_operated = keeper.is_some_and(|keeper| !keeper.is_empty());
        let loader = Loader::start(
            parts.cell.clone(),
            parts.admission.clone(),
            controller.clone(),
        )?;
        Ok(Self {
            parts,
            loader,
            killers: controller.killers().clone(),
            parsing: Arc::new(()),
            waiting,
            wards: Vec::new(),
            ends: VecDeque::new(),
            counted_ends: metrics::Ends::default(),
            reloads: metrics::Reloads::default(),
            lives_over: 0,
            discarded: Vec::new(),
            unborn: Vec::new(),
            succession: None,
            started_at: Timestamp::now(),
            schedulable: true,
            utilization: 0.0,
            changes: Changes::default(),
            orders: Orders::default(),
            snapshot: None,
            asked: 0,
            is_draining: false,
            is_operated,
            is_unwritten: false,
        })
    }

    /// Starts these tenants with their programs and sites, begun in their order, and waits for all, or returns why one of
    /// them is not started. Those that answer requests wait for the first, the others for [`Supervisor::go`].
    ///
    /// # Errors
    /// When a tenant is not started.
    pub fn start(&mut self, tenants: Vec<First>, admitted: &Admitted) -> Result<(), StartFailure> {
        self.admitted(admitted);
        let refused = |ward: &Ward, error| StartFailure {
            tenant: ward.name().to_owned(),
            error,
        };
        for (first, bound) in tenants.into_iter().zip(&admitted.bounds) {
            let First {
                spec,
                program,
                source,
                site,
                table,
                is_stopped,
            } = first;
            let mut ward = Ward::new(spec, *bound, Loaded { program, source }, site);
            ward.table = table;
            match is_stopped {
                true => ward.desired = Desired::Stopped,
                false => {
                    let begun = self.begin(
                        &ward,
                        intake(&ward.spec),
                        Cause::Order {
                            before: Desired::Running,
                        },
                    );
                    ward.birth = Some(begun.map_err(|error| refused(&ward, error))?);
                }
            }
            let paging = ward.spec.lease.memory.paging;
            if paging.is_some_and(|paging| paging.shared == SharedPages::Lock) {
                // Admission counts on the frames that a lock gives back when its tenant has started: for those behind it (SPC
                // §IV-B).
                ward.await_birth().map_err(|error| refused(&ward, error))?;
            }
            self.wards.push(ward);
        }
        for ward in &mut self.wards {
            ward.await_birth().map_err(|error| refused(ward, error))?;
        }
        Ok(())
    }

    /// Lets the tenants run that [`start`](Self::start) left waiting.
    pub fn go(&mut self) {
        self.started_at = Timestamp::now();
        for ward in &mut self.wards {
            ward.since = self.started_at;
            if let (Some(life), None) = (&ward.life, &ward.site) {
                life.handle.go();
            }
            if ward.life.is_some() {
                let events = &self.parts.events;
                events.publish(EventKind::Started, Some(ward.name()), None);
            }
        }
    }

    /// Handles requests for at most `patience`, and looks after all tenants.
    pub fn turn(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            let mut left = until.saturating_duration_since(Instant::now());
            if let Some(look) = self.next_look() {
                left = left.min(look);
            }
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
        if self.is_unwritten {
            self.keep();
        }
    }

    /// Returns the tenants, in the order in which they became known.
    pub fn wards(&self) -> &[Ward] {
        &self.wards
    }

    /// Returns the cell.
    pub fn cell(&self) -> &Arc<Cell> {
        &self.parts.cell
    }

    /// Returns the front, if there is one.
    pub fn front(&self) -> Option<&Front> {
        self.parts.front.as_ref()
    }

    /// Takes the front, to wait for its end.
    pub fn take_front(&mut self) -> Option<Front> {
        self.parts.front.take()
    }

    /// Whether an operator has changed something: the node then waits for more.
    pub fn is_operated(&self) -> bool {
        self.is_operated
    }

    /// Stops starting tenants.
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
        self.wards.iter_mut().for_each(Ward::kill);
        self.succession.iter_mut().for_each(Succession::kill);
        let until = Instant::now() + patience;
        let is_gone = |it: &Self| it.wards.iter().all(Ward::is_gone) && !it.is_discarding();
        while !is_gone(self) && Instant::now() < until {
            self.turn(Duration::from_millis(5));
        }
        self.parts.logs.finish();
    }

    // Orders and queries of operators.

    /// Returns a tenant, as the interface shows it.
    pub(crate) fn tenant(&mut self, name: &str) -> Result<view::Tenant, Problem> {
        self.snapshot();
        self.at(name).map(|at| self.wards[at].view())
    }

    /// Kills a tenant and keeps it known; its end is sent once it is over. Idempotent. One that a change is about to
    /// bring stays stopped.
    pub(crate) fn kill(&mut self, name: &str) -> Result<Told<End>, Problem> {
        let at = self.at(name).map_err(|_| self.stop_absent(name))?;
        self.is_operated = true;
        self.orders.give(name, Order::Stop);
        let ward = &mut self.wards[at];
        ward.desired = Desired::Stopped;
        stop(ward);
        ward.kill();
        let end = match ward.is_gone() {
            true => ward.next_end(),
            false => {
                let (sender, receiver) = oneshot::channel();
                ward.killing.push(sender);
                Ok(receiver)
            }
        };
        self.keep();
        end
    }

    /// Sends the end of a tenant: the last one if it is not running, or the next.
    pub(crate) fn wait(&mut self, name: &str) -> Result<Told<End>, Problem> {
        let at = self.at(name)?;
        self.wards[at].next_end()
    }

    /// Takes requests away from a tenant, and ends it when those under way are over, or after `grace`. One that a change
    /// is about to bring stays stopped.
    pub(crate) fn drain_tenant(
        &mut self,
        name: &str,
        grace: Duration,
    ) -> Result<view::Tenant, Problem> {
        let at = self.at(name).map_err(|_| self.stop_absent(name))?;
        self.is_operated = true;
        self.orders.give(name, Order::Stop);
        let ward = &mut self.wards[at];
        ward.desired = Desired::Stopped;
        stop(ward);
        // Nothing is under way yet.
        ward.birth.iter_mut().for_each(Birth::kill);
        let until = Instant::now() + grace;
        let is_running = |life: &Life| life.phase == Phase::Running;
        let was_running = ward.life.as_ref().is_some_and(is_running);
        // Those that were replaced are the tenant's, too.
        for life in ward.life.iter_mut().chain(&mut ward.leaving) {
            life.leave_by(until);
        }
        if was_running {
            self.parts
                .events
                .publish(EventKind::Draining, Some(name), None);
        }
        self.keep();
        Ok(self.wards[at].view())
    }

    /// Starts a tenant that was stopped or has ended, and tells when it is. Idempotent.
    pub(crate) fn start_again(&mut self, name: &str) -> Result<Told<view::Tenant>, Problem> {
        self.may_change()?;
        let at = self.at(name).map_err(|_| self.start_absent(name))?;
        self.is_operated = true;
        self.orders.withdraw_stop(name);
        let ward = &mut self.wards[at];
        let before = std::mem::replace(&mut ward.desired, Desired::Running);
        let is_running = |life: &Life| life.phase == Phase::Running;
        let is_coming = |birth: &Birth| !birth.is_killed();
        let (sender, begun) = oneshot::channel();
        ward.begun.push(sender);
        if ward.life.as_ref().is_some_and(is_running) {
            ward.tell_begun(Ok(()));
        } else if !ward.birth.as_ref().is_some_and(is_coming) {
            ward.restarts = Restarts::default().after(&ward.restarts);
            ward.leaving.extend(ward.life.take());
            let cause = Cause::Order { before };
            if let Err(error) = self.start_anew(at, cause) {
                self.order_refused(at, before, &error);
            }
        }
        self.keep();
        Ok(begun)
    }

    /// Kills a tenant and forgets it; returns whether there was one. A change that is about to bring one is refused, or
    /// does not bring it.
    ///
    /// # Errors
    /// When there is none, and too many orders for those that perhaps come.
    pub(crate) fn delete(&mut self, name: &str) -> Result<bool, Problem> {
        let Ok(at) = self.at(name) else {
            self.order_absent(name, Order::Delete)?;
            return Ok(false);
        };
        self.is_operated = true;
        self.orders.give(name, Order::Delete);
        self.wards[at].is_deleted = true;
        self.wards[at].desired = Desired::Stopped;
        self.set_routes();
        let ward = &mut self.wards[at];
        stop(ward);
        ward.kill();
        if let Some(keeper) = &mut self.parts.keeper {
            keeper.deleted(name);
        }
        self.keep();
        Ok(true)
    }

    /// Loads a tenant's program again, and starts a new one in its place.
    pub(crate) fn replace(
        &mut self,
        name: String,
        answer: oneshot::Sender<Result<view::Tenant, Problem>>,
    ) {
        let asked = self.orders.now();
        self.change(Brings::Nothing, move |supervisor| {
            let before = supervisor.at(&name).map(|at| {
                let ward = &supervisor.wards[at];
                ((*ward.spec).clone(), ward.table.clone())
            });
            match before {
                Ok((spec, table)) => {
                    let kind = (asked, EventKind::Replaced);
                    supervisor.install(spec, table, kind, move |result| {
                        let _ = answer.send(result.map(|(tenant, _)| tenant));
                    })
                }
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
        let asked = self.orders.now();
        self.change(Brings::one(&name), move |supervisor| {
            let facts = supervisor.parts.facts.clone();
            let put = supervisor.loader.put(Box::new(move |_, _| -> Request {
                let parsed = facts.parse_tenant(&name, &text);
                Box::new(move |supervisor: &mut Supervisor| {
                    let parsed =
                        parsed.and_then(|spec| supervisor.fits(&spec, &text).map(|()| spec));
                    supervisor.put_parsed((parsed, text), asked, answer);
                })
            }));
            if let Err(problem) = put {
                tracing::error!("{problem}");
                supervisor.changed();
            }
        });
    }

    fn put_parsed(
        &mut self,
        (parsed, text): (Result<TenantSpec, Problem>, String),
        asked: Asked,
        answer: oneshot::Sender<Result<(view::Tenant, bool), Problem>>,
    ) {
        match parsed {
            Ok(spec) => {
                let same = |ward: &&Ward| !ward.is_deleted && *ward.spec == spec;
                let unchanged = self.wards.iter().find(same);
                if let Some(ward) = unchanged.filter(|ward| ward.desired == Desired::Running) {
                    let _ = answer.send(Ok((ward.view(), false)));
                    return self.changed();
                }
                let kind = (asked, EventKind::Put);
                self.install(spec, Some(text), kind, move |result| {
                    let _ = answer.send(result);
                });
            }
            Err(problem) => {
                let _ = answer.send(Err(problem));
                self.changed();
            }
        }
    }

    /// Has a whole lease file parsed, on the thread that loads programs, and sends what `then` makes of it there.
    ///
    /// # Errors
    /// When too many wait for that, or the thread has ended.
    pub(crate) fn parse<T: Send + 'static>(
        &self,
        text: String,
        then: impl FnOnce(LeaseFile, &dyn Admission) -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Problem>>, Problem> {
        // One of them is the supervisor's.
        if Arc::strong_count(&self.parsing) > PARSED {
            let message = "the node is busy: too many lease files wait to be read";
            return Err(Problem::new(ErrorKind::Busy, message));
        }
        let parsing = self.parsing.clone();
        let (sender, answer) = oneshot::channel();
        let leases = self.parts.facts.leases.clone();
        self.loader.put(Box::new(move |_, admission| {
            let _parsing = parsing;
            let parsed = LeaseFile::parse(&text, &leases);
            // What asked may have gone.
            let _ = sender.send(match parsed {
                Ok(file) => Ok(then(file, admission)),
                Err(error) => Err(error.into()),
            });
            Box::new(|_: &mut Supervisor| {})
        }))?;
        Ok(answer)
    }

    /// Has the changes of operators written, if they are kept.
    fn keep(&mut self) {
        self.is_unwritten = false;
        let tenants = self.wards.iter().filter(|ward| !ward.is_deleted);
        let changes = tenants.map(|ward| {
            let change = desired::Change {
                table: ward.table.clone(),
                is_stopped: ward.desired == Desired::Stopped,
                is_deleted: false,
            };
            (ward.name().to_owned(), change)
        });
        if let Some(keeper) = &mut self.parts.keeper {
            keeper.keep(changes);
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

/// Returns the end of a lane for the requests of a tenant, if it answers any.
fn intake(spec: &TenantSpec) -> Option<Intake> {
    let http = spec.http.as_ref()?;
    Some(Intake::new(http.queue as usize))
}

/// Takes requests and restarts away from a tenant; the requests that wait for its next life fail.
fn stop(ward: &mut Ward) {
    ward.pending = None;
    ward.restarts = Restarts::default().after(&ward.restarts);
    if let Some(site) = &ward.site {
        site.set_lane(None);
    }
}
