//! The classes of file systems, and where calls for their files are made.

use crate::host::linux;
use crate::steps::caps::{CHANGED_PATH, FREED};
use rustix::fs::{FileType, ResolveFlags, Statx};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// The number by which the kernel knows Btrfs.
const BTRFS: u64 = 0x9123_683e;

/// The behaviour of a file system for calls that must not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Everything is in memory: nothing waits for a device.
    Memory,
    /// Cached data is found without waiting, and the kernel reports what is not cached.
    Cached,
    /// As `Cached`, but the first change of a file may copy all of it from a lower layer.
    Layered,
    /// Any call may wait for ever: a network, a program.
    Slow,
}

impl Class {
    /// Returns the class of the file system that a file is on.
    pub(crate) fn of(file: BorrowedFd<'_>) -> Result<Self> {
        const TMPFS: u64 = 0x0102_1994;
        const RAMFS: u64 = 0x8584_58f6;
        const EXT: u64 = 0xef53;
        const XFS: u64 = 0x5846_5342;
        const F2FS: u64 = 0xf2f5_2010;
        const OVERLAY: u64 = 0x794c_7630;
        Ok(match linux::file_system(file)? {
            TMPFS | RAMFS => Self::Memory,
            EXT | XFS | BTRFS | F2FS => Self::Cached,
            OVERLAY => Self::Layered,
            _ => Self::Slow,
        })
    }

    /// Whether a directory of this class says the numbers of its files. One of Btrfs says other numbers of its
    /// subvolumes than they have, and one of layers may say those of another layer.
    pub(super) fn lists_numbers(self, directory: BorrowedFd<'_>) -> Result<bool> {
        Ok(match self {
            Self::Memory => true,
            Self::Cached => linux::file_system(directory)? != BTRFS,
            Self::Layered | Self::Slow => false,
        })
    }
}

/// The thread of a call, which determines whether it may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// On the cell's thread, in a directory of this class.
    Cell(Class),
    /// On a thread that may block.
    Blocking,
}

impl Site {
    /// Whether a change of what this path leads to may be made here.
    pub(super) fn takes(self, path: &CStr) -> bool {
        self == Self::Blocking || path.count_bytes() as u64 <= CHANGED_PATH.most
    }

    pub(super) fn resolve(self) -> ResolveFlags {
        // A file system that is mounted below may be of another class. A chain of 39 links of 4 KiB
        // each turns the shortest path into a walk of 30,000 names.
        let short = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        match self {
            Self::Cell(Class::Memory) => short,
            Self::Cell(Class::Cached | Class::Layered | Class::Slow) => {
                short | ResolveFlags::CACHED
            }
            Self::Blocking => ResolveFlags::empty(),
        }
    }

    /// Whether an error means that a thread that may block has to repeat the call.
    pub(crate) fn is_undecided(self, errno: Errno) -> bool {
        match self {
            Self::Cell(Class::Memory) => matches!(errno, Errno::XDEV | Errno::LOOP),
            Self::Cell(Class::Cached | Class::Layered | Class::Slow) => {
                matches!(errno, Errno::AGAIN | Errno::XDEV | Errno::LOOP)
            }
            Self::Blocking => false,
        }
    }
}

/// A file that is no larger frees few pages if its last name has gone.
pub(super) const SMALL: u64 = FREED.most;

/// Whether closing a file of this status takes a bounded time, even if it was removed: it is no
/// regular file, or a small one.
pub(crate) fn is_cheap_to_close(status: &Statx) -> bool {
    kind_of(status) != FileType::RegularFile || status.stx_size <= SMALL
}

/// Returns the kind of file that a status is of.
pub(crate) fn kind_of(status: &Statx) -> FileType {
    FileType::from_raw_mode(status.stx_mode.into())
}
