//! The starts of tenants, which take their own processor time: the supervisor begins them, and looks later what became
//! of them.

use super::succession::Succession;
use super::{Supervisor, intake};
use crate::birth::{Birth, Cause, Progress, Traits};
use crate::life::{Life, Phase};
use crate::view::{Desired, EventKind};
use crate::ward::{Seen, Ward};
use jiff::Timestamp;
use leasehold_cell::{Fresh, Serving, StartError, StartRequest, Surroundings};
use leasehold_exchange::Intake;
use std::time::{Duration, Instant};

impl Supervisor {
    /// Begins a life.
    pub(super) fn begin(
        &self,
        ward: &Ward,
        intake: Option<Intake>,
        cause: Cause,
    ) -> Result<Birth, StartError> {
        let spec = &ward.spec;
        let (stdout, stderr) = self.parts.logs.of(&spec.name).outputs();
        let surroundings = Surroundings {
            stdout,
            stderr,
            disk_use: ward.disk_use.clone(),
            ..(self.parts.surroundings)(spec)
        };
        let outbox = surroundings.outgoing.as_ref();
        let outbox = outbox.map(|outlet| outlet.outbox().clone());
        let request = StartRequest {
            program: ward.program.clone(),
            lease: spec.lease,
            surroundings,
        };
        let pending = match (&intake, &spec.http) {
            (Some(intake), Some(http)) => {
                let serving = Serving {
                    concurrency: http.concurrency,
                    reuse: http.reuse,
                    fresh: match http.fresh {
                        leasehold_lease::Fresh::Instance => Fresh::Instance,
                        leasehold_lease::Fresh::Tenant => Fresh::Tenant,
                    },
                    timeout: http.timeout.into(),
                };
                self.parts
                    .cell
                    .begin_serving(request, intake.clone(), serving)?
            }
            _ => self.parts.cell.begin_held(request)?,
        };
        let killable = match cause {
            Cause::Change => None,
            _ => Some(self.killers.add(&spec.name, pending.killer())),
        };
        let traits = Traits {
            lane: intake.map(|intake| intake.lane().clone()),
            outbox,
            spec: spec.clone(),
            bound: ward.bound,
            killable,
        };
        Ok(Birth::new(pending, cause, traits))
    }

    /// Starts a tenant without a life, or as soon as its earlier lives are over, and no change is about to replace it.
    pub(super) fn start_anew(&mut self, at: usize, cause: Cause) -> Result<(), StartError> {
        let intake = match self.wards[at].pending.take() {
            Some(intake) => intake,
            None => self.next_intake(&self.wards[at]),
        };
        let ward = &self.wards[at];
        if !ward.leaving.is_empty() || ward.birth.is_some() || self.is_succeeded(ward) {
            self.await_lives(at, intake);
            return Ok(());
        }
        let birth = self.begin(&self.wards[at], intake, cause)?;
        self.wards[at].birth = Some(birth);
        Ok(())
    }

    /// Returns the end of the lane that the next life of a tenant has: that of its successor, if a change is about to replace
    /// it, or a new one.
    fn next_intake(&self, ward: &Ward) -> Option<Intake> {
        let succession = self.succession.as_ref();
        let promised = succession.and_then(|succession| succession.intake_of(ward.name()));
        promised.or_else(|| intake(&ward.spec))
    }

    /// Looks what became of a life that is being begun.
    pub(super) fn look_after_birth(&mut self, at: usize) {
        let Some(birth) = self.wards[at].birth.take() else {
            return;
        };
        match birth.look(Duration::ZERO) {
            Progress::Starting(birth) => self.wards[at].birth = Some(birth),
            Progress::Over(Ok(life), cause) => {
                if let Cause::Revival {
                    is_restart: true, ..
                } = cause
                {
                    self.wards[at].restarts.started(Instant::now());
                }
                self.born(at, life);
            }
            Progress::Over(Err(error), cause) => self.stillborn(at, error, cause),
        }
    }

    fn born(&mut self, at: usize, mut life: Life) {
        let ward = &mut self.wards[at];
        // Other tenants may have come or gone meanwhile.
        life.bound = ward.bound;
        ward.refused_at = None;
        if life.phase == Phase::Running {
            match &ward.site {
                Some(site) => site.set_lane(life.lane.clone()),
                None => life.handle.go(),
            }
        }
        // It runs, and is not shown as starting until the cell is asked about all.
        ward.seen = Seen {
            processor: life.handle.processor(),
            ..Seen::default()
        };
        ward.life = Some(life);
        ward.ended = None;
        ward.since = Timestamp::now();
        ward.tell_begun(Ok(()));
        self.parts
            .events
            .publish(EventKind::Started, Some(ward.name()), None);
    }

