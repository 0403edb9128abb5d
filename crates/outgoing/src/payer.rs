//! What pays for the thread: the tenant whose requests it sends.

use leasehold_exchange::Outbox;
use leasehold_io_thread::{Payer as Pays, Share};
use leasehold_lease::Cpu;
use std::sync::Arc;

/// A tenant, which pays for all of its tasks with one share.
pub(crate) struct Payer {
    outbox: Arc<Outbox>,
    share: Share,
}

impl Payer {
    /// One that has a part of each round of its own, if it has a reservation of the processor.
    pub(crate) fn new(outbox: Arc<Outbox>, cpu: Option<&Cpu>) -> Self {
        let reserving = |cpu: &Cpu| Share::reserving(cpu.budget().get(), cpu.period().get());
        Self {
            outbox,
            share: cpu.map(reserving).unwrap_or_default(),
        }
    }

    pub(crate) const fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }
}

impl Pays for Payer {
    fn with_share<R>(&self, look: impl FnOnce(&Share) -> R) -> R {
        look(&self.share)
    }

    fn charge(&self, ns: u64) {
        self.outbox.charge(ns);
    }
}
