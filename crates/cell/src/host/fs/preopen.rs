//! The directories of a lease.

use super::class::Class;
use super::descriptor::{Mode, Node, Open};
use super::table::Table;
use crate::host::linux;
use leasehold_kernel::Errno;
use rustix::fs::FileType;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

/// A directory of the lease, opened for an execution that is being made.
pub(crate) struct Preopen {
    node: Node,
    name: Box<str>,
    may_change: bool,
}

impl Preopen {
    /// Opens a directory of the host's.
    ///
    /// # Errors
    /// When it does not exist or cannot be opened.
    pub(crate) fn open(path: &Path, name: &str, may_change: bool) -> rustix::io::Result<Self> {
        let fd = linux::open_ambient(path)?;
        let class = Class::of(fd.as_fd())?;
        Ok(Self {
            node: Node::new(fd, FileType::Directory, class),
            name: name.into(),
            may_change,
        })
    }

    /// Puts it into the table of its execution; its number there.
    ///
    /// # Errors
    /// When the lease does not allow for it.
    pub(crate) fn put_into(self, table: &mut Table) -> Result<u32, Errno> {
        let taken = table.take().map_err(|_| Errno::Limit)?;
        let open = Open {
            node: Arc::new(self.node),
            mode: Mode {
                read: true,
                write: self.may_change,
            },
            may_change: self.may_change,
            position: 0,
            append: false,
            nonblocking: false,
            preopen: Some(self.name),
        };
        Ok(table.put(taken, open))
    }
}
