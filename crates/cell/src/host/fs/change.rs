//! Operations that change a directory.

use super::account::Account;
use super::attempt::Try;
use super::class::{Class, Site, is_cheap_to_close, kind_of};
use super::depth::Move;
use super::descriptor::Node;
use super::disk::Order;
use super::elsewhere::Elsewhere;
use super::file::File;
use super::naming::{self, BLOCK};
use super::pace::Permit;
use super::path::{self, Parent, parent, without_slashes};
use super::status::is_same;
use crate::host::linux;
use crate::steps::caps::LINK;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, Timespec};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// The effect of a change on the names of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Adds the name of a new directory.
    AddsDirectory,
    /// Adds a symbolic link with a target of so many bytes.
    AddsLink(usize),
    /// Removes the name of an empty directory.
    RemovesDirectory,
    /// May remove the last name of a file, and so the file: the freed memory is bounded by its size
    /// only.
    Removes,
    /// Neither adds nor removes a name.
    Keeps,
}

/// The place of a changed name, and the tenant that makes the change.
pub(crate) struct ChangedName<'a> {
    account: &'a Arc<Account>,
    site: Site,
    start: BorrowedFd<'a>,
    path: &'a CStr,
}

impl ChangedName<'_> {
    /// Returns the file of the name before the change, if it affects the account or the duration of
    /// the change. `None` if the change must be made on another thread.
    fn look(&self, effect: Effect) -> Option<Option<Statx>> {
        let look = || match path::look(self.account, self.site, self.start, self.path)? {
            Ok(found) => Some(found),
            // The change reports the same error.
            Err(_) => Some(None),
        };
        match (self.site, effect) {
            (Site::Blocking, Effect::Removes | Effect::RemovesDirectory) => look(),
            (Site::Blocking, _) => Some(None),
            (Site::Cell(Class::Memory), Effect::Removes) => look(),
            (Site::Cell(Class::Memory), _) => Some(None),
            // If `look` finds the names, the change needs no answer of the disk for them.
            (Site::Cell(Class::Cached), _) => {
                let found = look()?;
                match effect {
                    // A directory is removed here only if `hold` holds it.
                    Effect::RemovesDirectory => found.is_none().then_some(found),
                    Effect::Removes => found
                        .as_ref()
                        .is_none_or(is_cheap_to_close)
                        .then_some(found),
                    Effect::AddsDirectory | Effect::AddsLink(_) | Effect::Keeps => Some(found),
                }
            }
            (Site::Cell(Class::Layered | Class::Slow), _) => None,
        }
    }

    /// Opens the directory that is to be removed on the cell's thread; `None` if it must be removed on
    /// another.
    ///
    /// It is held until its name has gone, so that the thread that closes it frees its blocks: a file
    /// system that discards what is freed waits for its disk each time.
    fn hold(&self, effect: Effect) -> Option<Option<(Statx, File)>> {
        if (self.site, effect) != (Site::Cell(Class::Cached), Effect::RemovesDirectory) {
            return Some(None);
        }
        if self.account.is_backed_up() {
            return None;
        }
        match path::hold(self.account, self.site, self.start, self.path)? {
            Ok(Some((status, directory))) => {
                let is_young = self.account.young().contains(&status);
                is_young.then(|| Some((status, File::new(directory))))
            }
            // The change reports the same error.
            Ok(None) | Err(_) => Some(None),
        }
    }

    /// Checks that the name of a file may be removed; `None` if that has to wait for a close.
    fn check_removal(&self, file: Option<&Statx>) -> Option<Result<()>> {
        let Some(status) = file else {
            return Some(Ok(()));
        };
        let is_closing = || !self.account.is_closed();
        self.account.disk().check_removal(status, is_closing)
    }

    /// Remembers the directory that was made after so many look-ups, if it can be removed here soon. Its
    /// name is still its own: no other thread makes a change while a permit is used.
    fn remember(&self, look_ups: u64) {
        if self.site == Site::Cell(Class::Cached)
            && let Ok(made) = path::status_of_name(self.site, self.start, self.path)
        {
            self.account.young().remember(&made, look_ups);
        }
    }

    /// Looks a name up that was just removed, so that the kernel caches that it is missing: a held directory
    /// takes the cached name along. The blocks of the parent that are read are those that the removal has read.
    fn keep_missing(&self) {
        let _missing = path::status_of_name(self.site, self.start, self.path);
    }

    /// Does `work` with the path, and accounts for added and removed names and files. Returns
    /// `None` on the cell's thread if it has to wait, and on another if it has to wait for a close.
    fn make(
        &self,
        effect: Effect,
        work: &impl Fn(&ChangedName<'_>) -> Result<()>,
    ) -> Option<Result<()>> {
        if !self.site.takes(self.path) {
            return None;
        }
        let disk = self.account.disk();
        // A name is of the same file as when it was looked at, or missing still: what a removal gives back is what
        // it looked at.
        let _order = match effect {
            Effect::Removes | Effect::RemovesDirectory => {
                Some(Order::Alone(disk.alone(self.site)?))
            }
            Effect::AddsDirectory | Effect::AddsLink(_) => {
                Some(Order::Together(disk.together(self.site)?))
            }
            Effect::Keeps => None,
        };
        let held = self.hold(effect)?;
        let before = match held {
            Some((status, _)) => Some(status),
            None => self.look(effect)?,
        };
        let checked = match effect {
            Effect::Removes => self.check_removal(before.as_ref())?,
            Effect::AddsDirectory
            | Effect::AddsLink(_)
            | Effect::RemovesDirectory
            | Effect::Keeps => Ok(()),
        };
        let permit = match self.site {
            Site::Cell(class) => Permit::for_change(class)?,
            Site::Blocking => Permit::FREE,
        };
        let look_ups = linux::look_ups();
        let work = || work(self);
        let result = match effect {
            Effect::Keeps => work(),
            Effect::AddsDirectory => disk
                .take_file()
                .and_then(|()| work().inspect_err(|_| disk.give_file()))
                .inspect(|()| self.remember(look_ups)),
            Effect::AddsLink(bytes) => self
                .account
                .take_link(self.site, bytes as u64)
                .and_then(|()| work().inspect_err(|_| disk.give_link(bytes as u64))),
            Effect::RemovesDirectory => work().inspect(|()| match &before {
                Some(status) => disk.removed_directory(status),
                None => disk.give_file(),
            }),
            Effect::Removes => checked.and_then(|()| work()).inspect(|()| {
                if let Some(status) = &before {
                    disk.removed(status);
                }
            }),
        };
        let removed = held.filter(|_| result.is_ok());
        if removed.is_some() {
            self.keep_missing();
        }
        permit.used();
        if let Some((_, directory)) = removed {
            self.account.close(1, directory);
        }
        match result {
            Err(errno) if self.site.is_undecided(errno) => None,
            result => Some(result),
        }
    }
}

