//! The flag form of a lease.

use crate::byte_size::ByteSize;
use crate::cpu::Cpu;
use crate::decimal::decimal;
use crate::flag_error::FlagError;
use crate::lease::Lease;
use crate::memory::{Memory, Paging};
use crate::nanoseconds::Nanoseconds;

/// The values that flags state: each replaces one value of a base lease, which is that of
/// `--lease`, or else [`Lease::default`].
///
/// ```
/// use leasehold_lease::{Lease, LeaseFlags};
///
/// let flags = LeaseFlags { budget: Some("2ms".parse()?), ..LeaseFlags::default() };
/// let lease = flags.over(Lease::default());
/// assert_eq!(lease.reclaim.budget.to_string(), "2ms");
/// assert_eq!(lease.memory, Lease::default().memory);
/// # Ok::<(), leasehold_lease::QuantityError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseFlags {
    /// Replaces `reclaim.budget`.
    pub budget: Option<Nanoseconds>,
    /// Replaces `reclaim.call_bytes`.
    pub call_bytes: Option<ByteSize>,
    /// Replaces `memory.reserve`.
    pub reserve: Option<ByteSize>,
    /// Replaces `memory.limit` and `memory.kind` together: neither has a meaning without the other.
    pub paging: Option<Paging>,
    /// Replaces `memory.table_elements`; parse it with [`LeaseFlags::table_elements`].
    pub table_elements: Option<u64>,
    /// Replaces `memory.host`.
    pub host_memory: Option<ByteSize>,
    /// Replaces `memory.code`.
    pub code_memory: Option<ByteSize>,
    /// Replaces `memory.stack`; parse it with [`LeaseFlags::stack`].
    pub stack: Option<ByteSize>,
    /// Replaces `files.open`; parse it with [`Files::open`](crate::Files::open).
    pub open_files: Option<u32>,
    /// Replaces `disk.bytes`.
    pub disk_bytes: Option<ByteSize>,
    /// Replaces `disk.files`; parse it with [`Disk::files`](crate::Disk::files).
    pub disk_files: Option<u32>,
    /// Replaces `cpu` as a whole: a budget has no meaning without its period.
    pub cpu: Option<Cpu>,
}

impl LeaseFlags {
    /// `base` with the values that flags state.
    #[must_use]
    pub fn over(self, base: Lease) -> Lease {
        let mut lease = base;
        lease.reclaim.budget = self.budget.unwrap_or(base.reclaim.budget);
        lease.reclaim.call_bytes = self.call_bytes.or(base.reclaim.call_bytes);
        lease.memory.reserve = self.reserve.unwrap_or(base.memory.reserve);
        lease.memory.paging = self.paging.or(base.memory.paging);
        lease.memory.table_elements = self.table_elements.unwrap_or(base.memory.table_elements);
        lease.memory.host = self.host_memory.or(base.memory.host);
        lease.memory.code = self.code_memory.unwrap_or(base.memory.code);
        lease.memory.stack = self.stack.unwrap_or(base.memory.stack);
        lease.cpu = self.cpu.or(base.cpu);
        lease.files.open = self.open_files.unwrap_or(base.files.open);
        lease.disk.bytes = self.disk_bytes.unwrap_or(base.disk.bytes);
        lease.disk.files = self.disk_files.unwrap_or(base.disk.files);
        lease
    }

    /// Parses the size of a stack: [`Memory::MIN_STACK`] to [`Memory::MAX_STACK`].
    ///
    /// # Errors
    ///
    /// Anything else, with what was found and what is allowed.
    pub fn stack(text: &str) -> Result<ByteSize, FlagError> {
        let size = text.parse::<ByteSize>()?;
        Some(size)
            .filter(|size| Memory::is_stack(*size))
            .ok_or_else(|| FlagError::new(text, Memory::STACK_ALLOWED))
    }

    /// Parses a number of table elements: 1 to [`Memory::MAX_TABLE_ELEMENTS`].
    ///
    /// # Errors
    ///
    /// Anything else, with what was found and what is allowed.
    pub fn table_elements(text: &str) -> Result<u64, FlagError> {
        decimal(text)
            .filter(|n| Memory::TABLE_ELEMENTS.contains(n))
            .ok_or_else(|| FlagError::new(text, Memory::TABLE_ELEMENTS_ALLOWED))
    }
}
