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

pub(crate) mod heap;
pub(crate) mod rearmed;

use leasehold_reclaim::{Backing, Handle};

use crate::deadline::heap::key;
use crate::id::TenantId;
use crate::kernel::Kernel;
use crate::object::timer::state::Timer;
use crate::tenant::record::Tenant;
use crate::wait::Side;

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
