//! Deadlines: the order in which timers fire.
//!
//! The armed timers of a tenant are a leftist heap (Crane 1972) through their own slots: arming
//! and disarming take O(log n) in the worst case and allocate nothing. A child tenant is among
//! its parent's deadlines with one timer that stands for its earliest. So ending a tenant takes
//! one entry out, and never looks at its timers.
//!
//! There is no common queue of timers, because firing a timer is work of its tenant. The kernel
//! only reports the tenants whose earliest deadline has changed ([`Kernel::next_rearmed`]). A
//! scheduler fires a tenant's timers in that tenant's own time ([`Kernel::expire`]), so that any
//! number of them delays no tenant of higher priority (SPR §III-D).

use alloc::vec::Vec;

use leasehold_reclaim::{Backing, Handle};

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::link::Objects;
use crate::object::timer::Timer;
use crate::tenant::{Tenant, TenantId};
use crate::wait::Side;

type Place = Option<Handle<Timer>>;

/// The armed timers of one tenant.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heap {
    first: Place,
}

/// Where a timer is in its heap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    left: Place,
    right: Place,
    parent: Place,
    /// Nodes on the shortest way down to a missing child; at most log2(n + 1).
    rank: u8,
}

impl Links {
    pub(crate) const NONE: Links = Links {
        left: None,
        right: None,
        parent: None,
        rank: 1,
    };
}

impl Heap {
    /// Adds a timer that is in no heap and has its deadline set.
    fn insert<B: Backing>(&mut self, groups: &mut Objects<B>, timer: Handle<Timer>) {
        self.first = merge(groups, self.first, Some(timer));
    }

    /// Takes a timer out that is in this heap.
    fn remove<B: Backing>(&mut self, groups: &mut Objects<B>, timer: Handle<Timer>) {
        let Some(node) = groups.get_mut(timer) else {
            return;
        };
        let Links {
            left,
            right,
            parent,
            ..
        } = core::mem::replace(&mut node.links, Links::NONE);
        for child in [left, right] {
            set_parent(groups, child, None);
        }
        let merged = merge(groups, left, right);
        set_parent(groups, merged, parent);
        let Some(parent) = parent else {
            self.first = merged;
            return;
        };
        if let Some(node) = groups.get_mut(parent) {
            if node.links.left == Some(timer) {
                node.links.left = merged;
            } else {
                node.links.right = merged;
            }
        }
        balance(groups, Some(parent), true);
    }

    /// The earliest deadline.
    fn earliest<B: Backing>(&self, groups: &Objects<B>) -> Option<u64> {
        groups.get(self.first?)?.deadline
    }
}

/// Makes one heap of two, of which the root has no parent. Visits the right spines of both:
/// O(log n).
fn merge<B: Backing>(groups: &mut Objects<B>, a: Place, b: Place) -> Place {
    let (mut a, mut b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (one, other) => return one.or(other),
    };
    let mut above: Place = None;
    let mut root = None;
    loop {
        if key(groups, b) < key(groups, a) {
            (a, b) = (b, a);
        }
        // `a` is the earlier one: it comes here, and the rest to its right.
        set_parent(groups, Some(a), above);
        match above.and_then(|above| groups.get_mut(above)) {
            Some(above) => above.links.right = Some(a),
            None => root = Some(a),
        }
        above = Some(a);
        match groups.get(a).and_then(|a| a.links.right) {
            Some(right) => a = right,
            None => break,
        }
    }
    if let Some(last) = groups.get_mut(a) {
        last.links.right = Some(b);
    }
    set_parent(groups, Some(b), Some(a));
    balance(groups, Some(a), false);
    root
}

