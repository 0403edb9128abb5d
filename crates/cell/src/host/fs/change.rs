//! What changes a directory.

use super::account::Account;
use super::attempt::Try;
use super::descriptor::{Class, Node};
use super::path::{self, Site, parent, without_slashes};
use crate::host::kernel;
use rustix::fs::{AtFlags, Statx, Timespec};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// What a change does to the names of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A name comes.
    Adds,
    /// The name of an empty directory goes.
    RemovesDirectory,
    /// The last name of a file may go, and so the file: what that frees is bounded by its size only.
    Removes,
    /// No name comes or goes.
    Keeps,
}

/// Whether a change of what `path` leads to takes a bounded time on the cell's thread.
fn is_prompt(account: &Arc<Account>, start: &Node, path: &CStr, effect: Effect) -> bool {
    if start.class != Class::Memory {
        return false;
    }
    if effect != Effect::Removes {
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

/// The status of what has a name, if something has it.
fn named(
    account: &Arc<Account>,
    site: Site,
    start: BorrowedFd<'_>,
    path: &CStr,
) -> Result<Option<Statx>> {
    match path::status(site, start, path, false) {
        Ok((status, kept)) => {
            if let Some(file) = kept {
                account.discard(file);
            }
            Ok(Some(status))
        }
        Err(errno) if site.is_undecided(errno) => Err(errno),
        Err(_) => Ok(None),
    }
}

/// Does `work` with a path, and counts the names that come and go, and what goes with them. `None` on the
/// cell's thread if it has to wait.
fn counted(
    account: &Arc<Account>,
    site: Site,
    start: BorrowedFd<'_>,
    path: &CStr,
    effect: Effect,
    work: &impl Fn(Site, BorrowedFd<'_>, &CStr) -> Result<()>,
) -> Option<Result<()>> {
    let disk = account.disk();
    let result = match effect {
        Effect::Keeps => work(site, start, path),
        Effect::Adds => disk
            .take_file()
            .and_then(|()| work(site, start, path).inspect_err(|_| disk.give_file())),
        Effect::RemovesDirectory => work(site, start, path).inspect(|()| disk.give_file()),
        Effect::Removes => {
            let _alone = disk.alone(site)?;
            named(account, site, start, path).and_then(|before| {
                work(site, start, path)?;
                if let Some(status) = before {
                    disk.removed(&status);
                }
                Ok(())
            })
        }
    };
    match result {
        Err(errno) if site.is_undecided(errno) => None,
        result => Some(result),
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
        if let Some(result) = counted(account, site, start.as_fd(), path, effect, &work) {
            return Try::Done(result);
        }
    }
    let (account, start, path) = (account.clone(), start.clone(), path.to_owned());
    Try::elsewhere(move || {
        let site = Site::Blocking;
        let done = counted(&account, site, start.as_fd(), &path, effect, &work);
        // Nothing is undecided there.
        done.unwrap_or(Err(Errno::AGAIN))
    })
}

/// A change with two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairChange {
    /// A file gets the second name, too.
    Link,
    /// A file gets the second name instead, and what has it loses it.
    Rename,
}

/// Makes a change with two paths, and counts names. `None` on the cell's thread if it has to wait.
fn counted_pair(
    account: &Arc<Account>,
    site: Site,
    pair: &Pair<'_>,
    change: PairChange,
) -> Option<Result<()>> {
    let disk = account.disk();
    let _alone = disk.alone(site)?;
    let result = match change {
        PairChange::Link => disk
            .take_file()
            .and_then(|()| link(site, pair).inspect_err(|_| disk.give_file())),
        PairChange::Rename => named(account, site, pair.to, pair.new).and_then(|replaced| {
            rename(site, pair)?;
            // Two names of one file both stay.
            let left = named(account, site, pair.from, pair.old);
            if let (Some(status), Ok(None)) = (replaced, left) {
                disk.removed(&status);
            }
            Ok(())
        }),
    };
    match result {
        Err(errno) if site.is_undecided(errno) => None,
        result => Some(result),
    }
}

/// Makes a change with two paths that begin at these directories.
pub(crate) fn attempt_pair(
    account: &Arc<Account>,
    (from, old): (&Arc<Node>, &CStr),
    (to, new): (&Arc<Node>, &CStr),
    change: PairChange,
) -> Try<()> {
    if from.class == Class::Memory && is_prompt(account, to, new, Effect::Removes) {
        let pair = Pair {
            from: from.as_fd(),
            old,
            to: to.as_fd(),
            new,
        };
        if let Some(result) = counted_pair(account, Site::Cell(Class::Memory), &pair, change) {
            return Try::Done(result);
        }
    }
    let (account, from, to) = (account.clone(), from.clone(), to.clone());
    let (old, new) = (old.to_owned(), new.to_owned());
    Try::elsewhere(move || {
        let pair = Pair {
            from: from.as_fd(),
            old: &old,
            to: to.as_fd(),
            new: &new,
        };
        // Between two file systems the kernel says what means an escape elsewhere.
        let done = counted_pair(&account, Site::Blocking, &pair, change);
        done.unwrap_or(Err(Errno::AGAIN))
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
struct Pair<'a> {
    from: BorrowedFd<'a>,
    old: &'a CStr,
    to: BorrowedFd<'a>,
    new: &'a CStr,
}

/// Gives a file a second name.
fn link(site: Site, pair: &Pair<'_>) -> Result<()> {
    let (from, old) = parent(site, pair.from, pair.old)?;
    let (to, new) = parent(site, pair.to, pair.new)?;
    kernel::link(from, &old, to, &new)
}

/// Gives a file another name, instead of whatever has it.
fn rename(site: Site, pair: &Pair<'_>) -> Result<()> {
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
