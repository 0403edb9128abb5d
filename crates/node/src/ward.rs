//! A tenant under supervision: what is wanted of it, its life, and how it ended.

use crate::killers::Killable;
use crate::loader::Loaded;
use crate::restarts::Restarts;
use crate::source::Source;
use crate::view::{Desired, End, EndBound, State};
use crate::{view, viewed};
use jiff::Timestamp;
use leasehold_cell::memory::MemoryUse;
use leasehold_cell::{DiskUse, Ended, Processor, Program, Statement, TenantHandle};
use leasehold_exchange::{Intake, Lane, Outbox};
use leasehold_front::Site;
use leasehold_lease::TenantSpec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// One life of a tenant, from its start to its end.
pub(crate) struct Life {
    pub(crate) handle: TenantHandle,
    /// The lane of its requests, if it answers any.
    pub(crate) lane: Option<Arc<Lane>>,
    /// What it sends to other hosts, if its lease allows that.
    pub(crate) outbox: Option<Arc<Outbox>>,
    pub(crate) spec: Arc<TenantSpec>,
    pub(crate) bound: EndBound,
    pub(crate) phase: Phase,
    /// Among those that are killed by name.
    pub(crate) _killable: Killable,
    /// Until when no message is written on failed requests.
    pub(crate) silent_until: Option<Instant>,
}

/// What a life that begins has beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    None,
    /// Perhaps an earlier life, whose place it is to take.
    Earlier,
}

/// The interval between two lines about failed requests of a tenant.
const SILENCE: Duration = Duration::from_secs(1);

/// How far a life is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// The tenant gets no further request, and is killed when those under way are over, or at this instant.
    Draining(Instant),
    Killed,
}

impl Life {
    pub(crate) fn kill(&mut self) {
        if self.phase != Phase::Killed {
            self.handle.kill();
            self.phase = Phase::Killed;
        }
    }

    /// Returns a message on the requests that failed with the guest since the last such message.
    pub(crate) fn failed_requests(&self) -> Option<String> {
        let failed = self.lane.as_ref()?.take_failed()?;
        let requests = match failed.exchanges {
            0 | 1 => "a request".to_owned(),
            more => format!("one of {more} requests"),
        };
        Some(format!("{requests} failed: {}", failed.reason))
    }

    /// Returns the same message, at most once in [`SILENCE`].
    pub(crate) fn failed_requests_at(&mut self, now: Instant) -> Option<String> {
        if self.silent_until.is_some_and(|until| now < until) {
            return None;
        }
        let said = self.failed_requests()?;
        self.silent_until = Some(now + SILENCE);
        Some(said)
    }

    /// Kills it if it drains and nothing is under way any more.
    pub(crate) fn drain(&mut self, now: Instant) {
        if let Phase::Draining(until) = self.phase {
            let idle = self.lane.as_ref().is_none_or(|lane| lane.under_way() == 0);
            if idle || now >= until {
                self.kill();
            }
        }
    }
}

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
    pub(crate) killing: Vec<oneshot::Sender<End>>,
    /// Receive the next end.
    pub(crate) waiting: Vec<oneshot::Sender<End>>,
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
        let is_gone = self.life.is_none() && self.leaving.is_empty() && self.pending.is_none();
        is_gone && !self.restarts.is_due_later()
    }

    /// Whether a life that was killed is not over.
    pub(crate) fn is_ending(&self) -> bool {
        let mut lives = self.life.iter().chain(&self.leaving);
        lives.any(|life| life.phase == Phase::Killed)
    }

    /// Whether nothing of it is there, or is going to be.
    pub(crate) fn is_gone(&self) -> bool {
        self.life.is_none() && self.leaving.is_empty()
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
            None if self.pending.is_some() => State::Starting,
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
