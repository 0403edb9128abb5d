//! Orders of operators while changes are prepared: a change undoes no order that was given after it was asked for.

use std::collections::BTreeMap;

/// An order of an operator that a change which was asked for before may not undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The tenant was killed or drained: it does not run.
    Stop,
    /// The tenant was deleted.
    Delete,
}

/// An instant in the order of orders: that at which a change was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked(u64);

/// The last order for each tenant.
#[derive(Debug, Default)]
pub(super) struct Orders {
    given: u64,
    last: BTreeMap<String, (Asked, Order)>,
}

impl Orders {
    /// Returns the present position in the sequence of orders.
    pub(super) const fn now(&self) -> Asked {
        Asked(self.given)
    }

    pub(super) fn give(&mut self, tenant: &str, order: Order) {
        self.given += 1;
        self.last
            .insert(tenant.to_owned(), (Asked(self.given), order));
    }

    /// Withdraws the order for a tenant, which is to run again.
    pub(super) fn withdraw(&mut self, tenant: &str) {
        self.last.remove(tenant);
    }

    /// Returns the last order for a tenant, if it was given after a change was asked for.
    pub(super) fn since(&self, asked: Asked, tenant: &str) -> Option<Order> {
        let (given, order) = self.last.get(tenant)?;
        (*given > asked).then_some(*order)
    }

    /// Forgets all orders: no change waits.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Orders};

    #[test]
    fn an_order_holds_for_changes_that_were_asked_for_before_it_and_until_it_is_withdrawn() {
        let mut orders = Orders::default();
        let before = orders.now();
        orders.give("shop", Order::Stop);
        let after = orders.now();
        assert_eq!(orders.since(before, "shop"), Some(Order::Stop));
        assert_eq!(orders.since(after, "shop"), None);
        assert_eq!(orders.since(before, "cart"), None);
        orders.give("shop", Order::Delete);
        assert_eq!(orders.since(after, "shop"), Some(Order::Delete));
        orders.withdraw("shop");
        assert_eq!(orders.since(before, "shop"), None);
    }
}
