//! Names and values of HTTP, packed into an extent of the arena.
//!
//! An entry is the length of its name, the length of its value, the name, and the value. Names are
//! in lower case, entries in the order in which they were added.

use super::object::{Packed, Text};
use super::syntax::{CONTENT_LENGTH, content_length};
use crate::local;
use crate::steps::caps::FIELDS;
use leasehold_exchange::FIELD_BYTES;
use leasehold_kernel::Errno;
use leasehold_reclaim::GroupId;

/// Bytes in front of an entry.
const HEAD: usize = 8;

/// The smallest extent of fields that may grow, bytes.
const LEAST: usize = 240;

impl Text {
    /// Keeps these texts, one after the other.
    ///
    /// # Errors
    /// When the lease does not pay for them.
    pub(super) fn of(group: GroupId, parts: &[&str]) -> Result<Self, Errno> {
        let length = parts.iter().map(|part| part.len()).sum();
        if length == 0 {
            return Ok(Self(None));
        }
        local::with(|local| {
            let groups = local.kernel.groups_mut();
            let extent = groups
                .alloc_bytes(group, length)
                .map_err(leasehold_kernel::errno)?;
            let bytes = groups.bytes_mut(extent).ok_or(Errno::Gone)?;
            let mut at = 0;
            for part in parts {
                bytes[at..at + part.len()].copy_from_slice(part.as_bytes());
                at += part.len();
            }
            Ok(Self(Some(extent)))
        })
    }

    /// The text.
    pub(super) fn string(self) -> String {
        let Self(Some(extent)) = self else {
            return String::new();
        };
        local::with(|local| {
            let bytes = local.kernel.groups().bytes(extent).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        })
    }

    /// Frees it.
    pub(super) fn free(self) {
        if let Self(Some(extent)) = self {
            local::with(|local| local.kernel.groups_mut().free_bytes(extent));
        }
    }
}

/// Why an entry could not be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The fields would be larger than [`FIELDS`].
    Fields,
    /// The lease does not pay for it.
    Lease(Errno),
}

impl From<Errno> for Full {
    fn from(errno: Errno) -> Self {
        Self::Lease(errno)
    }
}

impl Packed {
    /// No fields.
    pub(super) const NONE: Self = Self {
        extent: None,
        used: 0,
        count: 0,
        is_immutable: false,
    };

    /// Keeps these entries, which are not to be changed, whatever they count as.
    ///
    /// # Errors
    /// When the lease does not pay for them.
    pub(super) fn of<'a>(
        group: GroupId,
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<Self, Errno> {
        let used = entries
            .clone()
            .map(|(name, value)| HEAD + name.len() + value.len())
            .sum();
        let mut packed = Self {
            is_immutable: true,
            ..Self::NONE
        };
        if used == 0 {
            return Ok(packed);
        }
        local::with(|local| {
            let groups = local.kernel.groups_mut();
            let extent = groups
                .alloc_bytes(group, used)
                .map_err(leasehold_kernel::errno)?;
            let bytes = groups.bytes_mut(extent).ok_or(Errno::Gone)?;
            for (name, value) in entries {
                packed.write(bytes, name, value);
            }
            packed.extent = Some(extent);
            Ok(packed)
        })
    }

    /// What it counts as, bytes.
    fn size(&self) -> usize {
        self.used as usize + self.count as usize * (FIELD_BYTES - HEAD)
    }

