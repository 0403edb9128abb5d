//! The limit on a tenant's additions to a disk, as a lease states it.

use crate::byte_size::ByteSize;
use crate::decimal::decimal;
use crate::flag_error::FlagError;
use std::ops::RangeInclusive;

/// The limit on additions by a tenant, its tasks and its child tenants to the directories that they
/// may change, in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The most bytes that its files and directories may take more than before.
    pub bytes: ByteSize,
    /// The most names that there may be more than before: files, directories and links; at most
    /// [`Disk::MAX_FILES`].
    pub files: u32,
}

impl Disk {
    /// The most names that a lease can grant.
    pub const MAX_FILES: u32 = 1_000_000_000;

    pub(crate) const KEYS: &'static str = "bytes, files";
    pub(crate) const FILES: RangeInclusive<u64> = 0..=Self::MAX_FILES as u64;
    pub(crate) const FILES_ALLOWED: &'static str = "a whole number from 0 to 1000000000";

    /// Parses a number of names: up to [`Disk::MAX_FILES`].
    ///
    /// # Errors
    ///
    /// Anything else, with what was found and what is allowed.
    pub fn files(text: &str) -> Result<u32, FlagError> {
        decimal::<u32>(text)
            .filter(|number| Self::FILES.contains(&u64::from(*number)))
            .ok_or_else(|| FlagError::new(text, Self::FILES_ALLOWED))
    }
}

impl Default for Disk {
    fn default() -> Self {
        const BYTES: ByteSize = ByteSize::new(1 << 30).expect("1 GiB is in range");
        Self {
            bytes: BYTES,
            files: 10_000,
        }
    }
}
