//! The succession of tenants: those of a change are started beside the ones whose places they take, and take them all at
//! once, if all of them can be there.

use super::{Admission, GRACE, Supervisor, intake};
use crate::birth::{Birth, Cause, Progress};
use crate::life::Life;
use crate::problem::Problem;
use crate::restarts::Restarts;
use crate::source::Loaded;
use crate::view::{Desired, EndBound};
use crate::ward::Ward;
use leasehold_cell::StartError;
use leasehold_exchange::{Intake, Lane};
use leasehold_front::Site;
use leasehold_lease::{Http, TenantSpec};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The tenants of a change, while they are started.
pub(super) struct Succession {
    successors: Vec<Successor>,
    then: Then,
}

/// What is done with tenants that were started or wait for room, or with one that cannot be started.
type Then = Box<dyn FnOnce(&mut Supervisor, Result<Vec<Successor>, Unstarted>)>;

/// A tenant of a change that cannot be started.
pub(super) struct Unstarted {
    pub(super) tenant: String,
    pub(super) problem: Problem,
}

/// A tenant that is to take a place. Nothing else has changed.
pub(super) struct Successor {
    ward: Ward,
    /// What its requests wait in, if it answers any.
    intake: Option<Intake>,
    /// Whether it may run as soon as it takes the place, and not only when an earlier life is over.
    has_place: bool,
    /// It is begun only to see whether it can be.
    is_rehearsal: bool,
    /// It was seen whether its lease pays for a start, though there is no room for one.
    is_rehearsed: bool,
    begun: Begun,
    /// The number of ended lives when it was begun.
    lives_over: u64,
}

enum Begun {
    Starting(Birth),
    Over(Result<Life, StartError>),
}

/// A successor whose start is over.
pub(super) struct Next {
    ward: Ward,
    lane: Option<Arc<Lane>>,
    /// A life that was begun to see whether it can be, and is ending.
    discarded: Option<Life>,
}

impl Successor {
    pub(super) fn name(&self) -> &str {
        self.ward.name()
    }

    /// States the tenant's table, which an operator put.
    pub(super) fn set_table(&mut self, table: Option<String>) {
        self.ward.table = table;
    }

    /// Why it can take its place only when other lives are over.
    pub(super) fn waits(&self) -> Option<Problem> {
        match &self.begun {
            _ if self.ward.desired == Desired::Stopped => None,
            _ if !self.has_place => {
                let full = StartError::Full("the earlier one is there".to_owned());
                Some((&full).into())
            }
            Begun::Over(Err(error)) => Some(error.into()),
            _ => None,
        }
    }

    fn look(&mut self) {
        let over = Begun::Over(Err(StartError::CellEnded));
        self.begun = match std::mem::replace(&mut self.begun, over) {
            Begun::Starting(birth) => match birth.look(Duration::ZERO) {
                Progress::Starting(birth) => Begun::Starting(birth),
                Progress::Over(mut begun, _) => {
                    if let (true, Ok(life)) = (self.is_rehearsal, &mut begun) {
                        life.kill();
                    }
                    Begun::Over(begun)
                }
            },
            over => over,
        };
    }

    /// If it waits for room, nothing else of its start was tried: whether its lease pays for that is seen without a start,
    /// while the life that it is to replace is there.
    fn rehearse(&mut self, admission: &dyn Admission) {
        if let Begun::Over(Err(error)) = &mut self.begun
            && waits_for_room(error)
            && !std::mem::replace(&mut self.is_rehearsed, true)
            && let Err(never) = admission.rehearse(&self.ward.spec)
            && !waits_for_room(&never)
        {
            *error = never;
        }
    }

    /// It takes its place as one that is to run, or to be stopped.
    pub(super) fn settle(self, desired: Desired) -> Next {
        let Self {
            mut ward,
            intake,
            is_rehearsal,
            begun,
            lives_over,
            ..
        } = self;
        ward.desired = desired;
        let is_wanted = desired == Desired::Running;
        let lane = intake.as_ref().map(|intake| intake.lane().clone());
        let mut discarded = None;
        match begun {
            Begun::Over(Ok(life)) if is_wanted && !is_rehearsal => ward.life = Some(life),
            Begun::Over(begun) => {
                discarded = begun.ok();
                if is_wanted {
                    ward.pending = Some(intake);
                    ward.refused_at = Some(lives_over);
                }
            }
            Begun::Starting(_) => {}
        }
        discarded.iter_mut().for_each(Life::kill);
        Next {
            ward,
            lane: lane.filter(|_| is_wanted),
            discarded,
        }
    }
}

