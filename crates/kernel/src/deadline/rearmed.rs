//! Whose earliest deadline has changed.

use alloc::vec::Vec;

use leasehold_abi::Errno;
use leasehold_reclaim::Backing;

use crate::id::TenantId;
use crate::link::Objects;

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

    pub(super) fn add<B: Backing>(&mut self, groups: &mut Objects<B>, tenant: TenantId) {
        let Some(record) = groups.get_mut(tenant.record()) else {
            return;
        };
        if record.rearmed.is_none() {
            record.rearmed = Some(self.tenants.len() as u32);
            self.tenants.push(tenant);
        }
    }

    pub(super) fn next<B: Backing>(&mut self, groups: &mut Objects<B>) -> Option<TenantId> {
        let tenant = self.tenants.pop()?;
        if let Some(record) = groups.get_mut(tenant.record()) {
            record.rearmed = None;
        }
        Some(tenant)
    }

    /// The tenant ends.
    pub(super) fn ended<B: Backing>(&mut self, groups: &mut Objects<B>, tenant: TenantId) {
        self.existing -= 1;
        let place = groups
            .get_mut(tenant.record())
            .and_then(|record| record.rearmed.take());
        let Some(place) = place else { return };
        self.tenants.swap_remove(place as usize);
        if let Some(&moved) = self.tenants.get(place as usize)
            && let Some(record) = groups.get_mut(moved.record())
        {
            record.rearmed = Some(place);
        }
    }
}
