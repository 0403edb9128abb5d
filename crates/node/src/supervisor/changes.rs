//! Changes of the tenants: one after the other, prepared on the thread that loads programs.

use super::orders::{Asked, Order};
use super::pending::{Brings, Change};
use super::succession::{Successor, Unstarted};
use super::{Admission, Admitted, MOST_TABLE_BYTES, Supervisor, TENANTS};
use crate::controller::Request;
use crate::desired::shared_route;
use crate::loader::{Prepared, prepare};
use crate::problem::Problem;
use crate::source::Loaded;
use crate::view::{self, Desired, ErrorKind, EventKind};
use leasehold_cell::Cell;
use leasehold_lease::TenantSpec;

impl Supervisor {
    /// Makes a change that is asked for now, when those before it are over.
    pub(super) fn change(
        &mut self,
        brings: Brings,
        change: impl FnOnce(&mut Self) + Send + 'static,
    ) {
        let change = Change {
            asked: self.orders.now(),
            brings,
            make: Box::new(change) as Request,
        };
        if let Some(make) = self.changes.add(change) {
            self.is_operated = true;
            make(self);
        }
    }

    /// Begins the next change: the present one is done, or was given up.
    pub(super) fn changed(&mut self) {
        self.snapshot = None;
        match self.changes.next() {
            Some((asked, make)) => {
                self.orders.forget_until(asked);
                make(self);
            }
            None => self.orders.forget(),
        }
    }

    /// Checks that there is room for a tenant with this `table` beside the others, and that its routes are free.
    ///
    /// # Errors
    /// When there is none, or they are not.
    pub(super) fn fits(&self, spec: &TenantSpec, table: &str) -> Result<(), Problem> {
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
        let tables = others().filter_map(|ward| ward.table.as_ref());
        let found = table.len() + tables.map(String::len).sum::<usize>();
        if found > MOST_TABLE_BYTES {
            let message = format!(
                "tenant.{}: found a table of {} bytes, {found} with those of the other tenants that were put; \
                 allowed: {MOST_TABLE_BYTES} in all",
                spec.name,
                table.len()
            );
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
                    let begun = prepared.and_then(|Prepared { admitted, programs }| {
                        let successor =
                            supervisor.install_begun(spec, asked, &admitted, programs)?;
                        Ok((successor, admitted))
                    });
                    let installed =
                        move |supervisor: &mut Supervisor, result: Result<_, Problem>| {
                            if let Err(problem) = &result {
                                let message = Some(problem.message.clone());
                                let events = &supervisor.parts.events;
                                events.publish(EventKind::Refused, Some(&name), message);
                            }
                            supervisor.keep();
                            told(result);
                            supervisor.changed();
                        };
                    match begun {
                        Err(problem) => installed(supervisor, Err(problem)),
                        Ok((mut successor, admitted)) => {
                            successor.set_table(table);
                            supervisor.after_starts(vec![successor], move |supervisor, started| {
                                let result = supervisor.installed(started, (asked, kind));
                                if result.is_ok() {
                                    supervisor.admit(&all, &admitted);
                                }
                                installed(supervisor, result);
                            });
                        }
                    }
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

    fn install_begun(
        &self,
        spec: TenantSpec,
        asked: Asked,
        admitted: &Admitted,
        programs: Vec<Loaded>,
    ) -> Result<Successor, Problem> {
        self.may_change()?;
        let desired = self.desired_since(asked, &spec.name)?;
        let Some(loaded) = programs.into_iter().next() else {
            return Err(Problem::new(ErrorKind::Internal, "no program was loaded"));
        };
        let bound = admitted.bounds.last().copied();
        let bound = bound.ok_or_else(|| Problem::new(ErrorKind::Internal, "no bound was found"))?;
        Ok(self.successor(spec, bound, loaded, desired))
    }

    /// Lets a tenant take its place, if nothing speaks against it now; returns whether it is new, too.
    fn installed(
        &mut self,
        started: Result<Vec<Successor>, Unstarted>,
        (asked, kind): (Asked, EventKind),
    ) -> Result<(view::Tenant, bool), Problem> {
        let started = started.map_err(|unstarted| unstarted.problem)?;
        let [successor] = <[Successor; 1]>::try_from(started).map_err(|started| {
            self.discard(started);
            Problem::new(ErrorKind::Internal, "more than one tenant was started")
        })?;
        let name = successor.name().to_owned();
        let is_new = !self.wards.iter().any(|ward| ward.name() == name);
        let refused = match (is_new, successor.waits()) {
            (true, Some(refused)) => Err(refused),
            _ => self.may_change(),
        };
        let desired = refused.and_then(|()| self.desired_since(asked, &name));
        let desired = match desired {
            Ok(desired) => desired,
            Err(problem) => {
                self.discard(vec![successor]);
                return Err(problem);
            }
        };
        self.succeed(vec![successor.settle(desired)], &[]);
        self.parts.events.publish(kind, Some(&name), None);
        let at = self.at(&name)?;
        if self.wards[at].life.is_some() {
            self.parts
                .events
                .publish(EventKind::Started, Some(&name), None);
        }
        Ok((self.wards[at].view(), is_new))
    }

    /// Takes over the result of the admission of these tenants.
    pub(super) fn admit(&mut self, all: &[TenantSpec], admitted: &Admitted) {
        self.admitted(admitted);
        for (spec, bound) in all.iter().zip(&admitted.bounds) {
            let ward = self.wards.iter_mut().find(|ward| ward.name() == spec.name);
            if let Some(ward) = ward {
                ward.set_bound(*bound);
            }
        }
    }

    /// Tests those that are left when a tenant has gone: their ends take less time now.
    pub(super) fn admit_the_rest(&mut self) {
        self.change(Brings::Nothing, |supervisor| {
            let left = supervisor.wards.iter().filter(|ward| !ward.is_deleted);
            let all: Vec<TenantSpec> = left.map(|ward| (*ward.spec).clone()).collect();
            let put = supervisor.loader.put(Box::new(
                move |cell: &Cell, admission: &dyn Admission| -> Request {
                    cell.reconsider_ends();
                    let admitted = admission.test(&all);
                    Box::new(move |supervisor: &mut Supervisor| {
                        match admitted {
                            Ok(admitted) => supervisor.admit(&all, &admitted),
                            Err(problem) => tracing::warn!("{problem}"),
                        }
                        supervisor.changed();
                    })
                },
            ));
            if let Err(problem) = put {
                tracing::error!("{problem}");
                supervisor.changed();
            }
        });
    }
}
