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

#[cfg(test)]
mod tests {
    use super::Payer;
    use leasehold_exchange::{ExchangeLimits, Outbox};
    use leasehold_io_thread::{Payer as _, Share};
    use leasehold_lease::Cpu;
    use std::sync::Arc;

    #[test]
    fn a_tenant_has_of_a_round_of_calls_what_it_has_of_the_processor() {
        let reserved = |cpu: Option<&Cpu>| {
            let outbox = Arc::new(Outbox::new(ExchangeLimits::default(), 1));
            Payer::new(outbox, cpu).with_share(Share::reserved_ns)
        };
        let cpu = |text: &str| reserved(Some(&text.parse().expect("a reservation")));
        assert_eq!(reserved(None), 0);
        let tenth = cpu("budget=1ms,period=10ms,priority=1");
        assert!(tenth > 0);
        assert_eq!(cpu("budget=4ms,period=20ms,priority=1"), 2 * tenth);
    }
}
