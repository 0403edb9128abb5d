//! The account of a top-level tenant and its descendants: their descriptors, and the work of other
//! threads for them.

use super::class::{Class, Site};
use super::disk::{Disk, link_bytes};
use super::limit::{CLOSING, Promise};
use super::young::YoungDirectories;
use crate::disk_use::DiskUse;
use crate::host::io::{Io, Turns, pool};
use crate::refusals::{Refusals, Reservation};
use leasehold_crossing::OutputTime;
use leasehold_lease::Lease;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use wasmtime_wasi::p1::types::Errno;

/// The files of one top-level tenant. Its executions and the threads that work for it share it.
#[derive(Debug)]
pub(crate) struct Account {
    number: u64,
    /// The most descriptors at a time.
    limit: u32,
    /// Descriptors in its tables, or taken for them. Only the cell's thread takes any.
    open: AtomicU32,
    /// Descriptors that the reaper has not closed yet.
    closing: AtomicU32,
    /// Calls that a thread has begun and not finished.
    calls: AtomicU32,
    /// Processor time of other threads that it was not charged yet, ns.
    cpu_ns: AtomicU64,
    closing_cpu_ns: AtomicU64,
    output: OutputTime,
    io: Arc<Io>,
    turns: Arc<Turns>,
    refusals: Arc<Refusals>,
    disk: Disk,
    young: YoungDirectories,
    /// Whether it has had files that may not answer.
    is_slow: AtomicBool,
    #[expect(dead_code, reason = "held to be dropped, when the last file is closed")]
    promise: Option<Promise>,
    #[expect(dead_code, reason = "held to be dropped, when the last job is done")]
    thread: Option<pool::Promise>,
}

