//! Functions on paths.
#![expect(
    clippy::too_many_arguments,
    reason = "the functions of preview 1 have those that its interface says"
)]

use super::call::{Attempt, respond, respond_plainly};
use super::descriptors::{flags, times};
use super::memory::parts;
use crate::guest::Guest;
use crate::host::answer::Answer;
use crate::host::fs::change::{self, ChangedName, Effect, PairChange};
use crate::host::fs::descriptor::{Descriptor, Mode, Open};
use crate::host::fs::open::Request;
use crate::host::fs::path::{self, with_c_str};
use crate::host::fs::status::of_file;
use std::sync::Arc;
use wasmtime::Caller;
use wasmtime_wasi::p1::types::{Errno, Fdflags, Oflags, Rights};

/// Whether links at the end of a path are followed.
fn follows(flags: u32) -> Answer<bool> {
    match flags {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::Inval.into()),
    }
}

/// Does `work` with a path.
fn change(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    (path, length): (u32, u32),
    effect: Effect,
    work: impl Fn(&ChangedName<'_>) -> rustix::io::Result<()> + Send + 'static,
) -> Answer<Attempt> {
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let start = state.directory(fd)?;
    let tried = with_c_str(memory.bytes(path, length)?, |path| {
        if !start.may_change {
            return Err(Errno::Perm.into());
        }
        let account = state.account();
        Ok(change::attempt(account, &start.node, path, effect, work))
    })?;
    respond_plainly(caller, tried)
}

pub(super) fn create_directory(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    path: u32,
    length: u32,
) -> Answer<Attempt> {
    change(
        caller,
        fd,
        (path, length),
        Effect::AddsDirectory,
        change::create_directory,
    )
}

pub(super) fn remove_directory(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    path: u32,
    length: u32,
) -> Answer<Attempt> {
    change(
        caller,
        fd,
        (path, length),
        Effect::RemovesDirectory,
        change::remove_directory,
    )
}

pub(super) fn unlink(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    path: u32,
    length: u32,
) -> Answer<Attempt> {
    change(caller, fd, (path, length), Effect::Removes, change::unlink)
}

pub(super) fn symlink(
    caller: &mut Caller<'_, Guest>,
    target: u32,
    target_length: u32,
    fd: u32,
    path: u32,
    length: u32,
) -> Answer<Attempt> {
    let (memory, guest) = parts(caller)?;
    guest.preview1()?.directory(fd)?;
    let target = with_c_str(memory.bytes(target, target_length)?, |path| {
        Ok(path.to_owned())
    })?;
    change(
        caller,
        fd,
        (path, length),
        Effect::AddsLink(target.count_bytes()),
        move |place| change::symlink(place, &target),
    )
}

pub(super) fn filestat_set_times(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    look_up: u32,
    path: u32,
    length: u32,
    access: u64,
    modified: u64,
    which: u32,
) -> Answer<Attempt> {
    let follow = follows(look_up)?;
    let times = times(access, modified, which)?;
    change(caller, fd, (path, length), Effect::Keeps, move |place| {
        change::set_times(place, follow, times)
    })
}

/// Two paths of a call, and the directories that they begin at.
struct Paths {
    old: (u32, u32, u32),
    new: (u32, u32, u32),
}

/// Does `work` with two paths.
fn change_pair(
    caller: &mut Caller<'_, Guest>,
    Paths { old, new }: Paths,
    is_allowed: bool,
    change: PairChange,
) -> Answer<Attempt> {
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let (from, to) = (state.directory(old.0)?, state.directory(new.0)?);
    let tried = with_c_str(memory.bytes(old.1, old.2)?, |old| {
        with_c_str(memory.bytes(new.1, new.2)?, |new| {
            if !from.may_change || !to.may_change {
                return Err(Errno::Perm.into());
            }
            if !is_allowed {
                return Err(Errno::Inval.into());
            }
            let (old, new) = ((&from.node, old), (&to.node, new));
            Ok(change::attempt_pair(state.account(), old, new, change))
        })
    })?;
    respond_plainly(caller, tried)
}

pub(super) fn link(
    caller: &mut Caller<'_, Guest>,
    old_fd: u32,
    look_up: u32,
    old: u32,
    old_length: u32,
    new_fd: u32,
    new: u32,
    new_length: u32,
) -> Answer<Attempt> {
    let follow = follows(look_up)?;
    let paths = Paths {
        old: (old_fd, old, old_length),
        new: (new_fd, new, new_length),
    };
    change_pair(caller, paths, !follow, PairChange::Link)
}

pub(super) fn rename(
    caller: &mut Caller<'_, Guest>,
    old_fd: u32,
    old: u32,
    old_length: u32,
    new_fd: u32,
    new: u32,
    new_length: u32,
) -> Answer<Attempt> {
    let paths = Paths {
        old: (old_fd, old, old_length),
        new: (new_fd, new, new_length),
    };
    change_pair(caller, paths, true, PairChange::Rename)
}

pub(super) fn filestat_get(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    look_up: u32,
    path: u32,
    length: u32,
    result: u32,
) -> Answer<Attempt> {
    let follow = follows(look_up)?;
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let start = state.directory(fd)?;
    let tried = with_c_str(memory.bytes(path, length)?, |path| {
        let account = state.account();
        Ok(path::attempt_status(account, &start.node, path, follow))
    })?;
    respond(caller, tried, move |caller, status| {
        parts(caller)?.0.write(result, 8, &of_file(&status)?)
    })
}

/// Writes the target of a link into the guest's buffer, as much as fits.
fn write_link(
    caller: &mut Caller<'_, Guest>,
    mut target: Vec<u8>,
    (buffer, size, result): (u32, u32, u32),
) -> Answer {
    let (mut memory, _) = parts(caller)?;
    target.truncate(size as usize);
    let length = u32::try_from(target.len()).map_err(|_| Errno::Overflow)?;
    memory.bytes_mut(buffer, length)?.copy_from_slice(&target);
    memory.write_u32(result, length)
}

pub(super) fn read_link(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    path: u32,
    length: u32,
    buffer: u32,
    size: u32,
    result: u32,
) -> Answer<Attempt> {
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let start = state.directory(fd)?;
    let tried = with_c_str(memory.bytes(path, length)?, |path| {
        let account = state.account();
        Ok(change::attempt_read_link(account, &start.node, path))
    })?;
    respond(caller, tried, move |caller, target| {
        write_link(caller, target, (buffer, size, result))
    })
}

/// Checks how a guest wants a file to be opened.
fn request(look_up: u32, open: u32, rights: u64, bits: u32) -> Answer<(Request, Fdflags)> {
    let follow = follows(look_up)?;
    let open = u16::try_from(open).ok().and_then(Oflags::from_bits);
    let open = open.ok_or(Errno::Inval)?;
    let rights = Rights::from_bits(rights).ok_or(Errno::Inval)?;
    let flags = flags(bits)?;
    let write = rights.contains(Rights::FD_WRITE);
    let request = Request {
        follow,
        create: open.contains(Oflags::CREAT),
        exclusive: open.contains(Oflags::EXCL),
        truncate: open.contains(Oflags::TRUNC),
        directory: open.contains(Oflags::DIRECTORY),
        sync: flags.intersects(Fdflags::SYNC | Fdflags::DSYNC | Fdflags::RSYNC),
        mode: Mode {
            read: rights.contains(Rights::FD_READ) || !write,
            write: write || open.intersects(Oflags::CREAT | Oflags::TRUNC),
        },
    };
    Ok((request, flags))
}

pub(super) fn open(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    look_up: u32,
    path: u32,
    length: u32,
    open: u32,
    rights: u64,
    inheriting: u64,
    bits: u32,
    result: u32,
) -> Answer<Attempt> {
    let (request, flags) = request(look_up, open, rights, bits)?;
    Rights::from_bits(inheriting).ok_or(Errno::Inval)?;
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let (tried, taken, may_change) = with_c_str(memory.bytes(path, length)?, |path| {
        let start = match state.table.get(fd)? {
            Descriptor::Open(open) if open.node.is_directory() => open,
            Descriptor::Open(_) => return Err(Errno::Notdir.into()),
            _ => return Err(Errno::Badf.into()),
        };
        let may_change = start.may_change;
        request.check(may_change)?;
        let start = start.node.clone();
        let taken = state.table.take()?;
        let tried = request.attempt(state.table.files(), &start, path);
        Ok((tried, taken, may_change))
    })?;
    respond(caller, tried, move |caller, node| {
        let (mut memory, guest) = parts(caller)?;
        let open = Open {
            node: Arc::new(node),
            mode: request.mode,
            may_change,
            position: 0,
            append: flags.contains(Fdflags::APPEND),
            nonblocking: flags.contains(Fdflags::NONBLOCK),
            preopen: None,
        };
        let fd = guest.preview1()?.table.put(taken, open);
        memory.write_u32(result, fd)
    })
}
