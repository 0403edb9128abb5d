//! The outcome of an admission test, server by server.

use alloc::vec::Vec;

use super::overhead::{Loss, Overhead};
use super::reclamation::reclaimed_within;
use super::responses;
use super::utilisation::Utilisation;
use crate::config::Order;
use crate::contract::{Contract, Nanos};

/// What the admission test says about a set of contracts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// One for each contract, in the order given.
    pub servers: Vec<Verdict>,
    /// What all of them ask of the processor.
    pub utilisation: Utilisation,
}

impl Report {
    /// Whether every server gets its budget in every period, whatever the others do.
    #[must_use]
    pub fn schedulable(&self) -> bool {
        self.servers.iter().all(Verdict::schedulable)
    }
}

/// What the admission test says about one contract of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Within this time of its return a whole budget has been served, if the server is always
    /// ready: a solution of eq. (1), or the period under earliest deadline first. `None`: it may
    /// take longer than a period, so the contract cannot be kept.
    pub response: Option<Nanos>,
    /// What is left of the period then: how much longer everything could take.
    pub slack: Option<Nanos>,
    /// What preemptions take from the budget.
    pub loss: Loss,
    /// What this server asks of the processor.
    pub utilisation: Utilisation,
}

impl Verdict {
    /// Whether this server gets its budget in every period, whatever the others do.
    #[must_use]
    pub fn schedulable(&self) -> bool {
        self.response.is_some()
    }

    /// As [`reclaimed_within`], for `reclaim` nanoseconds of useful work: what preemptions take in
    /// each of the periods that it needs comes on top. `None` if nothing bounds that, or the time.
    #[must_use]
    pub fn reclaimed_within(
        &self,
        contract: &Contract,
        order: Order,
        reclaim: Nanos,
    ) -> Option<Nanos> {
        let useful = self.loss.useful.filter(|useful| *useful > 0)?;
        let lost = self.loss.lost?.checked_mul(reclaim.div_ceil(useful))?;
        reclaimed_within(contract, order, self.response?, reclaim.checked_add(lost)?)
    }
}

/// The admission test (SPR §III-G) for all of `contracts` on one processor. Tenants in the
/// background are of no concern to it: they run only when no server can, and can be preempted at
/// any time.
///
/// Cost: that of [`response_times`](super::response_times), or `n log n` under earliest deadline
/// first.
#[must_use]
pub fn admit(contracts: &[Contract], order: Order, overhead: Overhead) -> Report {
    let responses = responses(contracts, order);
    let losses = overhead.losses(contracts, order);
    let verdict = |((contract, response), loss): ((&Contract, Option<Nanos>), Loss)| Verdict {
        response,
        slack: response.map(|response| contract.period() - response),
        loss,
        utilisation: Utilisation::of(contract),
    };
    Report {
        servers: contracts
            .iter()
            .zip(responses)
            .zip(losses)
            .map(verdict)
            .collect(),
        utilisation: Utilisation::of_all(contracts),
    }
}
