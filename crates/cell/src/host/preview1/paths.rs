//! Functions on paths.
#![expect(
    clippy::too_many_arguments,
    reason = "the functions of preview 1 have those that its interface says"
)]

use super::descriptors::{elsewhere, flags, times};
use super::memory::parts;
use super::{Attempt, Finish, State};
use crate::guest::Guest;
use crate::host::answer::Answer;
use crate::host::fs::account::Account;
use crate::host::fs::change::{self, Pair};
use crate::host::fs::descriptor::{Class, Descriptor, Mode, Node, Open};
use crate::host::fs::path::{self, Site, with_c_str};
use crate::host::fs::status::of_file;
use crate::host::kernel;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno as HostErrno;
use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};
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

/// Whether removing what `path` leads to takes a bounded time here: it frees few pages at most.
fn is_cheap_to_remove(state: &State, start: &Open, path: &CStr) -> bool {
    if start.node.class != Class::Memory {
        return false;
    }
    let site = Site::Cell(Class::Memory);
    match path::status(site, start.node.as_fd(), path, false) {
        Ok((_, None)) => true,
        Ok((_, Some(file))) => {
            state.account().discard(file);
            false
        }
        // The call will say so, too.
        Err(_) => true,
    }
}

/// Whether a change of a directory can be made here.
fn is_in_memory(_: &State, start: &Open, _: &CStr) -> bool {
    start.node.class == Class::Memory
}

/// Does `work` with a path, here if it cannot wait, and on another thread otherwise.
fn change(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    (path, length): (u32, u32),
    is_prompt: impl FnOnce(&State, &Open, &CStr) -> bool,
    work: impl Fn(Site, BorrowedFd<'_>, &CStr) -> rustix::io::Result<()> + Send + 'static,
) -> Answer<Attempt> {
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let start = state.directory(fd)?;
    with_c_str(memory.bytes(path, length)?, |path| {
        if !start.may_change {
            return Err(Errno::Perm.into());
        }
        if is_prompt(state, start, path) {
            let site = Site::Cell(Class::Memory);
            match work(site, start.node.as_fd(), path) {
                Err(errno) if site.is_undecided(errno) => {}
                result => return Ok(result.map(|()| Attempt::Done)?),
            }
        }
        let (node, path) = (start.node.clone(), path.to_owned());
        elsewhere(move || work(Site::Blocking, node.as_fd(), &path))
    })
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
        is_in_memory,
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
        is_in_memory,
        change::remove_directory,
    )
}

pub(super) fn unlink(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    path: u32,
    length: u32,
) -> Answer<Attempt> {
    change(
        caller,
        fd,
        (path, length),
        is_cheap_to_remove,
        change::unlink,
    )
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
        is_in_memory,
        move |site, start, path| change::symlink(site, &target, start, path),
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
    change(
        caller,
        fd,
        (path, length),
        is_in_memory,
        move |site, start, path| change::set_times(site, start, path, follow, times),
    )
}

/// Two paths of a call, and the directories that they begin at.
struct Paths {
    old: (u32, u32, u32),
    new: (u32, u32, u32),
}

