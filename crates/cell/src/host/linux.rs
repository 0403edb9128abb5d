//! The one door to the host's kernel: every system call on behalf of a guest's files is made here.
//!
//! Each passes the door, where a test can make it fail, or keep it from returning (`leasehold_door::faults`): every error of the kernel reaches the calling
//! tenant only.

use super::page_batches;
use crate::system::{self, FilePosition, Part};
use leasehold_door::{Call, pass};
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, SeekFrom, Statx, StatxFlags, Timespec, Timestamps,
};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a call is repeated after an interruption by a signal or by a concurrent rename.
const RETRIES: u32 = 16;

/// Calls of this process that look a name up, where it may be missing.
static LOOK_UPS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of calls of this process that have looked a name up so far. While it stays the same, the
/// kernel has cached no more missing names.
pub(super) fn look_ups() -> u64 {
    LOOK_UPS.load(Ordering::Relaxed)
}

/// Makes a call that looks up `names`, and makes it again when it was interrupted.
#[inline]
fn looking_up<T>(names: u64, call: Call, attempt: impl FnMut() -> Result<T>) -> Result<T> {
    LOOK_UPS.fetch_add(names, Ordering::Relaxed);
    persistently(call, attempt)
}

#[cfg(not(test))]
#[inline]
fn may_fail(_: Call) -> Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) mod faults;

#[cfg(test)]
use faults::may_fail;

/// Makes a call, and makes it again when it was interrupted.
#[inline]
fn persistently<T>(call: Call, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = 0;
    loop {
        match may_fail(call)
            .and_then(|()| pass(call))
            .and_then(|()| attempt())
        {
            Err(Errno::INTR) if tries < RETRIES => tries += 1,
            result => return result,
        }
    }
}

/// Opens `path` beneath `directory`.
#[inline]
pub(super) fn open(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    // A mode without a new file is an error.
    let mode = match flags.contains(OFlags::CREATE) {
        true => Mode::from_raw_mode(0o666),
        false => Mode::empty(),
    };
    let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    let mut tries = 0;
    loop {
        let opened = looking_up(1, Call::Open, || {
            rustix::fs::openat2(directory, path, flags, mode, resolve)
        });
        match opened {
            // A concurrent rename; with `CACHED` the error means that the call would block.
            Err(Errno::AGAIN) if !resolve.contains(ResolveFlags::CACHED) && tries < RETRIES => {
                tries += 1;
            }
            result => return result,
        }
    }
}

/// Opens a directory of the lease, wherever it is.
pub(super) fn open_ambient(path: &std::path::Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    looking_up(2, Call::Open, || {
        match rustix::fs::open(path, flags | OFlags::RDONLY, Mode::empty()) {
            // A directory may permit look-ups but no listing.
            Err(Errno::ACCESS) => rustix::fs::open(path, flags | OFlags::PATH, Mode::empty()),
            result => result,
        }
    })
}

/// Opens a directory once more, to list it.
pub(super) fn open_again(directory: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    persistently(Call::Open, || {
        rustix::fs::openat(directory, c".", flags, Mode::empty())
    })
}

/// Returns the status of an open file.
#[inline]
pub(super) fn status(file: BorrowedFd<'_>, fields: StatxFlags) -> Result<Statx> {
    persistently(Call::Status, || {
        rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, fields)
    })
}

/// Bytes of a block, by which file systems count what a file takes.
pub(super) const BLOCK: u64 = 512;

/// How large a file is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Bytes of it.
    pub(super) bytes: u64,
    /// Bytes that it takes of its disk.
    pub(super) on_disk: u64,
}

/// Returns the size of an open file. The call does not request times: a file system that is queried
/// for times uses a finer clock for the next change, and writes it down, which doubles the duration
/// of a write.
#[inline]
pub(super) fn measure(file: BorrowedFd<'_>) -> Result<Extent> {
    let fields = StatxFlags::SIZE | StatxFlags::BLOCKS;
    let status = settled(file, fields, status(file, fields)?)?;
    Ok(Extent {
        bytes: status.stx_size,
        on_disk: on_disk(&status),
    })
}

/// Returns the bytes that a file takes of its disk.
pub(super) fn on_disk(status: &Statx) -> u64 {
    status.stx_blocks.saturating_mul(BLOCK)
}

/// Returns a status of an open file in which all its blocks are counted, after one that may be of a file that is being
/// written out: for a moment ext4 counts the blocks that it takes from the reserved ones nowhere
/// (`ext4_da_update_reserve_space`). Looks again if there are fewer blocks than bytes.
pub(super) fn settled(file: BorrowedFd<'_>, fields: StatxFlags, first: Statx) -> Result<Statx> {
    if on_disk(&first) >= first.stx_size {
        return Ok(first);
    }
    let second = status(file, fields)?;
    Ok(match second.stx_blocks > first.stx_blocks {
        true => second,
        false => first,
    })
}

/// Returns the status of an entry of a directory, or of the link if it is one.
pub(super) fn status_at(
    directory: BorrowedFd<'_>,
    name: &CStr,
    fields: StatxFlags,
) -> Result<Statx> {
    looking_up(1, Call::Status, || {
        rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, fields)
    })
}

/// Returns the type of the file system that a file is on.
pub(super) fn file_system(file: BorrowedFd<'_>) -> Result<u64> {
    let status = persistently(Call::Status, || rustix::fs::fstatfs(file))?;
    Ok(status.f_type.cast_unsigned())
}

