//! The processor time that a thread takes to write a tenant's output out.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The processor time that other threads have used to write the output of one tenant. Clones share it, and
/// only clones are equal: it also identifies the tenant.
#[derive(Debug, Clone, Default)]
pub struct OutputTime(Arc<AtomicU64>);

impl OutputTime {
    /// Returns the time since it was taken last, ns.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn add(&self, cpu_ns: u64) {
        self.0.fetch_add(cpu_ns, Ordering::Relaxed);
    }
}

impl PartialEq for OutputTime {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OutputTime {}

impl Hash for OutputTime {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
