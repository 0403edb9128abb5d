//! The capabilities that a mapping stands on.

use super::places::Allowed;
use leasehold_kernel::{RegionMapping, Selector, TenantId};

/// Capabilities that a mapping stands on at the most: each may be looked at before its tenant runs.
const MOST: usize = 4;

/// The capabilities with which a region was mapped at one place: it is there as long as one of them allows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grants([Option<(TenantId, Selector)>; MOST]);

impl Grants {
    /// Creates the grants of a mapping that stands on one capability.
    pub(super) fn new(by: (TenantId, Selector)) -> Self {
        let mut grants = [None; MOST];
        grants[0] = Some(by);
        Self(grants)
    }

    /// Whether one of them `is` a mapping that is wanted.
    pub(super) fn any(&self, allowed: Allowed<'_>, is: impl Fn(&RegionMapping) -> bool) -> bool {
        let mut grants = self.0.iter().flatten();
        grants.any(|&(tenant, selector)| {
            allowed(tenant, selector).is_some_and(|mapping| is(&mapping))
        })
    }

    /// Adds a capability in place of one that is no mapping that is wanted; returns false if all are.
    pub(super) fn add(
        &mut self,
        by: (TenantId, Selector),
        allowed: Allowed<'_>,
        is: impl Fn(&RegionMapping) -> bool,
    ) -> bool {
        if self.0.contains(&Some(by)) {
            return true;
        }
        let is_over = |grant: &Option<(TenantId, Selector)>| {
            grant.is_none_or(|(tenant, selector)| {
                allowed(tenant, selector).is_none_or(|mapping| !is(&mapping))
            })
        };
        match self.0.iter_mut().find(|grant| is_over(grant)) {
            Some(grant) => {
                *grant = Some(by);
                true
            }
            None => false,
        }
    }
}
