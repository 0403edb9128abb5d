//! Orders for tenants that are not there yet: a change may bring them.

use super::Supervisor;
use super::orders::{Order, PERHAPS, TooMany};
use super::pending::Coming;
use crate::problem::Problem;
use crate::view::ErrorKind;

impl Supervisor {
    /// Gives an order for a tenant that is not there, if a change may bring it. Returns whether one does.
    ///
    /// # Errors
    /// When there are too many orders for tenants that perhaps come.
    pub(super) fn order_absent(&mut self, name: &str, order: Order) -> Result<Coming, Problem> {
        let coming = self.coming(name);
        match coming {
            Coming::No => {}
            Coming::Yes => self.orders.give(name, order),
            Coming::Perhaps => self.orders.give_perhaps(name, order).map_err(|TooMany| {
                let message = format!(
                    "the node is busy: the lease file is being read, and {PERHAPS} orders for tenants that are not there \
                     wait for it"
                );
                Problem::new(ErrorKind::Busy, message)
            })?,
        }
        Ok(coming)
    }

    /// Orders that a tenant which is not there does not run, if a change may bring it. Returns why there is nothing to
    /// stop.
    pub(super) fn stop_absent(&mut self, name: &str) -> Problem {
        let no_tenant = Problem::no_tenant(name);
        match self.order_absent(name, Order::Stop) {
            Err(problem) => problem,
            Ok(Coming::No) => no_tenant,
            Ok(Coming::Perhaps) => {
                let message = format!(
                    "{no_tenant}; if the lease file that is being read has one, it stays stopped"
                );
                Problem::new(ErrorKind::NotFound, message)
            }
            Ok(Coming::Yes) => {
                let message = format!(
                    "tenant {name} is not running: a change is about to bring it, and it stays stopped"
                );
                Problem::new(ErrorKind::Conflict, message)
            }
        }
    }

    /// Withdraws the order that a tenant which is not there does not run. Returns why there is nothing to start.
    pub(super) fn start_absent(&mut self, name: &str) -> Problem {
        self.orders.withdraw_stop(name);
        match self.coming(name) {
            Coming::Yes => {
                let message = format!(
                    "tenant {name} is not there yet: a change is about to bring it, and to start it"
                );
                Problem::new(ErrorKind::Conflict, message)
            }
            Coming::No | Coming::Perhaps => Problem::no_tenant(name),
        }
    }

    /// Whether a tenant that is not there comes with a change that was asked for after the tenant was deleted.
    fn coming(&self, name: &str) -> Coming {
        let is_deleted = |asked| self.orders.since(asked, name) == Some(Order::Delete);
        self.changes.coming(name, |asked| !is_deleted(asked))
    }
}