/// Makes a change on a thread that may block, which waits for a file that is being closed only.
///
/// # Errors
/// `BUSY` if that takes too long, besides those of the change.
fn finish(account: &Account, make: impl Fn() -> Option<Result<()>>) -> Result<()> {
    let began = Instant::now();
    loop {
        if let Some(result) = make() {
            return result;
        }
        if !account.disk().wait_for_close(began) {
            return Err(Errno::BUSY);
        }
    }
}

/// Does `work` with a path that begins at `start`.
pub(crate) fn attempt(
    account: &Arc<Account>,
    start: &Arc<Node>,
    path: &CStr,
    effect: Effect,
    work: impl Fn(&ChangedName<'_>) -> Result<()> + Send + 'static,
) -> Try<()> {
    let here = ChangedName {
        account,
        site: Site::Cell(start.class),
        start: start.as_fd(),
        path,
    };
    if start.takes(path)
        && let Some(result) = here.make(effect, &work)
    {
        return Try::Done(result);
    }
    let (account, start, path) = (account.clone(), start.clone(), path.to_owned());
    Try::elsewhere(Elsewhere::on_names(start.class), move || {
        start.check_depth(&path)?;
        let there = ChangedName {
            account: &account,
            site: Site::Blocking,
            start: start.as_fd(),
            path: &path,
        };
        finish(&account, || there.make(effect, &work))
    })
}

/// A change with two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairChange {
    /// Gives a file the second name in addition.
    Link,
    /// Gives a file the second name instead, and takes it from any other file.
    Rename,
}

/// Two paths, each beneath a directory.
struct Pair<'a> {
    account: &'a Arc<Account>,
    site: Site,
    from: BorrowedFd<'a>,
    old: &'a CStr,
    to: BorrowedFd<'a>,
    new: &'a CStr,
}

