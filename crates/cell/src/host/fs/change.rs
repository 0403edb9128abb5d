//! What changes a directory.

use super::account::Account;
use super::attempt::Try;
use super::descriptor::{Class, Node};
use super::path::{self, Site, parent, without_slashes};
use crate::host::kernel;
use rustix::fs::{AtFlags, Timespec};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// What a change takes of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The last name of a file may go, and so the file: what that frees is bounded by its size only.
    Removes,
    /// No file goes.
    Keeps,
}

/// Whether a change of what `path` leads to takes a bounded time on the cell's thread.
fn is_prompt(account: &Arc<Account>, start: &Node, path: &CStr, effect: Effect) -> bool {
    if start.class != Class::Memory {
        return false;
    }
    if effect == Effect::Keeps {
        return true;
    }
    let site = Site::Cell(Class::Memory);
    match path::status(site, start.as_fd(), path, false) {
        Ok((_, None)) => true,
        Ok((_, Some(file))) => {
            account.discard(file);
            false
        }
        // The call will say so, too.
        Err(_) => true,
    }
}

/// Does `work` with a path that begins at `start`.
pub(crate) fn attempt(
    account: &Arc<Account>,
    start: &Arc<Node>,
    path: &CStr,
    effect: Effect,
    work: impl Fn(Site, BorrowedFd<'_>, &CStr) -> Result<()> + Send + 'static,
) -> Try<()> {
    if is_prompt(account, start, path, effect) {
        let site = Site::Cell(Class::Memory);
        match work(site, start.as_fd(), path) {
            Err(errno) if site.is_undecided(errno) => {}
            result => return Try::Done(result),
        }
    }
    let (start, path) = (start.clone(), path.to_owned());
    Try::elsewhere(move || work(Site::Blocking, start.as_fd(), &path))
}

/// Does `work` with two paths, the second of which may name a file that goes.
pub(crate) fn attempt_pair(
    account: &Arc<Account>,
    (from, old): (&Arc<Node>, &CStr),
    (to, new): (&Arc<Node>, &CStr),
    work: impl Fn(Site, &Pair<'_>) -> Result<()> + Send + 'static,
) -> Try<()> {
    if from.class == Class::Memory && is_prompt(account, to, new, Effect::Removes) {
        let site = Site::Cell(Class::Memory);
        let pair = Pair {
            from: from.as_fd(),
            old,
            to: to.as_fd(),
            new,
        };
        match work(site, &pair) {
            Err(errno) if site.is_undecided(errno) => {}
            result => return Try::Done(result),
        }
    }
    let (from, to) = (from.clone(), to.clone());
    let (old, new) = (old.to_owned(), new.to_owned());
    Try::elsewhere(move || {
        let pair = Pair {
            from: from.as_fd(),
            old: &old,
            to: to.as_fd(),
            new: &new,
        };
        // Between two file systems the kernel says what means an escape elsewhere.
        work(Site::Blocking, &pair)
    })
}

/// What the symbolic link that `path` leads to says.
pub(crate) fn attempt_read_link(start: &Arc<Node>, path: &CStr) -> Try<Vec<u8>> {
    if start.class == Class::Memory {
        let site = Site::Cell(Class::Memory);
        match read_link(site, start.as_fd(), path) {
            Err(errno) if site.is_undecided(errno) => {}
            result => return Try::Done(result),
        }
    }
    let (start, path) = (start.clone(), path.to_owned());
    Try::elsewhere(move || read_link(Site::Blocking, start.as_fd(), &path))
}

/// Creates the directory `path`.
pub(crate) fn create_directory(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let path = without_slashes(path);
    let (directory, name) = parent(site, start, &path)?;
    kernel::make_directory(directory, &name)
}

/// Removes the empty directory `path`.
pub(crate) fn remove_directory(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let (directory, name) = parent(site, start, path)?;
    kernel::unlink(directory, &name, AtFlags::REMOVEDIR)
}

/// Makes the symbolic link `path`, which says `target`.
pub(crate) fn symlink(site: Site, target: &CStr, start: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    if target.to_bytes().starts_with(b"/") {
        return Err(Errno::PERM);
    }
    let (directory, name) = parent(site, start, path)?;
    kernel::symlink(target, directory, &name)
}

/// What the symbolic link `path` says.
fn read_link(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<Vec<u8>> {
    let (directory, name) = parent(site, start, path)?;
    let target = kernel::read_link(directory, &name)?;
    if target.starts_with(b"/") {
        return Err(Errno::PERM);
    }
    if std::str::from_utf8(&target).is_err() {
        return Err(Errno::ILSEQ);
    }
    Ok(target)
}

/// Two paths, each beneath a directory.
pub(crate) struct Pair<'a> {
    pub(crate) from: BorrowedFd<'a>,
    pub(crate) old: &'a CStr,
    pub(crate) to: BorrowedFd<'a>,
    pub(crate) new: &'a CStr,
}

/// Gives a file a second name.
pub(crate) fn link(site: Site, pair: &Pair<'_>) -> Result<()> {
    let (from, old) = parent(site, pair.from, pair.old)?;
    let (to, new) = parent(site, pair.to, pair.new)?;
    kernel::link(from, &old, to, &new)
}

/// Gives a file another name, instead of whatever has it.
pub(crate) fn rename(site: Site, pair: &Pair<'_>) -> Result<()> {
    let ends = |path: &CStr| path.to_bytes().ends_with(b"/");
    let is_directory = ends(pair.old) || ends(pair.new);
    let (old, new) = (without_slashes(pair.old), without_slashes(pair.new));
    let (from, old) = parent(site, pair.from, &old)?;
    let (to, new) = parent(site, pair.to, &new)?;
    let old = match is_directory {
        true => CString::new([old.as_bytes(), b"/"].concat()).map_err(|_| Errno::INVAL)?,
        false => old,
    };
    kernel::rename(from, &old, to, &new)
}

/// Removes the name `path` of a file.
pub(crate) fn unlink(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let (directory, name) = parent(site, start, path)?;
    kernel::unlink(directory, &name, AtFlags::empty())
}

/// Changes the times of what `path` leads to.
pub(crate) fn set_times(
    site: Site,
    start: BorrowedFd<'_>,
    path: &CStr,
    follow: bool,
    times: [Timespec; 2],
) -> Result<()> {
    let file = path::locate(site, start, path, follow)?;
    kernel::set_times(file.as_fd(), times)
}
