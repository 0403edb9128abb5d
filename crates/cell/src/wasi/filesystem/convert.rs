//! Conversions between the host kernel's values and those of the interface.

use crate::host::fs::class::kind_of;
use crate::host::fs::status::{device, number};
use rustix::fs::{
    Advice as HostAdvice, FileType, Statx, StatxFlags, StatxTimestamp, Timespec, UTIME_NOW,
    UTIME_OMIT,
};
use rustix::io::Errno;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, DescriptorStat, DescriptorType, ErrorCode, MetadataHashValue, NewTimestamp,
};

/// Converts an errno as `wasmtime-wasi` does, and also the errnos of reached limits.
pub(super) fn code(errno: Errno) -> ErrorCode {
    match errno {
        // A path that leads outside the directory.
        Errno::XDEV => ErrorCode::NotPermitted,
        // The interface has no word for a limit on descriptors.
        Errno::MFILE | Errno::NFILE => ErrorCode::InsufficientMemory,
        Errno::DQUOT => ErrorCode::Quota,
        Errno::AGAIN => ErrorCode::WouldBlock,
        errno => std::io::Error::from(errno).into(),
    }
}

/// The same of an error of a stream.
pub(super) fn io_code(error: &std::io::Error) -> ErrorCode {
    match Errno::from_io_error(error) {
        Some(errno) => code(errno),
        None => ErrorCode::Io,
    }
}

pub(super) fn descriptor_type(kind: FileType) -> DescriptorType {
    match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Socket | FileType::Fifo | FileType::Unknown => DescriptorType::Unknown,
    }
}

/// A time since the epoch; `None` before it.
fn datetime(time: StatxTimestamp) -> Option<Datetime> {
    Some(Datetime {
        seconds: u64::try_from(time.tv_sec).ok()?,
        nanoseconds: time.tv_nsec,
    })
}

pub(super) fn stat(status: &Statx) -> DescriptorStat {
    let has = StatxFlags::from_bits_retain(status.stx_mask);
    let birth = has.contains(StatxFlags::BTIME);
    DescriptorStat {
        type_: descriptor_type(kind_of(status)),
        link_count: status.stx_nlink.into(),
        size: status.stx_size,
        data_access_timestamp: datetime(status.stx_atime),
        data_modification_timestamp: datetime(status.stx_mtime),
        status_change_timestamp: birth.then(|| datetime(status.stx_btime)).flatten(),
    }
}

/// The identity of a file: the device and the number of the file.
pub(super) fn identity(status: &Statx) -> (u64, u64) {
    (device(status), status.stx_ino)
}

/// The hash that `wasmtime-wasi` shows for the same file.
pub(super) fn metadata_hash(status: &Statx) -> MetadataHashValue {
    // It has 64 bits, and makes the other half of them with these.
    const OTHER_HALF: u64 = 4_614_256_656_552_045_848;
    let (device, inode) = identity(status);
    let lower = number(device, inode);
    MetadataHashValue {
        lower,
        upper: lower ^ OTHER_HALF,
    }
}

pub(super) fn advice(advice: Advice) -> HostAdvice {
    match advice {
        Advice::Normal => HostAdvice::Normal,
        Advice::Sequential => HostAdvice::Sequential,
        Advice::Random => HostAdvice::Random,
        Advice::WillNeed => HostAdvice::WillNeed,
        Advice::DontNeed => HostAdvice::DontNeed,
        Advice::NoReuse => HostAdvice::NoReuse,
    }
}

/// Times of access and modification as the kernel wants them.
pub(super) fn times(
    access: NewTimestamp,
    modification: NewTimestamp,
) -> Result<[Timespec; 2], ErrorCode> {
    Ok([timespec(access)?, timespec(modification)?])
}

fn timespec(time: NewTimestamp) -> Result<Timespec, ErrorCode> {
    let special = |nanoseconds| Timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    let time = match time {
        NewTimestamp::NoChange => return Ok(special(UTIME_OMIT)),
        NewTimestamp::Now => return Ok(special(UTIME_NOW)),
        NewTimestamp::Timestamp(time) => time,
    };
    let seconds = time
        .seconds
        .checked_add(u64::from(time.nanoseconds / 1_000_000_000))
        .and_then(|seconds| i64::try_from(seconds).ok())
        .ok_or(ErrorCode::Overflow)?;
    Ok(Timespec {
        tv_sec: seconds,
        tv_nsec: (time.nanoseconds % 1_000_000_000).into(),
    })
}
