//! One life of a tenant: from its start to its end.

use crate::killers::Killable;
use crate::view::EndBound;
use leasehold_cell::TenantHandle;
use leasehold_exchange::{Lane, Outbox};
use leasehold_lease::TenantSpec;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    pub(crate) killable: Option<Killable>,
    /// Until when no message is written on failed requests.
    pub(crate) silent_until: Option<Instant>,
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

    /// Requests that wait for it are for the life that has its place, if that answers any.
    pub(crate) fn leave_requests_to(&self, heir: Option<&Arc<Lane>>) {
        if let Some((lane, heir)) = self.lane.as_ref().zip(heir) {
            lane.leave_to(heir);
        }
    }

    /// Takes further requests away from it, and has it killed when those under way are over, or at this instant, or at
    /// an earlier one that it was given before.
    pub(crate) fn leave_by(&mut self, until: Instant) {
        self.phase = match self.phase {
            Phase::Running => Phase::Draining(until),
            Phase::Draining(before) => Phase::Draining(before.min(until)),
            Phase::Killed => Phase::Killed,
        };
    }

    /// Kills it if it drains and nothing is under way any more.
    pub(crate) fn drain(&mut self, now: Instant) {
        if let Phase::Draining(until) = self.phase {
            let lane = self.lane.as_ref().inspect(|lane| lane.pass_on());
            let idle = lane.is_none_or(|lane| lane.under_way() == 0);
            if idle || now >= until {
                self.kill();
            }
        }
    }
}
