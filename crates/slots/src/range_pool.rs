//! Equal address ranges that are taken, detached, and cleaned later.
//!
//! The common part of slots for linear memories and stacks for fibers. Unmapping a range when its
//! user ends would cost time for every page that the user touched. A pool only appends the range to
//! a queue of dirty ranges, in constant time, and the next user takes a clean one. Dirty ranges are
//! cleaned in steps of a bounded number of pages, under the reservation that pays for them.
//!
//! A range on which the system refuses a call goes into quarantine. No user takes it before a later
//! step has cleaned it.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::address_range::AddressRange;
use crate::cleaning::Dirty;
use crate::contents::Contents;
use crate::taken::Taken;
use crate::warm_room::{Keeper, Resident};

/// Pages with memory that one cleaning step visits unless the caller wants otherwise.
pub const STEP_PAGES: usize = 64;

/// The result of a cleaning step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Pages visited: given back or overwritten.
    pub pages: usize,
    /// Pages that are still dirty, in the whole pool.
    pub remaining: usize,
}

/// The result of a step that tries again to clean a range in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// No range is in quarantine.
    Empty,
    /// The system refused again; the next retry is of another range, if there is one.
    Refused,
    /// The step was taken.
    Stepped,
}

/// How the ranges of a pool stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Can be taken at once.
    pub clean: usize,
    /// In use.
    pub taken: usize,
    /// Waiting to be cleaned, claimed or not.
    pub dirty: usize,
    /// Pages that cleaning has still to visit.
    pub dirty_pages: usize,
    /// As they were shown to their last user, and kept for the next one of the same [keeper](Keeper).
    pub warm: usize,
    /// In quarantine because the system refused a call on them, until a [retry](Retried) succeeds.
    /// Zero unless the host is out of mappings or memory.
    pub quarantined: usize,
}

/// What a range is kept for.
#[derive(Debug)]
pub(crate) struct Warm {
    pub(crate) keeper: Keeper,
    pub(crate) contents: Contents,
    /// What it keeps resident.
    #[expect(dead_code, reason = "held to be dropped")]
    pub(crate) resident: Resident,
}

/// A range without a user: all of it reads as zero, unless it is [kept](Warm).
#[derive(Debug)]
struct CleanRange {
    /// Offset of the range in the reservation.
    start: usize,
    state: CleanState,
}

/// What a clean range has, bytes from its start, behind the guard.
#[derive(Debug, Default)]
pub(crate) struct CleanState {
    /// What cleaning left accessible; 0 if it has never been used.
    pub(crate) accessible: usize,
    /// Beyond this no page is resident, as far as the user keeps account.
    pub(crate) resident: usize,
    /// What it is kept for: then it shows that, and is zero elsewhere.
    pub(crate) warm: Option<Warm>,
}

#[derive(Debug)]
struct Ranges {
    /// Used before; the most recently cleaned last, whose kept pages are the likeliest to be in
    /// the processor's caches.
    clean: Vec<CleanRange>,
    /// Used before, and kept for users of the same program; the most recent last.
    warm: Vec<CleanRange>,
    /// Ranges from this one on have never been used.
    unused: usize,
    /// The parts to be cleaned, by the number of the range.
    dirty: Vec<Option<DirtyRange>>,
    /// Detached, and not claimed yet.
    unclaimed: Queue,
    /// What the system refused to clean.
    quarantine: Queue,
    state: PoolState,
}

/// A dirty range in its queue.
#[derive(Debug)]
struct DirtyRange {
    then: CleanRange,
    dirty: Dirty,
    next: Option<u32>,
}

/// Dirty ranges in the order in which they were detached, linked through [`Ranges::dirty`]: so
/// that detaching and claiming take constant time and allocate nothing.
#[derive(Debug, Default)]
struct Queue {
    ends: Option<(u32, u32)>,
}

/// Dirty ranges that one tenant left behind and that are cleaned at its expense.
///
/// Ranges of a claim that is dropped before it [is empty](Claim::is_empty) stay dirty for ever.
#[derive(Debug, Default)]
#[must_use = "the ranges of a claim are cleaned by what holds it"]
pub struct Claim(Queue);

impl Claim {
    /// Whether all of it has been cleaned.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_none()
    }
}

