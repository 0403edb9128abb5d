//! Making a name in a directory, which may make the directory larger.
//!
//! A directory of ext4 grows with its names and never becomes smaller: names of 255 bytes fill a block by fifteens,
//! and removing them frees none. So a directory is measured around each call that makes a name in it.

use super::account::Account;
use super::class::{Class, Site};
use crate::host::linux;
use leasehold_slots::address_range::PAGE;
use rustix::fs::StatxFlags;
use rustix::io::{Errno, Result};
use std::os::fd::BorrowedFd;

/// Bytes that are charged before a name is made: the block that its directory may grow by.
pub(super) const BLOCK: u64 = PAGE as u64;

/// Returns the bytes that an open directory takes.
fn taken_by(directory: BorrowedFd<'_>) -> Result<u64> {
    linux::status(directory, StatxFlags::BLOCKS).map(|status| linux::on_disk(&status))
}

/// Makes a name in `directory`, and counts what that takes of the disk for `account`: `make` returns what was made, and the bytes that
/// it takes itself, `most` of them. Two system calls more than `make`, but for directories in memory.
///
/// # Errors
/// `DQUOT` where that would be more than the tenant may add. `AGAIN` on the cell's thread while another thread makes a
/// name for the tenant, or closes what may have the bytes. Those of `make`.
pub(super) fn name<T>(
    account: &Account,
    (site, directory): (Site, BorrowedFd<'_>),
    most: u64,
    make: impl FnOnce() -> Result<(T, u64)>,
) -> Result<T> {
    if site == Site::Cell(Class::Memory) {
        return make().map(|(made, _)| made);
    }
    let disk = account.disk();
    let _turn = disk.directories.turn(site).ok_or(Errno::AGAIN)?;
    let before = taken_by(directory)?;
    // Not every file system counts the blocks of directories.
    let charged = if before > 0 { BLOCK + most } else { 0 };
    account.take_bytes(site, charged)?;
    let made = make();
    let own = made.as_ref().map_or(0, |(_, own)| *own);
    let grown = taken_by(directory).map_or(BLOCK, |after| after.saturating_sub(before));
    match charged.checked_sub(grown + own) {
        Some(rest) => disk.give_bytes(rest),
        None => {
            let more = grown + own - charged;
            disk.add_bytes(more);
        }
    }
    made.map(|(made, _)| made)
}
