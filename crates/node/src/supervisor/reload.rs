//! Reading the lease file again: all of it is admitted, or nothing changes.

use super::orders::{Asked, Order};
use super::pending::Brings;
use super::succession::{Successor, Unstarted, waits_for_room};
use super::{Admission, Admitted, Facts, Supervisor};
use crate::controller::Request;
use crate::loader::{Prepared, prepare};
use crate::plan::{Known, Plan, fixed};
use crate::problem::Problem;
use crate::source::{Loaded, Source};
use crate::view::{self, Desired, ErrorKind, EventKind};
use crate::ward::Ward;
use leasehold_cell::Cell;
use leasehold_lease::TenantSpec;
use std::sync::Arc;

/// A lease file that can be kept, with the programs that it needs.
struct Ready {
    plan: Plan,
    all: Vec<TenantSpec>,
    admitted: Admitted,
    /// The programs of `plan.loaded()`.
    programs: Vec<Loaded>,
}

impl Ready {
    /// Rehearses what it starts.
    ///
    /// # Errors
    /// When a tenant could not be started even if no other life were there.
    fn rehearse(&self, admission: &dyn Admission) -> Result<(), Problem> {
        self.plan
            .loaded()
            .iter()
            .try_for_each(|spec| match admission.rehearse(spec) {
                Err(error) if !waits_for_room(&error) => {
                    Err(Problem::from(&error).of_tenant(&spec.name))
                }
                _ => Ok(()),
            })
    }
}

impl Supervisor {
    /// Reads the lease file again, and makes the tenants those of the file. A file that is refused changes
    /// nothing. With `only_tell` no file does; the answer is the same.
    pub fn reload(
        &mut self,
        only_tell: bool,
        told: impl FnOnce(Result<view::Reloaded, Problem>) + Send + 'static,
    ) {
        let asked = self.orders.now();
        let brings = match only_tell {
            true => Brings::Nothing,
            false => Brings::AnyOfFile,
        };
        self.change(brings, move |supervisor| {
            let wards = supervisor.wards.iter().filter(|ward| !ward.is_deleted);
            let known = wards.map(|ward| Known {
                spec: ward.spec.clone(),
                source: ward.source,
            });
            let known: Vec<Known> = known.collect();
            let facts = supervisor.parts.facts.clone();
            let put = supervisor.loader.put(Box::new(
                move |cell: &Cell, admission: &dyn Admission| -> Request {
                    let ready = ready(cell, admission, &facts, &known);
                    // Without a change nothing is started, by which it would be seen whether leases pay for that.
                    let ready = ready.and_then(|ready| match only_tell {
                        true => ready.rehearse(admission).map(|()| ready),
                        false => Ok(ready),
                    });
                    Box::new(move |supervisor: &mut Supervisor| {
                        supervisor.reloaded(ready, asked, only_tell, told);
                    })
                },
            ));
            if let Err(problem) = put {
                tracing::error!("{problem}");
                supervisor.changed();
            }
        });
    }

    fn reloaded(
        &mut self,
        ready: Result<Ready, Problem>,
        asked: Asked,
        only_tell: bool,
        told: impl FnOnce(Result<view::Reloaded, Problem>) + Send + 'static,
    ) {
        let ready = match ready {
            Ok(ready) if !only_tell => ready,
            told_only => {
                let result = told_only.map(|ready| ready.plan.view());
                return self.told(result, only_tell, told);
            }
        };
        let Ready {
            plan,
            all,
            admitted,
            programs,
        } = ready;
        let names = plan.added.iter().chain(&plan.replaced);
        self.changes
            .brings(names.map(|spec| spec.name.clone()).collect());
        let may_wait = plan.frees() || self.frees();
        let begun = self.reload_begun((&plan, programs), (&all, &admitted), asked);
        match begun {
            Err(problem) => self.told(Err(problem), false, told),
            Ok(begun) => self.after_starts(begun, move |supervisor, started| {
                let result = supervisor.take(plan, (&all, &admitted), started, (asked, may_wait));
                supervisor.told(result, false, told);
            }),
        }
    }

    /// Tells the outcome of a reload, which is over.
    fn told(
        &mut self,
        result: Result<view::Reloaded, Problem>,
        only_tell: bool,
        told: impl FnOnce(Result<view::Reloaded, Problem>),
    ) {
        if !only_tell {
            self.reloads.count(result.is_ok());
            let (kind, message) = match &result {
                Ok(changes) => (EventKind::Reloaded, changes.to_string()),
                Err(problem) => (EventKind::Refused, format!("reload: {problem}")),
            };
            self.parts.events.publish(kind, None, Some(message));
        }
        self.keep();
        told(result);
        self.changed();
    }