/// Puts the child of lower rank to the right, from a node upwards: to the root, or until nothing
/// changes. The ranks that change grow by one per level: O(log n).
fn balance<B: Backing>(groups: &mut Objects<B>, mut at: Place, until_same: bool) {
    while let Some(handle) = at {
        let Some(&Timer { links, .. }) = groups.get(handle) else {
            return;
        };
        let rank = |place: Place| {
            place
                .and_then(|place| groups.get(place))
                .map_or(0, |timer| timer.links.rank)
        };
        let (mut left, mut right) = (links.left, links.right);
        if rank(left) < rank(right) {
            (left, right) = (right, left);
        }
        let new_rank = rank(right) + 1;
        if let Some(timer) = groups.get_mut(handle) {
            timer.links = Links {
                left,
                right,
                rank: new_rank,
                ..links
            };
        }
        if until_same && new_rank == links.rank {
            return;
        }
        at = links.parent;
    }
}

fn key<B: Backing>(groups: &Objects<B>, timer: Handle<Timer>) -> Option<u64> {
    groups.get(timer)?.deadline
}

fn set_parent<B: Backing>(groups: &mut Objects<B>, node: Place, parent: Place) {
    if let Some(node) = node.and_then(|node| groups.get_mut(node)) {
        node.links.parent = parent;
    }
}

/// The top-level tenants whose earliest deadline has changed since the last query: each once, and
/// each knows its place.
#[derive(Debug, Default)]
pub(crate) struct Rearmed {
    tenants: Vec<TenantId>,
    /// Top-level tenants that exist; the list has room for all of them.
    existing: usize,
}

impl Rearmed {
    /// Makes room for one more tenant.
    pub(crate) fn reserve(&mut self) -> Result<(), Errno> {
        let further = self.existing + 1 - self.tenants.len();
        self.tenants.try_reserve(further).map_err(|_| Errno::Memory)
    }

    pub(crate) const fn opened(&mut self) {
        self.existing += 1;
    }

    fn add<B: Backing>(&mut self, groups: &mut Objects<B>, tenant: TenantId) {
        let Some(record) = groups.get_mut(tenant.0) else {
            return;
        };
        if record.rearmed.is_none() {
            record.rearmed = Some(self.tenants.len() as u32);
            self.tenants.push(tenant);
        }
    }

    fn next<B: Backing>(&mut self, groups: &mut Objects<B>) -> Option<TenantId> {
        let tenant = self.tenants.pop()?;
        if let Some(record) = groups.get_mut(tenant.0) {
            record.rearmed = None;
        }
        Some(tenant)
    }

    /// The tenant ends.
    fn ended<B: Backing>(&mut self, groups: &mut Objects<B>, tenant: TenantId) {
        self.existing -= 1;
        let place = groups
            .get_mut(tenant.0)
            .and_then(|record| record.rearmed.take());
        let Some(place) = place else { return };
        self.tenants.swap_remove(place as usize);
        if let Some(&moved) = self.tenants.get(place as usize)
            && let Some(record) = groups.get_mut(moved.0)
        {
            record.rearmed = Some(place);
        }
    }
}

impl<B: Backing> Kernel<B> {
    /// A top-level tenant whose earliest deadline has changed since it was last named here, and
    /// that deadline now: in the time given to [`timer_set`](Self::timer_set), `None` if none of
    /// its timers is armed. O(1).
    pub fn next_rearmed(&mut self) -> Option<(TenantId, Option<u64>)> {
        let tenant = self.rearmed.next(&mut self.groups)?;
        Some((tenant, self.next_deadline(tenant)))
    }

    /// When the next timer of a tenant or its descendants fires.
    pub fn next_deadline(&self, tenant: TenantId) -> Option<u64> {
        self.tenant(tenant).ok()?.deadlines.earliest(&self.groups)
    }

    /// Fires up to `limit` due timers of a tenant and its descendants; returns how many. If it is
    /// `limit`, there may be more. A periodic timer fires once for any number of passed periods,
    /// and counts them. O(log n) and the owner's depth, for each.
    pub fn expire(&mut self, tenant: TenantId, now_ns: u64, limit: u32) -> u32 {
        let mut fired = 0;
        while fired < limit
            && self
                .next_deadline(tenant)
                .is_some_and(|deadline| deadline <= now_ns)
        {
            if !self.fire_first(tenant, now_ns) {
                break;
            }
            fired += 1;
        }
        fired
    }