    fn stillborn(&mut self, at: usize, error: StartError, cause: Cause) {
        let ward = &self.wards[at];
        let is_wanted = ward.desired == Desired::Running && !self.is_draining;
        let is_killed = matches!(error, StartError::Killed);
        match cause {
            Cause::Revival { pending, .. } if is_wanted && !is_killed => {
                self.refused(at, &error, pending);
            }
            Cause::Order { before } => return self.order_refused(at, before, &error),
            Cause::Revival { .. } | Cause::Change => {}
        }
        self.wards[at].tell_begun(Err((&error).into()));
    }

    /// An operator's order to start a tenant cannot be done. If it lacks what lives have that are ending, such as those
    /// that a replacement has left, it is done after them.
    pub(super) fn order_refused(&mut self, at: usize, before: Desired, error: &StartError) {
        let is_wanted = self.wards[at].desired == Desired::Running && !self.is_draining;
        if !(is_wanted && error.is_shortage() && self.frees()) {
            return self.not_started(at, before, error);
        }
        let pending = self.wards[at].pending.take();
        let intake = pending.unwrap_or_else(|| self.next_intake(&self.wards[at]));
        self.await_lives(at, intake.clone());
        self.refused(at, error, Some(intake));
    }

    /// The next life of a tenant begins when others are over.
    fn await_lives(&mut self, at: usize, intake: Option<Intake>) {
        let ward = &mut self.wards[at];
        // A request may follow the order at once: it waits, too.
        if let Some(site) = &ward.site {
            site.set_lane(intake.as_ref().map(|intake| intake.lane().clone()));
        }
        ward.pending = Some(intake);
        ward.tell_begun(Ok(()));
    }

    /// Tells that an operator's order to start a tenant was refused, which has changed nothing.
    fn not_started(&mut self, at: usize, before: Desired, error: &StartError) {
        let ward = &mut self.wards[at];
        // Unless an operator has ordered something else meanwhile: to stop it, or to start it again after that.
        if ward.desired == Desired::Running && ward.pending.is_none() {
            ward.desired = before;
        }
        ward.tell_begun(Err(error.into()));
        self.is_unwritten = true;
    }

    /// Starts a tenant whose pause is over, or whose earlier lives are.
    pub(super) fn revive(&mut self, at: usize, now: Instant) {
        let ward = &self.wards[at];
        let is_there = ward.life.is_some() || ward.birth.is_some();
        if self.is_draining || ward.is_deleted || is_there || self.is_succeeded(ward) {
            return;
        }
        let is_restart = ward.restarts.is_due(now);
        if !is_restart && (ward.pending.is_none() || !ward.leaving.is_empty()) {
            return;
        }
        // Only another end makes room: until there is one, an attempt would fail again, unless a pause is over.
        let is_awaited = self.frees() || ward.restarts.is_due_later();
        if !is_restart && ward.refused_at == Some(self.lives_over) && is_awaited {
            return;
        }
        let pending = ward.pending.clone();
        let cause = Cause::Revival {
            is_restart,
            pending: pending.clone(),
        };
        if let Err(error) = self.start_anew(at, cause) {
            self.refused(at, &error, pending);
        }
    }

    /// Has a tenant tried again that could not be started: others may free the room later.
    fn refused(&mut self, at: usize, error: &StartError, pending: Option<Option<Intake>>) {
        let frees = self.frees();
        let ward = &mut self.wards[at];
        ward.pending = pending;
        ward.refused_at = Some(self.lives_over);
        if frees {
            return;
        }
        let pause = ward.restarts.plan(Instant::now(), ward.period());
        let said = format!("{error}; tried again in {:.1} s", pause.as_secs_f64());
        let name = ward.spec.name.as_str();
        self.parts.logs.of(name).say(&said);
        self.parts
            .events
            .publish(EventKind::Refused, Some(name), Some(said));
    }

    /// Whether a change is about to replace a tenant: its successor may have the lane in which requests wait.
    fn is_succeeded(&self, ward: &Ward) -> bool {
        let succession = self.succession.as_ref();
        succession.is_some_and(|succession| succession.has(ward.name()))
    }

    /// Whether a life is ending.
    pub(super) fn frees(&self) -> bool {
        let ends = |ward: &Ward| ward.is_deleted || !ward.leaving.is_empty();
        self.wards.iter().any(ends) || !self.discarded.is_empty() || !self.unborn.is_empty()
    }

    /// Returns when lives that are being begun are to be looked at again, if there are any.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let own = self.wards.iter().filter_map(|ward| ward.birth.as_ref());
        let succession = self.succession.iter().flat_map(Succession::births);
        let next = own.chain(succession).map(Birth::next_look).min();
        next.or_else(|| self.succession.as_ref().map(|_| Duration::ZERO))
    }
}
