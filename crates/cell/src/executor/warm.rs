//! When [memories that a tenant keeps](crate::warm_memories) are lent to executions, charged, and given back.

use super::Executor;
use super::roots::Teardown;
use super::serving::Serving;
use crate::local;
use crate::pools::DirtyRanges;

impl Executor {
    /// An execution is about to be charged, and will take one of the memories that are kept, if there is one.
    pub(super) fn lend_warm(&mut self, key: u64) {
        let serving = self
            .roots
            .get_mut(&key)
            .and_then(|root| root.serving.as_mut());
        if let Some(warm) = serving.and_then(Serving::warm) {
            warm.hold(warm.held().saturating_sub(1));
        }
    }

    /// Charges a tenant for the memories that are warm now: something of it has ended. What its lease does not pay for is
    /// cleaned.
    pub(super) fn settle_warm(&mut self, key: u64) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let Some(warm) = root.serving.as_mut().and_then(Serving::warm) else {
            return;
        };
        if warm.stand_in_the_way() {
            return self.give_warm_back(key);
        }
        let keeper = warm.keeper();
        if !warm.hold(self.pools.warm(keeper) as u64) {
            let most = warm.held() as usize;
            self.pools.cool(keeper, most, &mut root.dirty);
        }
    }

    /// Gives all memories back that a tenant keeps, if it keeps any; then it keeps none from here on.
    pub(super) fn give_warm_back(&mut self, key: u64) {
        let serving = self
            .roots
            .get_mut(&key)
            .and_then(|root| root.serving.as_mut());
        let Some(warm) = serving.and_then(Serving::warm) else {
            return;
        };
        let (keeper, (tenant, holder)) = (warm.keeper(), warm.holder());
        let memories = self.pools.warm(keeper) as u64;
        // One that was lent to an execution is charged again until it is clean.
        warm.hold(memories);
        if memories == 0 {
            return;
        }
        warm.give_up();
        let mut dirty = DirtyRanges::default();
        self.pools.cool(keeper, 0, &mut dirty);
        let holdings = local::with(|local| local.holdings.remove(&holder));
        self.bury(
            key,
            Teardown::Task {
                tenant,
                holdings: holdings.unwrap_or_default(),
                stopped: None,
                dirty,
            },
        );
    }
}