impl Succession {
    /// Returns the tenant that cannot be started, if there is one.
    fn failed(&self) -> Option<Unstarted> {
        self.successors
            .iter()
            .find_map(|successor| match &successor.begun {
                Begun::Over(Err(error)) if !waits_for_room(error) => Some(Unstarted {
                    tenant: successor.name().to_owned(),
                    problem: error.into(),
                }),
                _ => None,
            })
    }

    fn is_over(&self) -> bool {
        let is_over = |it: &Successor| matches!(it.begun, Begun::Over(_));
        self.successors.iter().all(is_over)
    }

    /// Returns the lives that are being begun.
    pub(super) fn births(&self) -> impl Iterator<Item = &Birth> {
        self.successors.iter().filter_map(|it| match &it.begun {
            Begun::Starting(birth) => Some(birth),
            Begun::Over(_) => None,
        })
    }

    pub(super) fn has(&self, tenant: &str) -> bool {
        self.successors.iter().any(|it| it.name() == tenant)
    }

    /// Returns the end of the lane in which requests wait for a tenant's successor.
    pub(super) fn intake_of(&self, tenant: &str) -> Option<Intake> {
        let successor = self.successors.iter().find(|it| it.name() == tenant)?;
        successor.intake.clone()
    }

    /// Ends the starts.
    pub(super) fn kill(&mut self) {
        for successor in &mut self.successors {
            if let Begun::Starting(birth) = &mut successor.begun {
                birth.kill();
            }
        }
    }
}

impl Supervisor {
    /// Begins a new life of a tenant beside the present one, if both can be there at once, and if it is to run.
    pub(super) fn successor(
        &self,
        spec: TenantSpec,
        bound: EndBound,
        loaded: Loaded,
        desired: Desired,
    ) -> Successor {
        let before = self.wards.iter().find(|ward| ward.name() == spec.name);
        let site = spec.http.as_ref().map(|http| {
            let before = before.and_then(|ward| ward.site.as_ref());
            let cpu = spec.lease.cpu.as_ref();
            before.map_or_else(
                || Site::new(&spec.name, http, cpu),
                |site| site.changed(http, cpu),
            )
        });
        // Requests that wait for a life which has not begun wait for this one.
        let kept = before.and_then(|ward| ward.pending.clone().flatten());
        let intake = intake(&spec).map(|intake| kept.unwrap_or(intake));
        let mut ward = Ward::new(spec, bound, loaded, site);
        ward.desired = desired;
        if let Some(before) = before {
            ward.disk_use = before.disk_use.clone();
        }
        // Two programs that answer no requests would do the same work twice.
        let is_free = |ward: &Ward| ward.life.is_none() && ward.birth.is_none();
        let has_place = before.is_none_or(is_free) || ward.site.is_some();
        let is_rehearsal = desired == Desired::Stopped || !has_place;
        let lane = match is_rehearsal {
            true => self::intake(&ward.spec),
            false => intake.clone(),
        };
        let begun = match self.begin(&ward, lane, Cause::Change) {
            Ok(birth) => Begun::Starting(birth),
            Err(error) => Begun::Over(Err(error)),
        };
        Successor {
            ward,
            intake,
            has_place,
            is_rehearsal,
            is_rehearsed: false,
            begun,
            lives_over: self.lives_over,
        }
    }

    /// Has `then` done when the starts of all of these are over.
    pub(super) fn after_starts(
        &mut self,
        successors: Vec<Successor>,
        then: impl FnOnce(&mut Self, Result<Vec<Successor>, Unstarted>) + 'static,
    ) {
        let then = Box::new(then);
        self.succession = Some(Succession { successors, then });
    }

    pub(super) fn look_after_succession(&mut self) {
        let Some(mut succession) = self.succession.take() else {
            return;
        };
        for successor in &mut succession.successors {
            successor.look();
            successor.rehearse(&*self.parts.admission);
        }
        if let Some(unstarted) = succession.failed() {
            let Succession { successors, then } = succession;
            self.discard(successors);
            return then(self, Err(unstarted));
        }
        // A life that is being begun in such a place is left in peace, with the requests that wait for it.
        let is_awaited = |ward: &Ward| ward.birth.is_some() && succession.has(ward.name());
        if !succession.is_over() || self.wards.iter().any(is_awaited) {
            self.succession = Some(succession);
            return;
        }
        let Succession { successors, then } = succession;
        then(self, Ok(successors));
    }

