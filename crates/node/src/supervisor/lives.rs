//! The lives of tenants: their starts, their ends, and their restarts.

use super::{ENDS, Supervisor, intake};
use crate::view::{Desired, EventKind};
use crate::viewed;
use crate::ward::{Beside, Life, Phase, Seen, Ward};
use jiff::Timestamp;
use leasehold_cell::{Ended, Exit, Fresh, Serving, StartError, StartRequest, Surroundings};
use leasehold_exchange::Intake;
use leasehold_lease::Restart;
use std::time::{Duration, Instant};

/// How long a start may take, in the tenant's own time: the supervisor waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

impl Supervisor {
    /// Begins a life, and waits until the tenant is started: in its own time. A kill ends that, unless the life is to be
    /// `beside` another one, of which a kill that comes meanwhile is.
    pub(super) fn begin(
        &self,
        ward: &Ward,
        intake: Option<Intake>,
        beside: Beside,
    ) -> Result<Life, StartError> {
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
        let killer = pending.killer();
        let add = |killer| self.killers.add(&spec.name, killer);
        let known = (beside == Beside::None).then(|| add(killer.clone()));
        let handle = pending.wait_for(PATIENCE)?;
        let killable = known.unwrap_or_else(|| add(killer));
        Ok(Life {
            handle,
            lane: intake.map(|intake| intake.lane().clone()),
            outbox,
            spec: spec.clone(),
            bound: ward.bound,
            phase: Phase::Running,
            _killable: killable,
            silent_until: None,
        })
    }

    /// Starts a tenant without a life, or as soon as its earlier lives are over.
    pub(super) fn start_anew(&mut self, at: usize) -> Result<(), StartError> {
        let intake = match self.wards[at].pending.take() {
            Some(intake) => intake,
            None => intake(&self.wards[at].spec),
        };
        if !self.wards[at].leaving.is_empty() {
            self.wards[at].pending = Some(intake);
            return Ok(());
        }
        let life = self.begin(&self.wards[at], intake, Beside::None)?;
        let ward = &mut self.wards[at];
        ward.refused_at = None;
        match &ward.site {
            Some(site) => site.set_lane(life.lane.clone()),
            None => life.handle.go(),
        }
        // It runs, and is not shown as starting until the cell is asked about all.
        ward.seen = Seen {
            processor: life.handle.processor(),
            ..Seen::default()
        };
        ward.life = Some(life);
        ward.ended = None;
        ward.since = Timestamp::now();
        self.parts
            .events
            .publish(EventKind::Started, Some(ward.name()), None);
        Ok(())
    }

    pub(super) fn look(&mut self) {
        let now = Instant::now();
        self.discarded.retain(|life| {
            let ended = life.handle.wait_for(Duration::ZERO);
            matches!(ended, Ok(None))
        });
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
            if let (false, Some(end)) = (ward.is_ending(), &ward.last_end) {
                for killing in ward.killing.drain(..) {
                    let _ = killing.send(end.clone());
                }
            }
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

    /// Reports the end of a life, and starts the tenant again if its lease says so.
    pub(super) fn over(&mut self, at: usize, life: &Life, ended: Ended, is_last: bool) {
        let end = viewed::end(&life.spec.name, &ended, life.bound, &life.spec.lease);
        self.lives_over += 1;
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
        // Also that of a life that was replaced, though another one goes on.
        ward.last_end = Some(end);
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
            let pause = ward.restarts.plan(Instant::now(), ward.period());
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

    /// Whether a life is ending.
    pub(super) fn frees(&self) -> bool {
        let ends = |ward: &Ward| ward.is_deleted || !ward.leaving.is_empty();
        self.wards.iter().any(ends) || !self.discarded.is_empty()
    }

    /// Starts a tenant whose pause is over, or whose earlier lives are.
    pub(super) fn revive(&mut self, at: usize, now: Instant) {
        let ward = &self.wards[at];
        if self.is_draining || ward.is_deleted || ward.life.is_some() {
            return;
        }
        let is_restart = ward.restarts.is_due(now);
        if !is_restart && (ward.pending.is_none() || !ward.leaving.is_empty()) {
            return;
        }
        // Only another end makes room: until there is one, an attempt would fail again.
        if !is_restart && ward.refused_at == Some(self.lives_over) && self.frees() {
            return;
        }
        let intake = ward.pending.clone();
        match self.start_anew(at) {
            Ok(()) if is_restart => self.wards[at].restarts.started(now),
            Ok(()) => {}
            // Other tenants may have freed the room later.
            Err(error) => {
                let frees = self.frees();
                let ward = &mut self.wards[at];
                ward.pending = intake;
                ward.refused_at = Some(self.lives_over);
                if frees {
                    return;
                }
                let pause = ward.restarts.plan(now, ward.period());
                let said = format!("{error}; tried again in {:.1} s", pause.as_secs_f64());
                let name = ward.spec.name.as_str();
                self.parts.logs.of(name).say(&said);
                self.parts
                    .events
                    .publish(EventKind::Refused, Some(name), Some(said));
            }
        }
    }
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
