//! A tenant under supervision: what is wanted of it, its life, and how it ended.

use crate::birth::Birth;
use crate::life::{Life, Phase};
use crate::problem::Problem;
use crate::restarts::Restarts;
use crate::source::{Loaded, Source};
use crate::view::{Desired, End, EndBound, State};
use crate::{view, viewed};
use jiff::Timestamp;
use leasehold_cell::memory::MemoryUse;
use leasehold_cell::{DiskUse, Ended, Processor, Program, StartError, Statement};
use leasehold_exchange::Intake;
use leasehold_front::Site;
use leasehold_lease::TenantSpec;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What was last seen of a tenant that runs.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) processor: Option<Processor>,
    pub(crate) memory: Option<MemoryUse>,
    pub(crate) statement: Option<Statement>,
}

/// A tenant under supervision.
pub struct Ward {
    pub(crate) spec: Arc<TenantSpec>,
    pub(crate) bound: EndBound,
    pub(crate) desired: Desired,
    pub(crate) program: Arc<Program>,
    /// The tenant's table, if an operator put it.
    pub(crate) table: Option<String>,
    /// The program's file when it was loaded.
    pub(crate) source: Source,
    pub(crate) site: Option<Arc<Site>>,
    pub(crate) life: Option<Life>,
    /// A life that is being begun; there is no other one but those that are leaving.
    pub(crate) birth: Option<Birth>,
    /// Receive what became of that.
    pub(crate) begun: Vec<oneshot::Sender<Result<view::Tenant, Problem>>>,
    /// Earlier lives that are not over.
    pub(crate) leaving: Vec<Life>,
    /// A new life begins, with this end of a lane if it answers requests, when no earlier one is there.
    pub(crate) pending: Option<Option<Intake>>,
    /// The number of ended lives when there was no room for the tenant: it is tried again after the next end.
    pub(crate) refused_at: Option<u64>,
    pub(crate) restarts: Restarts,
    /// What its lives have added to disks.
    pub(crate) disk_use: DiskUse,
    pub(crate) since: Timestamp,
    pub(crate) ended: Option<Ended>,
    pub(crate) last_end: Option<End>,
    /// Receive the end of the lives that were killed, even if another has taken their place.
    pub(crate) killing: Vec<oneshot::Sender<Result<End, Problem>>>,
    /// Receive the next end.
    pub(crate) waiting: Vec<oneshot::Sender<Result<End, Problem>>>,
    pub(crate) seen: Seen,
    /// Whether the tenant is forgotten when its lives are over.
    pub(crate) is_deleted: bool,
}

impl Ward {
    /// Creates a tenant that is wanted to run, and has no life yet.
    pub(crate) fn new(
        spec: TenantSpec,
        bound: EndBound,
        loaded: Loaded,
        site: Option<Arc<Site>>,
    ) -> Self {
        let Loaded { program, source } = loaded;
        Self {
            spec: Arc::new(spec),
            bound,
            desired: Desired::Running,
            program,
            table: None,
            source,
            site,
            life: None,
            birth: None,
            begun: Vec::new(),
            leaving: Vec::new(),
            pending: None,
            refused_at: None,
            restarts: Restarts::default(),
            disk_use: DiskUse::default(),
            since: Timestamp::now(),
            ended: None,
            last_end: None,
            killing: Vec::new(),
            waiting: Vec::new(),
            seen: Seen::default(),
            is_deleted: false,
        }
    }

    /// Waits for the life that is being begun, if there is one.
    pub(crate) fn await_birth(&mut self) -> Result<(), StartError> {
        if let Some(birth) = self.birth.take() {
            let life = birth.wait()?;
            if let Some(site) = &self.site {
                site.set_lane(life.lane.clone());
            }
            self.life = Some(life);
        }
        Ok(())
    }

    /// Returns the tenant's program, surroundings and lease.
    pub fn spec(&self) -> &TenantSpec {
        &self.spec
    }

    /// Returns the longest time that the tenant's end takes.
    pub fn bound(&self) -> EndBound {
        self.bound
    }

    /// Returns how the tenant ended, if it is not running.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Returns the tenant's processor time when it was last observed.
    pub fn processor(&self) -> Option<Processor> {
        self.seen.processor
    }

    /// Returns the tenant's use of memory when it was last observed.
    pub fn memory(&self) -> Option<MemoryUse> {
        self.seen.memory
    }

    /// Returns the tenant as the front knows it, if it answers requests.
    pub fn site(&self) -> Option<&Arc<Site>> {
        self.site.as_ref()
    }

    /// Returns the number of times that the tenant was started again after a failure.
    pub fn restarts(&self) -> u32 {
        self.restarts.times()
    }

    /// The time within which all that it uses of its reservation comes back; zero without one.
    pub(crate) fn period(&self) -> Duration {
        let cpu = self.spec.lease.cpu.as_ref();
        cpu.map_or(Duration::ZERO, |cpu| {
            Duration::from_nanos(cpu.period().get())
        })
    }

    /// Whether it has ended and will not be started again.
    pub fn is_over(&self) -> bool {
        self.is_gone() && self.pending.is_none() && !self.restarts.is_due_later()
    }