    fn fire_first(&mut self, mut tenant: TenantId, now: u64) -> bool {
        let handle = loop {
            let Ok(record) = self.tenant(tenant) else {
                return false;
            };
            let Some(first) = record.deadlines.first else {
                return false;
            };
            match self.groups.get(first).and_then(|timer| timer.stands_for) {
                Some(child) => tenant = child,
                None => break first,
            }
        };
        let Some(&Timer {
            deadline: Some(deadline),
            period,
            ..
        }) = self.groups.get(handle)
        else {
            return false;
        };
        self.disarm(tenant, handle);
        let periods = now
            .saturating_sub(deadline)
            .checked_div(period)
            .unwrap_or(0);
        if let Some(timer) = self.groups.get_mut(handle) {
            timer.fired = timer.fired.saturating_add(periods).saturating_add(1);
        }
        if period > 0 {
            let passed = period.saturating_mul(periods.saturating_add(1));
            self.arm(tenant, handle, deadline.saturating_add(passed));
        }
        self.announce(tenant);
        self.executions
            .settle(&mut self.groups, handle.raw(), Side::Timer);
        true
    }

    /// Puts a timer that is not armed among its owner's deadlines. [`announce`](Self::announce)
    /// it afterwards.
    pub(crate) fn arm(&mut self, owner: TenantId, timer: Handle<Timer>, deadline: u64) {
        let Ok(&Tenant {
            deadlines: mut heap,
            ..
        }) = self.tenant(owner)
        else {
            return;
        };
        if let Some(timer) = self.groups.get_mut(timer) {
            timer.deadline = Some(deadline);
        }
        heap.insert(&mut self.groups, timer);
        if let Ok(owner) = self.tenant_mut(owner) {
            owner.deadlines = heap;
        }
    }

    /// Takes a timer out of its owner's deadlines, if it is armed. [`announce`](Self::announce)
    /// it afterwards.
    pub(crate) fn disarm(&mut self, owner: TenantId, timer: Handle<Timer>) {
        let Ok(&Tenant {
            deadlines: mut heap,
            ..
        }) = self.tenant(owner)
        else {
            return;
        };
        if self
            .groups
            .get(timer)
            .is_none_or(|timer| timer.deadline.is_none())
        {
            return;
        }
        heap.remove(&mut self.groups, timer);
        if let Some(timer) = self.groups.get_mut(timer) {
            timer.deadline = None;
        }
        if let Ok(owner) = self.tenant_mut(owner) {
            owner.deadlines = heap;
        }
    }

    /// Propagates a tenant's earliest deadline to its ancestors, up to the first one whose own does
    /// not change. O(log n) for each level.
    pub(crate) fn announce(&mut self, tenant: TenantId) {
        let mut at = tenant;
        loop {
            let Ok(&Tenant {
                deadlines, parent, ..
            }) = self.tenant(at)
            else {
                return;
            };
            let earliest = deadlines.earliest(&self.groups);
            let Some(parent) = parent else {
                self.rearmed.add(&mut self.groups, at);
                return;
            };
            if key(&self.groups, parent.alarm) == earliest {
                return;
            }
            self.disarm(parent.tenant, parent.alarm);
            if let Some(earliest) = earliest {
                self.arm(parent.tenant, parent.alarm, earliest);
            }
            at = parent.tenant;
        }
    }

    /// Removes an ending tenant from the deadlines of its parent: one entry.
    pub(crate) fn forget_deadlines(&mut self, tenant: TenantId) {
        let Ok(&Tenant { parent, .. }) = self.tenant(tenant) else {
            return;
        };
        match parent {
            Some(parent) => {
                self.disarm(parent.tenant, parent.alarm);
                self.announce(parent.tenant);
            }
            None => self.rearmed.ended(&mut self.groups, tenant),
        }
    }
}