/// Reads into parts of a memory.
#[inline]
pub(super) fn read(
    file: BorrowedFd<'_>,
    memory: &mut [u8],
    parts: &[Part],
    place: FilePosition,
) -> Result<usize> {
    let read = persistently(Call::Read, || system::read(file, memory, parts, place));
    // Pages are taken for all that is asked for, even if none of it can be read now.
    page_batches::took(parts.iter().map(|part| part.length).sum());
    read
}

/// Writes parts of a memory.
#[inline]
pub(super) fn write(
    file: BorrowedFd<'_>,
    memory: &[u8],
    parts: &[Part],
    place: FilePosition,
) -> Result<usize> {
    let written = persistently(Call::Write, || system::write(file, memory, parts, place));
    page_batches::took(parts.iter().map(|part| part.length).sum());
    written
}

/// Goes to a place in a directory.
pub(super) fn seek(directory: BorrowedFd<'_>, place: u64) -> Result<()> {
    persistently(Call::List, || {
        rustix::fs::seek(directory, SeekFrom::Start(place)).map(drop)
    })
}

/// Asked before entries are read.
pub(super) fn list() -> Result<()> {
    may_fail(Call::List).and_then(|()| pass(Call::List))
}

/// Changes the size of a file.
pub(super) fn resize(file: BorrowedFd<'_>, size: u64) -> Result<()> {
    persistently(Call::Resize, || rustix::fs::ftruncate(file, size))
}

/// Waits until a file is on the disk.
pub(super) fn sync(file: BorrowedFd<'_>, only_data: bool) -> Result<()> {
    persistently(Call::Sync, || match only_data {
        true => rustix::fs::fdatasync(file),
        false => rustix::fs::fsync(file),
    })
}

/// Announces how a file will be used.
pub(super) fn advise(
    file: BorrowedFd<'_>,
    offset: u64,
    length: u64,
    advice: rustix::fs::Advice,
) -> Result<()> {
    let whole = std::num::NonZeroU64::new(length);
    let advised = persistently(Call::AdviseFile, || {
        rustix::fs::fadvise(file, offset, whole, advice)
    });
    if advice == rustix::fs::Advice::WillNeed {
        page_batches::took(usize::try_from(length).unwrap_or(usize::MAX));
    }
    advised
}

/// Changes the times of an open file; works on `O_PATH` descriptors too.
pub(super) fn set_times(file: BorrowedFd<'_>, [access, change]: [Timespec; 2]) -> Result<()> {
    let times = Timestamps {
        last_access: access,
        last_modification: change,
    };
    persistently(Call::Change, || {
        rustix::fs::utimensat(file, c"", &times, AtFlags::EMPTY_PATH)
    })
}

/// Creates a directory.
pub(super) fn make_directory(parent: impl AsFd, name: &CStr) -> Result<()> {
    looking_up(1, Call::Change, || {
        rustix::fs::mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o777))
    })
}

/// Removes a name; of a directory with `AtFlags::REMOVEDIR`.
pub(super) fn unlink(parent: impl AsFd, name: &CStr, flags: AtFlags) -> Result<()> {
    looking_up(1, Call::Change, || {
        rustix::fs::unlinkat(parent.as_fd(), name, flags)
    })
}

/// Gives a file another name.
pub(super) fn rename(from: impl AsFd, old: &CStr, to: impl AsFd, new: &CStr) -> Result<()> {
    looking_up(2, Call::Change, || {
        rustix::fs::renameat(from.as_fd(), old, to.as_fd(), new)
    })
}

/// Gives a file a second name.
pub(super) fn link(from: impl AsFd, old: &CStr, to: impl AsFd, new: &CStr) -> Result<()> {
    looking_up(2, Call::Change, || {
        rustix::fs::linkat(from.as_fd(), old, to.as_fd(), new, AtFlags::empty())
    })
}

/// Makes a symbolic link.
pub(super) fn symlink(target: &CStr, parent: impl AsFd, name: &CStr) -> Result<()> {
    looking_up(1, Call::Change, || {
        rustix::fs::symlinkat(target, parent.as_fd(), name)
    })
}

/// Returns how many directories are above an open one, up to the root; fails if its path is longer than the kernel says.
pub(super) fn depth(directory: BorrowedFd<'_>) -> Result<u32> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mut room = [MaybeUninit::uninit(); 4096];
    looking_up(1, Call::Status, || {
        let (said, _) = rustix::fs::readlinkat_raw(rustix::fs::CWD, link.as_str(), &mut room)?;
        Ok(said.iter().filter(|byte| **byte == b'/').count() as u32)
    })
}

/// Returns the same by going up, `most` and one more at the most. Some microseconds a level.
pub(super) fn levels_up(directory: BorrowedFd<'_>, most: u32) -> Result<u32> {
    let identity = |at: BorrowedFd<'_>| {
        let status = status(at, StatxFlags::INO)?;
        Ok::<_, Errno>((status.stx_dev_major, status.stx_dev_minor, status.stx_ino))
    };
    let (mut above_it, mut here) = (None::<OwnedFd>, identity(directory)?);
    for levels in 0..=most {
        let from = above_it.as_ref().map_or(directory, AsFd::as_fd);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let up = looking_up(1, Call::Open, || {
            rustix::fs::openat(from, c"..", flags, Mode::empty())
        })?;
        let above = identity(up.as_fd())?;
        above_it = Some(up);
        if above == here {
            return Ok(levels);
        }
        here = above;
    }
    Ok(most + 1)
}

/// Returns the target of a symbolic link.
pub(super) fn read_link(parent: impl AsFd, name: &CStr) -> Result<Vec<u8>> {
    looking_up(1, Call::Status, || {
        let text = rustix::fs::readlinkat(parent.as_fd(), name, Vec::new())?;
        Ok(text.into_bytes())
    })
}
