//! Changes of the tenants: one after the other, prepared on the thread that loads programs.

use super::orders::{Asked, Order};
use super::{Admission, Admitted, GRACE, Supervisor, TENANTS, intake};
use crate::controller::Request;
use crate::desired::shared_route;
use crate::loader::{Loaded, Prepared, prepare};
use crate::problem::Problem;
use crate::restarts::Restarts;
use crate::view::{self, Desired, EndBound, ErrorKind, EventKind};
use crate::ward::{Beside, Life, Phase, Ward};
use leasehold_cell::{Cell, StartError};
use leasehold_exchange::Lane;
use leasehold_front::Site;
use leasehold_lease::TenantSpec;
use std::sync::Arc;
use std::time::Instant;

/// Changes that wait for the one before.
const CHANGES: usize = 64;

impl Supervisor {
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Self) + Send + 'static) {
        match self.is_changing {
            // The dropped change drops its sender, which tells the thread that asked.
            true if self.changes.len() >= CHANGES => {}
            true => self.changes.push_back(Box::new(change)),
            false => {
                self.is_changing = true;
                self.is_operated = true;
                change(self);
            }
        }
    }

    /// Begins the next change: the present one is done, or was given up.
    pub(super) fn changed(&mut self) {
        self.snapshot = None;
        match self.changes.pop_front() {
            Some(next) => next(self),
            None => {
                self.is_changing = false;
                self.orders.forget();
            }
        }
    }

    /// Checks that there is room for a tenant beside the others, and that its routes are free.
    ///
    /// # Errors
    /// When there is none, or they are not.
    pub(super) fn fits(&self, spec: &TenantSpec) -> Result<(), Problem> {
        self.may_change()?;
        let others = || {
            self.wards
                .iter()
                .filter(|ward| !ward.is_deleted && ward.name() != spec.name)
        };
        if others().count() >= TENANTS {
            let message = format!("the cell has {TENANTS} tenants, which is as many as it may");
            return Err(Problem::new(ErrorKind::Refused, message));
        }
        for other in others() {
            if let Some(route) = shared_route(spec, &other.spec) {
                let message = format!(
                    "tenant.{}.http.routes: found {:?}; allowed: a route that is free: tenant.{} has this one",
                    spec.name,
                    route.to_string(),
                    other.name()
                );
                return Err(Problem::new(ErrorKind::Conflict, message));
            }
        }
        Ok(())
    }

    /// Tests a tenant beside all others, loads its program, and starts it in the place of the one that has its
    /// name. An order that operators give meanwhile is newer than this change: then the tenant stays stopped,
    /// or is not there at all.
    pub(super) fn install(
        &mut self,
        spec: TenantSpec,
        table: Option<String>,
        (asked, kind): (Asked, EventKind),
        told: impl FnOnce(Result<(view::Tenant, bool), Problem>) + Send + 'static,
    ) {
        let others = self
            .wards
            .iter()
            .filter(|ward| !ward.is_deleted && ward.name() != spec.name);
        let mut all: Vec<TenantSpec> = others.map(|ward| (*ward.spec).clone()).collect();
        all.push(spec.clone());
        let put = self.loader.put(Box::new(
            move |cell: &Cell, admission: &dyn Admission| -> Request {
                let prepared = prepare(cell, admission, &all, std::slice::from_ref(&spec));
                Box::new(move |supervisor: &mut Supervisor| {
                    let name = spec.name.clone();
                    let result = prepared.and_then(|prepared| {
                        let desired = supervisor.desired_since(asked, &name)?;
                        supervisor.installed((spec, table, desired), &all, prepared, kind)
                    });
                    if let Err(problem) = &result {
                        let message = Some(problem.message.clone());
                        let events = &supervisor.parts.events;
                        events.publish(EventKind::Refused, Some(&name), message);
                    }
                    supervisor.keep();
                    told(result);
                    supervisor.changed();
                })
            },
        ));
        if let Err(problem) = put {
            tracing::error!("{problem}");
            self.changed();
        }
    }

    /// Whether a tenant is to run after a change.
    ///
    /// # Errors
    /// When it was deleted after the change was asked for.
    fn desired_since(&self, asked: Asked, name: &str) -> Result<Desired, Problem> {
        match self.orders.since(asked, name) {
            None => Ok(Desired::Running),
            Some(Order::Stop) => Ok(Desired::Stopped),
            Some(Order::Delete) => {
                let message = format!("tenant {name} was deleted while the change was prepared");
                Err(Problem::new(ErrorKind::Conflict, message))
            }
        }
    }

    fn installed(
        &mut self,
        (spec, table, desired): (TenantSpec, Option<String>, Desired),
        all: &[TenantSpec],
        prepared: Prepared,
        kind: EventKind,
    ) -> Result<(view::Tenant, bool), Problem> {
        self.may_change()?;
        let Prepared { admitted, programs } = prepared;
        let Some(loaded) = programs.into_iter().next() else {
            return Err(Problem::new(ErrorKind::Internal, "no program was loaded"));
        };
        let name = spec.name.clone();
        let bound = admitted.bounds.last().copied();
        let bound = bound.ok_or_else(|| Problem::new(ErrorKind::Internal, "no bound was found"))?;
        let is_new = !self.wards.iter().any(|ward| ward.name() == name);
        let mut next = self.next(spec, bound, loaded, desired)?;
        if let (true, Some(refused)) = (is_new, next.waits.take()) {
            return Err(refused.into());
        }
        next.ward.table = table;
        self.succeed(vec![next], &[]);
        self.admit(all, &admitted);
        self.parts.events.publish(kind, Some(&name), None);
        let at = self.at(&name)?;
        if self.wards[at].life.is_some() {
            self.parts
                .events
                .publish(EventKind::Started, Some(&name), None);
        }
        Ok((self.wards[at].view(), is_new))
    }

    /// Begins a new life of a tenant beside the present one, if both can be there at once, and if it is to
    /// run. Nothing else changes: [`Supervisor::succeed`] lets it take the place.
    pub(super) fn next(
        &self,
        spec: TenantSpec,
        bound: EndBound,
        loaded: Loaded,
        desired: Desired,
    ) -> Result<Next, Problem> {
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
        let lane = intake.as_ref().map(|intake| intake.lane().clone());
        let mut ward = Ward::new(spec, bound, loaded, site);
        if let Some(before) = before {
            ward.disk_use = before.disk_use.clone();
        }
        // Two programs that answer no requests would do the same work twice.
        let has_place = before.is_none_or(|ward| ward.life.is_none()) || ward.site.is_some();
        if desired == Desired::Stopped || !has_place {
            // Whether it can be started at all is found out now.
            let rehearsed = match self.begin(&ward, self::intake(&ward.spec), Beside::Earlier) {
                Ok(mut life) => {
                    life.kill();
                    Some(life)
                }
                Err(error) if waits_for_room(&error) => None,
                Err(error) => return Err(error.into()),
            };
            let mut waits = None;
            if desired == Desired::Stopped {
                ward.desired = desired;
            } else {
                ward.pending = Some(intake);
                ward.refused_at = Some(self.lives_over);
                waits = Some(StartError::Full("the earlier one is there".to_owned()));
            }
            let lane = lane.filter(|_| desired != Desired::Stopped);
            return Ok(Next {
                ward,
                lane,
                waits,
                rehearsed,
            });
        }
        let begun = self.begin(&ward, intake.clone(), Beside::Earlier);
        let waits = match begun {
            Ok(life) => {
                ward.life = Some(life);
                None
            }
            Err(error) if waits_for_room(&error) => {
                ward.pending = Some(intake);
                ward.refused_at = Some(self.lives_over);
                Some(error)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Next {
            ward,
            lane,
            waits,
            rehearsed: None,
        })
    }

    /// Lets these tenants take their places, and forgets the `removed` ones, in one change of the routes.
    /// Requests wait for a tenant that waits for the end of others.
    pub(super) fn succeed(&mut self, all: Vec<Next>, removed: &[String]) {
        let mut places = Vec::new();
        let mut sites = Vec::new();
        for next in all {
            let Next { mut ward, lane, .. } = next;
            self.discarded.extend(next.rehearsed);
            if let Some(site) = &ward.site {
                site.set_lane(lane);
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
            ward.leaving = std::mem::take(&mut before.leaving);
            ward.leaving.extend(before.life.take());
            if ward.life.is_none() {
                ward.ended = before.ended.take();
            }
            sites.extend(before.site.take());
            self.wards[at] = ward;
            places.push(at);
        }
        for name in removed {
            let Ok(at) = self.at(name) else { continue };
            let ward = &mut self.wards[at];
            ward.is_deleted = true;
            ward.desired = Desired::Stopped;
            ward.pending = None;
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
                match (&life.lane, life.phase) {
                    (Some(_), Phase::Running) => life.phase = Phase::Draining(until),
                    (None, _) => life.kill(),
                    (Some(_), _) => {}
                }
            }
        }
    }

    /// Ends lives that were begun and are not to take their places.
    pub(super) fn discard(&mut self, begun: Vec<Next>) {
        for next in begun {
            for mut life in next.ward.life.into_iter().chain(next.rehearsed) {
                life.kill();
                self.discarded.push(life);
            }
        }
    }

    /// Takes over the result of the admission of these tenants.
    pub(super) fn admit(&mut self, all: &[TenantSpec], admitted: &Admitted) {
        self.admitted(admitted);
        for (spec, bound) in all.iter().zip(&admitted.bounds) {
            let ward = self.wards.iter_mut().find(|ward| ward.name() == spec.name);
            if let Some(ward) = ward {
                ward.bound = *bound;
            }
        }
    }
}

/// A tenant whose place another tenant still has.
pub(super) struct Next {
    ward: Ward,
    lane: Option<Arc<Lane>>,
    /// Why its life has not begun, if that waits for the end of others.
    pub(super) waits: Option<StartError>,
    /// A life that was begun to see whether it can be, and is ending.
    rehearsed: Option<Life>,
}

/// Whether another tenant's end can make the start possible.
const fn waits_for_room(error: &StartError) -> bool {
    matches!(
        error,
        StartError::Processor(_) | StartError::Memory(_) | StartError::Full(_)
    )
}