/// Does `work` with two paths, here if it cannot wait, and on another thread otherwise.
fn change_pair(
    caller: &mut Caller<'_, Guest>,
    Paths { old, new }: Paths,
    is_allowed: bool,
    work: impl Fn(Site, &Pair<'_>) -> rustix::io::Result<()> + Send + 'static,
) -> Answer<Attempt> {
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let (from, to) = (state.directory(old.0)?, state.directory(new.0)?);
    with_c_str(memory.bytes(old.1, old.2)?, |old| {
        with_c_str(memory.bytes(new.1, new.2)?, |new| {
            if !from.may_change || !to.may_change {
                return Err(Errno::Perm.into());
            }
            if !is_allowed {
                return Err(Errno::Inval.into());
            }
            if is_in_memory(state, from, old) && is_cheap_to_remove(state, to, new) {
                let site = Site::Cell(Class::Memory);
                let pair = Pair {
                    from: from.node.as_fd(),
                    old,
                    to: to.node.as_fd(),
                    new,
                };
                match work(site, &pair) {
                    Err(errno) if site.is_undecided(errno) => {}
                    result => return Ok(result.map(|()| Attempt::Done)?),
                }
            }
            let (from, to) = (from.node.clone(), to.node.clone());
            let (old, new) = (old.to_owned(), new.to_owned());
            elsewhere(move || {
                let pair = Pair {
                    from: from.as_fd(),
                    old: &old,
                    to: to.as_fd(),
                    new: &new,
                };
                // Between two file systems the kernel says what means an escape elsewhere.
                work(Site::Blocking, &pair)
            })
        })
    })
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
    change_pair(caller, paths, !follow, change::link)
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
    change_pair(caller, paths, true, change::rename)
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
    let (mut memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let start = state.directory(fd)?;
    let found = with_c_str(memory.bytes(path, length)?, |path| {
        if start.node.class != Class::Slow {
            let site = Site::Cell(start.node.class);
            match path::status(site, start.node.as_fd(), path, follow) {
                Err(errno) if site.is_undecided(errno) => {}
                result => return Ok(Ok(result?)),
            }
        }
        Ok(Err(path.to_owned()))
    })?;
    match found {
        Ok((status, kept)) => {
            if let Some(file) = kept {
                state.account().discard(file);
            }
            memory.write(result, 8, &of_file(&status)?)?;
            Ok(Attempt::Done)
        }
        Err(path) => {
            let node = start.node.clone();
            Ok(Attempt::Elsewhere(Box::new(move || {
                let status = path::status(Site::Blocking, node.as_fd(), &path, follow);
                // The file itself is closed here.
                let status = status.map(|(status, _)| status);
                Box::new(move |caller| {
                    let status = of_file(&status?)?;
                    parts(caller)?.0.write(result, 8, &status)
                })
            })))
        }
    }
}

/// Writes what a link says into the guest's buffer, as much as fits.
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
    let start = guest.preview1()?.directory(fd)?;
    let found = with_c_str(memory.bytes(path, length)?, |path| {
        if start.node.class == Class::Memory {
            let site = Site::Cell(Class::Memory);
            match change::read_link(site, start.node.as_fd(), path) {
                Err(errno) if site.is_undecided(errno) => {}
                result => return Ok(Ok(result?)),
            }
        }
        Ok(Err((start.node.clone(), path.to_owned())))
    })?;
    match found {
        Ok(target) => {
            write_link(caller, target, (buffer, size, result))?;
            Ok(Attempt::Done)
        }
        Err((node, path)) => Ok(Attempt::Elsewhere(Box::new(move || {
            let target = change::read_link(Site::Blocking, node.as_fd(), &path);
            Box::new(move |caller| write_link(caller, target?, (buffer, size, result)))
        }))),
    }
}

/// How a file is to be opened.
#[derive(Debug, Clone, Copy)]
struct Request {
    follow: bool,
    open: Oflags,
    mode: Mode,
    append: bool,
    nonblocking: bool,
    /// Whether the directory that it is looked for in may be changed.
    may_change: bool,
}

impl Request {
    /// Checks what a guest asks for.
    fn new(look_up: u32, open: u32, rights: u64, bits: u32) -> Answer<(Self, Fdflags)> {
        let follow = follows(look_up)?;
        let open = u16::try_from(open).ok().and_then(Oflags::from_bits);
        let open = open.ok_or(Errno::Inval)?;
        let rights = Rights::from_bits(rights).ok_or(Errno::Inval)?;
        let flags = flags(bits)?;
        let write = rights.contains(Rights::FD_WRITE);
        let request = Self {
            follow,
            open,
            mode: Mode {
                read: rights.contains(Rights::FD_READ) || !write,
                write: write || open.intersects(Oflags::CREAT | Oflags::TRUNC),
            },
            append: flags.contains(Fdflags::APPEND),
            nonblocking: flags.contains(Fdflags::NONBLOCK),
            may_change: false,
        };
        Ok((request, flags))
    }

    /// What speaks against it in a directory that may be changed or not.
    fn check(&self, flags: Fdflags) -> Answer {
        if flags.intersects(Fdflags::SYNC | Fdflags::DSYNC | Fdflags::RSYNC) {
            return Err(Errno::Notsup.into());
        }
        let creates = Oflags::CREAT | Oflags::EXCL | Oflags::TRUNC;
        if self.open.contains(Oflags::DIRECTORY) && self.open.intersects(creates) {
            return Err(Errno::Inval.into());
        }
        if self.mode.write && !self.may_change {
            return Err(Errno::Perm.into());
        }
        Ok(())
    }

    /// What the kernel is asked for, but for what a path that exists leaves to do.
    fn flags(&self) -> OFlags {
        let mut flags = match (self.mode.read, self.mode.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        if !self.follow {
            flags |= OFlags::NOFOLLOW;
        }
        flags
    }

    /// What creates a file.
    fn creating(&self) -> OFlags {
        let mut flags = OFlags::empty();
        if self.open.contains(Oflags::CREAT) {
            flags |= OFlags::CREATE;
            if self.open.contains(Oflags::EXCL) {
                flags |= OFlags::EXCL;
            }
        }
        flags
    }

    /// Opens the file where one may block.
    fn open(&self, start: &Node, path: &CStr) -> rustix::io::Result<Node> {
        let mut flags = self.flags() | self.creating();
        if self.open.contains(Oflags::TRUNC) {
            flags |= OFlags::TRUNC;
        }
        let node = path::open(Site::Blocking, start.as_fd(), path, flags)?;
        match self.open.contains(Oflags::DIRECTORY) && !node.is_directory() {
            true => Err(HostErrno::NOTDIR),
            false => Ok(node),
        }
    }

    /// Opens the file on the cell's thread; `None` if it might wait.
    fn open_promptly(
        &self,
        account: &Arc<Account>,
        start: &Node,
        path: &CStr,
    ) -> rustix::io::Result<Option<Node>> {
        let site = match start.class {
            Class::Slow => return Ok(None),
            class => Site::Cell(class),
        };
        let mut flags = self.flags();
        match start.class {
            Class::Memory => flags |= self.creating(),
            // A file that is there has to be looked for only.
            _ if self.open.contains(Oflags::CREAT | Oflags::EXCL) => return Ok(None),
            _ if self.open.contains(Oflags::TRUNC) => return Ok(None),
            _ => {}
        }
        let node = match path::open(site, start.as_fd(), path, flags) {
            Ok(node) => node,
            Err(errno) if site.is_undecided(errno) => return Ok(None),
            Err(HostErrno::NOENT) if self.open.contains(Oflags::CREAT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        // A file that is not kept may be a large one whose last name has gone meanwhile.
        let refused = if self.open.contains(Oflags::DIRECTORY) && !node.is_directory() {
            Err(HostErrno::NOTDIR)
        } else if self.open.contains(Oflags::TRUNC) && node.kind == FileType::RegularFile {
            // What a small file frees takes no time.
            match node.is_cheap_to_close() {
                true => match kernel::resize(node.as_fd(), 0) {
                    Ok(()) => return Ok(Some(node)),
                    Err(errno) => Err(errno),
                },
                false => Ok(None),
            }
        } else {
            return Ok(Some(node));
        };
        account.discard(node);
        refused
    }

    fn opened(&self, node: Node) -> Open {
        Open {
            node: Arc::new(node),
            mode: self.mode,
            may_change: self.may_change,
            position: 0,
            append: self.append,
            nonblocking: self.nonblocking,
            preopen: None,
        }
    }
}

/// For how long a thread waits between two looks at files that are being closed.
const CLOSING: std::time::Duration = std::time::Duration::from_micros(200);

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
    let (mut request, flags) = Request::new(look_up, open, rights, bits)?;
    Rights::from_bits(inheriting).ok_or(Errno::Inval)?;
    let (mut memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let opened = with_c_str(memory.bytes(path, length)?, |path| {
        let start = match state.table.get(fd)? {
            Descriptor::Open(open) if open.node.is_directory() => open,
            Descriptor::Open(_) => return Err(Errno::Notdir.into()),
            _ => return Err(Errno::Badf.into()),
        };
        request.may_change = start.may_change;
        request.check(flags)?;
        let start = start.node.clone();
        let taken = state.table.take()?;
        let account = state.account().clone();
        if !account.is_backed_up() {
            match request.open_promptly(&account, &start, path) {
                Ok(Some(node)) => return Ok(Ok(state.table.put(taken, request.opened(node)))),
                Ok(None) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let path = path.to_owned();
        Ok(Err(move || {
            // Files that the tenant has closed are really closed before it gets others.
            while account.is_backed_up() {
                std::thread::sleep(CLOSING);
            }
            let opened = request.open(&start, &path);
            let finish: Finish = Box::new(move |caller| {
                let (mut memory, guest) = parts(caller)?;
                let state = guest.preview1()?;
                match opened {
                    Ok(node) => {
                        let fd = state.table.put(taken, request.opened(node));
                        memory.write_u32(result, fd)
                    }
                    Err(errno) => Err(errno.into()),
                }
            });
            finish
        }))
    })?;
    match opened {
        Ok(fd) => {
            memory.write_u32(result, fd)?;
            Ok(Attempt::Done)
        }
        Err(work) => Ok(Attempt::Elsewhere(Box::new(work))),
    }
}
