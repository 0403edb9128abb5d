//! The descriptors of one execution, by number.
//!
//! Numbers are handed out as `wasmtime-wasi` does: the largest that is free. Places are charged at high
//! water, [`CHUNK`] at a time, before they exist.

use super::account::Account;
use super::class::Class;
use super::descriptor::{Descriptor, Node, Open};
use super::last_close::{OPENED_MOST, opened_pages};
use super::pages::{Lent, Pages};
use crate::local;
use crate::meter::Held;
use leasehold_kernel::TenantId;
use leasehold_slots::address_range::PAGE;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use wasmtime_wasi::p1::types::Errno;

/// Places that are charged at a time.
const CHUNK: usize = 16;

/// Directories that are closed in one step.
const FEW: u32 = 8;

type Chunk = Box<[Option<Descriptor>; CHUNK]>;

/// The files of one execution, regardless of their holders. Only the cell's thread changes the
/// numbers.
#[derive(Debug)]
pub(crate) struct Files {
    account: Arc<Account>,
    /// Files that are open.
    open: AtomicU32,
    /// The open files that are no directories.
    not_directories: AtomicU32,
    pages: Arc<Pages>,
    grown: Arc<Pages>,
}

impl Files {
    /// Returns the host memory that the files take besides descriptors.
    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Returns the pages that the files have grown by.
    pub(crate) fn grown(&self) -> &Arc<Pages> {
        &self.grown
    }

    /// Returns the account of the tenant.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    fn opened(&self, node: &Node) {
        self.open.fetch_add(1, Ordering::Relaxed);
        let is_other = u32::from(!node.is_directory());
        self.not_directories.fetch_add(is_other, Ordering::Relaxed);
    }

    /// Releases a file, and closes it if it has no other holder: on this thread if that cannot take
    /// long.
    pub(crate) fn let_go(&self, node: Arc<Node>, was_written: bool) {
        if !node.let_go() {
            return;
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        let is_other = u32::from(!node.is_directory());
        self.not_directories.fetch_sub(is_other, Ordering::Relaxed);
        match node.close_permit(was_written) {
            Some(permit) => {
                drop(node);
                permit.used();
            }
            None => self.account.close(1, node),
        }
        self.account.give(1);
    }
}

/// The descriptors of an execution.
pub(crate) struct Table {
    tenant: TenantId,
    execution: u64,
    files: Arc<Files>,
    chunks: Vec<Chunk>,
    /// The lowest number that was never given out, as all above it.
    next: u32,
    free: BinaryHeap<u32>,
}

/// A descriptor that was taken from the account for a file that is being opened. Dropping it gives it
/// back.
#[must_use = "a descriptor that is taken is used or given back"]
pub(crate) struct Taken {
    account: Option<Arc<Account>>,
    /// The cost that the end of the file may have.
    freed: Lent,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give(1);
        }
    }
}

impl Table {
    /// Creates an empty table without charged places.
    pub(crate) fn new(tenant: TenantId, execution: u64, account: Arc<Account>) -> Self {
        Self {
            tenant,
            execution,
            files: Arc::new(Files {
                account,
                open: AtomicU32::new(0),
                not_directories: AtomicU32::new(0),
                pages: Arc::new(Pages::new(tenant, execution, Held::HostPage)),
                grown: Arc::new(Pages::new(tenant, execution, Held::FilePage)),
            }),
            chunks: Vec::new(),
            next: 0,
            free: BinaryHeap::new(),
        }
    }

    /// Creates a table with the three standard streams.
    ///
    /// # Errors
    /// When the lease does not pay for it.
    pub(crate) fn with_streams(
        tenant: TenantId,
        execution: u64,
        account: Arc<Account>,
    ) -> Result<Self, leasehold_kernel::Errno> {
        let mut table = Self::new(tenant, execution, account);
        table.grow()?;
        for stream in [Descriptor::Stdin, Descriptor::Stdout, Descriptor::Stderr] {
            table.insert(stream);
        }
        Ok(table)
    }

    /// Returns the files of the execution.
    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    /// Returns the account of the tenant.
    pub(crate) fn account(&self) -> &Arc<Account> {
        self.files.account()
    }

    fn grow(&mut self) -> Result<(), leasehold_kernel::Errno> {
        let (tenant, execution) = (self.tenant, self.execution);
        local::with(|local| local.hold(tenant, execution, Held::Descriptor, CHUNK as u64))?;
        self.chunks.push(Box::new([const { None }; CHUNK]));
        Ok(())
    }

