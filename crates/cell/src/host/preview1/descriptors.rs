//! Functions on descriptors that move no data.

use super::call::{Attempt, respond, respond_plainly};
use super::memory::parts;
use crate::guest::Guest;
use crate::host::answer::Answer;
use crate::host::fs::class::Class;
use crate::host::fs::descriptor::{Descriptor, Open};
use crate::host::fs::status::{file_type, of_file, of_stream};
use crate::host::linux;
use rustix::fs::{Advice, FileType, StatxFlags, Timespec, UTIME_NOW, UTIME_OMIT};
use std::os::fd::AsFd as _;
use wasmtime::Caller;
use wasmtime_wasi::p1::types::{Errno, Fdflags, Filetype, Rights};

pub(super) fn advise(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    offset: u64,
    length: u64,
    advice: u32,
) -> Answer<Attempt> {
    let advice = match advice {
        0 => Advice::Normal,
        1 => Advice::Sequential,
        2 => Advice::Random,
        3 => Advice::WillNeed,
        4 => Advice::DontNeed,
        5 => Advice::NoReuse,
        _ => return Err(Errno::Inval.into()),
    };
    let file = caller.data_mut().preview1()?.file(fd)?;
    let tried = file.node.advise(offset, length, advice);
    respond_plainly(caller, tried)
}

pub(super) fn allocate(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    _offset: u64,
    _length: u64,
) -> Answer {
    caller.data_mut().preview1()?.file(fd)?;
    Err(Errno::Notsup.into())
}

pub(super) fn close(caller: &mut Caller<'_, Guest>, fd: u32) -> Answer {
    let state = caller.data_mut().preview1()?;
    state.table.close(fd)?;
    state.forget_window();
    Ok(())
}

pub(super) fn renumber(caller: &mut Caller<'_, Guest>, from: u32, to: u32) -> Answer {
    let state = caller.data_mut().preview1()?;
    state.table.renumber(from, to)?;
    state.forget_window();
    Ok(())
}

pub(super) fn datasync(caller: &mut Caller<'_, Guest>, fd: u32) -> Answer<Attempt> {
    let tried = caller.data_mut().preview1()?.file(fd)?.node.sync(true);
    respond_plainly(caller, tried)
}

pub(super) fn sync(caller: &mut Caller<'_, Guest>, fd: u32) -> Answer<Attempt> {
    let tried = caller.data_mut().preview1()?.file(fd)?.node.sync(false);
    respond_plainly(caller, tried)
}

/// Returns the file type of a terminal or another stream for a guest.
fn stream_type(is_terminal: bool) -> Filetype {
    match is_terminal {
        true => Filetype::CharacterDevice,
        false => Filetype::Unknown,
    }
}

/// Returns an `fdstat` of preview 1.
fn fdstat(kind: Filetype, flags: Fdflags, base: Rights, inheriting: Rights) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[0] = kind as u8;
    bytes[2..4].copy_from_slice(&flags.bits().to_le_bytes());
    bytes[8..16].copy_from_slice(&base.bits().to_le_bytes());
    bytes[16..24].copy_from_slice(&inheriting.bits().to_le_bytes());
    bytes
}

/// Returns the rights of a directory of the lease: those that many programs expect.
fn preopen_rights() -> (Rights, Rights) {
    let base = Rights::PATH_CREATE_DIRECTORY
        | Rights::PATH_CREATE_FILE
        | Rights::PATH_LINK_SOURCE
        | Rights::PATH_LINK_TARGET
        | Rights::PATH_OPEN
        | Rights::FD_READDIR
        | Rights::PATH_READLINK
        | Rights::PATH_RENAME_SOURCE
        | Rights::PATH_RENAME_TARGET
        | Rights::PATH_SYMLINK
        | Rights::PATH_REMOVE_DIRECTORY
        | Rights::PATH_UNLINK_FILE
        | Rights::PATH_FILESTAT_GET
        | Rights::PATH_FILESTAT_SET_TIMES
        | Rights::FD_FILESTAT_GET
        | Rights::FD_FILESTAT_SET_TIMES;
    let inheriting = base
        | Rights::FD_DATASYNC
        | Rights::FD_READ
        | Rights::FD_SEEK
        | Rights::FD_FDSTAT_SET_FLAGS
        | Rights::FD_SYNC
        | Rights::FD_TELL
        | Rights::FD_WRITE
        | Rights::FD_ADVISE
        | Rights::FD_ALLOCATE
        | Rights::FD_FILESTAT_GET
        | Rights::FD_FILESTAT_SET_SIZE
        | Rights::FD_FILESTAT_SET_TIMES
        | Rights::POLL_FD_READWRITE;
    (base, inheriting)
}