impl Pair<'_> {
    fn at_old(&self) -> Option<Result<Option<Statx>>> {
        path::look(self.account, self.site, self.from, self.old)
    }

    fn at_new(&self) -> Option<Result<Option<Statx>>> {
        path::look(self.account, self.site, self.to, self.new)
    }

    /// Returns the file that has the second name before the change, if it matters. `None` if the
    /// change must be made on another thread.
    fn look(&self, change: PairChange) -> Option<Option<Statx>> {
        let replaced = match (self.site, change) {
            (Site::Cell(Class::Layered | Class::Slow), _) => return None,
            (Site::Blocking | Site::Cell(Class::Memory), PairChange::Link) => return Some(None),
            _ => self.at_new()?.unwrap_or(None),
        };
        if self.site == Site::Cell(Class::Cached) {
            // A file system may write the first file out when it replaces another.
            let is_plain = replaced.is_none() && matches!(self.at_old()?, Ok(Some(_)));
            return is_plain.then_some(None);
        }
        Some(replaced)
    }

    /// Checks that the file that has the second name may lose it, unless it keeps it as the first one.
    /// `None` if that has to wait for a close.
    fn check_replaced(&self, replaced: Option<&Statx>) -> Option<Result<()>> {
        let Some(replaced) = replaced else {
            return Some(Ok(()));
        };
        let is_closing = || !self.account.is_closed();
        let disk = self.account.disk();
        match disk.check_removal(replaced, is_closing) {
            Some(Ok(())) => Some(Ok(())),
            checked => match self.at_old()? {
                Ok(Some(old)) if is_same(&old, replaced) => Some(Ok(())),
                // A directory replaces no file: the kernel says why.
                Ok(Some(old)) if kind_of(&old) == FileType::Directory => Some(Ok(())),
                Ok(Some(_)) => checked,
                Ok(None) => Some(Err(Errno::NOENT)),
                Err(errno) => Some(Err(errno)),
            },
        }
    }

    /// Makes a change with two paths, and accounts for names. Returns `None` on the cell's thread
    /// if it has to wait, and on another if it has to wait for a close.
    fn make(&self, change: PairChange) -> Option<Result<()>> {
        if !self.site.takes(self.old) || !self.site.takes(self.new) {
            return None;
        }
        let disk = self.account.disk();
        let _alone = disk.alone(self.site)?;
        let replaced = self.look(change)?;
        let checked = match change {
            PairChange::Link => Ok(()),
            PairChange::Rename => self.check_replaced(replaced.as_ref())?,
        };
        let permit = match self.site {
            Site::Cell(class) => Permit::for_change(class)?,
            Site::Blocking => Permit::FREE,
        };
        let result = match change {
            PairChange::Link => disk
                .take_file()
                .and_then(|()| link(self).inspect_err(|_| disk.give_file())),
            PairChange::Rename => checked.and_then(|()| rename(self)).inspect(|()| {
                // A rename between two names of one file keeps both.
                if let Some(status) = replaced
                    && let Some(Ok(None) | Err(_)) = self.at_old()
                {
                    disk.removed(&status);
                }
            }),
        };
        permit.used();
        match result {
            Err(errno) if self.site.is_undecided(errno) => None,
            result => Some(result),
        }
    }
}

/// Makes a change with two paths that begin at these directories.
pub(crate) fn attempt_pair(
    account: &Arc<Account>,
    (from, old): (&Arc<Node>, &CStr),
    (to, new): (&Arc<Node>, &CStr),
    change: PairChange,
) -> Try<()> {
    if from.class == to.class {
        let here = Pair {
            account,
            site: Site::Cell(from.class),
            from: from.as_fd(),
            old,
            to: to.as_fd(),
            new,
        };
        if from.takes(old)
            && to.takes(new)
            && let Some(result) = here.make(change)
        {
            return Try::Done(result);
        }
    }
    let (account, from, to) = (account.clone(), from.clone(), to.clone());
    let (old, new) = (old.to_owned(), new.to_owned());
    Try::elsewhere(Elsewhere::on_names(from.class), move || {
        from.check_depth(&old).and_then(|()| to.check_depth(&new))?;
        let there = Pair {
            account: &account,
            site: Site::Blocking,
            from: from.as_fd(),
            old: &old,
            to: to.as_fd(),
            new: &new,
        };
        // Between two file systems the kernel reports the error that otherwise means an escape.
        finish(&account, || there.make(change))
    })
}

/// Bytes of a symbolic link that a file system keeps with the file itself.
const SHORT_LINK: u64 = 59;

/// Returns the target of the symbolic link at `path`, if it is cached.
fn read_link_promptly(
    account: &Arc<Account>,
    start: &Arc<Node>,
    path: &CStr,
) -> Option<Result<Vec<u8>>> {
    let site = Site::Cell(start.class);
    if !site.takes(path) || !start.takes(path) {
        return None;
    }
    match start.class {
        Class::Memory => {}
        Class::Cached => {
            let found = path::look(account, site, start.as_fd(), path)?;
            let is_short = |status: &Statx| status.stx_size <= SHORT_LINK;
            if !found.ok()?.is_none_or(|status| is_short(&status)) {
                return None;
            }
        }
        Class::Layered | Class::Slow => return None,
    }
    let permit = Permit::for_change(start.class)?;
    let result = read_link(site, start.as_fd(), path);
    permit.used();
    match result {
        Err(errno) if site.is_undecided(errno) => None,
        result => Some(result),
    }
}

