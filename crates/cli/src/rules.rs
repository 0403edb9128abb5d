//! Whether tenants that come later can be kept beside those that are there.

use crate::confinement::parent;
use crate::leases::{self, Ends, Useless};
use crate::overhead::{HostSteps, HostTime};
use leasehold_cell::profile::Profile;
use leasehold_lease::{LeaseFile, TenantSpec};
use leasehold_node::view::{EndBound, ErrorKind};
use leasehold_node::{Admission, Admitted, Problem};
use leasehold_reserve::admission::admit;
use leasehold_reserve::{Contract, Order};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What a cell was started with, which decides about all tenants after that.
pub(crate) struct Rules {
    pub(crate) leases: PathBuf,
    pub(crate) profile: Profile,
    pub(crate) overhead: HostTime,
    pub(crate) backtraces: bool,
    pub(crate) unadmitted: bool,
    pub(crate) order: Order,
    /// The cell's reservation for ends.
    pub(crate) ends: Option<Contract>,
    /// The tenants of the start, whose places the process reaches.
    pub(crate) tenants: Vec<TenantSpec>,
    /// Directories of programs.
    pub(crate) programs: Vec<PathBuf>,
}

impl Rules {
    fn steps(&self, tenants: &[TenantSpec]) -> HostSteps {
        let fault = HostTime::of_fault(None, Some(&self.profile));
        let steps = HostSteps::of(tenants, fault, Some(&self.profile));
        match self.backtraces {
            true => steps.with_backtraces(),
            false => steps,
        }
    }

    fn programs(&self) -> impl Iterator<Item = &Path> {
        let own = parent(&self.leases);
        self.programs.iter().map(PathBuf::as_path).chain([own])
    }
}

impl Admission for Rules {
    fn test(&self, tenants: &[TenantSpec]) -> Result<Admitted, Problem> {
        let refused = |message: String| Problem::new(ErrorKind::Refused, message);
        let steps = self.steps(tenants);
        let mut all = leases::claims(tenants, &steps).all();
        all.extend(self.ends);
        let report = admit(&all, self.order, self.overhead.overhead());
        let schedulable = report.schedulable();
        if !schedulable && !self.unadmitted {
            let message = "the processor reservations of all tenants cannot be kept together";
            return Err(refused(message.to_owned()));
        }
        let useless = Useless::of(tenants, &report, self.overhead.overhead());
        if let (Some(useless), false) = (useless.first(), self.unadmitted) {
            return Err(refused(useless.text.clone()));
        }
        if let (Some(limit), false) = (leases::stopped_by_host(&all), self.unadmitted) {
            return Err(refused(limit.to_string()));
        }
        let ends = Ends::with(tenants, &steps, self.overhead, self.order, self.ends);
        let bounds = ends.bounds.into_iter().map(bound);
        Ok(Admitted {
            bounds: bounds.collect(),
            schedulable,
            utilization: report.utilisation.millionths() as f64 / 1e6,
        })
    }

    fn check(&self, tenant: &TenantSpec) -> Result<(), Problem> {
        let wrong = |key: &str, found: &Path, allowed: &str| {
            let message = format!(
                "tenant.{}.{key}: found {:?}; allowed: {allowed}",
                tenant.name,
                found.display().to_string()
            );
            Err(Problem::new(ErrorKind::BadLease, message))
        };
        let lies_in = |path: &Path, place: &Path| {
            let real = path.canonicalize().ok().zip(place.canonicalize().ok());
            real.is_some_and(|(path, place)| path.starts_with(place))
        };
        let of_start = || self.tenants.iter();
        let program = &tenant.component;
        let known = of_start().any(|other| other.component == *program);
        if !known && !self.programs().any(|place| lies_in(program, place)) {
            let allowed = "a program below the directory of the lease file, or of --programs";
            return wrong("component", program, allowed);
        }
        for directory in &tenant.dirs {
            let known = of_start().flat_map(|other| &other.dirs).any(|other| {
                (other.write || !directory.write) && lies_in(&directory.host, &other.host)
            });
            if !known {
                let allowed = "a directory of a tenant of the start, or one below it: no other can be reached";
                return wrong("dirs", &directory.host, allowed);
            }
        }
        for data in &tenant.data {
            if !of_start()
                .flat_map(|other| &other.data)
                .any(|other| other.file == data.file)
            {
                return wrong("data", &data.file, "a data set of a tenant of the start");
            }
        }
        if let Some(stated) = &tenant.keyvalue {
            let known = of_start()
                .any(|other| other.name == tenant.name && other.keyvalue.as_ref() == Some(stated));
            if !known {
                let allowed =
                    "the store of the tenant of this name at the start: no other can be opened";
                return wrong("keyvalue.file", &stated.file, allowed);
            }
        }
        let swap = of_start().find_map(|other| other.swap.as_ref());
        match &tenant.swap {
            Some(path) if Some(path) != swap => {
                wrong("memory.swap", path, "the swap file of the start")
            }
            _ => Ok(()),
        }
    }

    fn report(&self, file: &LeaseFile) -> Value {
        let steps = self.steps(&file.tenants);
        let order = leases::order(file.order);
        let claims = leases::claims(&file.tenants, &steps).all();
        let report = admit(&claims, order, self.overhead.overhead());
        let useless = Useless::of(&file.tenants, &report, self.overhead.overhead());
        let ends = Ends::of(&file.tenants, &steps, self.overhead, order);
        let tenants = file
            .tenants
            .iter()
            .zip(&ends.bounds)
            .map(|(tenant, bound)| {
                json!({
                    "name": tenant.name,
                    "reserved": tenant.lease.cpu.is_some(),
                    "step_ns": steps.longest(tenant).ns,
                    "effect_bound_ns": bound.effect_ns,
                    "returned_bound_ns": bound.returned_ns,
                })
            });
        json!({
            "schedulable": report.schedulable() && useless.is_empty() && leases::stopped_by_host(&claims).is_none(),
            "order": file.order.to_string(),
            "utilisation_millionths": report.utilisation.millionths(),
            "overhead_ns": self.overhead.time().get(),
            "tenants": tenants.collect::<Vec<_>>(),
        })
    }
}

/// A bound as the interface shows it.
pub(crate) fn bound(bound: leases::EndBound) -> EndBound {
    EndBound {
        effect_ns: bound.effect_ns,
        returned_ns: bound.returned_ns,
    }
}
