//! The status of a file, as a guest sees it.

use super::class::kind_of;
use crate::host::answer::Answer;
use crate::host::linux;
use rustix::fs::{FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Result;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::BorrowedFd;
use wasmtime_wasi::p1::types::{Errno, Filetype};

/// The fields of a status that guests see.
pub(super) const FIELDS: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Returns the status of an open file.
pub(crate) fn status_of(file: BorrowedFd<'_>) -> Result<Statx> {
    linux::status(file, FIELDS)
}

/// Returns the number that a guest sees for an inode: that of `wasmtime-wasi` for the same file.
pub(crate) fn number(device: u64, inode: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (device, inode).hash(&mut hasher);
    hasher.finish()
}

/// Returns the device that a file is on.
pub(crate) fn device(status: &Statx) -> u64 {
    rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor)
}

/// The identity of a file.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(status: &Statx) -> Identity {
    (device(status), status.stx_ino)
}

/// Whether two names are of one file.
pub(super) fn is_same(one: &Statx, other: &Statx) -> bool {
    identity(one) == identity(other)
}

/// Returns the guest's value for a kind of file.
pub(crate) fn file_type(kind: FileType) -> Filetype {
    match kind {
        FileType::RegularFile => Filetype::RegularFile,
        FileType::Directory => Filetype::Directory,
        FileType::Symlink => Filetype::SymbolicLink,
        FileType::CharacterDevice => Filetype::CharacterDevice,
        FileType::BlockDevice => Filetype::BlockDevice,
        FileType::Socket | FileType::Fifo | FileType::Unknown => Filetype::Unknown,
    }
}

/// Bytes of preview 1's `filestat`.
pub(crate) const STATUS_BYTES: usize = 64;

/// Returns a `filestat` of a stream: nothing but its type.
pub(crate) fn of_stream(kind: Filetype) -> [u8; STATUS_BYTES] {
    let mut bytes = [0; STATUS_BYTES];
    bytes[16] = kind as u8;
    bytes
}

/// Returns a `filestat` of a file.
///
/// # Errors
/// When a time does not fit.
pub(crate) fn of_file(status: &Statx) -> Answer<[u8; STATUS_BYTES]> {
    let birth = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    let times = [
        time(&status.stx_atime)?,
        time(&status.stx_mtime)?,
        if birth { time(&status.stx_btime)? } else { 0 },
    ];
    let mut bytes = of_stream(file_type(kind_of(status)));
    let numbers = [
        (0, 1),
        (8, number(device(status), status.stx_ino)),
        (24, u64::from(status.stx_nlink)),
        (32, status.stx_size),
        (40, times[0]),
        (48, times[1]),
        (56, times[2]),
    ];
    for (at, number) in numbers {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    Ok(bytes)
}

/// Nanoseconds since the epoch; zero before it.
fn time(time: &StatxTimestamp) -> Answer<u64> {
    let Ok(seconds) = u64::try_from(time.tv_sec) else {
        return Ok(0);
    };
    let seconds = seconds.checked_mul(1_000_000_000);
    let time = seconds.and_then(|ns| ns.checked_add(time.tv_nsec.into()));
    Ok(time.ok_or(Errno::Overflow)?)
}
