//! Holds a node's memory: frames without a page are kept from other programs.
//!
//! Frames of areas come from the kernel when a page is first filled, and go back when it is
//! released. A reservation promises that a frame is available then, so the process always holds as
//! much memory as the node has frames: as pages of areas, as memory that it has
//! [lent](crate::Paging::lend) to tenants that do not page, and for the rest as a *ballast* of
//! touched pages, some of which are dropped right before others are filled.

use std::io;

use rustix::mm::Advice;

use crate::span::Span;

/// Nodes of this size or more hold their ballast in large pages.
const LARGE_FROM: u32 = 8 * LARGE;
/// Pages of a large page.
const LARGE: u32 = 512;
/// Pages that a small node's ballast changes by.
const SMALL: u32 = 16;
/// Pages of the ballast that are dropped in one step at the most.
const STEP: u32 = 2 * LARGE;

/// Whether the host's own swapping may take frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locking {
    /// It may.
    Never,
    /// Frames are locked as far as the user may lock memory ([`Held`] says how far).
    #[default]
    IfAllowed,
}

/// The memory that a node really holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Frames of the node.
    pub frames: u32,
    /// Of these, frames of the ballast.
    pub ballast: u32,
    /// Frames with pages of areas in them.
    pub used: u32,
    /// Frames lent to memory outside of areas.
    pub lent: u32,
    /// The ballast and the areas are locked. If not, the host may swap them out if it
    /// [swaps](Held::host_swaps) at all: locking was not asked for, or the user has not the right
    /// (`RLIMIT_MEMLOCK`, `CAP_IPC_LOCK`).
    pub locked: bool,
    /// The host has swap space of its own.
    pub host_swaps: bool,
}

/// The ballast of a node, and the count of what is used instead of it.
#[derive(Debug)]
pub(crate) struct Ballast {
    span: Span,
    frames: u32,
    /// Pages of the span that are there, from its start.
    size: u32,
    used: u32,
    lent: u32,
    /// Pages that it changes by.
    unit: u32,
    locked: bool,
}

impl Ballast {
    /// Takes `frames` frames from the host: takes time for each.
    pub(crate) fn hold(frames: u32, locking: Locking) -> io::Result<Self> {
        let span = Span::allocate(frames)?;
        let unit = if frames >= LARGE_FROM {
            // Without large pages it only takes longer.
            let _ = span.advise(Advice::LinuxHugepage);
            LARGE
        } else {
            SMALL
        };
        let mut ballast = Ballast {
            span,
            frames,
            size: 0,
            used: 0,
            lent: 0,
            unit,
            locked: locking == Locking::IfAllowed && span.lock_on_fault().is_ok(),
        };
        ballast.refill(u32::MAX)?;
        Ok(ballast)
    }

    pub(crate) fn held(&self) -> Held {
        Held {
            frames: self.frames,
            ballast: self.size,
            used: self.used,
            lent: self.lent,
            locked: self.locked,
            host_swaps: host_swaps(),
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.locked
    }

    pub(crate) fn not_all_locked(&mut self) {
        self.locked = false;
    }

    /// Drops as many pages of the ballast as pages of areas are about to be filled.
    #[inline]
    pub(crate) fn use_frames(&mut self, pages: u32) {
        self.used += pages;
        if self.size > self.most() {
            self.shrink();
        }
    }

    /// Pages of areas were dropped.
    #[inline]
    pub(crate) fn free_frames(&mut self, pages: u32) {
        self.used -= pages;
    }

    pub(crate) fn lend(&mut self, pages: u32) {
        self.lent += pages;
        if self.size > self.most() {
            self.shrink();
        }
    }

    pub(crate) fn restore(&mut self, pages: u32) {
        self.lent = self.lent.saturating_sub(pages);
    }

    /// Pages that the ballast may have beside what is used.
    fn most(&self) -> u32 {
        let taken = self.used.saturating_add(self.lent);
        self.frames.saturating_sub(taken)
    }

    /// Drops what is used or lent instead, [`STEP`] pages of it at the most: more than any one
    /// operation uses, so that only what was lent in a large piece is dropped later.
    fn shrink(&mut self) {
        let least = self.size.saturating_sub(STEP).next_multiple_of(self.unit);
        let size = (self.most() / self.unit * self.unit).max(least.min(self.size));
        let dropped = self.span.part(size, self.size);
        // The advice for locked memory suits all. After a failure the process has more than its
        // frames, which is harmless.
        let _ = dropped.advise(Advice::LinuxDontneedLocked);
        self.size = size;
    }

    /// Takes up to `limit` frames again that were freed, or drops some that were lent; returns
    /// whether all are held now, and no more.
    pub(crate) fn refill(&mut self, limit: u32) -> io::Result<bool> {
        if self.size > self.most() {
            self.shrink();
            return Ok(false);
        }
        let most = self.most() / self.unit * self.unit;
        let most = if self.used + self.lent == 0 {
            self.frames
        } else {
            most
        };
        let mut left = limit;
        while self.size < most && left > 0 {
            // Up to the next whole unit, so that large pages are filled at once.
            let unit = (self.size / self.unit + 1) * self.unit;
            let to = unit.min(most);
            self.span
                .part(self.size, to)
                .advise(Advice::LinuxPopulateWrite)?;
            left = left.saturating_sub(to - self.size);
            self.size = to;
        }
        Ok(self.size >= most)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = self.span.unmap();
    }
}

/// Returns whether the host has swap space; if that cannot be read, it may have.
fn host_swaps() -> bool {
    std::fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1)
}

#[cfg(test)]
mod tests {
    use super::{Ballast, Locking};

    #[test]
    fn what_is_used_lent_and_held_is_what_the_node_has() {
        let mut ballast = Ballast::hold(200, Locking::Never).expect("memory");
        assert_eq!(ballast.held().ballast, 200);
        for step in 1..=20 {
            ballast.use_frames(7);
            ballast.lend(3);
            let held = ballast.held();
            let sum = held.ballast + held.used + held.lent;
            assert!(sum <= 200 && sum + 16 > 200, "step {step}: {held:?}");
        }
        ballast.free_frames(140);
        ballast.restore(60);
        assert!(!ballast.refill(100).expect("memory"));
        assert!(ballast.refill(u32::MAX).expect("memory"));
        assert_eq!(ballast.held().ballast, 200);
    }
}
