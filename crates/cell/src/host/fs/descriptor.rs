//! The open files of a guest.

use super::attempt::Try;
use super::class::{Class, SMALL, Site};
use super::depth::Depth;
use super::elsewhere::Elsewhere;
use super::file::File;
use super::last_close::{EXTENT_PAGES, Grows};
use super::pace::Permit;
use super::pages::Lent;
use super::read_ahead::{AHEAD, ReadAhead};
use super::shrinks::{Shrinks, State, Window};
use super::status::{Identity, identity, status_of};
use super::table::Files;
use crate::host::linux;
use leasehold_crossing::{Mutex, MutexGuard};
use leasehold_slots::address_range::PAGE;
use rustix::fs::{Advice, FileType, Statx, Timespec};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An open file of the host's. Its last reference is never dropped on the cell's thread, unless the file
/// is [small](Node::is_cheap_to_close).
///
/// Descriptors, streams and listings hold it, and are counted: when the last of them is closed, the
/// tenant has one open file less. A job that works on it is not counted.
#[derive(Debug)]
pub(crate) struct Node {
    fd: File,
    holders: AtomicU32,
    /// The tenant that pays for the file, if its disk use is counted.
    payer: Option<DiskPayer>,
    /// The tenant that pays for it, if it is a directory.
    directory: Option<DirectoryPayer>,
    /// Blocks that it is known to have.
    window: Mutex<Option<Window>>,
    /// Pages that it has grown by.
    grown: Mutex<Option<Lent>>,
    /// Where its last growth ended, if that was not written out since.
    grown_to: Mutex<Option<u64>>,
    /// Whether it was opened to be changed: the kernel refuses to otherwise.
    is_writable: bool,
    /// Whether every write is written out.
    is_synchronous: bool,
    ahead: ReadAhead,
    depth: Depth,
    pub(crate) kind: FileType,
    pub(crate) class: Class,
}

/// The tenant that pays for what a file takes on the disk.
#[derive(Debug)]
struct DiskPayer {
    files: Arc<Files>,
    /// The identity of the file.
    identity: Identity,
    shrinks: Shrinks,
}

/// The tenant that pays for what a directory takes on the disk.
#[derive(Debug)]
struct DirectoryPayer {
    files: Arc<Files>,
    identity: Identity,
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(DirectoryPayer { files, identity }) = self.directory.take() {
            files.account().disk().closed_directory(identity);
        }
        if let Some(DiskPayer {
            files, identity, ..
        }) = self.payer.take()
        {
            let paid = self.grown().as_ref().map_or(0, Lent::count);
            let disk = files.account().disk();
            if self.holders.load(Ordering::Acquire) > 0 {
                // The table that holds the node is dropped as a whole.
                disk.let_go(identity);
            }
            if disk.is_shrunk(identity) {
                self.fd.expect_write_back();
            }
            disk.closing(identity, self.fd.as_fd(), paid);
        }
    }
}

impl Node {
    /// Creates the node of an opened file, without a holder.
    pub(crate) fn new(fd: OwnedFd, kind: FileType, class: Class) -> Self {
        Self {
            fd: File::new(fd),
            holders: AtomicU32::new(0),
            payer: None,
            directory: None,
            window: Mutex::new(None),
            grown: Mutex::new(None),
            grown_to: Mutex::new(None),
            is_writable: false,
            is_synchronous: false,
            ahead: ReadAhead::default(),
            depth: Depth::of_start(),
            kind,
            class,
        }
    }

    /// Returns the node as one that was found from `start`, by a path that leads through no link if that was on the
    /// cell's thread.
    pub(super) fn found(mut self, site: Site, start: &Node, path: &CStr) -> Self {
        self.depth = match site {
            Site::Cell(_) => start.depth.below(path),
            Site::Blocking => Depth::unknown(),
        };
        self
    }

    /// Whether the cell's thread may follow this path from here.
    pub(super) fn takes(&self, path: &CStr) -> bool {
        self.depth.takes(self.as_fd(), path)
    }

    /// Checks that a path from here is followed at all, on a thread that may block.
    ///
    /// # Errors
    /// `NAMETOOLONG` if it leads too far down.
    pub(super) fn check_depth(&self, path: &CStr) -> Result<()> {
        self.depth.check(self.as_fd(), path)
    }