    /// Takes a descriptor of the tenant's and a place for it, before a file is opened.
    ///
    /// # Errors
    /// When the tenant has as many as it may, or the lease does not pay for a place.
    pub(crate) fn take(&mut self) -> Result<Taken, Errno> {
        let account = self.account();
        account.take()?;
        let account = account.clone();
        let Ok(freed) = self.files.grown().lend(OPENED_MOST as usize * PAGE) else {
            account.give(1);
            return Err(Errno::Nomem);
        };
        let account = Some(account);
        let taken = Taken { account, freed };
        self.make_room()?;
        Ok(taken)
    }

    /// Charges a place, if none is free.
    fn make_room(&mut self) -> Result<(), Errno> {
        if self.free.is_empty()
            && self.next as usize == self.chunks.len() * CHUNK
            && self.grow().is_err()
        {
            return Err(Errno::Nomem);
        }
        Ok(())
    }

    /// Puts a file into the place that was taken for it; returns its number.
    pub(crate) fn put(&mut self, mut taken: Taken, open: Open) -> u32 {
        // From here on the table gives the descriptor back.
        taken.account = None;
        open.node.hold();
        if open.node.is_paid_for() {
            let pages = opened_pages(open.node.class);
            open.node.pay(&mut taken.freed, pages);
        }
        if open.node.class == Class::Slow {
            self.account().expect_slow_files();
        }
        self.files.opened(&open.node);
        self.insert(Descriptor::Open(open))
    }

    /// Puts a file into the table that another entry of it holds already; returns its number.
    ///
    /// # Errors
    /// When the lease does not pay for a place.
    pub(crate) fn put_again(&mut self, open: Open) -> Result<u32, Errno> {
        self.make_room()?;
        open.node.hold();
        Ok(self.insert(Descriptor::Open(open)))
    }

    fn insert(&mut self, descriptor: Descriptor) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        if let Some(place) = self.place(number) {
            *place = Some(descriptor);
        }
        number
    }

    fn place(&mut self, number: u32) -> Option<&mut Option<Descriptor>> {
        let number = number as usize;
        let chunk = self.chunks.get_mut(number / CHUNK)?;
        chunk.get_mut(number % CHUNK)
    }

    /// Returns the descriptor with a number.
    ///
    /// # Errors
    /// When the number is unused.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Result<&Descriptor, Errno> {
        let number = number as usize;
        let chunk = self.chunks.get(number / CHUNK);
        let place = chunk.and_then(|chunk| chunk.get(number % CHUNK));
        place.and_then(Option::as_ref).ok_or(Errno::Badf)
    }

    /// Returns the descriptor with this number, to be changed.
    ///
    /// # Errors
    /// When the number is unused.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Result<&mut Descriptor, Errno> {
        self.place(number)
            .and_then(Option::as_mut)
            .ok_or(Errno::Badf)
    }

    /// Closes a descriptor, here if that cannot take long.
    ///
    /// # Errors
    /// When the number is unused.
    pub(crate) fn close(&mut self, number: u32) -> Result<(), Errno> {
        let closed = self.remove(number)?;
        self.free.push(number);
        self.dispose(closed);
        Ok(())
    }

    fn remove(&mut self, number: u32) -> Result<Descriptor, Errno> {
        self.place(number).and_then(Option::take).ok_or(Errno::Badf)
    }

    fn dispose(&mut self, closed: Descriptor) {
        if let Descriptor::Open(open) = closed {
            self.files.let_go(open.node, open.mode.write);
        }
    }

    /// Moves the descriptor `from` to the number `to`, and closes the one that `to` had.
    ///
    /// # Errors
    /// When one of them is unused.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from == to {
            return Ok(());
        }
        let closed = self.remove(to)?;
        let moved = self.remove(from)?;
        self.free.push(from);
        if let Some(place) = self.place(to) {
            *place = Some(moved);
        }
        self.dispose(closed);
        Ok(())
    }
}

impl Drop for Table {
    /// Hands all open files to the reaper in constant time, except for a few directories, such as
    /// those of the lease. Streams on its files were dropped before it.
    fn drop(&mut self) {
        let chunks = std::mem::take(&mut self.chunks);
        let open = self.files.open.load(Ordering::Relaxed);
        let not_directories = self.files.not_directories.load(Ordering::Relaxed);
        let is_slow = self.account().has_slow_files();
        if open > FEW || not_directories > 0 || chunks.len() > 1 || is_slow {
            self.account().close_last(open, chunks);
        }
        self.account().give(open);
    }
}