#[derive(Debug)]
pub(crate) struct RangePool {
    reservation: AddressRange,
    stride: usize,
    /// Inaccessible bytes at the start of each range.
    guard: usize,
    capacity: usize,
    /// The engine shares pools between threads. A cell has one thread, so that the lock is never
    /// waited for; uncontended it costs less than any system call it precedes.
    ranges: Mutex<Ranges>,
}

impl RangePool {
    /// Reserves `capacity` ranges of `stride` bytes, the first `guard` of which stay inaccessible; both
    /// are multiples of the page size.
    ///
    /// # Errors
    ///
    /// The system's, when the address space is limited.
    pub(crate) fn new(capacity: usize, stride: usize, guard: usize) -> io::Result<RangePool> {
        let bytes = capacity
            .max(1)
            .checked_mul(stride)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(RangePool {
            reservation: AddressRange::new(bytes)?,
            stride,
            guard,
            capacity,
            // Sized once, so that detaching never allocates.
            ranges: Mutex::new(Ranges {
                clean: Vec::with_capacity(capacity),
                warm: Vec::with_capacity(capacity),
                unused: 0,
                dirty: (0..capacity).map(|_| None).collect(),
                unclaimed: Queue::default(),
                quarantine: Queue::default(),
                state: PoolState {
                    clean: capacity,
                    ..PoolState::default()
                },
            }),
        })
    }

    pub(crate) fn reservation(&self) -> &AddressRange {
        &self.reservation
    }

    pub(crate) fn state(&self) -> PoolState {
        self.ranges().state
    }

    /// Takes a clean range, of which exactly `bytes` bytes behind the guard are then accessible; returns
    /// what it had before, too. One with at most `resident` resident bytes is preferred.
    ///
    /// # Errors
    ///
    /// `QuotaExceeded` if no range is clean; the system's, and then nothing is taken.
    pub(crate) fn take(&self, bytes: usize, resident: usize) -> io::Result<(Taken, CleanState)> {
        let mut ranges = self.ranges();
        let fits = |range: &CleanRange| range.state.resident <= resident;
        let preferred = ranges.clean.iter().rposition(fits);
        let is_used_up = ranges.unused == self.capacity;
        let preferred = preferred.or(ranges.clean.len().checked_sub(1).filter(|_| is_used_up));
        let range = match preferred.map(|at| ranges.clean.remove(at)) {
            Some(range) => range,
            None if ranges.unused < self.capacity => {
                ranges.unused += 1;
                CleanRange {
                    start: (ranges.unused - 1) * self.stride,
                    state: CleanState::default(),
                }
            }
            None => return Err(io::ErrorKind::QuotaExceeded.into()),
        };
        let (start, had) = (range.start + self.guard, range.state.accessible);
        match Taken::new(&self.reservation, start, had, bytes) {
            Ok(taken) => {
                ranges.state.clean -= 1;
                ranges.state.taken += 1;
                Ok((taken, range.state))
            }
            Err(error) => {
                ranges.clean.push(range);
                Err(error)
            }
        }
    }

    /// Takes a range that is kept for this keeper, shows these contents, and has exactly `bytes` accessible bytes. No
    /// system call. `None` if there is none.
    pub(crate) fn take_warm(
        &self,
        keeper: Keeper,
        contents: &Contents,
        bytes: usize,
    ) -> Option<Taken> {
        let mut ranges = self.ranges();
        let fits = |range: &CleanRange| {
            let warm = range.state.warm.as_ref();
            range.state.accessible == bytes
                && warm.is_some_and(|warm| warm.keeper == keeper && warm.contents.is(contents))
        };
        let at = ranges.warm.iter().rposition(fits)?;
        let taken = ranges.take_apart(&self.reservation, self.guard, at)?.0;
        ranges.state.taken += 1;
        Some(taken)
    }

    /// How many ranges are kept for a keeper.
    pub(crate) fn warm(&self, keeper: Keeper) -> usize {
        let ranges = self.ranges();
        let warm = ranges.warm.iter();
        warm.filter(|range| range.is_kept_for(keeper)).count()
    }

