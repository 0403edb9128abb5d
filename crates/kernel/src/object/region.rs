//! Shared regions: bytes that several tenants can read and write.

use leasehold_reclaim::{Backing, Extent, Handle};

use crate::capability::{ObjectClass, Selector};
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::rights::Rights;
use crate::tenant::TenantId;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) bytes: Extent,
}

impl<B: Backing> Kernel<B> {
    /// Creates a region of zeroed bytes. O(length).
    ///
    /// # Errors
    /// [`Errno::TooLarge`] beyond [`max_region_bytes`](crate::KernelConfig::max_region_bytes),
    /// [`Errno::Budget`], [`Errno::Memory`], [`Errno::TableFull`].
    pub fn region_create(&mut self, caller: TenantId, length: u64) -> Result<Selector, Errno> {
        if length > self.config.max_region_bytes {
            return Err(Errno::TooLarge);
        }
        let bytes = self.buffer(caller, length, self.costs.region_ps)?;
        let region = Region { bytes };
        let created = self.create(caller, ObjectClass::Region, self.classes.region, region);
        if created.is_err() {
            self.groups.free_bytes(bytes);
        }
        created
    }

    /// Length of a region in bytes. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// Those of using a capability.
    pub fn region_length(&self, caller: TenantId, region: Selector) -> Result<u64, Errno> {
        Ok(self.region(caller, region)?.len() as u64)
    }

    /// All bytes of a region, to be read in place. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// Those of using a capability.
    pub fn region(&self, caller: TenantId, region: Selector) -> Result<&[u8], Errno> {
        let target = self.resolve(caller, region, ObjectClass::Region, Rights::READ)?;
        let region = self.groups.get(Handle::<Region>::from_raw(target.object));
        self.groups
            .bytes(region.ok_or(Errno::Gone)?.bytes)
            .ok_or(Errno::Gone)
    }

    /// Reads the bytes of a region from `offset` on. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// [`Errno::Invalid`] if they are not inside, and those of using a capability.
    pub fn region_read(
        &self,
        caller: TenantId,
        region: Selector,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        let range = range(offset, into.len()).ok_or(Errno::Invalid)?;
        let bytes = self
            .region(caller, region)?
            .get(range)
            .ok_or(Errno::Invalid)?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes bytes into a region from `offset` on. Needs [`Rights::WRITE`].
    ///
    /// # Errors
    /// [`Errno::Invalid`] if they are not inside, and those of using a capability.
    pub fn region_write(
        &mut self,
        caller: TenantId,
        region: Selector,
        offset: u64,
        from: &[u8],
    ) -> Result<(), Errno> {
        let target = self.resolve(caller, region, ObjectClass::Region, Rights::WRITE)?;
        let region = self.groups.get(Handle::<Region>::from_raw(target.object));
        let bytes = region.ok_or(Errno::Gone)?.bytes;
        let bytes = self.groups.bytes_mut(bytes).ok_or(Errno::Gone)?;
        let range = range(offset, from.len()).ok_or(Errno::Invalid)?;
        bytes
            .get_mut(range)
            .ok_or(Errno::Invalid)?
            .copy_from_slice(from);
        Ok(())
    }
}

fn range(offset: u64, length: usize) -> Option<core::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(length)?)
}
