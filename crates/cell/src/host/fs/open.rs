//! Opening files beneath a directory.

use super::account::Account;
use super::attempt::Try;
use super::descriptor::{Class, Mode, Node};
use super::path::{self, Site};
use crate::host::kernel;
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

    /// Opens the file that `path` leads to from `start`.
    pub(crate) fn attempt(
        self,
        account: &Arc<Account>,
        start: &Arc<Node>,
        path: &CStr,
    ) -> Try<Node> {
        if !account.is_backed_up() {
            match self.open_promptly(account, start, path) {
                Ok(Some(node)) => return Try::Done(Ok(node)),
                Ok(None) => {}
                Err(errno) => return Try::Done(Err(errno)),
            }
        }
        let (account, start, path) = (account.clone(), start.clone(), path.to_owned());
        Try::elsewhere(move || {
            // Files that the tenant has closed are really closed before it gets others.
            while account.is_backed_up() {
                std::thread::sleep(CLOSING);
            }
            self.open(&start, &path)
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

    /// What creates a file.
    fn creating(&self) -> OFlags {
        let mut flags = OFlags::empty();
        if self.create {
            flags |= OFlags::CREATE;
            if self.exclusive {
                flags |= OFlags::EXCL;
            }
        }
        flags
    }

    /// Opens the file where one may block.
    fn open(&self, start: &Node, path: &CStr) -> Result<Node> {
        let mut flags = self.flags() | self.creating();
        if self.truncate {
            flags |= OFlags::TRUNC;
        }
        let node = path::open(Site::Blocking, start.as_fd(), path, flags)?;
        match self.directory && !node.is_directory() {
            true => Err(Errno::NOTDIR),
            false => Ok(node),
        }
    }

    /// Opens the file on the cell's thread; `None` if it might wait.
    fn open_promptly(
        &self,
        account: &Arc<Account>,
        start: &Node,
        path: &CStr,
    ) -> Result<Option<Node>> {
        let site = match start.class {
            Class::Slow => return Ok(None),
            class => Site::Cell(class),
        };
        let mut flags = self.flags();
        match start.class {
            Class::Memory => flags |= self.creating(),
            // A file that is there has to be found only.
            _ if self.create && self.exclusive => return Ok(None),
            _ if self.truncate => return Ok(None),
            _ => {}
        }
        let node = match path::open(site, start.as_fd(), path, flags) {
            Ok(node) => node,
            Err(errno) if site.is_undecided(errno) => return Ok(None),
            // It was not asked to create.
            Err(_) if self.create && start.class != Class::Memory => return Ok(None),
            Err(errno) => return Err(errno),
        };
        // A file that is not kept may be a large one whose last name has gone meanwhile.
        let refused = if self.directory && !node.is_directory() {
            Err(Errno::NOTDIR)
        } else if self.truncate && node.kind == FileType::RegularFile {
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
}
