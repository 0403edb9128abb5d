//! The state of a cell and its tenants as clients see it; the cell is asked for it at most once a second.

use super::{Facts, Supervisor};
use crate::metrics;
use crate::problem::Problem;
use crate::view::{self, ErrorKind, EventKind};
use crate::viewed;
use crate::ward::Ward;
use jiff::Timestamp;
use leasehold_cell::Realtime;
use leasehold_front::Front;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the answers of the cell are shown before it is asked again.
const FRESH: Duration = Duration::from_secs(1);
/// Tenants whose account and memory are asked for at once: two commands each.
const ASKED: usize = 16;

impl Supervisor {
    /// Returns a tenant's reclamation account.
    pub(crate) fn statement(&mut self, name: &str) -> Result<view::Statement, Problem> {
        let at = self.at(name)?;
        self.snapshot();
        let seen = &mut self.wards[at].seen;
        if seen.statement.is_none() {
            self.ask(at);
        }
        let statement = self.wards[at].seen.statement.as_ref();
        statement
            .map(viewed::statement)
            .ok_or_else(|| Problem::not_running(name))
    }

    /// Returns what a tenant got of the processor.
    pub(crate) fn processor(&mut self, name: &str) -> Result<view::Processor, Problem> {
        let at = self.at(name)?;
        self.snapshot();
        let ward = &self.wards[at];
        let processor = ward.seen.processor.as_ref().filter(|_| ward.life.is_some());
        let view =
            processor.map(|processor| viewed::processor(processor, ward.spec.lease.cpu.as_ref()));
        view.ok_or_else(|| Problem::not_running(name))
    }

    /// Returns how a tenant uses its memory, or did when it ended.
    pub(crate) fn memory(&mut self, name: &str) -> Result<view::MemoryUse, Problem> {
        let at = self.at(name)?;
        self.snapshot();
        if self.wards[at].seen.memory.is_none() {
            self.ask(at);
        }
        let ward = &self.wards[at];
        let ended = ward.ended.as_ref().map(|ended| &ended.memory);
        let memory = ward.seen.memory.as_ref().or(ended);
        memory
            .map(|memory| viewed::memory(memory, &ward.spec.lease))
            .ok_or_else(|| Problem::not_running(name))
    }

    /// Returns how a tenant's requests went.
    pub(crate) fn requests(&mut self, name: &str) -> Result<view::Requests, Problem> {
        let at = self.at(name)?;
        let site = self.wards[at].site.as_ref();
        let site = site.ok_or_else(|| {
            Problem::new(ErrorKind::Conflict, format!("{name} answers no requests"))
        })?;
        let (waiting, active) = site.load();
        Ok(view::Requests {
            waiting,
            active,
            outcomes: viewed::outcomes(site),
            latency: viewed::latency(site.latency()),
            last: self.parts.requests.last(name),
        })
    }

    /// Returns all that is known; the cell is asked at most once a second.
    pub(crate) fn snapshot(&mut self) -> Arc<view::Snapshot> {
        if let Some((at, snapshot)) = &self.snapshot
            && at.elapsed() < FRESH
        {
            return snapshot.clone();
        }
        self.observe();
        let cell = &self.parts.cell;
        let snapshot = Arc::new(view::Snapshot {
            at: Timestamp::now(),
            node: self.node(),
            tenants: self
                .wards
                .iter()
                .filter(|ward| !ward.is_deleted)
                .map(Ward::view)
                .collect(),
            ends: self.ends.iter().cloned().collect(),
            steps: cell.steps().iter().map(viewed::step).collect(),
            costs: cell.costs().iter().map(viewed::cost).collect(),
            control: cell.control().iter().map(viewed::control).collect(),
            last_event: self.parts.events.newest(),
        });
        if let Some((_, before)) = &self.snapshot {
            self.compare(before, &snapshot);
        }
        self.snapshot = Some((Instant::now(), snapshot.clone()));
        snapshot
    }