    /// Returns the node with its payer: the growth of the file is counted.
    pub(super) fn of(
        mut self,
        files: &Arc<Files>,
        status: &Statx,
        (is_writable, is_synchronous): (bool, bool),
    ) -> Self {
        self.is_writable = is_writable;
        self.is_synchronous = is_synchronous;
        match self.kind {
            FileType::RegularFile => {
                let identity = files.account().disk().opened(self.class, status);
                self.payer = Some(DiskPayer {
                    files: files.clone(),
                    identity,
                    shrinks: Shrinks::of(identity),
                });
            }
            FileType::Directory => {
                let (files, identity) = (files.clone(), identity(status));
                files.account().disk().directories.opened(identity);
                self.directory = Some(DirectoryPayer { files, identity });
            }
            _ => {}
        }
        self
    }

    /// Whether what it takes of a disk is counted.
    pub(super) fn is_paid_for(&self) -> bool {
        self.payer.is_some()
    }

    /// Returns the payer of what a change of the file takes; `None` if nothing is counted, or it was not opened to be
    /// changed.
    fn paying(&self) -> Option<&DiskPayer> {
        self.payer.as_ref().filter(|_| self.is_writable)
    }

    /// Returns the files of the execution, if what a change of this file takes of a disk is counted.
    pub(super) fn files(&self) -> Option<&Arc<Files>> {
        self.paying().map(|payer| &payer.files)
    }

