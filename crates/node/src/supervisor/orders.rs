//! Orders of operators while changes are prepared: a change undoes no order that was given after it was asked for.
//!
//! An order is also one for a tenant that is not there yet, if a change may bring it: its first put, or the reload of a
//! lease file that has it.

use leasehold_lease::TenantSpec;
use std::collections::BTreeMap;

/// The most orders for tenants that perhaps come, of which there are as many names as a client likes.
pub(super) const PERHAPS: usize = 1024;

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

/// The last orders of each kind for a tenant.
#[derive(Debug, Clone, Copy, Default)]
struct Given {
    stopped: Option<Asked>,
    deleted: Option<Asked>,
    /// Whether the tenant was not there, and no change was known to bring it.
    is_perhaps: bool,
}

/// There are too many orders for tenants that perhaps come.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// The last orders for each tenant.
#[derive(Debug, Default)]
pub(super) struct Orders {
    given: u64,
    last: BTreeMap<String, Given>,
}

impl Orders {
    /// Returns the present position in the sequence of orders.
    pub(super) const fn now(&self) -> Asked {
        Asked(self.given)
    }

    /// Gives an order for a tenant that is there, or that a change brings.
    pub(super) fn give(&mut self, tenant: &str, order: Order) {
        self.insert(tenant, order).is_perhaps = false;
    }

    /// Gives an order for a tenant that a change may bring.
    ///
    /// # Errors
    /// When there are too many of those.
    pub(super) fn give_perhaps(&mut self, tenant: &str, order: Order) -> Result<(), TooMany> {
        // No change brings a tenant that no lease file can have.
        if !TenantSpec::is_name(tenant) {
            return Ok(());
        }
        let is_new = !self.last.contains_key(tenant);
        let others = self.last.values().filter(|given| given.is_perhaps);
        if is_new && others.count() >= PERHAPS {
            return Err(TooMany);
        }
        self.insert(tenant, order).is_perhaps |= is_new;
        Ok(())
    }

    fn insert(&mut self, tenant: &str, order: Order) -> &mut Given {
        self.given += 1;
        let at = Some(Asked(self.given));
        let given = self.last.entry(tenant.to_owned()).or_default();
        match order {
            Order::Stop => given.stopped = at,
            Order::Delete => given.deleted = at,
        }
        given
    }

    /// Withdraws the order to stop a tenant, which is to run again. What was asked for before it was deleted does not
    /// bring it for that.
    pub(super) fn withdraw_stop(&mut self, tenant: &str) {
        if let Some(given) = self.last.get_mut(tenant) {
            given.stopped = None;
        }
    }

    /// Returns the order for a tenant that a change has to keep which was asked for then.
    pub(super) fn since(&self, asked: Asked, tenant: &str) -> Option<Order> {
        let given = self.last.get(tenant)?;
        if given.deleted > Some(asked) {
            return Some(Order::Delete);
        }
        (given.stopped > Some(asked)).then_some(Order::Stop)
    }

    /// Forgets the orders that were given before this: all changes that are left were asked for later.
    pub(super) fn forget_until(&mut self, asked: Asked) {
        self.last
            .retain(|_, given| given.stopped.max(given.deleted) > Some(asked));
    }

    /// Forgets all orders: no change waits.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Orders, PERHAPS, TooMany};

    #[test]
    fn an_order_holds_for_changes_that_were_asked_for_before_it_and_until_it_is_withdrawn() {
        let mut orders = Orders::default();
        let before = orders.now();
        orders.give("shop", Order::Stop);
        let after = orders.now();
        assert_eq!(orders.since(before, "shop"), Some(Order::Stop));
        assert_eq!(orders.since(after, "shop"), None);
        assert_eq!(orders.since(before, "cart"), None);
        orders.withdraw_stop("shop");
        assert_eq!(orders.since(before, "shop"), None);
        orders.give("shop", Order::Delete);
        assert_eq!(orders.since(after, "shop"), Some(Order::Delete));
    }

    #[test]
    fn a_tenant_that_was_deleted_stays_so_for_earlier_changes_whatever_is_ordered_then() {
        let mut orders = Orders::default();
        let before = orders.now();
        orders.give("shop", Order::Delete);
        let between = orders.now();
        orders.give("shop", Order::Stop);
        assert_eq!(orders.since(before, "shop"), Some(Order::Delete));
        assert_eq!(orders.since(between, "shop"), Some(Order::Stop));
        orders.withdraw_stop("shop");
        assert_eq!(orders.since(before, "shop"), Some(Order::Delete));
        assert_eq!(orders.since(between, "shop"), None);
    }

    #[test]
    fn an_order_for_a_tenant_that_perhaps_comes_holds_as_any_other() {
        let mut orders = Orders::default();
        let before = orders.now();
        assert_eq!(orders.give_perhaps("shop", Order::Stop), Ok(()));
        assert_eq!(orders.since(before, "shop"), Some(Order::Stop));
        assert_eq!(orders.give_perhaps("shop", Order::Delete), Ok(()));
        assert_eq!(orders.since(before, "shop"), Some(Order::Delete));
        assert_eq!(orders.since(orders.now(), "shop"), None);
    }

    #[test]
    fn orders_for_tenants_that_perhaps_come_are_bounded_and_take_no_place_of_others() {
        let mut orders = Orders::default();
        let before = orders.now();
        for name in 0..PERHAPS {
            let name = format!("t{name}");
            assert_eq!(orders.give_perhaps(&name, Order::Delete), Ok(()));
        }
        assert_eq!(orders.give_perhaps("more", Order::Delete), Err(TooMany));
        assert_eq!(orders.since(before, "more"), None);
        // One that is there has place, and so has another order for one that has some.
        orders.give("shop", Order::Stop);
        assert_eq!(orders.since(before, "shop"), Some(Order::Stop));
        let deleted = orders.now();
        assert_eq!(orders.give_perhaps("t0", Order::Stop), Ok(()));
        assert_eq!(orders.since(deleted, "t0"), Some(Order::Stop));
        orders.forget();
        assert_eq!(orders.give_perhaps("more", Order::Delete), Ok(()));
    }

    #[test]
    fn an_order_for_a_name_that_no_tenant_can_have_is_not_kept() {
        let mut orders = Orders::default();
        for name in ["", "../shop", "a b", &"x".repeat(64)] {
            assert_eq!(orders.give_perhaps(name, Order::Delete), Ok(()));
        }
        assert!(orders.last.is_empty());
    }

    #[test]
    fn an_order_is_kept_only_as_long_as_a_change_that_was_asked_for_before_it() {
        let mut orders = Orders::default();
        orders.give("shop", Order::Stop);
        let between = orders.now();
        orders.give("cart", Order::Stop);
        orders.forget_until(between);
        assert!(!orders.last.contains_key("shop"));
        assert_eq!(orders.since(between, "cart"), Some(Order::Stop));
        orders.forget();
        assert!(orders.last.is_empty());
    }
}
