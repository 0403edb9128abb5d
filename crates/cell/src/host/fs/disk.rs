//! Accounts for what a tenant adds to disks, within the limits of its lease.
//!
//! Bytes are blocks, as the file system counts them before and after a call. The most that a write
//! can take is charged before the write; the rest is refunded afterwards. Removals are refunded
//! too, but never below zero: data that existed before the tenant is no credit. A file without a
//! name is refunded when the tenant has closed it everywhere. What directories take is counted where [names are made](super::naming).
//!
//! Writes of one tenant may be concurrent, but not to one file. Calls that shrink or remove files are
//! exclusive, so that they never overlap the measurement of a write, nor the making of the name that they remove.

use super::class::{Class, Site, kind_of};
use super::directories::Directories;
use super::last_close::{Grows, LastClose, pages_of};
use super::status::{Identity, identity};
use crate::disk_use::DiskUse;
use crate::host::linux;
use crate::refusals::{Refusals, Reservation};
use leasehold_crossing::{Condvar, Mutex, MutexGuard};
use leasehold_slots::address_range::PAGE;
use rustix::fs::{FileType, Statx};
use rustix::io::{Errno, Result};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// Returns the bytes charged for a symbolic link with a target of `says` bytes; a short target is kept with the
/// name. The charge is the same on every file system, even where block counts omit links because they are in
/// memory.
pub(super) fn link_bytes(says: u64) -> u64 {
    match says {
        ..60 => 0,
        _ => says.next_multiple_of(PAGE as u64),
    }
}

/// A file that the tenant has open.
#[derive(Debug, Default)]
struct Seen {
    last_close: LastClose,
    /// Whether the file has no name left.
    is_nameless: bool,
    /// Whether the tenant has shrunk the file: closing it may write it out.
    is_shrunk: bool,
}

/// The disk account of one top-level tenant.
#[derive(Debug)]
pub(crate) struct Disk {
    limit: leasehold_lease::Disk,
    refusals: Arc<Refusals>,
    used: DiskUse,
    /// Taken shared by calls that grow or open files or make names, exclusively by calls that shrink or remove them.
    order: RwLock<()>,
    /// Regular files that are open; no more than descriptors.
    open: Mutex<BTreeMap<Identity, Seen>>,
    /// A descriptor of one of them was closed.
    closed: Condvar,
    /// Threads that wait for that; changed while `open` is locked.
    waiting: AtomicU32,
    pub(super) directories: Directories,
}

/// A lock of the order in which calls change what is counted, as [`together`](Disk::together) or [`alone`](Disk::alone)
/// take it.
#[derive(Debug)]
pub(super) enum Order<'a> {
    Together(#[expect(unused)] RwLockReadGuard<'a, ()>),
    Alone(#[expect(unused)] RwLockWriteGuard<'a, ()>),
}

/// How long the removal of a name, or a write, waits for the tenant's files to be closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// The time between two looks at them, if no close is noticed: one may be over before it is waited for.
const NEXT_LOOK: Duration = Duration::from_millis(1);

fn take(counter: &AtomicU64, count: u64, limit: u64) -> Result<()> {
    let add = |taken: u64| taken.checked_add(count).filter(|taken| *taken <= limit);
    match counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
        Ok(_) => Ok(()),
        Err(_) => Err(Errno::DQUOT),
    }
}

fn give(counter: &AtomicU64, count: u64) {
    let sub = |taken: u64| Some(taken.saturating_sub(count));
    // `sub` never returns `None`, so this cannot fail.
    let _ = counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, sub);
}

impl Disk {
    /// Creates the account of a tenant that has added nothing yet.
    pub(crate) fn new(limit: leasehold_lease::Disk, refusals: Arc<Refusals>) -> Self {
        Self {
            limit,
            refusals,
            used: DiskUse::default(),
            order: RwLock::new(()),
            open: Mutex::default(),
            closed: Condvar::new(),
            waiting: AtomicU32::new(0),
            directories: Directories::default(),
        }
    }

