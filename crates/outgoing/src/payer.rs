//! What pays for the thread: the tenant whose requests it sends.

use leasehold_exchange::Outbox;
use leasehold_io_thread::{Payer as Pays, Share};
use std::sync::Arc;

/// A tenant, which pays for all of its tasks with one share.
pub(crate) struct Payer {
    outbox: Arc<Outbox>,
    share: Share,
}

impl Payer {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            outbox,
            share: Share::default(),
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
