//! Opening files beneath a directory.

use super::attempt::Try;
use super::class::{Class, Site};
use super::descriptor::{Mode, Node};
use super::elsewhere::Elsewhere;
use super::naming::BLOCK;
use super::pace::Permit;
use super::path;
use super::table::Files;
use rustix::fs::{FileType, OFlags, Statx};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

/// The time between two checks whether files have been closed.
const CLOSING: Duration = Duration::from_micros(200);

/// A file that was opened.
struct Opened {
    node: Node,
    /// Whether the file was created.
    is_new: bool,
}

/// How a file is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Whether a link at the end of the path is followed.
    pub(crate) follow: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
    /// Whether anything but a directory is an error.
    pub(crate) directory: bool,
    /// Every write is to be on the disk when it is done.
    pub(crate) sync: bool,
    pub(crate) mode: Mode,
}

impl Request {
    /// Checks the request against the rights on its directory.
    ///
    /// # Errors
    /// `NOTSUP`, `INVAL` and `PERM`, in this order.
    pub(crate) fn check(&self, may_change: bool) -> Result<()> {
        if self.sync {
            return Err(Errno::NOTSUP);
        }
        if self.directory && (self.create || self.exclusive || self.truncate) {
            return Err(Errno::INVAL);
        }
        if self.mode.write && !may_change {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Opens the file that `path` leads to from `start`, as one of `files`.
    pub(crate) fn attempt(self, files: &Arc<Files>, start: &Arc<Node>, path: &CStr) -> Try<Node> {
        if !files.account().is_backed_up() {
            match self.open_promptly(files, start, path) {
                Ok(Some(node)) => return Try::Done(Ok(node)),
                Ok(None) => {}
                Err(errno) => return Try::Done(Err(errno)),
            }
        }
        let (files, start, path) = (files.clone(), start.clone(), path.to_owned());
        Try::elsewhere(Elsewhere::on_names(start.class), move || {
            start.check_depth(&path)?;
            // Files that the tenant has closed are really closed before it gets others.
            while files.account().is_backed_up() {
                std::thread::sleep(CLOSING);
            }
            self.open(&files, &start, &path)
        })
    }

    /// Returns the kernel's flags for the request, without those of creation.
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

    /// Opens the file, or creates it if that is requested and it does not exist. Returns `None` on
    /// the cell's thread if it has to wait.
    fn open_or_create(
        &self,
        site: Site,
        files: &Arc<Files>,
        start: &Node,
        path: &CStr,
    ) -> Result<Option<Opened>> {
        let disk = files.account().disk();
        // An opened file is recorded before another call can remove it.
        let Some(_together) = disk.together(site) else {
            return Ok(None);
        };
        let open = |flags| path::open(site, start.as_fd(), path, self.flags() | flags);
        let is_looked_up = !(self.create && self.exclusive);
        let opened = match is_looked_up {
            true => open(OFlags::empty()),
            false => Err(Errno::NOENT),
        };
        let is_missing = is_looked_up && matches!(opened, Err(Errno::NOENT));
        let (opened, is_new) = match opened {
            Err(errno) if self.create && !site.is_undecided(errno) => {
                // The kernel reports why it was not opened, or creates it.
                disk.take_file()?;
                let (created, is_new) = match site {
                    Site::Cell(Class::Cached) => {
                        let created = self.create_promptly(files, start, path, is_missing);
                        (created, true)
                    }
                    Site::Cell(_) | Site::Blocking => self.create(site, files, start, path),
                };
                if !is_new || created.is_err() {
                    disk.give_file();
                }
                (created, is_new)
            }
            opened => (opened, false),
        };
        match opened {
            Ok((node, status)) => {
                if node.class == Class::Slow {
                    files.account().expect_slow_files();
                }
                let node = node.found(site, start, path);
                let node = node.of(files, &status, (self.mode.write, self.sync));
                Ok(Some(Opened { node, is_new }))
            }
            Err(errno) if site.is_undecided(errno) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Creates the file, or opens it if that is allowed and it was created meanwhile; whether it is new.
    fn create(
        &self,
        site: Site,
        files: &Arc<Files>,
        start: &Node,
        path: &CStr,
    ) -> (Result<(Node, Statx)>, bool) {
        let account = files.account();
        let open = |flags| path::open(site, start.as_fd(), path, self.flags() | flags);
        let created = match path.to_bytes().ends_with(b"/") {
            // The kernel says why not.
            true => open(OFlags::CREATE | OFlags::EXCL),
            false => path::create(account, site, start.as_fd(), path, self.flags()),
        };
        match created {
            Err(Errno::EXIST) if !self.exclusive => match open(OFlags::empty()) {
                // What is there is a link to a name that is missing, or that cannot be created.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    let created = self.create_behind_links(site, files, start, path);
                    (created, true)
                }
                opened => (opened, false),
            },
            created => (created, true),
        }
    }

    /// Creates the file that links at the end of `path` lead to. They are followed here: the name is made in a directory that has
    /// to be known, since it may grow.
    fn create_behind_links(
        &self,
        site: Site,
        files: &Arc<Files>,
        start: &Node,
        path: &CStr,
    ) -> Result<(Node, Statx)> {
        let account = files.account();
        let links = if self.follow { path::MOST_LINKS } else { 0 };
        let mut end = path.to_owned();
        for _ in 0..links {
            end = match path::behind_link(site, start.as_fd(), &end) {
                Ok(behind) if !behind.as_bytes().ends_with(b"/") => behind,
                _ => break,
            };
            match path::create(account, site, start.as_fd(), &end, self.flags()) {
                Err(Errno::EXIST) => {}
                created => return created,
            }
        }
        // The kernel says why not. Should it make the name, it is not known in which directory.
        account.take_bytes(site, BLOCK)?;
        let opened = path::open(site, start.as_fd(), path, self.flags() | OFlags::CREATE);
        opened.inspect_err(|_| account.disk().give_bytes(BLOCK))
    }

    /// Creates the file on the cell's thread; `AGAIN` if it has to wait, or that is not known. The kernel
    /// knows the name already if it said that it `is_missing`.
    fn create_promptly(
        &self,
        files: &Arc<Files>,
        start: &Node,
        path: &CStr,
        is_missing: bool,
    ) -> Result<(Node, Statx)> {
        let class = start.class;
        let site = Site::Cell(class);
        // The kernel reports the error of a path that ends like a directory's.
        if path.to_bytes().ends_with(b"/") || !site.takes(path) {
            return Err(Errno::AGAIN);
        }
        let is_missing = is_missing
            || matches!(
                path::look(files.account(), site, start.as_fd(), path),
                Some(Ok(None))
            );
        if !is_missing {
            return Err(Errno::AGAIN);
        }
        let permit = Permit::for_change(class).ok_or(Errno::AGAIN)?;
        let account = files.account();
        let created = path::create(account, site, start.as_fd(), path, self.flags());
        permit.used();
        created.map_err(|errno| match errno {
            // The file was created meanwhile, or the path does not end with a name.
            Errno::EXIST | Errno::ISDIR => Errno::AGAIN,
            errno => errno,
        })
    }

    /// Opens the file where one may block.
    fn open(&self, files: &Arc<Files>, start: &Node, path: &CStr) -> Result<Node> {
        let opened = self.open_or_create(Site::Blocking, files, start, path)?;
        // On that thread the call never waits.
        let Opened { node, is_new } = opened.ok_or(Errno::AGAIN)?;
        if self.directory && !node.is_directory() {
            return Err(Errno::NOTDIR);
        }
        if self.truncate && !is_new && node.kind == FileType::RegularFile {
            node.resize(Site::Blocking, 0).unwrap_or(Ok(()))?;
        }
        Ok(node)
    }

    /// Opens the file on the cell's thread; `None` if it might wait.
    fn open_promptly(&self, files: &Arc<Files>, start: &Node, path: &CStr) -> Result<Option<Node>> {
        let site = match start.class {
            Class::Slow => return Ok(None),
            class => Site::Cell(class),
        };
        if !start.takes(path) {
            return Ok(None);
        }
        if start.class == Class::Layered && self.mode.write {
            // The open may copy the file from a lower layer.
            return Ok(None);
        }
        let Some(Opened { node, is_new }) = self.open_or_create(site, files, start, path)? else {
            return Ok(None);
        };
        // A file that is refused here may be large and have lost its last name meanwhile.
        let refused = if self.directory && !node.is_directory() {
            Err(Errno::NOTDIR)
        } else if self.truncate && !is_new && node.kind == FileType::RegularFile {
            match node.truncate_promptly(site) {
                Some(Ok(())) => return Ok(Some(node)),
                Some(Err(errno)) => Err(errno),
                None => Ok(None),
            }
        } else {
            return Ok(Some(node));
        };
        files.account().discard(node);
        refused
    }
}
