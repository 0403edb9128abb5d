//! Slots for linear memories: address space that outlives its tenants.
//!
//! A slot is an address range of 4 GiB, followed by a guard, in which the pages from the start up
//! to the memory's size are accessible. A memory that is dropped leaves its slot *dirty*: it is
//! detached in constant time, and cleaned later in [steps](SlotPool::clean_step) of a bounded
//! number of pages, under the reservation that pays for it. Cleaning visits exactly the pages that
//! were ever accessible, which is what a lease is charged for. Each page is either given back to
//! the system or overwritten with zeros.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::address_range::PAGE;
use crate::cleaning::Dirty;
use crate::contents::Contents;
use crate::present::Present;
use crate::range_pool::{Claim, CleanState, Cleaned, PoolState, RangePool, Retried, Warm};
use crate::restoring::Restoring;
use crate::taken::Taken;
use crate::warm_room::{Keeper, WarmRoom};

/// Address space of a linear memory: all that a 32-bit memory can grow to.
pub const MEMORY_RESERVATION: u64 = 4 << 30;

/// Inaccessible bytes after a linear memory. With the reservation it makes bounds checks
/// unnecessary: an address is at most 4 GiB plus a 32-bit offset, and offsets above this size
/// are checked explicitly.
pub const MEMORY_GUARD: u64 = 32 << 20;

/// Address space of one slot's memory, in bytes.
pub(crate) const SLOT_BYTES: usize = MEMORY_RESERVATION as usize;

/// Distance between two slots: the guard of one ends where the next begins.
const STRIDE: usize = SLOT_BYTES + MEMORY_GUARD as usize;

/// The linear-memory slots of a cell. Cloning gives another handle to the same pool.
///
/// # Example
///
/// ```
/// use leasehold_slots::range_pool::STEP_PAGES;
/// use leasehold_slots::slot::{MEMORY_GUARD, MEMORY_RESERVATION, SlotPool};
/// use std::sync::Arc;
/// use wasmtime::{Config, Engine, Instance, Module, Store};
///
/// let pool = SlotPool::new(4, 0)?;
/// let mut config = Config::new();
/// config
///     .memory_reservation(MEMORY_RESERVATION)
///     .memory_guard_size(MEMORY_GUARD)
///     .guard_before_linear_memory(false)
///     .memory_may_move(false)
///     .memory_init_cow(false);
/// config.with_host_memory(Arc::new(pool.clone()));
/// let engine = Engine::new(&config)?;
///
/// let mut store = Store::new(&engine, ());
/// Instance::new(&mut store, &Module::new(&engine, "(module (memory 1))")?, &[])?;
/// assert_eq!(pool.state().taken, 1);
///
/// drop(store); // detached: nothing has been given back yet
/// assert_eq!(pool.state().dirty_pages, 16);
/// assert_eq!(pool.clean_step(STEP_PAGES).remaining, 0);
/// assert_eq!(pool.state().clean, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SlotPool {
    ranges: Arc<RangePool>,
    keep_resident: usize,
    /// At least the bytes that cleaning left resident in slots that are free for any memory, all together.
    resident: Arc<AtomicUsize>,
    /// The same of slots that are kept warm.
    warm: Arc<WarmRoom>,
}

/// How many slots' worth of memory stays resident at the most, of those that are free for any memory. The slot cleaned last is taken
/// first, so that a handful of slots serve all tenants that follow one another. As much stays resident of slots that a
/// keeper has warm, if it is the only one.
const WARM_SLOTS: usize = 64;

impl SlotPool {
    /// Reserves address space for `capacity` memories at a time. Cleaning keeps the first
    /// `keep_resident` bytes of a used slot resident, rounded up to whole pages, and 64 times
    /// that in all slots together. A keeper of [warm](Self::warm) slots has as much besides, divided by the keepers that
    /// have any.
    ///
    /// # Errors
    ///
    /// The system's, when the address space is limited.
    pub fn new(capacity: usize, keep_resident: usize) -> io::Result<SlotPool> {
        // While files can be opened.
        Present::of_process();
        let keep_resident = keep_resident.min(SLOT_BYTES).next_multiple_of(PAGE);
        Ok(SlotPool {
            ranges: Arc::new(RangePool::new(capacity, STRIDE, 0)?),
            keep_resident,
            resident: Arc::default(),
            warm: WarmRoom::new(keep_resident.saturating_mul(WARM_SLOTS)),
        })
    }