    /// Counts on from what earlier lives of the tenant have added.
    pub(super) fn share(&mut self, used: DiskUse) {
        self.used = used;
    }

    /// Counts bytes that were added without being taken before.
    pub(super) fn add_bytes(&self, bytes: u64) {
        self.used.byte_count().fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives bytes back.
    pub(super) fn give_bytes(&self, bytes: u64) {
        give(self.used.byte_count(), bytes);
    }

    /// Takes a name, before it is made.
    ///
    /// # Errors
    /// `DQUOT` when the tenant has made as many as it may.
    pub(crate) fn take_file(&self) -> Result<()> {
        take(self.used.file_count(), 1, self.limit.files.into()).inspect_err(|_| {
            let enough = u64::from(self.limit.files) + 1;
            self.refusals.record(Reservation::DiskFiles, enough);
        })
    }

    /// Returns the bytes that were added so far.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.used.bytes()
    }

    /// Gives a name back that has gone, or was not made after all.
    pub(crate) fn give_file(&self) {
        give(self.used.file_count(), 1);
    }

    /// Gives a symbolic link back, and what it takes.
    pub(super) fn give_link(&self, bytes: u64) {
        self.give_file();
        self.give_bytes(link_bytes(bytes));
    }

    /// Takes bytes, before they are written.
    ///
    /// # Errors
    /// `DQUOT` when the tenant has added as many as it may.
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        self.try_take(bytes).inspect_err(|_| {
            let enough = self.used.bytes().saturating_add(bytes);
            self.refusals.record(Reservation::DiskBytes, enough);
        })
    }

    fn try_take(&self, bytes: u64) -> Result<()> {
        take(self.used.byte_count(), bytes, self.limit.bytes.get())
    }

    /// Takes bytes, before they are written; `None` while files are closed whose bytes may be enough: that
    /// can be [waited for](Self::take_after_closes).
    ///
    /// # Errors
    /// `DQUOT` when the tenant has added as many as it may.
    pub(super) fn take_now(&self, bytes: u64, is_closing: bool) -> Option<Result<()>> {
        match is_closing {
            true => self.try_take(bytes).ok().map(Ok),
            false => Some(self.take(bytes)),
        }
    }

    /// Takes bytes, before they are written, on a thread that may block: waits for files that are being closed.
    ///
    /// # Errors
    /// `DQUOT` when the tenant has added as many as it may.
    pub(super) fn take_after_closes(
        &self,
        bytes: u64,
        is_closing: impl Fn() -> bool,
    ) -> Result<()> {
        let began = Instant::now();
        // The question comes first: what the last close gives back must not be missed.
        while is_closing() {
            if self.try_take(bytes).is_ok() {
                return Ok(());
            }
            if !self.wait_for_close(began) {
                break;
            }
        }
        self.take(bytes)
    }

    /// Counts bytes that were written without being taken before.
    pub(super) fn took(&self, bytes: usize) {
        self.add_bytes(bytes as u64);
    }

    /// Takes the shared lock, waiting where that is allowed; `None` on the cell's thread if a file
    /// is being shrunk.
    pub(crate) fn together(&self, site: Site) -> Option<RwLockReadGuard<'_, ()>> {
        if site == Site::Blocking {
            return Some(self.order.read().unwrap_or_else(PoisonError::into_inner));
        }
        match self.order.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the exclusive lock, waiting where that is allowed; `None` on the cell's thread if
    /// another call of the tenant is in progress.
    pub(crate) fn alone(&self, site: Site) -> Option<RwLockWriteGuard<'_, ()>> {
        if site == Site::Blocking {
            return Some(self.order.write().unwrap_or_else(PoisonError::into_inner));
        }
        match self.order.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Identity, Seen>> {
        self.open.lock()
    }

    /// Counts one more descriptor of a regular file with this status; returns the file's identity.
    pub(super) fn opened(&self, class: Class, status: &Statx) -> Identity {
        let identity = identity(status);
        let mut open = self.open();
        open.entry(identity).or_default().last_close.opened(class);
        identity
    }

    /// The guest has a descriptor of it that was opened.
    pub(super) fn held(&self, identity: Identity) {
        if let Some(seen) = self.open().get_mut(&identity) {
            seen.last_close.held();
        }
    }

    /// The guest does not have that descriptor any longer: it is about to be closed.
    pub(super) fn let_go(&self, identity: Identity) {
        if let Some(seen) = self.open().get_mut(&identity) {
            seen.last_close.let_go();
        }
    }

    /// So many pages more are charged for closing it.
    pub(super) fn paid(&self, identity: Identity, pages: u32) {
        if let Some(seen) = self.open().get_mut(&identity) {
            seen.last_close.pay(pages);
        }
    }

    /// So many pages of them were given back.
    pub(super) fn paid_back(&self, identity: Identity, pages: u32) {
        if let Some(seen) = self.open().get_mut(&identity) {
            seen.last_close.pay_back(pages);
        }
    }

    /// Checks that a name of a file with this status may be removed: that closing it is paid for, if it has
    /// no name then. `None` while it may be one that is being opened or closed: that can be
    /// [waited for](Self::wait_for_close). Requires the exclusive lock.
    ///
    /// # Errors
    /// `BUSY`.
    pub(super) fn check_removal(
        &self,
        status: &Statx,
        is_closing: impl Fn() -> bool,
    ) -> Option<Result<()>> {
        if kind_of(status) != FileType::RegularFile || status.stx_nlink > 1 {
            return Some(Ok(()));
        }
        let size = status.stx_size.max(linux::on_disk(status));
        let open = self.open();
        match open.get(&identity(status)) {
            Some(seen) if seen.last_close.is_paid(size, None) => Some(Ok(())),
            Some(seen) if !seen.last_close.is_settled() || is_closing() => None,
            Some(_) => Some(Err(Errno::BUSY)),
            None => Some(Ok(())),
        }
    }

    /// Waits for the close of a descriptor, for a change that began at an instant; whether it is still in time.
    /// To be called without the exclusive lock, for which a descriptor that is being opened may wait.
    pub(super) fn wait_for_close(&self, began: Instant) -> bool {
        let open = self.open();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (open, _) = self.closed.wait_for(&self.open, open, NEXT_LOOK);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        drop(open);
        began.elapsed() <= CLOSED_WITHIN
    }

    /// Whether a file that is open has no name.
    pub(super) fn is_nameless(&self, identity: Identity) -> bool {
        let open = self.open();
        open.get(&identity).is_some_and(|seen| seen.is_nameless)
    }

    /// Checks that closing a file is paid for, if it has no name, after it has grown to so many bytes.
    ///
    /// # Errors
    /// `DQUOT`.
    pub(super) fn check_growth(&self, identity: Identity, bytes: u64, grows: Grows) -> Result<()> {
        let open = self.open();
        let nameless = open.get(&identity).filter(|seen| seen.is_nameless);
        match nameless {
            Some(seen) if !seen.last_close.is_paid(bytes, Some(grows)) => Err(Errno::DQUOT),
            Some(_) | None => Ok(()),
        }
    }

    /// A file has grown by so many pages.
    pub(super) fn grew(&self, identity: Identity, pages: u32, begins: bool) {
        if let Some(seen) = self.open().get_mut(&identity) {
            seen.last_close.grew(pages, begins);
        }
    }

    /// It is about to be closed, once, and with it go so many pages that are charged.
    pub(super) fn closing(&self, identity: Identity, file: BorrowedFd<'_>, paid: u32) {
        let mut open = self.open();
        let Some(seen) = open.get_mut(&identity) else {
            return;
        };
        let is_last = seen.last_close.closed(paid);
        let is_nameless = seen.is_nameless;
        if is_last {
            open.remove(&identity);
        }
        drop(open);
        if is_last
            && is_nameless
            && let Ok(extent) = linux::measure(file)
        {
            self.give_bytes(extent.on_disk);
        }
        // After this lock, whatever waits has seen the close or is told of it.
        let open = self.open();
        let is_awaited = self.waiting.load(Ordering::Relaxed) > 0;
        drop(open);
        if is_awaited {
            self.closed.notify_all();
        }
    }

    /// Records that a name was removed from a file with this earlier status. Requires the exclusive
    /// lock.
    pub(crate) fn removed(&self, status: &Statx) {
        let is_last = status.stx_nlink == 1;
        match kind_of(status) {
            FileType::Symlink if is_last => return self.give_link(status.stx_size),
            FileType::Directory => return self.removed_directory(status),
            _ => {}
        }
        self.give_file();
        if kind_of(status) != FileType::RegularFile || !is_last {
            return;
        }
        match self.open().get_mut(&identity(status)) {
            Some(seen) => seen.is_nameless = true,
            None => self.give_bytes(linux::on_disk(status)),
        }
    }

    /// Records that the name of a directory with this earlier status was removed. Requires the exclusive lock.
    pub(super) fn removed_directory(&self, status: &Statx) {
        self.give_file();
        let back = self
            .directories
            .removed(identity(status), linux::on_disk(status));
        self.give_bytes(back);
    }

    /// Counts one descriptor of a directory less.
    pub(super) fn closed_directory(&self, identity: Identity) {
        self.give_bytes(self.directories.closed(identity));
    }

    /// Whether the tenant has made a file smaller that it has open.
    pub(super) fn is_shrunk(&self, identity: Identity) -> bool {
        let open = self.open();
        open.get(&identity).is_none_or(|seen| seen.is_shrunk)
    }

    /// Changes the size of a file that is open; returns the pages that are owed for its last close then. Requires
    /// the exclusive lock, and the file's [turn](super::shrinks::Shrinks::turn).
    pub(super) fn resize(
        &self,
        (identity, file): (Identity, BorrowedFd<'_>),
        size: u64,
    ) -> Result<u32> {
        if i64::try_from(size).is_err() {
            return Err(Errno::INVAL);
        }
        let mut is_paid = true;
        if let Some(seen) = self.open().get_mut(&identity) {
            seen.is_shrunk = true;
            is_paid = !seen.is_nameless || seen.last_close.is_paid(size, None);
        }
        let before = linux::measure(file)?;
        if size > before.bytes && !is_paid {
            return Err(Errno::DQUOT);
        }
        linux::resize(file, size)?;
        let after = linux::measure(file)?;
        let (was, is) = (before.on_disk, after.on_disk);
        match is.checked_sub(was) {
            None | Some(0) => self.give_bytes(was - is),
            // Not every file system leaves out what was never written.
            Some(more) => self.take(more).inspect_err(|_| {
                // It was of this size a moment ago.
                let _ = linux::resize(file, before.bytes);
            })?,
        }
        let mut open = self.open();
        let Some(seen) = open.get_mut(&identity) else {
            return Ok(u32::MAX);
        };
        let has = after.bytes.max(is);
        if after.bytes < before.bytes {
            let had = pages_of(before.bytes.max(was));
            seen.last_close.shrank(had, pages_of(has).min(had));
        }
        Ok(seen.last_close.owed(has))
    }
}

#[cfg(test)]
mod tests {
    use super::{Disk, Errno};
    use leasehold_lease::ByteSize;
    use std::sync::Arc;

    #[test]
    fn what_was_there_before_is_no_credit() {
        let disk = Disk::new(
            leasehold_lease::Disk {
                bytes: ByteSize::new(100).expect("in range"),
                files: 1,
            },
            Arc::default(),
        );
        disk.give_bytes(1000);
        disk.give_file();
        assert_eq!(disk.take(101), Err(Errno::DQUOT));
        assert_eq!(disk.take(100), Ok(()));
        assert_eq!(disk.take(1), Err(Errno::DQUOT));
        assert_eq!(disk.take_file(), Ok(()));
        assert_eq!(disk.take_file(), Err(Errno::DQUOT));
        disk.give_file();
        assert_eq!(disk.take_file(), Ok(()));
    }
}