fn fdstat_of(open: &Open) -> [u8; 24] {
    if open.preopen.is_some() {
        let (base, inheriting) = preopen_rights();
        return fdstat(Filetype::Directory, Fdflags::empty(), base, inheriting);
    }
    let mut rights = Rights::all();
    if open.node.is_directory() {
        rights &= !(Rights::FD_SEEK
            | Rights::FD_FILESTAT_SET_SIZE
            | Rights::PATH_FILESTAT_SET_SIZE
            | Rights::FD_WRITE);
    }
    if !open.mode.read {
        rights &= !(Rights::FD_READ | Rights::FD_READDIR);
    }
    if !open.mode.write {
        rights &= !Rights::FD_WRITE;
    }
    let mut flags = Fdflags::empty();
    if open.node.is_directory() {
        return fdstat(Filetype::Directory, flags, rights, rights);
    }
    if open.append {
        flags |= Fdflags::APPEND;
    }
    if open.nonblocking {
        flags |= Fdflags::NONBLOCK;
    }
    fdstat(file_type(open.node.kind), flags, rights, rights)
}

pub(super) fn fdstat_get(caller: &mut Caller<'_, Guest>, fd: u32, result: u32) -> Answer {
    let (mut memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let stream =
        |is_terminal, rights| fdstat(stream_type(is_terminal), Fdflags::empty(), rights, rights);
    let fdstat = match state.table.get(fd)? {
        Descriptor::Stdin => stream(state.input.is_terminal(), Rights::FD_READ),
        Descriptor::Stdout => stream(state.stdout.is_terminal(), Rights::FD_WRITE),
        Descriptor::Stderr => stream(state.stderr.is_terminal(), Rights::FD_WRITE),
        Descriptor::Open(open) => fdstat_of(open),
    };
    memory.write(result, 8, &fdstat)
}

/// Returns the flags of a guest.
pub(super) fn flags(bits: u32) -> Result<Fdflags, Errno> {
    let bits = u16::try_from(bits).ok();
    bits.and_then(Fdflags::from_bits).ok_or(Errno::Inval)
}

pub(super) fn fdstat_set_flags(caller: &mut Caller<'_, Guest>, fd: u32, bits: u32) -> Answer {
    let flags = flags(bits)?;
    let file = caller.data_mut().preview1()?.file_mut(fd)?;
    if flags.intersects(Fdflags::DSYNC | Fdflags::SYNC | Fdflags::RSYNC) {
        return Err(Errno::Inval.into());
    }
    file.append = flags.contains(Fdflags::APPEND);
    file.nonblocking = flags.contains(Fdflags::NONBLOCK);
    Ok(())
}

pub(super) fn fdstat_set_rights(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    _base: u64,
    _inheriting: u64,
) -> Answer {
    caller.data_mut().preview1()?.open(fd)?;
    Err(Errno::Notsup.into())
}

pub(super) fn filestat_get(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    result: u32,
) -> Answer<Attempt> {
    let state = caller.data_mut().preview1()?;
    let stream = |is_terminal| of_stream(stream_type(is_terminal));
    let status = match state.table.get(fd)? {
        Descriptor::Stdin => stream(state.input.is_terminal()),
        Descriptor::Stdout => stream(state.stdout.is_terminal()),
        Descriptor::Stderr => stream(state.stderr.is_terminal()),
        Descriptor::Open(open) => {
            let tried = open.node.status();
            return respond(caller, tried, move |caller, status| {
                parts(caller)?.0.write(result, 8, &of_file(&status)?)
            });
        }
    };
    parts(caller)?.0.write(result, 8, &status)?;
    Ok(Attempt::Done)
}

pub(super) fn filestat_set_size(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    size: u64,
) -> Answer<Attempt> {
    let file = caller.data_mut().preview1()?.file(fd)?;
    if !file.may_change {
        return Err(Errno::Perm.into());
    }
    let tried = file.node.set_size(size);
    respond_plainly(caller, tried)
}

const ACCESS: u32 = 1;
const ACCESS_NOW: u32 = 2;
const CHANGE: u32 = 4;
const CHANGE_NOW: u32 = 8;

/// Times of access and change as the kernel wants them.
pub(super) fn times(access: u64, change: u64, flags: u32) -> Answer<[Timespec; 2]> {
    if flags >= 16 {
        return Err(Errno::Inval.into());
    }
    let time = |time: u64, set, now| match (set, now) {
        (true, true) => Err(Errno::Inval),
        (true, false) => Ok(Timespec {
            // At most 2^64 / 10^9.
            tv_sec: (time / 1_000_000_000) as i64,
            tv_nsec: (time % 1_000_000_000) as _,
        }),
        (false, now) => Ok(Timespec {
            tv_sec: 0,
            tv_nsec: if now { UTIME_NOW } else { UTIME_OMIT },
        }),
    };
    let has = |flag| flags & flag != 0;
    Ok([
        time(access, has(ACCESS), has(ACCESS_NOW))?,
        time(change, has(CHANGE), has(CHANGE_NOW))?,
    ])
}

pub(super) fn filestat_set_times(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    access: u64,
    change: u64,
    which: u32,
) -> Answer<Attempt> {
    let times = times(access, change, which)?;
    let open = caller.data_mut().preview1()?.open(fd)?;
    if !open.may_change {
        return Err(Errno::Perm.into());
    }
    let tried = open.node.set_times(times);
    respond_plainly(caller, tried)
}

pub(super) fn prestat_get(caller: &mut Caller<'_, Guest>, fd: u32, result: u32) -> Answer {
    let (mut memory, guest) = parts(caller)?;
    match guest.preview1()?.table.get(fd)? {
        Descriptor::Open(Open {
            preopen: Some(name),
            ..
        }) => {
            let length = u32::try_from(name.len()).map_err(|_| Errno::Overflow)?;
            // The tag of a directory is 0.
            let mut prestat = [0; 8];
            prestat[4..].copy_from_slice(&length.to_le_bytes());
            memory.write(result, 4, &prestat)
        }
        _ => Err(Errno::Badf.into()),
    }
}

pub(super) fn prestat_dir_name(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    to: u32,
    length: u32,
) -> Answer {
    let (mut memory, guest) = parts(caller)?;
    match guest.preview1()?.table.get(fd)? {
        Descriptor::Open(Open {
            preopen: Some(name),
            ..
        }) => {
            let needed = u32::try_from(name.len()).map_err(|_| Errno::Overflow)?;
            if needed > length {
                return Err(Errno::Nametoolong.into());
            }
            memory
                .bytes_mut(to, needed)?
                .copy_from_slice(name.as_bytes());
            Ok(())
        }
        _ => Err(Errno::Notdir.into()),
    }
}

pub(super) fn tell(caller: &mut Caller<'_, Guest>, fd: u32, result: u32) -> Answer {
    let (mut memory, guest) = parts(caller)?;
    let position = guest.preview1()?.seekable(fd)?.position;
    memory.write_u64(result, position)
}

/// Moves a file's position to `base` and `offset` together, and tells the guest.
fn move_to(caller: &mut Caller<'_, Guest>, fd: u32, base: u64, offset: i64, result: u32) -> Answer {
    let position = base.checked_add_signed(offset).ok_or(Errno::Inval)?;
    let (mut memory, guest) = parts(caller)?;
    guest.preview1()?.seekable(fd)?.position = position;
    memory.write_u64(result, position)
}

pub(super) fn seek(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    offset: i64,
    whence: u32,
    result: u32,
) -> Answer<Attempt> {
    const SET: u32 = 0;
    const CURRENT: u32 = 1;
    const END: u32 = 2;
    if whence > END {
        return Err(Errno::Inval.into());
    }
    let file = caller.data_mut().preview1()?.seekable(fd)?;
    let base = match whence {
        SET => 0,
        CURRENT => file.position,
        _ => {
            let tried = file.node.status();
            return respond(caller, tried, move |caller, status| {
                move_to(caller, fd, status.stx_size, offset, result)
            });
        }
    };
    move_to(caller, fd, base, offset, result)?;
    Ok(Attempt::Done)
}

/// Sockets are not offered: nothing that a descriptor stands for is one.
fn no_socket(caller: &mut Caller<'_, Guest>, fd: u32) -> Answer {
    caller.data_mut().preview1()?.table.get(fd)?;
    Err(Errno::Notsock.into())
}

pub(super) fn sock_accept(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    bits: u32,
    _result: u32,
) -> Answer {
    flags(bits)?;
    no_socket(caller, fd)
}

pub(super) fn sock_recv(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    _list: u32,
    _count: u32,
    flags: u32,
    _length: u32,
    _out: u32,
) -> Answer {
    match flags {
        0..4 => no_socket(caller, fd),
        _ => Err(Errno::Inval.into()),
    }
}

pub(super) fn sock_send(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    _list: u32,
    _count: u32,
    _flags: u32,
    _length: u32,
) -> Answer {
    no_socket(caller, fd)
}

pub(super) fn sock_shutdown(caller: &mut Caller<'_, Guest>, fd: u32, how: u32) -> Answer {
    match how {
        0..4 => no_socket(caller, fd),
        _ => Err(Errno::Inval.into()),
    }
}

/// Whether bytes of a file can be counted: it is a regular one.
pub(super) fn size_of(open: &Open) -> Option<u64> {
    if open.node.kind != FileType::RegularFile || open.node.class == Class::Slow {
        return None;
    }
    let status = linux::status(open.node.as_fd(), StatxFlags::SIZE);
    status.ok().map(|status| status.stx_size)
}