    /// Lets these tenants take their places, and forgets the `removed` ones, in one change of the routes.
    /// Requests wait for a tenant that waits for the end of others.
    pub(super) fn succeed(&mut self, all: Vec<Next>, removed: &[String]) {
        let mut places = Vec::new();
        let mut sites = Vec::new();
        for next in all {
            let Next {
                mut ward,
                lane,
                discarded,
                ..
            } = next;
            self.discarded.extend(discarded);
            if let Some(life) = &mut ward.life {
                let killable = self.killers.add(&life.spec.name, life.handle.killer());
                life.killable = Some(killable);
            }
            if let Some(site) = &ward.site {
                site.set_lane(lane.clone());
            } else if let Some(life) = &ward.life {
                life.handle.go();
            }
            let before = self
                .wards
                .iter()
                .position(|before| before.name() == ward.name());
            let Some(at) = before else {
                self.wards.push(ward);
                continue;
            };
            let before = &mut self.wards[at];
            ward.restarts = Restarts::default().after(&before.restarts);
            ward.last_end = before.last_end.take();
            ward.killing = std::mem::take(&mut before.killing);
            ward.waiting = std::mem::take(&mut before.waiting);
            ward.begun = std::mem::take(&mut before.begun);
            ward.leaving = std::mem::take(&mut before.leaving);
            if let Some(life) = before.life.take() {
                life.leave_requests_to(lane.as_ref());
                ward.leaving.push(life);
            }
            if ward.life.is_none() {
                ward.ended = before.ended.take();
            }
            sites.extend(before.site.take());
            self.wards[at] = ward;
            places.push(at);
        }
        for name in removed {
            let known = |ward: &Ward| !ward.is_deleted && ward.name() == name;
            let Some(at) = self.wards.iter().position(known) else {
                continue;
            };
            let ward = &mut self.wards[at];
            ward.is_deleted = true;
            ward.desired = Desired::Stopped;
            ward.pending = None;
            ward.birth.iter_mut().for_each(Birth::kill);
            ward.restarts = Restarts::default().after(&ward.restarts);
            ward.leaving.extend(ward.life.take());
            sites.extend(ward.site.take());
            places.push(at);
        }
        self.set_routes();
        // A request that has lost its route finds the new one.
        for site in sites {
            site.set_lane(None);
        }
        let until = Instant::now() + GRACE;
        for at in places {
            for life in &mut self.wards[at].leaving {
                match &life.lane {
                    Some(_) => life.leave_by(until),
                    None => life.kill(),
                }
            }
        }
    }

    /// Makes the routes those of the tenants that are there.
    pub(super) fn set_routes(&self) {
        if let Some(front) = &self.parts.front {
            let wards = self.wards.iter().filter(|ward| !ward.is_deleted);
            let sites: Vec<(Arc<Site>, Http)> = wards
                .filter_map(|ward| ward.site.clone().zip(ward.spec.http.clone()))
                .collect();
            front.set_sites(&sites);
        }
    }

    /// Ends lives that were begun and are not to take their places.
    pub(super) fn discard(&mut self, successors: Vec<Successor>) {
        for successor in successors {
            let lane = successor.intake.as_ref().map(Intake::lane);
            let shares = |ward: &Ward| {
                let pending = ward.pending.as_ref().and_then(Option::as_ref);
                let both = pending.zip(lane);
                both.is_some_and(|(pending, lane)| Arc::ptr_eq(pending.lane(), lane))
            };
            // With the life its lane is closed: the tenant whose place it was to take gets another one.
            if let Some(ward) = self.wards.iter_mut().find(|ward| shares(ward)) {
                let fresh = intake(&ward.spec);
                if let Some(site) = &ward.site {
                    site.set_lane(fresh.as_ref().map(|fresh| fresh.lane().clone()));
                }
                ward.pending = Some(fresh);
            }
            match successor.begun {
                Begun::Starting(mut birth) => {
                    birth.kill();
                    self.unborn.push(birth);
                }
                Begun::Over(Ok(mut life)) => {
                    life.kill();
                    self.discarded.push(life);
                }
                Begun::Over(Err(_)) => {}
            }
        }
    }

    /// Forgets discarded lives that are over.
    pub(super) fn look_after_discarded(&mut self) {
        for birth in std::mem::take(&mut self.unborn) {
            match birth.look(Duration::ZERO) {
                Progress::Starting(birth) => self.unborn.push(birth),
                Progress::Over(begun, _) => self.discarded.extend(begun.ok()),
            }
        }
        self.discarded.retain(|life| {
            let ended = life.handle.wait_for(Duration::ZERO);
            matches!(ended, Ok(None))
        });
    }

    /// Whether lives that take no place are not over.
    pub(super) fn is_discarding(&self) -> bool {
        !self.discarded.is_empty() || !self.unborn.is_empty() || self.succession.is_some()
    }
}

/// Whether another tenant's end can make the start possible.
pub(super) const fn waits_for_room(error: &StartError) -> bool {
    matches!(
        error,
        StartError::Processor(_) | StartError::Memory(_) | StartError::Full(_)
    )
}
