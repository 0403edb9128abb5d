//! Memory that capabilities can share.

use leasehold_abi::Errno;

use crate::abi;
use crate::answer::{done, result, selector};
use crate::capability::object;

object! {
    /// Zeroed memory outside the program's own, which capabilities can share.
    Region
}

impl Region {
    /// `length` bytes of zeroed memory, at most 1 GiB.
    ///
    /// # Errors
    /// [`Errno::TooLarge`]; what the lease does not cover.
    pub fn create(length: u64) -> Result<Region, Errno> {
        selector(abi::region_create(length)).map(Region)
    }

    /// The length in bytes.
    ///
    /// # Errors
    /// [`Errno::Gone`]; [`Errno::BadClass`].
    pub fn length(self) -> Result<u64, Errno> {
        result(abi::region_length(self.0.number()))
    }

    /// Copies `into.len()` bytes at `offset` out of the region.
    ///
    /// # Errors
    /// [`Errno::Invalid`] if they are not all inside it; [`Errno::Rights`]; [`Errno::Gone`].
    pub fn read(self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: the range is borrowed mutably for the whole call, which writes inside it.
        done(unsafe { abi::region_read(self.0.number(), offset, into.as_mut_ptr(), into.len()) })
    }

    /// Copies `from` into the region at `offset`.
    ///
    /// # Errors
    /// [`Errno::Invalid`] if it does not fit; [`Errno::Rights`]; [`Errno::Gone`].
    pub fn write(self, offset: u64, from: &[u8]) -> Result<(), Errno> {
        // SAFETY: the range is borrowed for the whole call, which only reads it.
        done(unsafe { abi::region_write(self.0.number(), offset, from.as_ptr(), from.len()) })
    }
}
