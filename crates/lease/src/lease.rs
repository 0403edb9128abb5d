//! The lease: the contract of one tenant.

use crate::byte_size::ByteSize;
use crate::cpu::Cpu;
use crate::disk::Disk;
use crate::files::Files;
use crate::memory::Memory;
use crate::nanoseconds::Nanoseconds;

/// The contract of one tenant.
///
/// The default is the lease of `leasehold run` without flags: a reclamation budget of 50 ms,
/// 1 GiB of linear memory, 1,000,000 table elements, 128 open files, 1 GiB and 10,000 files more on
/// disks, and no processor reservation. That is enough for an ordinary command and still a deadline; a
/// lease file has to name its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// What taking everything back may cost.
    pub reclaim: Reclaim,
    /// How much memory the tenant may use.
    pub memory: Memory,
    /// How much processor time is reserved for the tenant. `None` puts it into the background: it
    /// runs in the time that no reservation uses.
    pub cpu: Option<Cpu>,
    /// How many files the tenant may have.
    pub files: Files,
    /// What the tenant may add to a disk.
    pub disk: Disk,
}

/// The reservation of time to end the tenant (BRR §III).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaim {
    /// The reclamation budget of the tenant's group: every allocation is charged against it
    /// before it is made, and refused when it does not fit.
    pub budget: Nanoseconds,
    /// The host memory that one pending host call may hold. `None` is 128 KiB.
    pub call_bytes: Option<ByteSize>,
}

impl Default for Reclaim {
    fn default() -> Self {
        const BUDGET: Nanoseconds = Nanoseconds::new(50_000_000).expect("50 ms is in range");
        Self {
            budget: BUDGET,
            call_bytes: None,
        }
    }
}
