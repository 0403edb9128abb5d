//! Whether the processor reservations of tenants are promised: the one test, of which every command asks.

use crate::leases::{self, Claims};
use crate::overhead::HostSteps;
use crate::useless::Useless;
use leasehold_cell::RealtimeLimit;
use leasehold_lease::TenantSpec;
use leasehold_reserve::admission::{Overhead, Report, admit};
use leasehold_reserve::{Contract, Order};

/// What the reservations are tested with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scheduling {
    /// The order of dispatch.
    pub(crate) order: Order,
    /// The costs of scheduling here.
    pub(crate) overhead: Overhead,
    /// A reservation of the cell's own, for ends, that was made before.
    pub(crate) ends: Option<Contract>,
}

/// The outcome of the test.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The reservations in the order of the tenants, and behind them what is in the background.
    pub(crate) contracts: Vec<Contract>,
    /// The verdicts on them, one by one and together.
    pub(crate) report: Report,
    /// The reservations that promise no useful time.
    pub(crate) useless: Vec<Useless>,
    /// The host's limit on a cell's thread, if the reservations may exceed it.
    pub(crate) host: Option<RealtimeLimit>,
    /// The key of the first reservation that cannot be kept, and its value.
    unkept: Option<String>,
}

impl Admission {
    /// Tests the reservations of these tenants together, with their longest host steps.
    pub(crate) fn of(tenants: &[TenantSpec], steps: &HostSteps, scheduling: Scheduling) -> Self {
        let Scheduling {
            order,
            overhead,
            ends,
        } = scheduling;
        let claims = leases::claims(tenants, steps);
        let mut contracts = claims.all();
        contracts.extend(ends);
        let report = admit(&contracts, order, overhead);
        Self {
            useless: Useless::of(tenants, &contracts, &report, order, overhead),
            host: leases::stopped_by_host(&contracts),
            unkept: unkept(tenants, &claims, &report),
            contracts,
            report,
        }
    }

    /// Whether every reservation can be kept, and promises something: on a host that takes nothing from the cell.
    pub(crate) fn fits(&self) -> bool {
        self.report.schedulable() && self.useless.is_empty()
    }

    /// Why the tenants are not started; `None` if all is kept on this host.
    pub(crate) fn refusal(&self) -> Option<String> {
        if !self.report.schedulable() {
            let unkept = self.unkept.as_deref().unwrap_or_default();
            return Some(format!(
                "{unkept}the processor reservations cannot all be kept"
            ));
        }
        let useless = self.useless.first().map(|useless| useless.text.clone());
        useless.or_else(|| self.host.map(|limit| limit.to_string()))
    }
}

fn unkept(tenants: &[TenantSpec], claims: &Claims, report: &Report) -> Option<String> {
    let reserved = tenants.iter().zip(&claims.reserved);
    let reserved = reserved.filter(|(_, contract)| contract.is_some());
    let mut verdicts = reserved.zip(&report.servers);
    let ((tenant, _), _) = verdicts.find(|(_, verdict)| !verdict.schedulable())?;
    let (name, cpu) = (&tenant.name, tenant.lease.cpu?);
    let (budget, period) = (cpu.budget(), cpu.period());
    Some(format!(
        "tenant.{name}.cpu: found {budget} in every {period}: "
    ))
}
