//! The reservation of the cell's for ends: background tenants end within a bound, too.
//!
//! What a background tenant leaves is taken back by its own maintenance task, in time that no
//! reservation wants. That can be none. So the tenant that was asked to end first is also served by
//! one more task, under a reservation of the cell's ([`CellConfig::ends`](crate::CellConfig)), without
//! pauses; then the next one. A tenant that is `n`-th in this queue has been taken back when the
//! reservation has supplied the reclamation budgets of all `n`, if not before.
//!
//! While no background tenant ends, the reservation takes nothing. Where the reservations of tenants
//! leave no room for it, it takes nothing either, and ends in the background have no bound.

use super::Executor;
use crate::clock::monotonic_ns;
use leasehold_reserve::TaskId;
use std::sync::atomic::Ordering::Relaxed;

impl Executor {
    /// A background tenant begins to end.
    pub(super) fn hurry(&mut self, key: u64) {
        if let Some((_, task)) = &self.ends.task {
            let roots = &self.roots;
            self.ends.queue.retain(|key| roots.contains_key(key));
            self.ends.queue.push_back(key);
            self.executions.dispatcher.wake(*task, monotonic_ns());
        }
    }

    /// A turn of the reservation for ends: takes back what the first of the background tenants left,
    /// and then the next, as long as `go_on` says so.
    pub(super) fn hurry_ends(&mut self, task: TaskId, go_on: &mut impl FnMut() -> bool) {
        while self.ends.fit.load(Relaxed)
            && let Some(&key) = self.ends.queue.front()
        {
            self.set_hurried(key, true);
            self.keep_up(key, go_on);
            self.set_hurried(key, false);
            if self.roots.contains_key(&key) {
                // Its maintenance task goes on from where this one stops.
                return;
            }
            self.ends.queue.pop_front();
            if !go_on() {
                return;
            }
        }
        self.executions.dispatcher.block(task, monotonic_ns(), None);
    }

    fn set_hurried(&mut self, key: u64, hurried: bool) {
        if let Some(root) = self.roots.get_mut(&key) {
            root.hurried = hurried;
        }
    }
}