    /// Adds to a claim, to be cleaned, what is kept for a keeper beyond the `most` most recent. About a microsecond for
    /// each.
    pub(crate) fn cool(&self, keeper: Keeper, most: usize, claim: &mut Claim) {
        let mut ranges = self.ranges();
        let ranges = &mut *ranges;
        loop {
            let warm = ranges.warm.iter();
            let kept = warm.filter(|range| range.is_kept_for(keeper)).count();
            let first = ranges
                .warm
                .iter()
                .position(|range| range.is_kept_for(keeper));
            let Some(at) = first.filter(|_| kept > most) else {
                return;
            };
            let Some((taken, start, warm)) = ranges.take_apart(&self.reservation, self.guard, at)
            else {
                return;
            };
            let shown = warm.contents.bytes();
            let begin = taken.accessible().start;
            let dirty = Dirty::showing(taken, begin + shown.start..begin + shown.end);
            let number = start / self.stride;
            ranges.state.dirty += 1;
            ranges.state.dirty_pages += dirty.pages();
            let range = DirtyRange {
                then: CleanRange {
                    start,
                    state: CleanState::default(),
                },
                dirty,
                next: None,
            };
            claim.0.push(&mut ranges.dirty, number, range);
        }
    }

    /// Has the ranges of a claim that were to be kept cleaned instead. A look at each range of it.
    pub(crate) fn forgo(&self, claim: &Claim) {
        let mut ranges = self.ranges();
        let ranges = &mut *ranges;
        let mut next = claim.0.ends.map(|(first, _)| first);
        while let Some(at) = next {
            let Some(range) = &mut ranges.dirty[at as usize] else {
                debug_assert!(false, "a queued range is dirty");
                return;
            };
            next = range.next;
            ranges.state.dirty_pages -= range.dirty.pages();
            range.forgo();
            ranges.state.dirty_pages += range.dirty.pages();
        }
    }

    /// Puts a range that was taken at the end of the queue, in constant time and without a
    /// system call. `state` is what it will have when it is clean.
    pub(crate) fn detach(&self, dirty: Dirty, state: CleanState) {
        let mut ranges = self.ranges();
        let number = dirty.start() / self.stride;
        let range = CleanRange {
            start: number * self.stride,
            state,
        };
        ranges.state.taken -= 1;
        if dirty.pages() == 0 {
            return ranges.put_back(range);
        }
        ranges.state.dirty += 1;
        ranges.state.dirty_pages += dirty.pages();
        let ranges = &mut *ranges;
        let range = DirtyRange {
            then: range,
            dirty,
            next: None,
        };
        ranges.unclaimed.push(&mut ranges.dirty, number, range);
    }

    /// Adds to a claim all that was detached since the last one, in constant time: its holder
    /// cleans it.
    pub(crate) fn claim(&self, claim: &mut Claim) {
        let mut ranges = self.ranges();
        let Some((first, last)) = ranges.unclaimed.ends.take() else {
            return;
        };
        let claimed = claim.0.ends;
        if let Some((_, end)) = claimed
            && let Some(end) = &mut ranges.dirty[end as usize]
        {
            end.next = Some(first);
        }
        claim.0.ends = Some((claimed.map_or(first, |(first, _)| first), last));
    }

    /// Cleans at most `pages` pages with memory of the first range of a claim, and those without
    /// between them; returns how many together.
    pub(crate) fn clean_claimed(&self, claim: &mut Claim, pages: usize) -> usize {
        self.ranges()
            .clean_first(&self.reservation, &mut claim.0, pages)
    }

    /// Cleans at most `pages` pages of the unclaimed range that has been dirty for the longest
    /// time.
    pub(crate) fn clean_step(&self, pages: usize) -> Cleaned {
        let mut ranges = self.ranges();
        let mut queue = std::mem::take(&mut ranges.unclaimed);
        let pages = ranges.clean_first(&self.reservation, &mut queue, pages);
        ranges.unclaimed = queue;
        Cleaned {
            pages,
            remaining: ranges.state.dirty_pages,
        }
    }

