//! Finding files beneath a directory: the kernel resolves paths, nothing here walks them.

use super::account::Account;
use super::attempt::Try;
use super::class::{Class, Site, is_cheap_to_close, kind_of};
use super::descriptor::Node;
use super::elsewhere::Elsewhere;
use super::file::File;
use super::naming;
use super::status::FIELDS;
use crate::host::answer::Answer;
use crate::host::linux;
use rustix::fs::{OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use wasmtime_wasi::p1::types::Errno as GuestErrno;

/// Longest path, with the zero at its end: what the kernel takes.
pub(crate) const MOST_BYTES: usize = 4096;

/// Links that the kernel follows in one path.
pub(super) const MOST_LINKS: usize = 40;

/// Paths up to here are copied to the stack.
const SHORT: usize = 256;

/// Calls `with` with a path of a guest's in the form that the kernel wants.
///
/// # Errors
/// When the path is too long, no text, or has a zero inside; and the errors of `with`.
pub(crate) fn with_c_str<R>(path: &[u8], with: impl FnOnce(&CStr) -> Answer<R>) -> Answer<R> {
    if path.len() >= MOST_BYTES {
        return Err(GuestErrno::Nametoolong.into());
    }
    if std::str::from_utf8(path).is_err() {
        return Err(GuestErrno::Ilseq.into());
    }
    if path.len() < SHORT {
        let mut bytes = [0; SHORT];
        bytes[..path.len()].copy_from_slice(path);
        let path = CStr::from_bytes_with_nul(&bytes[..=path.len()]);
        return with(path.map_err(|_| GuestErrno::Inval)?);
    }
    with(&CString::new(path).map_err(|_| GuestErrno::Inval)?)
}

/// Opens what `path` leads to; returns the file and its status.
///
/// Nothing waits for the other end of a FIFO: it is opened as if `O_NONBLOCK` were asked for.
pub(crate) fn open(
    site: Site,
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
) -> Result<(Node, Statx)> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    opened(site, linux::open(directory, path, flags, site.resolve())?)
}

/// Creates the file `path`, which must be missing. Returns the file and its status. On the cell's thread a look-up
/// must have found that it is missing.
pub(super) fn create(
    account: &Account,
    site: Site,
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
) -> Result<(Node, Statx)> {
    let (parent, name) = parent(site, directory, path)?;
    let flags = flags
        | OFlags::CREATE
        | OFlags::EXCL
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY;
    naming::name(account, (site, parent.as_fd()), 0, || {
        // The kernel never reports a new file as cached.
        let fd = linux::open(parent.as_fd(), &name, flags, ResolveFlags::NO_XDEV)?;
        Ok((opened(site, fd)?, 0))
    })
}

/// Returns the node of a file that was just opened, and its status.
fn opened(site: Site, fd: OwnedFd) -> Result<(Node, Statx)> {
    let status = linux::status(fd.as_fd(), StatxFlags::TYPE | StatxFlags::INO)?;
    let class = match site {
        Site::Cell(class) => class,
        Site::Blocking => Class::of(fd.as_fd())?,
    };
    Ok((Node::new(fd, kind_of(&status), class), status))
}

/// Finds what `path` leads to, and its status.
fn find(
    site: Site,
    directory: BorrowedFd<'_>,
    path: &CStr,
    follow: bool,
) -> Result<(Statx, OwnedFd)> {
    let file = locate(site, directory, path, follow)?;
    let status = linux::status(file.as_fd(), FIELDS)?;
    Ok((status, file))
}

/// Returns the status of the file with a name, if there is one. `None` on the cell's thread if it
/// has to wait, or if the file could be large, so that it must not be changed there.
pub(super) fn look(
    account: &Arc<Account>,
    site: Site,
    directory: BorrowedFd<'_>,
    path: &CStr,
) -> Option<Result<Option<Statx>>> {
    let held = hold(account, site, directory, path)?;
    let settled = |(status, file): (_, OwnedFd)| linux::settled(file.as_fd(), FIELDS, status);
    Some(held.and_then(|found| found.map(settled).transpose()))
}

/// Returns the status as [`look`], and the file with it. Closing the file takes a bounded time on the cell's
/// thread, unless its name goes meanwhile. A file that could be large is closed by another thread: `None` if so many
/// wait for it that none may be opened.
pub(super) fn hold(
    account: &Arc<Account>,
    site: Site,
    directory: BorrowedFd<'_>,
    path: &CStr,
) -> Option<Result<Option<(Statx, OwnedFd)>>> {
    if site != Site::Blocking && account.is_backed_up() {
        return None;
    }
    match find(site, directory, path, false) {
        Ok((status, file)) if site != Site::Blocking && !is_cheap_to_close(&status) => {
            account.discard(File::new(file));
            None
        }
        Ok(found) => Some(Ok(Some(found))),
        Err(errno) if site.is_undecided(errno) => None,
        Err(Errno::NOENT) => Some(Ok(None)),
        Err(errno) => Some(Err(errno)),
    }
}