    /// Begins all that is new, before anything changes.
    fn reload_begun(
        &mut self,
        (plan, programs): (&Plan, Vec<Loaded>),
        (all, admitted): (&[TenantSpec], &Admitted),
        asked: Asked,
    ) -> Result<Vec<Successor>, Problem> {
        self.may_change()?;
        let mut begun = Vec::new();
        for (spec, loaded) in plan.loaded().into_iter().zip(programs) {
            let Some(desired) = self.desired_after(asked, &spec.name) else {
                continue;
            };
            let at = all.iter().position(|tenant| tenant.name == spec.name);
            let Some(bound) = at.and_then(|at| admitted.bounds.get(at)) else {
                self.discard(begun);
                return Err(Problem::new(ErrorKind::Internal, "no bound was found"));
            };
            begun.push(self.successor(spec, *bound, loaded, desired));
        }
        Ok(begun)
    }

    /// Whether a tenant is to run after a reload; `None` if it was deleted since that was asked for.
    fn desired_after(&self, asked: Asked, name: &str) -> Option<Desired> {
        if self.orders.since(asked, name) == Some(Order::Delete) {
            return None;
        }
        let known = |ward: &&Ward| ward.name() == name && !ward.is_deleted;
        let before = self.wards.iter().find(known);
        Some(match (before, self.orders.since(asked, name)) {
            (Some(ward), _) => ward.desired,
            (None, Some(_)) => Desired::Stopped,
            (None, None) => Desired::Running,
        })
    }

    /// Makes the tenants those of the file, but for what was deleted since the reload was asked for.
    fn take(
        &mut self,
        mut plan: Plan,
        (all, admitted): (&[TenantSpec], &Admitted),
        started: Result<Vec<Successor>, Unstarted>,
        (asked, may_wait): (Asked, bool),
    ) -> Result<view::Reloaded, Problem> {
        let started =
            started.map_err(|unstarted| unstarted.problem.of_tenant(&unstarted.tenant))?;
        let waits = |it: &Successor| Some(it.waits()?.of_tenant(it.name()));
        let refused = match started.iter().find_map(waits) {
            Some(problem) if !may_wait => Err(problem),
            _ => self.may_change(),
        };
        if let Err(problem) = refused {
            self.discard(started);
            return Err(problem);
        }
        let mut next = Vec::new();
        for successor in started {
            match self.desired_after(asked, successor.name()) {
                Some(desired) => next.push(successor.settle(desired)),
                None => self.discard(vec![successor]),
            }
        }
        for spec in &plan.adjusted {
            if let Ok(at) = self.at(&spec.name) {
                self.wards[at].spec = Arc::new(spec.clone());
            }
        }
        let is_deleted = |name: &str| self.orders.since(asked, name) == Some(Order::Delete);
        plan.forget(is_deleted);
        self.succeed(next, &plan.removed);
        self.admit(all, admitted);
        // From now on the file alone states the tenants' tables.
        for ward in &mut self.wards {
            ward.table = None;
        }
        if let Some(keeper) = &mut self.parts.keeper {
            let is_deleted = |name: &str| self.orders.since(asked, name) == Some(Order::Delete);
            let names = all.iter().map(|tenant| tenant.name.clone());
            keeper.reloaded(names.collect(), is_deleted);
        }
        let tell = |kind, name: &str| self.parts.events.publish(kind, Some(name), None);
        for name in &plan.removed {
            tell(EventKind::Draining, name);
        }
        let replaced = plan.replaced.iter().map(|spec| (spec, EventKind::Replaced));
        let added = plan.added.iter().map(|spec| (spec, EventKind::Put));
        for (TenantSpec { name, .. }, kind) in replaced.chain(added) {
            tell(kind, name);
            if self.at(name).is_ok_and(|at| self.wards[at].life.is_some()) {
                tell(EventKind::Started, name);
            }
        }
        Ok(plan.view())
    }
}

/// Reads the file, and tests and loads what it needs.
fn ready(
    cell: &Cell,
    admission: &dyn Admission,
    facts: &Facts,
    known: &[Known],
) -> Result<Ready, Problem> {
    let file = admission.read()?;
    fixed(&file, facts)?;
    let plan = Plan::of(&file, |spec| Source::read(cell, &spec.component), known);
    let prepared = prepare(cell, admission, &file.tenants, &plan.loaded());
    let in_file = |mut problem: Problem| {
        problem.message = format!("{}: {}", facts.leases.display(), problem.message);
        problem
    };
    let Prepared { admitted, programs } = prepared.map_err(in_file)?;
    Ok(Ready {
        plan,
        all: file.tenants,
        admitted,
        programs,
    })
}