    fn window(&self) -> MutexGuard<'_, Option<Window>> {
        self.window.lock()
    }

    /// Returns the truncations of the file, if what it takes of a disk is counted.
    pub(super) fn shrinks(&self) -> Option<&Shrinks> {
        self.payer.as_ref().map(|payer| &payer.shrinks)
    }

    /// Registers work of another thread on the file.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        let count = self.payer.as_ref().map(|payer| payer.shrinks.elsewhere());
        Elsewhere::on(self.class, count.cloned())
    }

    /// Whether another thread works on the file.
    pub(super) fn is_worked_on(&self) -> bool {
        let payer = self.payer.as_ref();
        payer.is_some_and(|payer| payer.shrinks.elsewhere().load(Ordering::Acquire) > 0)
    }

    /// Returns the state in which a write finds the file, if the file has a payer and is not being made
    /// smaller.
    pub(super) fn state(&self) -> Option<State> {
        self.payer.as_ref()?.shrinks.state()
    }

    /// Remembers the blocks of a write to `at` that was measured, before which the file was in this state.
    pub(super) fn wrote(&self, state: Option<State>, at: Option<u64>, bytes: usize) {
        if let (Some(state), Some(at)) = (state, at) {
            *self.window() = Window::new(state, at, bytes);
        }
    }

    /// Makes a write to `at` without measuring it, on the cell's thread; `None` if it has to be measured.
    pub(super) fn write_again<T>(
        &self,
        at: Option<u64>,
        bytes: usize,
        write: impl FnOnce() -> T,
    ) -> Option<T> {
        let payer = self.payer.as_ref()?;
        let window = *self.window();
        let state = window?.covers(at?, bytes)?;
        if !payer.shrinks.is_still(state) {
            return None;
        }
        let disk = payer.files.account().disk();
        let _together = disk.together(Site::Cell(self.class))?;
        let written = write();
        if !payer.shrinks.is_still(state) {
            // Another tenant has made the file smaller: the amount that this write took is not known.
            disk.took((bytes.div_ceil(PAGE) + 1) * PAGE);
        }
        Some(written)
    }

    fn grown(&self) -> MutexGuard<'_, Option<Lent>> {
        self.grown.lock()
    }

    /// Takes over `count` of these pages, or all of them, until the file is closed, which may free as many.
    pub(super) fn pay(&self, lent: &mut Lent, count: u32) {
        let moved = lent.move_to(&mut self.grown(), count);
        if let Some(payer) = &self.payer {
            payer.files.account().disk().paid(payer.identity, moved);
        }
    }

    /// Returns the pages that a write is charged for beyond those that it may take: an extent of a file without
    /// a name is paid when it is made.
    pub(super) fn extent_pages(&self) -> u32 {
        let is_nameless =
            |payer: &DiskPayer| payer.files.account().disk().is_nameless(payer.identity);
        match self.payer.as_ref().is_some_and(is_nameless) {
            true => EXTENT_PAGES,
            false => 0,
        }
    }

    /// Whether growth that begins at this offset may begin an extent.
    pub(super) fn begins_extent(&self, at: u64) -> bool {
        *self.grown_to() != Some(at)
    }

    /// Checks that closing it is still paid for, if it has no name, when it has grown to so many bytes.
    ///
    /// # Errors
    /// `DQUOT`.
    pub(super) fn check_growth(&self, bytes: u64, grows: Grows) -> Result<()> {
        match &self.payer {
            Some(payer) => {
                let disk = payer.files.account().disk();
                disk.check_growth(payer.identity, bytes, grows)
            }
            None => Ok(()),
        }
    }

    /// Records a growth by so many pages, up to an offset if that is known.
    pub(super) fn grew(&self, pages: u32, to: Option<u64>, begins: bool) {
        if let Some(payer) = &self.payer {
            let disk = payer.files.account().disk();
            disk.grew(payer.identity, pages, begins);
        }
        *self.grown_to() = to.filter(|_| !self.is_synchronous);
    }

    /// Records that the last growth was filled up to an offset.
    pub(super) fn goes_on(&self, to: u64) {
        *self.grown_to() = Some(to);
    }

    fn grown_to(&self) -> MutexGuard<'_, Option<u64>> {
        self.grown_to.lock()
    }

    /// Counts one more holder.
    pub(crate) fn hold(&self) {
        let is_first = self.holders.fetch_add(1, Ordering::AcqRel) == 0;
        if is_first && let Some(payer) = &self.payer {
            payer.files.account().disk().held(payer.identity);
        }
    }

    /// Counts one holder less; returns true if none is left.
    pub(crate) fn let_go(&self) -> bool {
        let is_last = self.holders.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && let Some(payer) = &self.payer {
            payer.files.account().disk().let_go(payer.identity);
        }
        is_last
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether reading and writing it can be tried without waiting.
    pub(crate) fn is_prompt(&self) -> bool {
        self.kind == FileType::RegularFile && self.class != Class::Slow
    }

    /// Whether a read on the cell's thread reads what it asks for and no more. A system call the first time.
    pub(super) fn reads_alone(&self) -> bool {
        self.ahead.take_over(self.as_fd())
    }

    /// Starts read-ahead after a read of `bytes` at `offset`, on a thread that may wait.
    pub(super) fn read_on(&self, offset: u64, bytes: usize) {
        if self.is_prompt() {
            self.ahead.go_on(self.as_fd(), offset, bytes as u64);
        }
    }

    /// Whether it can be closed on the cell's thread.
    pub(crate) fn is_cheap_to_close(&self) -> bool {
        self.class != Class::Slow
            && (self.kind == FileType::Directory
                || self.kind == FileType::RegularFile
                    && linux::measure(self.as_fd()).is_ok_and(|extent| extent.bytes <= SMALL))
    }

    /// Returns a permit to close it on the cell's thread, if closing it writes nothing out. A file
    /// system writes out what was written after the file was made smaller, so that a crash leaves
    /// the old or the new.
    pub(super) fn close_permit(&self, was_written: bool) -> Option<Permit> {
        if !was_written || self.is_directory() {
            return self.is_cheap_to_close().then_some(Permit::FREE);
        }
        let is_shrunk = || match &self.payer {
            Some(payer) => payer.files.account().disk().is_shrunk(payer.identity),
            None => true,
        };
        match self.class {
            Class::Memory => self.is_cheap_to_close().then_some(Permit::FREE),
            _ if is_shrunk() || !self.is_cheap_to_close() => None,
            _ => Permit::for_close(self),
        }
    }

    /// Returns the file's status.
    pub(crate) fn status(self: &Arc<Self>) -> Try<Statx> {
        if self.class != Class::Slow {
            return Try::Done(status_of(self.as_fd()));
        }
        let node = self.clone();
        Try::elsewhere(self.elsewhere(), move || status_of(node.as_fd()))
    }

    /// Changes the times of the last access and the last change.
    pub(crate) fn set_times(self: &Arc<Self>, times: [Timespec; 2]) -> Try<()> {
        if let Some(permit) = Permit::for_change(self.class) {
            let result = linux::set_times(self.as_fd(), times);
            permit.used();
            return Try::Done(result);
        }
        let node = self.clone();
        Try::elsewhere(self.elsewhere(), move || {
            linux::set_times(node.as_fd(), times)
        })
    }

    /// Changes the size, which may free any number of pages.
    pub(crate) fn set_size(self: &Arc<Self>, size: u64) -> Try<()> {
        let node = self.clone();
        Try::elsewhere(self.elsewhere(), move || {
            node.resize(Site::Blocking, size).unwrap_or(Ok(()))
        })
    }

    /// Makes a small file empty on the cell's thread; `None` if that might wait, or the file is large.
    pub(super) fn truncate_promptly(&self, site: Site) -> Option<Result<()>> {
        if !self.is_cheap_to_close() {
            return None;
        }
        let permit = Permit::for_change(self.class)?;
        let truncated = self.resize(site, 0);
        permit.used();
        truncated
    }

    /// Changes the size; returns `None` on the cell's thread if that has to wait.
    pub(super) fn resize(&self, site: Site, size: u64) -> Option<Result<()>> {
        let Some(payer) = self.paying() else {
            return Some(linux::resize(self.as_fd(), size));
        };
        let disk = payer.files.account().disk();
        let _alone = disk.alone(site)?;
        let _turn = payer.shrinks.turn(site)?;
        let resize = || disk.resize((payer.identity, self.as_fd()), size);
        let resized = payer.shrinks.shrink(resize);
        Some(resized.map(|owed| self.pay_back(payer, owed)))
    }

    /// Gives pages back that are charged for closing the file beyond those that are `owed` for that.
    fn pay_back(&self, payer: &DiskPayer, owed: u32) {
        let mut grown = self.grown();
        let paid = grown.as_ref().map_or(0, Lent::count);
        let mut back = None;
        if let Some(grown) = &mut *grown {
            grown.move_to(&mut back, paid.saturating_sub(owed));
        }
        let back = back.as_ref().map_or(0, Lent::count);
        payer.files.account().disk().paid_back(payer.identity, back);
    }

    /// Waits until the file is on the disk.
    pub(crate) fn sync(self: &Arc<Self>, only_data: bool) -> Try<()> {
        *self.grown_to() = None;
        let node = self.clone();
        Try::elsewhere(self.elsewhere(), move || match node.is_directory() {
            // The descriptor may be open for finding files only.
            true => linux::sync(linux::open_again(node.as_fd())?.as_fd(), only_data),
            false => linux::sync(node.as_fd(), only_data),
        })
    }

    /// Announces how a part of the file will be used, which may read that part or drop it from memory.
    pub(crate) fn advise(self: &Arc<Self>, offset: u64, length: u64, advice: Advice) -> Try<()> {
        // Neither is in a file. (The kernel ignores such an offset.)
        if i64::try_from(offset).is_err() || i64::try_from(length).is_err() {
            return Try::Done(Err(Errno::INVAL));
        }
        let is_about_pages = matches!(advice, Advice::WillNeed | Advice::DontNeed);
        if self.is_prompt() && !is_about_pages {
            // The kernel would read ahead on the cell's thread.
            return Try::Done(Ok(()));
        }
        let length = match advice {
            // The kernel reads all of it in one call, as fast as it gets pages.
            Advice::WillNeed => {
                NonZeroU64::new(length).map_or(AHEAD, |length| length.get().min(AHEAD))
            }
            _ => length,
        };
        let node = self.clone();
        Try::elsewhere(self.elsewhere(), move || {
            linux::advise(node.as_fd(), offset, length, advice)
        })
    }
}

/// How a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A file or a directory that a guest has open.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) node: Arc<Node>,
    pub(crate) mode: Mode,
    /// Whether the lease allows changes in the directory that it was found in.
    pub(crate) may_change: bool,
    /// Where the next bytes are read or written.
    pub(crate) position: u64,
    pub(crate) append: bool,
    pub(crate) nonblocking: bool,
    /// The name under which the lease gives it to the guest, if it does.
    pub(crate) preopen: Option<Box<str>>,
}

impl Open {
    /// Returns the same file once more, for another holder in the same table
    /// ([`Table::put_again`](super::table::Table::put_again)).
    pub(crate) fn again(&self) -> Self {
        Self {
            node: self.node.clone(),
            preopen: None,
            ..*self
        }
    }
}

/// The object of a guest's descriptor number.
#[derive(Debug)]
pub(crate) enum Descriptor {
    Stdin,
    Stdout,
    Stderr,
    Open(Open),
}