    /// Writes an entry behind the last one; there is room for it.
    fn write(&mut self, bytes: &mut [u8], name: &[u8], value: &[u8]) {
        let at = self.used as usize;
        bytes[at..at + 4].copy_from_slice(&(name.len() as u32).to_le_bytes());
        bytes[at + 4..at + HEAD].copy_from_slice(&(value.len() as u32).to_le_bytes());
        let name_at = at + HEAD;
        let value_at = name_at + name.len();
        bytes[name_at..value_at].copy_from_slice(name);
        bytes[value_at..value_at + value.len()].copy_from_slice(value);
        self.used += (HEAD + name.len() + value.len()) as u32;
        self.count += 1;
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When it would be too large, or the lease does not pay for it. It is unchanged then.
    pub(super) fn append(&mut self, group: GroupId, name: &[u8], value: &[u8]) -> Result<(), Full> {
        let more = name.len() + value.len();
        if self.size() + more + FIELD_BYTES > FIELDS.size() {
            return Err(Full::Fields);
        }
        let needed = self.used as usize + HEAD + more;
        local::with(|local| {
            let groups = local.kernel.groups_mut();
            let room = self
                .extent
                .and_then(|extent| groups.bytes(extent))
                .map_or(0, <[u8]>::len);
            if needed > room {
                let room = needed.next_power_of_two().clamp(LEAST, FIELDS.size());
                let larger = groups
                    .alloc_bytes(group, room)
                    .map_err(leasehold_kernel::errno)?;
                if let Some(extent) = self.extent {
                    let used = self.used as usize;
                    let kept = groups.bytes(extent).map(|bytes| bytes[..used].to_vec());
                    if let (Some(kept), Some(bytes)) = (kept, groups.bytes_mut(larger)) {
                        bytes[..used].copy_from_slice(&kept);
                    }
                    groups.free_bytes(extent);
                }
                self.extent = Some(larger);
            }
            let extent = self.extent.ok_or(Errno::Gone)?;
            let bytes = groups.bytes_mut(extent).ok_or(Errno::Gone)?;
            self.write(bytes, name, value);
            Ok(())
        })
    }

    /// Removes the entries of a name.
    pub(super) fn remove(&mut self, name: &[u8]) {
        let Some(extent) = self.extent else {
            return;
        };
        let used = self.used as usize;
        local::with(|local| {
            let Some(bytes) = local.kernel.groups_mut().bytes_mut(extent) else {
                return;
            };
            let (mut from, mut to, mut count) = (0, 0, 0);
            while let Some((own, _, next)) = entry(&bytes[..used], from) {
                if own != name {
                    bytes.copy_within(from..next, to);
                    to += next - from;
                    count += 1;
                }
                from = next;
            }
            self.used = to as u32;
            self.count = count;
        });
    }

    /// Runs `f` on the entries.
    pub(super) fn read<T>(&self, f: impl FnOnce(Entries<'_>) -> T) -> T {
        let Some(extent) = self.extent else {
            return f(Entries::default());
        };
        local::with(|local| {
            let bytes = local.kernel.groups().bytes(extent).unwrap_or_default();
            let bytes = bytes.get(..self.used as usize).unwrap_or_default();
            f(Entries { bytes, at: 0 })
        })
    }

    /// Whether it has an entry of this name.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.read(|mut entries| entries.any(|(own, _)| own == name))
    }

    /// The value of the only entry of this name.
    ///
    /// # Errors
    /// When there are several.
    pub(super) fn only(&self, name: &[u8]) -> Result<Option<Vec<u8>>, ()> {
        self.read(|entries| {
            let mut values = entries.filter(|(own, _)| *own == name);
            let first = values.next().map(|(_, value)| value.to_vec());
            match values.next() {
                None => Ok(first),
                Some(_) => Err(()),
            }
        })
    }

    /// The length that a `content-length` among them states.
    ///
    /// # Errors
    /// When there are several, or it states none.
    pub(super) fn stated_length(&self) -> Result<Option<u64>, ()> {
        match self.only(CONTENT_LENGTH)? {
            None => Ok(None),
            Some(value) => content_length(&value).map(Some).ok_or(()),
        }
    }

    /// The number of its entries.
    pub(super) const fn count(&self) -> usize {
        self.count as usize
    }

    /// A copy with an extent of its own.
    ///
    /// # Errors
    /// When the lease does not pay for it.
    pub(super) fn copy(&self, group: GroupId, is_immutable: bool) -> Result<Self, Errno> {
        let mut copy = Self {
            is_immutable,
            ..*self
        };
        let Some(extent) = self.extent.filter(|_| self.used > 0) else {
            copy.extent = None;
            return Ok(copy);
        };
        local::with(|local| {
            let groups = local.kernel.groups_mut();
            let used = self.used as usize;
            let bytes = groups.bytes(extent).map(|bytes| bytes[..used].to_vec());
            let bytes = bytes.ok_or(Errno::Gone)?;
            let own = groups
                .alloc_bytes(group, used)
                .map_err(leasehold_kernel::errno)?;
            let place = groups.bytes_mut(own).ok_or(Errno::Gone)?;
            place[..used].copy_from_slice(&bytes);
            copy.extent = Some(own);
            Ok(copy)
        })
    }

    /// Frees it.
    pub(super) fn free(self) {
        Text(self.extent).free();
    }
}

/// The entry at a place, and the place of the next one.
fn entry(bytes: &[u8], at: usize) -> Option<(&[u8], &[u8], usize)> {
    let rest = bytes.get(at..)?;
    let (name, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name) as usize)?;
    let value = rest.get(..u32::from_le_bytes(*value) as usize)?;
    Some((name, value, at + HEAD + name.len() + value.len()))
}

/// The names and values of fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value, next) = entry(self.bytes, self.at)?;
        self.at = next;
        Some((name, value))
    }
}