/// Returns the target of the symbolic link at `path`.
pub(crate) fn attempt_read_link(
    account: &Arc<Account>,
    start: &Arc<Node>,
    path: &CStr,
) -> Try<Vec<u8>> {
    if let Some(result) = read_link_promptly(account, start, path) {
        return Try::Done(result);
    }
    let (start, path) = (start.clone(), path.to_owned());
    Try::elsewhere(Elsewhere::on_names(start.class), move || {
        start.check_depth(&path)?;
        read_link(Site::Blocking, start.as_fd(), &path)
    })
}

impl ChangedName<'_> {
    /// Finds the directory of the last name of a path that begins here, and that name.
    fn parent(&self, path: &CStr) -> Result<(Parent<'_>, CString)> {
        parent(self.site, self.start, path)
    }
}

/// Creates a directory.
pub(crate) fn create_directory(place: &ChangedName<'_>) -> Result<()> {
    let (directory, name) = place.parent(&without_slashes(place.path))?;
    let within = (place.site, directory.as_fd());
    naming::name(place.account, within, BLOCK, || {
        linux::make_directory(&directory, &name)?;
        let made = linux::status_at(directory.as_fd(), &name, StatxFlags::BLOCKS);
        Ok(((), made.map_or(BLOCK, |made| linux::on_disk(&made))))
    })
}

/// Removes an empty directory.
pub(crate) fn remove_directory(place: &ChangedName<'_>) -> Result<()> {
    let (directory, name) = place.parent(place.path)?;
    linux::unlink(directory, &name, AtFlags::REMOVEDIR)
}

/// Makes a symbolic link with this `target`.
pub(crate) fn symlink(place: &ChangedName<'_>, target: &CStr) -> Result<()> {
    if target.to_bytes().starts_with(b"/") {
        return Err(Errno::PERM);
    }
    if target.count_bytes() > LINK.size() {
        return Err(Errno::NAMETOOLONG);
    }
    let (directory, name) = place.parent(place.path)?;
    let within = (place.site, directory.as_fd());
    // What the link says is charged by its length.
    naming::name(place.account, within, 0, || {
        linux::symlink(target, &directory, &name).map(|()| ((), 0))
    })
}

/// Returns the target of the symbolic link `path`.
fn read_link(site: Site, start: BorrowedFd<'_>, path: &CStr) -> Result<Vec<u8>> {
    let (directory, name) = parent(site, start, path)?;
    let target = linux::read_link(directory, &name)?;
    if target.starts_with(b"/") {
        return Err(Errno::PERM);
    }
    if std::str::from_utf8(&target).is_err() {
        return Err(Errno::ILSEQ);
    }
    Ok(target)
}

/// Gives a file a second name.
fn link(pair: &Pair<'_>) -> Result<()> {
    let (from, old) = parent(pair.site, pair.from, pair.old)?;
    let (to, new) = parent(pair.site, pair.to, pair.new)?;
    let within = (pair.site, to.as_fd());
    naming::name(pair.account, within, 0, || {
        linux::link(from, &old, &to, &new).map(|()| ((), 0))
    })
}

/// Gives a file another name, instead of whatever has it.
fn rename(pair: &Pair<'_>) -> Result<()> {
    let ends = |path: &CStr| path.to_bytes().ends_with(b"/");
    let is_directory = ends(pair.old) || ends(pair.new);
    let (old, new) = (without_slashes(pair.old), without_slashes(pair.new));
    let (from, old) = parent(pair.site, pair.from, &old)?;
    let (to, new) = parent(pair.site, pair.to, &new)?;
    let old = match is_directory {
        true => CString::new([old.as_bytes(), b"/"].concat()).map_err(|_| Errno::INVAL)?,
        false => old,
    };
    let within = (pair.site, to.as_fd());
    // A directory stays as deep as it is, and all below it, only if both names are in the same one.
    let stays = matches!((&from, &to), (Parent::Start(from), Parent::Start(to)) if from.as_raw_fd() == to.as_raw_fd());
    let _move = (!stays).then(Move::begin);
    naming::name(pair.account, within, 0, || {
        linux::rename(from, &old, &to, &new).map(|()| ((), 0))
    })
}

/// Removes the name of a file.
pub(crate) fn unlink(place: &ChangedName<'_>) -> Result<()> {
    let (directory, name) = place.parent(place.path)?;
    linux::unlink(directory, &name, AtFlags::empty())
}

/// Changes the times of what the path leads to.
pub(crate) fn set_times(place: &ChangedName<'_>, follow: bool, times: [Timespec; 2]) -> Result<()> {
    let file = path::locate(place.site, place.start, place.path, follow)?;
    linux::set_times(file.as_fd(), times)
}
