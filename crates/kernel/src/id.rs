//! Names of what acts on the kernel: tenants and executions.

use core::fmt;

use leasehold_reclaim::RawHandle;

/// Names a tenant. One that outlives its tenant is detectably stale
/// ([`Errno::Gone`](crate::Errno::Gone)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub(crate) RawHandle);

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A running program, by a number that the cell chose and has not used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId(pub u64);