    /// Whether a life that was killed is not over.
    pub(crate) fn is_ending(&self) -> bool {
        let mut lives = self.life.iter().chain(&self.leaving);
        let is_unborn = self.birth.as_ref().is_some_and(Birth::is_killed);
        is_unborn || lives.any(|life| life.phase == Phase::Killed)
    }

    /// Whether nothing of it is there.
    pub(crate) fn is_gone(&self) -> bool {
        self.life.is_none() && self.birth.is_none() && self.leaving.is_empty()
    }

    /// States how long its end takes at most beside the tenants that are there now. An end that is under way has had
    /// others beside it, too.
    pub(crate) fn set_bound(&mut self, bound: EndBound) {
        self.bound = bound;
        // An earlier life has perhaps another lease.
        let lives = self.life.iter_mut();
        for life in lives.filter(|life| life.spec.lease == self.spec.lease) {
            life.bound = match life.phase {
                Phase::Killed => life.bound.or_longer(bound),
                Phase::Running | Phase::Draining(_) => bound,
            };
        }
    }

    /// Kills all of its lives.
    pub(crate) fn kill(&mut self) {
        self.birth.iter_mut().for_each(Birth::kill);
        let lives = self.life.iter_mut().chain(&mut self.leaving);
        lives.for_each(Life::kill);
    }

    /// Returns a receiver of its next end, or of the last one if nothing of it is there.
    ///
    /// # Errors
    /// When nothing is, or was.
    pub(crate) fn next_end(&mut self) -> Result<oneshot::Receiver<Result<End, Problem>>, Problem> {
        let (sender, receiver) = oneshot::channel();
        match self.is_gone() {
            false => self.waiting.push(sender),
            true => {
                let _ = sender.send(Ok(self.end()?));
            }
        }
        Ok(receiver)
    }

    /// Tells its end to those that wait for it, if it has come.
    pub(crate) fn tell_end(&mut self) {
        let end = self.end();
        if !self.is_ending() {
            let killing = std::mem::take(&mut self.killing);
            tell(killing, &end);
        }
        if self.is_gone() {
            let waiting = std::mem::take(&mut self.waiting);
            tell(waiting, &end);
        }
    }

    /// Tells what became of a life to those that wait for its beginning.
    pub(crate) fn tell_begun(&mut self, begun: Result<(), Problem>) {
        let begun = begun.map(|()| self.view());
        tell(std::mem::take(&mut self.begun), &begun);
    }

    fn end(&self) -> Result<End, Problem> {
        self.last_end
            .clone()
            .ok_or_else(|| Problem::not_running(self.name()))
    }

    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn state(&self) -> State {
        match &self.life {
            Some(life) => match (life.phase, &self.seen.processor) {
                (Phase::Draining(_), _) => State::Draining,
                (Phase::Killed, _) => State::Ending,
                (Phase::Running, Some(processor)) => viewed::state(processor.state),
                (Phase::Running, None) => State::Starting,
            },
            None if self.birth.is_some() || self.pending.is_some() => State::Starting,
            None if self.restarts.is_due_later() => State::Restarting,
            None if self.leaving.is_empty() => State::Ended,
            None => State::Ending,
        }
    }

    /// Returns the tenant as the interface shows it, with what was seen last.
    pub(crate) fn view(&self) -> view::Tenant {
        let lease = &self.spec.lease;
        let seen = self.life.as_ref().map(|_| &self.seen);
        let processor = seen.and_then(|seen| seen.processor.as_ref());
        let statement = seen.and_then(|seen| seen.statement.as_ref());
        let memory = seen.and_then(|seen| seen.memory.as_ref());
        view::Tenant {
            name: self.name().to_owned(),
            desired: self.desired,
            state: self.state(),
            since: self.since,
            component: self.spec.component.display().to_string(),
            restarts: self.restarts(),
            exit: self.ended.as_ref().map(|ended| viewed::exit(&ended.exit)),
            reclaim: view::Reclaim {
                budget_ns: lease.reclaim.budget.get(),
                charged_ns: statement.map(|statement| viewed::statement(statement).charged_ns),
            },
            cpu: lease.cpu.as_ref().map(viewed::cpu),
            processor: processor.map(|processor| viewed::processor(processor, lease.cpu.as_ref())),
            memory: view::Memory {
                reserve_bytes: lease.memory.reserve.get(),
                limit_bytes: lease.memory.limit().get(),
                used_bytes: memory.map(|memory| memory.linear_bytes),
            },
            end_bound: Some(self.bound),
            http: self.http(),
            outgoing: self
                .life
                .as_ref()
                .and_then(|life| life.outbox.as_deref())
                .map(viewed::outgoing),
            last_end: self.last_end.clone(),
        }
    }

    fn http(&self) -> Option<view::Http> {
        let (http, site) = (self.spec.http.as_ref()?, self.site.as_ref()?);
        let (waiting, active) = site.load();
        Some(view::Http {
            routes: http.routes.iter().map(ToString::to_string).collect(),
            listeners: http.listeners.clone(),
            concurrency: http.concurrency,
            queue: http.queue,
            waiting,
            active,
            outcomes: viewed::outcomes(site),
            latency: viewed::latency(site.latency()),
        })
    }
}

/// Sends the same to all that wait for it; some may have gone.
fn tell<T: Clone>(waiting: Vec<oneshot::Sender<T>>, told: &T) {
    for sender in waiting {
        let _ = sender.send(told.clone());
    }
}