    /// Upper bound of the resident memory of unused slots, in bytes.
    #[inline]
    pub fn resident(&self) -> usize {
        self.resident.load(Relaxed) + self.warm.taken()
    }

    /// The numbers of clean, taken and dirty slots.
    #[inline]
    pub fn state(&self) -> PoolState {
        self.ranges.state()
    }

    /// Cleans at most `pages` pages of the slot that has been dirty for the longest time: about
    /// 0.1 to 0.4 µs per page, and never a page fault.
    pub fn clean_step(&self, pages: usize) -> Cleaned {
        self.ranges.clean_step(pages)
    }

    /// Tries again to clean at most `pages` pages of a slot on which the system refused a call.
    pub fn retry(&self, pages: usize) -> Retried {
        self.ranges.retry(pages)
    }

    /// Adds to a claim all that was detached since the last one.
    #[inline]
    pub fn claim(&self, claim: &mut Claim) {
        self.ranges.claim(claim);
    }

    /// Cleans at most `pages` pages of the first range of a claim; returns how many.
    #[inline]
    pub fn clean_claimed(&self, claim: &mut Claim, pages: usize) -> usize {
        self.ranges.clean_claimed(claim, pages)
    }

    /// How many slots are kept warm for a keeper: memories that
    /// [it had made](Self::new_memory_showing) and were dropped, and whose contents have been restored.
    pub fn warm(&self, keeper: Keeper) -> usize {
        self.ranges.warm(keeper)
    }

    /// Adds to a claim, to be cleaned, what is kept warm for a keeper beyond `most` slots. About a microsecond for each.
    pub fn cool(&self, keeper: Keeper, most: usize, claim: &mut Claim) {
        self.ranges.cool(keeper, most, claim);
    }

    /// Has the slots of a claim that were to be kept warm cleaned instead. A look at each slot of it.
    pub fn forgo(&self, claim: &Claim) {
        self.ranges.forgo(claim);
    }

    /// Takes a clean slot of which exactly the first `bytes` bytes are accessible, all zero.
    ///
    /// # Errors
    ///
    /// `QuotaExceeded` if no slot is clean; the system's if it refuses to make pages accessible.
    pub(crate) fn take(&self, bytes: usize) -> io::Result<Slot> {
        self.take_with(bytes, usize::MAX)
    }

    /// The same, but for what `contents` show; one that is warm, if it is for a keeper and there is one.
    ///
    /// # Errors
    ///
    /// As those of [`take`](Self::take); `InvalidInput` if the contents are larger.
    pub(crate) fn take_showing(
        &self,
        bytes: usize,
        contents: &Contents,
        keeper: Option<Keeper>,
    ) -> io::Result<Slot> {
        let shown = contents.bytes();
        if shown.end > bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let keeping = keeper.map(|keeper| Keeping {
            keeper,
            contents: contents.clone(),
            bytes,
        });
        let warm = keeper.and_then(|keeper| self.ranges.take_warm(keeper, contents, bytes));
        if let Some(taken) = warm {
            let start = taken.accessible().start;
            return Ok(Slot {
                pool: self.clone(),
                taken,
                resident: 0,
                hidden: 0,
                shown: Some(start + shown.start..start + shown.end),
                keeping,
            });
        }
        // What is resident where the contents are would be given back here, and be missed elsewhere.
        let mut slot = self.take_with(bytes, shown.start)?;
        slot.show(contents)?;
        slot.keeping = keeping;
        Ok(slot)
    }

