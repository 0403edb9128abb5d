//! The blocks that directories take of a disk.
//!
//! A directory grows with its names, and one of ext4 never becomes smaller: names of 255 bytes fill a block by
//! fifteens, and removing them frees none. So a directory is measured around each call that makes a name in it. What
//! it takes is given back with the directory itself, when the tenant has closed it everywhere.

use super::class::{Class, Site};
use super::disk::{Disk, Identity, give, identity};
use super::table::Files;
use crate::host::kernel;
use leasehold_slots::address_range::PAGE;
use rustix::fs::{Statx, StatxFlags};
use rustix::io::{Errno, Result};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are charged before a name is made: the block that its directory may grow by.
pub(super) const BLOCK: u64 = PAGE as u64;

/// A directory that the tenant has open.
#[derive(Debug, Default)]
pub(super) struct Seen {
    descriptors: u32,
    /// Bytes that are given back when the last descriptor is closed: its name has gone.
    owes: u64,
}

/// A descriptor of a directory.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    files: Arc<Files>,
    identity: Identity,
}

impl OpenDirectory {
    /// Counts one more descriptor of the directory with this status.
    pub(super) fn of(files: &Arc<Files>, status: &Statx) -> Self {
        let identity = identity(status);
        let mut open = files.account().disk().directories.lock();
        open.entry(identity).or_default().descriptors += 1;
        drop(open);
        let files = files.clone();
        Self { files, identity }
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        let disk = self.files.account().disk();
        let mut open = disk.directories.lock();
        let Some(seen) = open.get_mut(&self.identity) else {
            return;
        };
        seen.descriptors -= 1;
        if seen.descriptors == 0 {
            give(&disk.bytes, seen.owes);
            open.remove(&self.identity);
        }
    }
}

/// Returns the bytes that an open directory takes.
fn taken_by(directory: BorrowedFd<'_>) -> Result<u64> {
    kernel::status(directory, StatxFlags::BLOCKS).map(|status| kernel::on_disk(&status))
}

impl Disk {
    /// Makes a name in `directory`, and counts what that takes: `make` returns what was made, and the bytes that it
    /// takes itself, `most` of them. Two system calls more than `make`, but for directories in memory.
    ///
    /// # Errors
    /// `DQUOT` where that would be more than the tenant may add. `AGAIN` on the cell's thread while another thread
    /// makes a name for the tenant. Those of `make`.
    pub(super) fn name_in<T>(
        &self,
        (site, directory): (Site, BorrowedFd<'_>),
        most: u64,
        make: impl FnOnce() -> Result<(T, u64)>,
    ) -> Result<T> {
        if site == Site::Cell(Class::Memory) {
            return make().map(|(made, _)| made);
        }
        let _turn = match site {
            Site::Blocking => self.naming.lock(),
            Site::Cell(_) => self.naming.try_lock().ok_or(Errno::AGAIN)?,
        };
        let before = taken_by(directory)?;
        // Not every file system counts the blocks of directories.
        let charged = if before > 0 { BLOCK + most } else { 0 };
        self.take(charged)?;
        let made = make();
        let own = made.as_ref().map_or(0, |(_, own)| *own);
        let grown = taken_by(directory).map_or(BLOCK, |after| after.saturating_sub(before));
        match charged.checked_sub(grown + own) {
            Some(rest) => give(&self.bytes, rest),
            None => {
                let more = grown + own - charged;
                self.bytes.fetch_add(more, Ordering::AcqRel);
            }
        }
        made.map(|(made, _)| made)
    }

    /// Records that the name of a directory with this earlier status has gone. Requires the exclusive lock.
    pub(super) fn removed_directory(&self, status: &Statx) {
        self.give_file();
        let bytes = kernel::on_disk(status);
        match self.directories.lock().get_mut(&identity(status)) {
            Some(seen) => seen.owes = bytes,
            None => give(&self.bytes, bytes),
        }
    }
}