    /// Tries again to clean at most `pages` pages of a range that the system refused to clean.
    pub(crate) fn retry(&self, pages: usize) -> Retried {
        self.ranges().retry(&self.reservation, pages)
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        // Every update leaves the lists consistent, so that a panic elsewhere does no harm.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Appends a range, by its number.
    fn push(&mut self, dirty: &mut [Option<DirtyRange>], number: usize, range: DirtyRange) {
        let place = number as u32;
        let last = self.ends;
        self.ends = Some((last.map_or(place, |(first, _)| first), place));
        if let Some((_, last)) = last
            && let Some(last) = &mut dirty[last as usize]
        {
            last.next = Some(place);
        }
        dirty[number] = Some(range);
    }

    /// Takes the first range out, with its number.
    fn pop(&mut self, dirty: &mut [Option<DirtyRange>]) -> Option<(usize, DirtyRange)> {
        let (first, last) = self.ends.take()?;
        let Some(mut range) = dirty[first as usize].take() else {
            debug_assert!(false, "a queued range is dirty");
            return None;
        };
        self.ends = range.next.take().map(|next| (next, last));
        Some((first as usize, range))
    }

    /// Puts a range back in front of the others.
    fn put_back(&mut self, dirty: &mut [Option<DirtyRange>], number: usize, mut range: DirtyRange) {
        let first = number as u32;
        range.next = self.ends.map(|(next, _)| next);
        self.ends = Some((first, self.ends.map_or(first, |(_, last)| last)));
        dirty[number] = Some(range);
    }
}

impl CleanRange {
    fn is_kept_for(&self, keeper: Keeper) -> bool {
        let warm = self.state.warm.as_ref();
        warm.is_some_and(|warm| warm.keeper == keeper)
    }
}

impl DirtyRange {
    /// It is cleaned, and not kept.
    fn forgo(&mut self) {
        if self.then.state.warm.take().is_some() {
            self.dirty.forgo();
            self.then.state = CleanState::default();
        }
    }
}

impl Ranges {
    /// Takes a warm range out: its accessible part, where it begins, and what it was kept for.
    fn take_apart(
        &mut self,
        reservation: &AddressRange,
        guard: usize,
        at: usize,
    ) -> Option<(Taken, usize, Warm)> {
        let range = self.warm.remove(at);
        self.state.warm -= 1;
        let accessible = range.state.accessible;
        // Nothing changes, so that nothing is asked of the system.
        let taken = Taken::new(reservation, range.start + guard, accessible, accessible).ok()?;
        Some((taken, range.start, range.state.warm?))
    }

    /// A range is as it should be.
    fn put_back(&mut self, range: CleanRange) {
        match range.state.warm {
            Some(_) => {
                self.state.warm += 1;
                self.warm.push(range);
            }
            None => {
                self.state.clean += 1;
                self.clean.push(range);
            }
        }
    }

    fn clean_first(
        &mut self,
        reservation: &AddressRange,
        queue: &mut Queue,
        pages: usize,
    ) -> usize {
        let Some((number, mut range)) = queue.pop(&mut self.dirty) else {
            return 0;
        };
        let before = range.dirty.pages();
        let step = range.dirty.step(reservation, pages);
        let visited = before - range.dirty.pages();
        self.state.dirty_pages -= visited;
        match step {
            Ok(()) if range.dirty.pages() > 0 => queue.put_back(&mut self.dirty, number, range),
            Ok(()) => {
                self.state.dirty -= 1;
                self.put_back(range.then);
            }
            Err(error) => {
                tracing::warn!(%error, start = range.then.start, "an address range is put in quarantine");
                self.state.dirty_pages -= range.dirty.pages();
                self.state.dirty -= 1;
                self.state.quarantined += 1;
                // Its keeper may be gone when it is clean.
                range.forgo();
                self.quarantine.push(&mut self.dirty, number, range);
            }
        }
        visited
    }

    fn retry(&mut self, reservation: &AddressRange, pages: usize) -> Retried {
        let Some((number, mut range)) = self.quarantine.pop(&mut self.dirty) else {
            return Retried::Empty;
        };
        match range.dirty.step(reservation, pages) {
            Ok(()) if range.dirty.pages() > 0 => {
                self.quarantine.put_back(&mut self.dirty, number, range);
            }
            Ok(()) => {
                self.state.quarantined -= 1;
                self.put_back(range.then);
            }
            Err(error) => {
                tracing::debug!(%error, start = range.then.start, "an address range stays in quarantine");
                self.quarantine.push(&mut self.dirty, number, range);
                return Retried::Refused;
            }
        }
        Retried::Stepped
    }
}
