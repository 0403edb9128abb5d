//! Opening files beneath a directory.

use super::attempt::Try;
use super::descriptor::{Class, Mode, Node};
use super::path::{self, Site};
use super::table::Files;
use rustix::fs::{FileType, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

/// For how long a thread waits between two looks at files that are being closed.
const CLOSING: Duration = Duration::from_micros(200);

/// How a file is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Whether a link at the end of the path is followed.
    pub(crate) follow: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
    /// Only a directory will do.
    pub(crate) directory: bool,
    /// Every write is to be on the disk when it is done.
    pub(crate) sync: bool,
    pub(crate) mode: Mode,
}

impl Request {
    /// What speaks against it in a directory that may be changed or not.
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
        Try::elsewhere(move || {
            // Files that the tenant has closed are really closed before it gets others.
            while files.account().is_backed_up() {
                std::thread::sleep(CLOSING);
            }
            self.open(&files, &start, &path)
        })
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

    /// Opens the file, and creates it if that is asked for and it is not there. `None` on the cell's
    /// thread if it has to wait.
    fn open_or_create(
        &self,
        site: Site,
        files: &Arc<Files>,
        start: &Node,
        path: &CStr,
    ) -> Result<Option<Node>> {
        let disk = files.account().disk();
        // What is opened is known before something else can remove it.
        let Some(_together) = disk.together(site) else {
            return Ok(None);
        };
        let open = |flags| path::open(site, start.as_fd(), path, self.flags() | flags);
        let opened = match (self.create, self.exclusive) {
            (true, true) => Err(Errno::NOENT),
            _ => open(OFlags::empty()),
        };
        let opened = match opened {
            Err(errno) if self.create && !site.is_undecided(errno) => {
                // The kernel says why it was not opened, or creates it.
                disk.take_file()?;
                let how = match self.exclusive {
                    true => OFlags::CREATE | OFlags::EXCL,
                    false => OFlags::CREATE,
                };
                open(how).inspect_err(|_| disk.give_file())
            }
            opened => opened,
        };
        match opened {
            Ok((node, status)) => {
                if node.class == Class::Slow {
                    files.account().expect_slow_files();
                }
                Ok(Some(node.of(files, &status)))
            }
            Err(errno) if site.is_undecided(errno) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens the file where one may block.
    fn open(&self, files: &Arc<Files>, start: &Node, path: &CStr) -> Result<Node> {
        let opened = self.open_or_create(Site::Blocking, files, start, path)?;
        // Nothing is undecided there.
        let node = opened.ok_or(Errno::AGAIN)?;
        if self.directory && !node.is_directory() {
            return Err(Errno::NOTDIR);
        }
        if self.truncate && node.kind == FileType::RegularFile {
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
        // Where something may wait for a disk, a file that is there has to be found only.
        let found = match start.class {
            Class::Memory => *self,
            _ if self.create && self.exclusive => return Ok(None),
            _ if self.truncate => return Ok(None),
            _ => Self {
                create: false,
                ..*self
            },
        };
        let node = match found.open_or_create(site, files, start, path) {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(None),
            // It was not asked to create.
            Err(_) if self.create && !found.create => return Ok(None),
            Err(errno) => return Err(errno),
        };
        // A file that is not kept may be a large one whose last name has gone meanwhile.
        let refused = if self.directory && !node.is_directory() {
            Err(Errno::NOTDIR)
        } else if self.truncate && node.kind == FileType::RegularFile {
            // What a small file frees takes no time.
            match node.is_cheap_to_close().then(|| node.resize(site, 0)) {
                Some(Some(Ok(()))) => return Ok(Some(node)),
                Some(Some(Err(errno))) => Err(errno),
                Some(None) | None => Ok(None),
            }
        } else {
            return Ok(Some(node));
        };
        files.account().discard(node);
        refused
    }
}
