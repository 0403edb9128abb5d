//! The limits on a tenant's use of files, as a lease states them.

use crate::decimal::decimal;
use crate::flag_error::FlagError;
use std::ops::RangeInclusive;

/// The files that a tenant, its tasks and its child tenants may have, in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// The most files and directories that are open at a time, those of the lease included; 1 to
    /// [`Files::MAX_OPEN`]. They are set aside for the tenant if it has a directory.
    pub open: u32,
}

impl Files {
    /// The most open files that a lease can grant.
    pub const MAX_OPEN: u32 = 1_000_000;

    pub(crate) const KEYS: &'static str = "open";
    pub(crate) const OPEN: RangeInclusive<u64> = 1..=Self::MAX_OPEN as u64;
    pub(crate) const OPEN_ALLOWED: &'static str = "a whole number from 1 to 1000000";

    /// Parses a number of open files: 1 to [`Files::MAX_OPEN`].
    ///
    /// # Errors
    ///
    /// Anything else, with what was found and what is allowed.
    pub fn open(text: &str) -> Result<u32, FlagError> {
        decimal::<u32>(text)
            .filter(|number| Self::OPEN.contains(&u64::from(*number)))
            .ok_or_else(|| FlagError::new(text, Self::OPEN_ALLOWED))
    }
}

impl Default for Files {
    fn default() -> Self {
        Self { open: 128 }
    }
}
