//! Shared regions: bytes that several tenants can read and write.
//!
//! The bytes of a region are in its creator's arena, and copied by calls. Or they are pages that
//! tenants map, outside this crate: a region is then only an identity and a length.

pub(crate) mod state;

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{Backing, Extent, Handle, RawHandle};

use crate::capability::{ObjectClass, Selector};
use crate::id::TenantId;
use crate::kernel::Kernel;
use crate::object::region::state::{Bytes, Region};

/// Names a region; no other one ever has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(RawHandle);

/// The mapping that a capability allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionMapping {
    /// The region.
    pub region: RegionId,
    /// Its length in bytes.
    pub length: u64,
    /// Whether it may be written to.
    pub writable: bool,
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
        let region = Region {
            bytes: Bytes::Here(bytes),
        };
        let created = self.create(caller, ObjectClass::Region, self.classes.region, region);
        if created.is_err() {
            self.groups.free_bytes(bytes);
        }
        created
    }

    /// Creates a region whose bytes are pages that tenants map. The caller makes the pages, and
    /// unmaps them from tenants whose capability no longer [allows]( Self::region_mapping) it.
    /// O(1).
    ///
    /// # Errors
    /// [`Errno::Invalid`] for no bytes; those of [`region_create`](Self::region_create).
    pub fn region_create_mapped(
        &mut self,
        caller: TenantId,
        length: u64,
    ) -> Result<Selector, Errno> {
        if length == 0 {
            return Err(Errno::Invalid);
        }
        if length > self.config.max_region_bytes {
            return Err(Errno::TooLarge);
        }
        let region = Region {
            bytes: Bytes::Mapped(length),
        };
        self.create(caller, ObjectClass::Region, self.classes.region, region)
    }

    /// Returns what a capability allows to map now: a mapping must not be used after this changes.
    /// Needs [`Rights::READ`].
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a region that is copied, and those of using a capability.
    pub fn region_mapping(
        &self,
        caller: TenantId,
        region: Selector,
    ) -> Result<RegionMapping, Errno> {
        let target = self.resolve(caller, region, ObjectClass::Region, Rights::READ)?;
        let (_, capability) = self.find(caller, region)?;
        let found = self.groups.get(Handle::<Region>::from_raw(target.object));
        match found.ok_or(Errno::Gone)?.bytes {
            Bytes::Here(_) => Err(Errno::Invalid),
            Bytes::Mapped(length) => Ok(RegionMapping {
                region: RegionId(target.object),
                length,
                writable: capability.rights.contains(Rights::WRITE),
            }),
        }
    }

    /// Length of a region in bytes. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// Those of using a capability.
    pub fn region_length(&self, caller: TenantId, region: Selector) -> Result<u64, Errno> {
        match self.region_mapping(caller, region) {
            Ok(mapping) => Ok(mapping.length),
            Err(Errno::Invalid) => Ok(self.region(caller, region)?.len() as u64),
            Err(errno) => Err(errno),
        }
    }

    /// All bytes of a region, to be read in place. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// [`Errno::Invalid`] if they are mapped, and those of using a capability.
    pub fn region(&self, caller: TenantId, region: Selector) -> Result<&[u8], Errno> {
        let target = self.resolve(caller, region, ObjectClass::Region, Rights::READ)?;
        let bytes = self.bytes_of(target.object)?;
        self.groups.bytes(bytes).ok_or(Errno::Gone)
    }

    /// Reads the bytes of a region from `offset` on. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// [`Errno::Invalid`] if they are not inside or mapped, and those of using a capability.
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
    /// [`Errno::Invalid`] if they are not inside or mapped, and those of using a capability.
    pub fn region_write(
        &mut self,
        caller: TenantId,
        region: Selector,
        offset: u64,
        from: &[u8],
    ) -> Result<(), Errno> {
        let target = self.resolve(caller, region, ObjectClass::Region, Rights::WRITE)?;
        let bytes = self.bytes_of(target.object)?;
        let bytes = self.groups.bytes_mut(bytes).ok_or(Errno::Gone)?;
        let range = range(offset, from.len()).ok_or(Errno::Invalid)?;
        bytes
            .get_mut(range)
            .ok_or(Errno::Invalid)?
            .copy_from_slice(from);
        Ok(())
    }

    /// Where the bytes of a region are that is copied.
    fn bytes_of(&self, region: RawHandle) -> Result<Extent, Errno> {
        let region = self.groups.get(Handle::<Region>::from_raw(region));
        match region.ok_or(Errno::Gone)?.bytes {
            Bytes::Here(bytes) => Ok(bytes),
            Bytes::Mapped(_) => Err(Errno::Invalid),
        }
    }
}

fn range(offset: u64, length: usize) -> Option<core::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(length)?)
}