impl Account {
    /// Creates the account of a tenant with this lease. Its descriptors and a thread were promised to it if it
    /// can have any.
    pub(crate) fn new(
        lease: &Lease,
        promise: Option<Promise>,
        thread: Option<pool::Promise>,
        io: Arc<Io>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let refusals = Arc::new(Refusals::default());
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            limit: lease.files.open,
            disk: Disk::new(lease.disk, refusals.clone()),
            refusals,
            young: YoungDirectories::default(),
            is_slow: AtomicBool::new(false),
            open: AtomicU32::new(0),
            closing: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            cpu_ns: AtomicU64::new(0),
            closing_cpu_ns: AtomicU64::new(0),
            output: OutputTime::default(),
            io,
            turns: Arc::default(),
            promise,
            thread,
        }
    }

    /// The same for one that has had lives before, which have added this to disks.
    #[must_use]
    pub(crate) fn after(mut self, lives: DiskUse) -> Self {
        self.disk.share(lives);
        self
    }

    /// Returns the account's number, which no other account of the process has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the account of what the tenant has added to disks.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Takes bytes of a disk before they are added. What the tenant has removed may still be closed by other threads: where
    /// its share is not enough without, that is waited for.
    ///
    /// # Errors
    /// `DQUOT` when the tenant has added as many as it may. `AGAIN` where it would have to wait on the cell's thread.
    pub(super) fn take_bytes(&self, site: Site, bytes: u64) -> rustix::io::Result<()> {
        match site {
            Site::Blocking => self.disk.take_after_closes(bytes, || !self.is_closed()),
            // Calls in memory are not left to another thread.
            Site::Cell(Class::Memory) => self.disk.take(bytes),
            Site::Cell(_) => {
                let now = self.disk.take_now(bytes, !self.is_closed());
                now.unwrap_or(Err(rustix::io::Errno::AGAIN))
            }
        }
    }

    /// Takes the name of a symbolic link that says `bytes` bytes, and what that takes, before it is made.
    ///
    /// # Errors
    /// As [`take_bytes`](Self::take_bytes), and `DQUOT` when the tenant has made as many names as it may.
    pub(super) fn take_link(&self, site: Site, bytes: u64) -> rustix::io::Result<()> {
        self.disk.take_file()?;
        self.take_bytes(site, link_bytes(bytes))
            .inspect_err(|_| self.disk.give_file())
    }

    /// Returns the directories that the tenant has made lately.
    pub(super) fn young(&self) -> &YoungDirectories {
        &self.young
    }

    /// Returns the refusals of the tenant's lease.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns the executions of the tenant that wait for a transfer of its pages.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Returns the threads that work for the tenant.
    pub(crate) fn io(&self) -> &Io {
        &self.io
    }

    /// Takes a descriptor, before there is one.
    ///
    /// # Errors
    /// When the tenant has as many as it may.
    pub(crate) fn take(&self) -> Result<(), Errno> {
        let open = self.open.load(Ordering::Relaxed);
        if open >= self.limit {
            let enough = u64::from(self.limit) + 1;
            self.refusals.record(Reservation::OpenFiles, enough);
            return Err(Errno::Mfile);
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives descriptors back that were closed, or not opened after all.
    pub(crate) fn give(&self, count: u32) {
        self.open.fetch_sub(count, Ordering::Relaxed);
    }

    /// Whether so many files wait to be closed that no other may be opened.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.closing.load(Ordering::Acquire) >= CLOSING
    }

    /// Makes the reaper close the `files` descriptors in `what`.
    pub(crate) fn close(self: &Arc<Self>, files: u32, what: impl Send + 'static) {
        self.hand_over(files, what, false);
    }

    /// Makes the reaper close the last files of an execution, before others: the tenant may wait for that.
    pub(crate) fn close_last(self: &Arc<Self>, files: u32, what: impl Send + 'static) {
        self.hand_over(files, what, true);
    }

    fn hand_over(self: &Arc<Self>, files: u32, what: impl Send + 'static, is_urgent: bool) {
        self.closing.fetch_add(files, Ordering::AcqRel);
        let (account, what) = (self.clone(), Box::new(what));
        match self.is_slow.load(Ordering::Relaxed) {
            // Closing a file of such a tenant may never return.
            true => self.io.pool.close(account, files, what),
            false => self.io.reaper.discard(account, files, what, is_urgent),
        }
    }

    /// Records that the tenant opens a file on which any call may block for ever, even closing it.
    pub(crate) fn expect_slow_files(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
    }

    /// Whether closing any file of the tenant's may take for ever.
    pub(super) fn has_slow_files(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Makes a call on a thread that may wait: it is under way until it returns, and no longer when its answer
    /// can be seen.
    pub(crate) fn during_call<T>(&self, call: impl FnOnce() -> T) -> T {
        struct UnderWay<'a>(&'a AtomicU32);
        impl Drop for UnderWay<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        let _under_way = UnderWay(&self.calls);
        call()
    }

    /// Calls that threads have begun and not finished: nothing can take them back before the file system answers.
    pub(crate) fn calls_under_way(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether everything that the tenant had open is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Acquire) == 0
    }

    /// Makes the reaper drop an object that holds one descriptor at the most, which is in no table: it waits to be closed
    /// like those that were.
    pub(crate) fn discard(self: &Arc<Self>, what: impl Send + 'static) {
        self.close(1, what);
    }

    /// Makes a thread that closes files of this tenant only close the `files` descriptors in `what`, which may take long.
    pub(crate) fn close_apart(self: &Arc<Self>, files: u32, what: impl Send + 'static) {
        self.closing.fetch_add(files, Ordering::AcqRel);
        self.io.pool.close(self.clone(), files, Box::new(what));
    }

    /// Records that the reaper has closed `files` descriptors.
    pub(crate) fn closed(&self, files: u32) {
        self.closing.fetch_sub(files, Ordering::AcqRel);
    }

    /// Records the processor time of another thread's call for the tenant.
    pub(crate) fn called_for(&self, cpu_ns: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// Records the processor time of another thread for closing the tenant's files.
    pub(crate) fn closed_for(&self, cpu_ns: u64) {
        self.closing_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// Returns the processor time of the threads that write the tenant's output out.
    pub(crate) fn output_time(&self) -> &OutputTime {
        &self.output
    }

    /// Returns the processor time of other threads since the last call, ns.
    pub(crate) fn take_cpu_ns(&self) -> u64 {
        let calls_ns = self.cpu_ns.swap(0, Ordering::Relaxed);
        calls_ns + self.take_closing_cpu_ns() + self.output.take()
    }

    /// Returns the part of it spent on closing files: the time of calls that began earlier is no
    /// part of an end.
    pub(crate) fn take_closing_cpu_ns(&self) -> u64 {
        self.closing_cpu_ns.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Account;
    use crate::host::fs::class::{Class, Site};
    use crate::host::io::Io;
    use leasehold_lease::{ByteSize, Lease};
    use rustix::io::Errno;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    /// What has bytes of the share until it is closed.
    struct Closing(Arc<Account>, Receiver<()>);

    impl Drop for Closing {
        fn drop(&mut self) {
            let _ = self.1.recv();
            self.0.disk().give_bytes(4096);
        }
    }

    #[test]
    fn what_takes_bytes_waits_for_those_that_are_being_given_back() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let mut lease = Lease::default();
        lease.disk.bytes = ByteSize::new(4096).expect("in range");
        let thread = io.pool.promise().expect("a thread");
        let account = Arc::new(Account::new(&lease, None, Some(thread), io.clone()));
        let cell = Site::Cell(Class::Cached);
        assert_eq!(account.take_bytes(cell, 4096), Ok(()));
        assert_eq!(account.take_bytes(cell, 4096), Err(Errno::DQUOT));
        let (close, closes) = channel();
        account.close_apart(1, Closing(account.clone(), closes));
        assert_eq!(account.take_bytes(cell, 4096), Err(Errno::AGAIN));
        let waiting = account.clone();
        let waits = std::thread::spawn(move || waiting.take_link(Site::Blocking, 60));
        close.send(()).expect("it is being closed");
        assert_eq!(waits.join().expect("no panic"), Ok(()));
        assert_eq!(account.take_bytes(Site::Blocking, 1), Err(Errno::DQUOT));
        io.stop();
    }
}
