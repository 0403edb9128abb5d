//! The cell's reservation for ends, which bounds the ends of background tenants.
//!
//! A background tenant's maintenance task takes back what it left, in time that no reservation
//! uses. That can be none. One more task therefore serves the queue of ended background tenants in
//! order, under a reservation of the cell ([`CellConfig::ends`](crate::CellConfig)) and without
//! pauses. The `n`-th tenant in the queue has been taken back at the latest when the reservation
//! has supplied the reclamation budgets of all `n`.
//!
//! While no background tenant ends, the reservation uses no time. It is also unused if the tenants'
//! reservations leave no room for it; the ends of background tenants then have no bound.

use super::Executor;
use crate::clock::monotonic_ns;
use leasehold_reserve::TaskId;

impl Executor {
    /// Runs the task of the reservation for ends: takes back the background tenants of the queue in
    /// order, as long as `go_on` returns true.
    pub(super) fn hurry_ends(&mut self, task: TaskId, go_on: &mut impl FnMut() -> bool) {
        while let Some(key) = self.ends.first() {
            self.set_hurried(key, true);
            self.keep_up(key, go_on);
            self.set_hurried(key, false);
            if self.roots.contains_key(&key) {
                // Its maintenance task goes on from where this one stops.
                return;
            }
            self.ends.remove_first();
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
