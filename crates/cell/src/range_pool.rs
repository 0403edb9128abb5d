//! Equal address ranges that are taken, detached, and cleaned later.
//!
//! What slots for linear memories and stacks for fibers have in common. Unmapping a range costs
//! time for every page its user touched, at the moment the user ends. Here it is only put at the
//! end of a queue of dirty ranges, whatever is in it, and the next user takes a clean one. Dirty
//! ranges are cleaned in steps of a bounded number of pages, under whichever reservation should
//! pay.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cleaning::Dirty;
use crate::reservation::Reservation;

/// Pages that one cleaning step visits unless the caller wants otherwise.
pub const STEP_PAGES: usize = 64;

/// What a cleaning step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Pages visited: given back or overwritten.
    pub pages: usize,
    /// Pages that are still dirty, in the whole pool.
    pub remaining: usize,
}

/// How the ranges of a pool stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Can be taken at once.
    pub clean: usize,
    /// In use.
    pub taken: usize,
    /// Waiting to be cleaned.
    pub dirty: usize,
    /// Pages that cleaning has still to visit.
    pub dirty_pages: usize,
    /// Given up because the system refused a call on them. Zero unless the host is out of
    /// mappings or memory.
    pub lost: usize,
    /// How many have been put into the queue of dirty ranges so far; those with nothing to clean
    /// are not.
    pub detached: u64,
    /// How many have left the queue. It is first in, first out: what is dirty now is clean as soon
    /// as this reaches what [`detached`](PoolState::detached) is now.
    pub cleaned: u64,
}

/// A clean range: all of it reads as zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleanRange {
    /// Offset of the range in the reservation.
    pub(crate) start: usize,
    /// Bytes that cleaning left accessible; 0 if it has never been used.
    pub(crate) accessible: usize,
    /// Bytes from the start beyond which no page is resident, as far as the user keeps account.
    pub(crate) resident: usize,
}

#[derive(Debug)]
struct Ranges {
    /// Used before; the most recently cleaned last, whose kept pages are the likeliest to be in
    /// the processor's caches.
    clean: Vec<CleanRange>,
    /// Ranges from this one on have never been used.
    unused: usize,
    /// The one that has been dirty for the longest time first.
    dirty: VecDeque<(CleanRange, Dirty)>,
    state: PoolState,
}

#[derive(Debug)]
pub(crate) struct RangePool {
    reservation: Reservation,
    stride: usize,
    capacity: usize,
    /// The engine wants to share pools between threads. A cell has one thread, so that the lock
    /// is never waited for; uncontended it costs less than any system call it precedes.
    ranges: Mutex<Ranges>,
}

impl RangePool {
    /// Reserves `capacity` ranges of `stride` bytes, a multiple of the page size.
    ///
    /// # Errors
    ///
    /// The system's, when the address space is limited.
    pub(crate) fn new(capacity: usize, stride: usize) -> io::Result<RangePool> {
        let bytes = capacity
            .max(1)
            .checked_mul(stride)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(RangePool {
            reservation: Reservation::new(bytes)?,
            stride,
            capacity,
            // Sized once, so that detaching never allocates.
            ranges: Mutex::new(Ranges {
                clean: Vec::with_capacity(capacity),
                unused: 0,
                dirty: VecDeque::with_capacity(capacity),
                state: PoolState {
                    clean: capacity,
                    ..PoolState::default()
                },
            }),
        })
    }

    pub(crate) fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    pub(crate) fn state(&self) -> PoolState {
        self.ranges().state
    }

    /// Takes a clean range after `prepare` has made accessible what its user needs; returns it as
    /// it was before.
    ///
    /// # Errors
    ///
    /// `QuotaExceeded` if no range is clean; those of `prepare`, and then nothing is taken.
    pub(crate) fn take(
        &self,
        prepare: impl FnOnce(&Reservation, CleanRange) -> io::Result<()>,
    ) -> io::Result<CleanRange> {
        let mut ranges = self.ranges();
        let range = match ranges.clean.pop() {
            Some(range) => range,
            None if ranges.unused < self.capacity => {
                ranges.unused += 1;
                CleanRange {
                    start: (ranges.unused - 1) * self.stride,
                    accessible: 0,
                    resident: 0,
                }
            }
            None => return Err(io::ErrorKind::QuotaExceeded.into()),
        };
        if let Err(error) = prepare(&self.reservation, range) {
            ranges.clean.push(range);
            return Err(error);
        }
        ranges.state.clean -= 1;
        ranges.state.taken += 1;
        Ok(range)
    }

    /// Puts a range that was taken at the end of the queue, in constant time and without a
    /// system call. `range` is what it will be when it is clean.
    ///
    /// # Safety
    ///
    /// Nobody uses the range any more, it is accessible wherever `dirty` is to be overwritten,
    /// and `dirty` covers all that its user could write to.
    pub(crate) unsafe fn detach(&self, range: CleanRange, dirty: Dirty) {
        let mut ranges = self.ranges();
        ranges.state.taken -= 1;
        if dirty.pages() == 0 {
            ranges.state.clean += 1;
            ranges.clean.push(range);
            return;
        }
        ranges.state.detached += 1;
        ranges.state.dirty += 1;
        ranges.state.dirty_pages += dirty.pages();
        ranges.dirty.push_back((range, dirty));
    }

    /// Cleans at most `pages` pages of the range that has been dirty for the longest time.
    pub(crate) fn clean_step(&self, pages: usize) -> Cleaned {
        let mut ranges = self.ranges();
        let Some((range, mut dirty)) = ranges.dirty.pop_front() else {
            return Cleaned::default();
        };
        let before = dirty.pages();
        // SAFETY: the promises made when the range was detached; it is in the queue since.
        let step = unsafe { dirty.step(&self.reservation, pages) };
        let visited = before - dirty.pages();
        if step.is_ok() && dirty.pages() > 0 {
            ranges.state.dirty_pages -= visited;
            ranges.dirty.push_front((range, dirty));
        } else {
            ranges.state.dirty_pages -= before;
            ranges.state.dirty -= 1;
            ranges.state.cleaned += 1;
            match step {
                Ok(()) => {
                    ranges.state.clean += 1;
                    ranges.clean.push(range);
                }
                Err(error) => {
                    tracing::warn!(%error, start = range.start, "an address range is lost");
                    ranges.state.lost += 1;
                }
            }
        }
        Cleaned {
            pages: visited,
            remaining: ranges.state.dirty_pages,
        }
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        // Every update leaves the lists whole, so that a panic elsewhere spoils nothing.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