    fn take_with(&self, bytes: usize, resident: usize) -> io::Result<Slot> {
        let (taken, CleanState { resident, .. }) = self.ranges.take(bytes, resident)?;
        let hidden = resident.saturating_sub(bytes);
        self.resident.fetch_sub(resident - hidden, Relaxed);
        Ok(Slot {
            pool: self.clone(),
            taken,
            resident,
            hidden,
            shown: None,
            keeping: None,
        })
    }
}

/// A slot in use.
#[derive(Debug)]
pub(crate) struct Slot {
    pool: SlotPool,
    taken: Taken,
    /// Bytes from the start that were resident when it was taken.
    resident: usize,
    /// Resident bytes that this memory has not made accessible: they are zero, and still count as
    /// unused.
    hidden: usize,
    /// Where in the reservation contents are shown.
    shown: Option<Range<usize>>,
    /// What it is kept for when it is dropped.
    keeping: Option<Keeping>,
}

/// As what a slot is kept.
#[derive(Debug)]
struct Keeping {
    keeper: Keeper,
    contents: Contents,
    /// Its size when it was made.
    bytes: usize,
}

impl Slot {
    /// Start of the memory.
    pub(crate) fn base(&self) -> *mut u8 {
        let start = self.taken.accessible().start;
        self.pool.ranges.reservation().at(start).as_ptr()
    }

    /// Accessible bytes.
    pub(crate) fn accessible(&self) -> usize {
        self.taken.accessible().len()
    }

    fn show(&mut self, contents: &Contents) -> io::Result<()> {
        let start = self.taken.accessible().start;
        self.pool.ranges.reservation().show(start, contents)?;
        let bytes = contents.bytes();
        self.shown = Some(start + bytes.start..start + bytes.end);
        Ok(())
    }

    /// Makes the first `bytes` bytes accessible; fewer than are accessible already changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` beyond the slot's size; the system's if it is out of memory or mappings.
    pub(crate) fn grow(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > SLOT_BYTES || !bytes.is_multiple_of(PAGE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let more = bytes.saturating_sub(self.accessible());
        if more > 0 {
            self.taken.grow(self.pool.ranges.reservation(), more)?;
        }
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (pool, accessible) = (&self.pool, self.accessible());
        let others = pool.resident.fetch_sub(self.hidden, Relaxed) - self.hidden;
        // Pages that no memory made accessible since they were cleaned stay resident as they are.
        let beyond = self.resident.saturating_sub(accessible);
        let most = pool.keep_resident.saturating_mul(WARM_SLOTS);
        let room = most.saturating_sub(others + beyond) / PAGE * PAGE;
        // Where pages that were written to cannot be told from others, nothing can be restored.
        let keeping = self
            .keeping
            .take()
            .filter(|_| Present::of_process().is_shown());
        if let Some(keeping) = keeping.filter(|_| beyond == 0) {
            let most = pool.keep_resident.min(keeping.bytes);
            let resident = pool.warm.take(keeping.keeper, most);
            let taken = std::mem::take(&mut self.taken);
            let start = taken.accessible().start;
            let restoring = Restoring::new(start, keeping.contents.clone(), resident.bytes());
            let dirty = Dirty::restoring(taken, keeping.bytes, restoring);
            let then = CleanState {
                accessible: keeping.bytes,
                resident: 0,
                warm: Some(Warm {
                    keeper: keeping.keeper,
                    contents: keeping.contents,
                    resident,
                }),
            };
            return pool.ranges.detach(dirty, then);
        }
        let before = match self.shown {
            Some(_) => 0,
            None => accessible,
        };
        let kept = pool.keep_resident.min(before).min(room);
        let resident = if beyond > 0 { self.resident } else { kept };
        pool.resident.fetch_add(resident, Relaxed);
        let then = CleanState {
            accessible: kept,
            resident,
            warm: None,
        };
        // The block after its end is the slot's own: slots are multiples of blocks.
        let taken = std::mem::take(&mut self.taken);
        let dirty = match self.shown.take() {
            Some(shown) => Dirty::showing(taken, shown),
            None => Dirty::leaving(taken, kept),
        };
        pool.ranges.detach(dirty, then);
    }
}

const _: () = assert!(STRIDE.is_multiple_of(crate::address_range::BLOCK));
