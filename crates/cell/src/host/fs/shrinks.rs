//! Identifies the writes that need no measurement: those to blocks that a file is known to have.
//!
//! A descriptor remembers the blocks of its last measured write. Writing to these blocks again
//! takes no disk space, unless the file was shrunk meanwhile. Every file that tenants of the
//! process have open therefore has a state, which every truncation by any tenant changes. Changes that
//! are measured take turns, so that no growth is measured twice.

use super::class::Site;
use super::status::Identity;
use crate::host::linux::BLOCK;
use leasehold_crossing::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

/// Most blocks that a descriptor remembers, 8 KiB: what another process could take away unseen.
const MOST_BLOCKS: u64 = 16;

/// A truncation that is over: one more of these, and one less that is being made.
const OVER: u64 = (1 << 32) - 1;
/// The truncations that are being made.
const PENDING: u64 = u32::MAX as u64;

/// The state of an open file, for all tenants of the process.
#[derive(Debug, Default)]
struct File {
    state: AtomicU64,
    /// [Work](super::elsewhere) of other threads on it.
    elsewhere: Arc<AtomicUsize>,
    /// Held while a change is made and measured.
    turn: Mutex<()>,
}

type States = BTreeMap<Identity, Weak<File>>;

/// The states of all files that tenants have open; no more than descriptors.
static STATES: LazyLock<Mutex<States>> = LazyLock::new(Mutex::default);

fn states() -> MutexGuard<'static, States> {
    STATES.lock()
}

/// The truncations of a file, while a tenant has it open.
#[derive(Debug)]
pub(super) struct Shrinks {
    identity: Identity,
    file: Arc<File>,
}

impl Shrinks {
    /// Returns the truncations of the file with this identity.
    pub(super) fn of(identity: Identity) -> Self {
        let mut states = states();
        let known = states.get(&identity).and_then(Weak::upgrade);
        let file = known.unwrap_or_else(|| {
            let file = Arc::<File>::default();
            states.insert(identity, Arc::downgrade(&file));
            file
        });
        Self { identity, file }
    }

    /// Returns the count of work that other threads do on the file.
    pub(super) fn elsewhere(&self) -> &Arc<AtomicUsize> {
        &self.file.elsewhere
    }

    /// Begins a change that is measured, waiting for those of others where that is allowed; `None` on the
    /// cell's thread if one is being made.
    pub(super) fn turn(&self, site: Site) -> Option<MutexGuard<'_, ()>> {
        match site {
            Site::Blocking => Some(self.file.turn.lock()),
            Site::Cell(_) => self.file.turn.try_lock(),
        }
    }

    /// Returns the state of the file, if it is not being made smaller.
    pub(super) fn state(&self) -> Option<State> {
        let state = self.file.state.load(Ordering::Acquire);
        (state & PENDING == 0).then_some(State(state))
    }

    /// Whether no truncation has begun since the file was in this state.
    pub(super) fn is_still(&self, state: State) -> bool {
        self.file.state.load(Ordering::Acquire) == state.0
    }

    /// Makes the file smaller.
    pub(super) fn shrink<T>(&self, work: impl FnOnce() -> T) -> T {
        self.file.state.fetch_add(1, Ordering::AcqRel);
        let result = work();
        self.file.state.fetch_add(OVER, Ordering::AcqRel);
        result
    }
}

impl Drop for Shrinks {
    fn drop(&mut self) {
        let mut states = states();
        // The lock keeps another reference from being made meanwhile.
        if Arc::strong_count(&self.file) == 1 {
            states.remove(&self.identity);
        }
    }
}

/// A file between two truncations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// Blocks that a file has, as long as it is in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    state: State,
    first: u64,
    last: u64,
}

/// Returns the blocks of a range of bytes, if there are any.
fn blocks(offset: u64, bytes: usize) -> Option<RangeInclusive<u64>> {
    let last = offset.checked_add(bytes as u64)?.checked_sub(1)?;
    (bytes > 0).then_some(offset / BLOCK..=last / BLOCK)
}

impl Window {
    /// Returns the blocks of a write that was measured, and before which the file was in this state; if they
    /// are few.
    pub(super) fn new(state: State, offset: u64, bytes: usize) -> Option<Self> {
        let blocks = blocks(offset, bytes)?;
        let (first, last) = (*blocks.start(), *blocks.end());
        (last - first < MOST_BLOCKS).then_some(Self { state, first, last })
    }

    /// Returns the state in which a file has all blocks of a range of bytes.
    pub(super) fn covers(&self, offset: u64, bytes: usize) -> Option<State> {
        let blocks = blocks(offset, bytes)?;
        (self.first <= *blocks.start() && *blocks.end() <= self.last).then_some(self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::{Shrinks, Window, states};

    #[test]
    fn a_window_is_of_the_blocks_that_were_written_and_of_few() {
        let shrinks = Shrinks::of((1, 1));
        let state = shrinks.state().expect("not being changed");
        let window = Window::new(state, 511, 2).expect("two blocks");
        for (offset, bytes, covered) in [
            (0, 1024, true),
            (1023, 1, true),
            (1024, 1, false),
            (0, 1025, false),
            (0, 0, false),
            (u64::MAX, 2, false),
        ] {
            let covers = window.covers(offset, bytes) == Some(state);
            assert_eq!(covers, covered, "{offset} {bytes}");
        }
        assert!(Window::new(state, 0, 8192).is_some());
        assert_eq!(Window::new(state, 0, 8193), None);
        assert_eq!(Window::new(state, 0, 0), None);
    }

    #[test]
    fn a_truncation_of_any_tenant_ends_the_state_of_a_file_and_of_no_other() {
        let (mine, theirs) = (Shrinks::of((2, 1)), Shrinks::of((2, 1)));
        let other = Shrinks::of((2, 2));
        let before = mine.state().expect("not being changed");
        let others = other.state().expect("not being changed");
        theirs.shrink(|| {
            assert_eq!(mine.state(), None);
            // Two at a time are not taken for none.
            mine.shrink(|| assert_eq!(theirs.state(), None));
            assert_eq!(mine.state(), None);
            assert!(!mine.is_still(before));
        });
        assert!(mine.state().is_some() && !mine.is_still(before));
        assert!(other.is_still(others));
    }

    #[test]
    fn a_file_that_no_tenant_has_open_is_forgotten() {
        let identity = (3, 1);
        let (first, second) = (Shrinks::of(identity), Shrinks::of(identity));
        drop(first);
        assert!(states().contains_key(&identity));
        drop(second);
        assert!(!states().contains_key(&identity));
    }
}
