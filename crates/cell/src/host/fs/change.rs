//! What changes a directory.

use super::path::{Site, parent, without_slashes};
use crate::host::kernel;
use rustix::fs::{AtFlags, Timespec};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

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
pub(crate) fn read_link(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<Vec<u8>> {
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
    let file = super::path::locate(site, start, path, follow)?;
    kernel::set_times(file.as_fd(), times)
}