    /// Returns all that a page of metrics shows; the cell is asked at most once a second.
    pub(crate) fn observation(&mut self) -> metrics::Observation {
        let snapshot = self.snapshot();
        let known = self.wards.iter().filter(|ward| !ward.is_deleted);
        let sites = known.filter_map(|ward| ward.site.as_ref());
        let front = self.parts.front.as_ref();
        let listeners = front.map(|front| {
            let names = front
                .listening()
                .iter()
                .map(|listening| listening.name.clone());
            names.zip(front.connections()).collect()
        });
        metrics::Observation {
            sites: sites.map(|site| site.snapshot()).collect(),
            listeners: listeners.unwrap_or_default(),
            ends: self.counted_ends.clone(),
            reloads: self.reloads,
            exports: self
                .parts
                .exporter
                .as_ref()
                .map(|exporter| exporter.exports()),
            snapshot: Arc::unwrap_or_clone(snapshot),
        }
    }

    /// Returns the tenants as they are now, with what was last seen of the cell.
    pub(crate) fn tenants(&mut self) -> Vec<view::Tenant> {
        self.snapshot();
        self.wards
            .iter()
            .filter(|ward| !ward.is_deleted)
            .map(Ward::view)
            .collect()
    }

    /// Returns the node.
    pub(crate) fn node(&self) -> view::Node {
        let Facts {
            order, confinement, ..
        } = &self.parts.facts;
        let listening = self
            .parts
            .front
            .as_ref()
            .map(Front::listening)
            .unwrap_or_default();
        let now = Timestamp::now();
        view::Node {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            uptime_ns: now
                .duration_since(self.started_at)
                .as_nanos()
                .try_into()
                .unwrap_or(0),
            order: order.clone(),
            realtime: match self.parts.cell.realtime() {
                Realtime::Granted => "granted".to_owned(),
                Realtime::NotAsked => "not asked".to_owned(),
                Realtime::ForKills => "for kills".to_owned(),
                Realtime::Refused(reason) => reason.to_string(),
            },
            own_core: self.parts.cell.own_core().map(|core| core as u64),
            confinement: confinement.clone(),
            schedulable: self.schedulable,
            utilization: self.utilization,
            listeners: listening.iter().map(viewed::listener).collect(),
        }
    }

    /// Asks the cell about its tenants: one command for all, and two for a few of them in turn.
    pub(super) fn observe(&mut self) {
        let live: Vec<usize> = (0..self.wards.len())
            .filter(|at| self.wards[*at].life.is_some())
            .collect();
        let handles = live
            .iter()
            .filter_map(|at| Some(&self.wards[*at].life.as_ref()?.handle));
        let processors = self.parts.cell.processors(handles);
        for (at, processor) in live.iter().zip(processors) {
            self.wards[*at].seen.processor = processor;
        }
        for step in 0..live.len().min(ASKED) {
            self.ask(live[(self.asked + step) % live.len()]);
        }
        self.asked = self.asked.wrapping_add(ASKED);
    }

    pub(super) fn ask(&mut self, at: usize) {
        let ward = &mut self.wards[at];
        if let Some(life) = &ward.life {
            ward.seen.memory = life.handle.memory();
            ward.seen.statement = life.handle.statement();
        }
    }

    /// Publishes what got worse between two snapshots.
    pub(super) fn compare(&self, before: &view::Snapshot, now: &view::Snapshot) {
        for step in &now.steps {
            let earlier = before.steps.iter().find(|earlier| earlier.row == step.row);
            let more = step.exceeded
                - earlier
                    .map_or(0, |earlier| earlier.exceeded)
                    .min(step.exceeded);
            if more > 0 {
                let said = format!("{}: {more} were longer than {} ns", step.row, step.limit_ns);
                self.parts
                    .events
                    .publish(EventKind::StepBeyondRow, None, Some(said));
            }
        }
        for cost in &now.costs {
            let earlier = before
                .costs
                .iter()
                .find(|earlier| earlier.class == cost.class);
            if cost.drifts > earlier.map_or(0, |earlier| earlier.drifts) {
                let said = format!(
                    "{}: new leases are charged {:.2} times the profile",
                    cost.class, cost.price
                );
                self.parts
                    .events
                    .publish(EventKind::Drift, None, Some(said));
            }
        }
    }
}