/// Returns the type, the number and the birth of what has the last name of `path`, without opening it.
pub(super) fn status_of_name(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<Statx> {
    let (directory, name) = parent(site, start, &without_slashes(path))?;
    let fields = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::BTIME;
    linux::status_at(directory.as_fd(), &name, fields)
}

/// Returns the status of what `path` leads to from `start`.
pub(crate) fn attempt_status(
    account: &Arc<Account>,
    start: &Arc<Node>,
    path: &CStr,
    follow: bool,
) -> Try<Statx> {
    if start.class != Class::Slow && start.takes(path) && !account.is_backed_up() {
        let site = Site::Cell(start.class);
        match find(site, start.as_fd(), path, follow) {
            Err(errno) if site.is_undecided(errno) => {}
            Ok((status, file)) => {
                if !is_cheap_to_close(&status) {
                    account.discard(File::new(file));
                }
                return Try::Done(Ok(status));
            }
            Err(errno) => return Try::Done(Err(errno)),
        }
    }
    let (start, path) = (start.clone(), path.to_owned());
    // The other thread closes the file, too.
    Try::elsewhere(Elsewhere::on_names(start.class), move || {
        start.check_depth(&path)?;
        Ok(find(Site::Blocking, start.as_fd(), &path, follow)?.0)
    })
}

/// Finds what `path` leads to, without opening it.
pub(crate) fn locate(
    site: Site,
    directory: BorrowedFd<'_>,
    path: &CStr,
    follow: bool,
) -> Result<OwnedFd> {
    let mut flags = OFlags::PATH;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    linux::open(directory, path, flags, site.resolve())
}

/// The directory that the last name of a path is in.
pub(crate) enum Parent<'a> {
    /// The one that the path starts from.
    Start(BorrowedFd<'a>),
    Found(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Start(fd) => *fd,
            Self::Found(fd) => fd.as_fd(),
        }
    }
}

/// Finds the directory of the last name of `path`, and that name. A path that ends like a
/// directory's is itself the directory, and the name is `.`.
pub(crate) fn parent<'a>(
    site: Site,
    start: BorrowedFd<'a>,
    path: &CStr,
) -> Result<(Parent<'a>, CString)> {
    let bytes = path.to_bytes();
    if bytes.is_empty() {
        return Err(Errno::NOENT);
    }
    let (directory, name) = split(bytes);
    let owned = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL);
    let name = owned(name)?;
    if directory.is_empty() {
        return Ok((Parent::Start(start), name));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let found = linux::open(start, &owned(directory)?, flags, site.resolve())?;
    Ok((Parent::Found(found), name))
}

/// Returns the path of what the link at the end of `path` leads to.
///
/// # Errors
/// `INVAL` if there is no link, `NAMETOOLONG`, and the kernel's.
pub(super) fn behind_link(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<CString> {
    let (directory, name) = parent(site, start, path)?;
    let target = linux::read_link(directory.as_fd(), &name)?;
    let before = match target.first() {
        Some(b'/') => &[],
        _ => split(path.to_bytes()).0,
    };
    let behind = [before, &target].concat();
    if behind.len() >= MOST_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    CString::new(behind).map_err(|_| Errno::INVAL)
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.ends_with(b"/") || path.ends_with(b"/.") {
        return (path, b".");
    }
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..=slash], &path[slash + 1..]),
        None => (&path[..0], path),
    };
    match name {
        b".." => (path, b"."),
        _ => (directory, name),
    }
}

/// Returns a path without slashes at its end.
pub(crate) fn without_slashes(path: &CStr) -> CString {
    let mut bytes = path.to_bytes();
    while let [rest @ .., b'/'] = bytes
        && !rest.is_empty()
    {
        bytes = rest;
    }
    CString::new(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{split, with_c_str, without_slashes};
    use crate::host::answer::Fail;
    use wasmtime_wasi::p1::types::Errno;

    #[test]
    fn the_last_name_of_a_path_is_never_one_above() {
        for (path, directory, name) in [
            ("foo/bar/qux", "foo/bar/", "qux"),
            ("foo", "", "foo"),
            ("foo/", "foo/", "."),
            ("foo/.", "foo/.", "."),
            (".", "", "."),
            ("..", "..", "."),
            ("../..", "../..", "."),
            ("../foo", "../", "foo"),
            ("foo/..", "foo/..", "."),
            ("/foo", "/", "foo"),
            ("/", "/", "."),
        ] {
            let expected = (directory.as_bytes(), name.as_bytes());
            assert_eq!(split(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn slashes_go_from_the_end_only() {
        for (path, without) in [
            (c"a//", c"a"),
            (c"/", c"/"),
            (c"//", c"/"),
            (c"a/b", c"a/b"),
        ] {
            assert_eq!(without_slashes(path).as_c_str(), without);
        }
    }

    #[test]
    fn a_path_is_text_of_bounded_length_without_zeros() {
        let length = |path: &[u8]| match with_c_str(path, |path| Ok(path.to_bytes().len())) {
            Ok(length) => Ok(length),
            Err(Fail::Errno(errno)) => Err(errno),
            Err(Fail::Trap(trap)) => panic!("{trap}"),
        };
        for good in [0, 1, 255, 256, 4095] {
            assert_eq!(length(&vec![b'a'; good]), Ok(good));
        }
        assert_eq!(length(&[b'a'; 4096]), Err(Errno::Nametoolong));
        assert_eq!(length(b"a\0b"), Err(Errno::Inval));
        assert_eq!(
            length(&[b"\0".as_slice(), &[b'a'; 300]].concat()),
            Err(Errno::Inval)
        );
        assert_eq!(length(b"\xff"), Err(Errno::Ilseq));
    }
}
