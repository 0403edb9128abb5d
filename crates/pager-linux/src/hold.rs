//! Holds a node's memory: frames without a page are kept from other programs.
//!
//! Frames of areas come from the kernel when a page is first filled, and go back when it is
//! released. A reservation promises that a frame is available then, so the process always holds as
//! much memory as the node has frames: as pages of areas, as memory that it has
//! [lent](crate::Paging::lend) to tenants that do not page, and for the rest as a *ballast* of
//! touched pages, some of which are dropped right before others are filled.
//!
//! It has no large pages: to clear one takes 0.25 ms, and 5 ms in a virtual machine whose host must find memory for
//! it, and nothing interrupts that.

use std::io;

use rustix::mm::Advice;

use crate::probe::locks_without_limit;
use crate::span::Span;

/// Pages that the ballast changes by.
const UNIT: u32 = 16;
/// Pages of the ballast that are dropped in one step at the most: 40 us.
const STEP: u32 = 256;

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
    locked: bool,
    /// The user may lock so much and no more.
    limited: bool,
}

impl Ballast {
    /// Takes `frames` frames from the host: takes time for each.
    pub(crate) fn hold(frames: u32, locking: Locking) -> io::Result<Self> {
        let span = Span::allocate(frames)?;
        // A kernel that has none refuses the advice: as good.
        let _ = span.advise(Advice::LinuxNoHugepage);
        let mut ballast = Ballast {
            span,
            frames,
            size: 0,
            used: 0,
            lent: 0,
            locked: locking == Locking::IfAllowed && span.lock_on_fault().is_ok(),
            limited: !locks_without_limit(),
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

    /// Whether what is locked is counted against a limit, as it was when this was made: a process that loses the right to
    /// lock without one raises the limit before.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
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
        let least = self.size.saturating_sub(STEP).next_multiple_of(UNIT);
        let size = (self.most() / UNIT * UNIT).max(least.min(self.size));
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
        let least = self.least();
        let to = least.min(self.size.saturating_add(limit));
        if self.size < to {
            self.span
                .part(self.size, to)
                .advise(Advice::LinuxPopulateWrite)?;
            self.size = to;
        }
        Ok(self.size >= least)
    }

    /// Whether all free frames are held, and no more.
    pub(crate) fn is_whole(&self) -> bool {
        (self.least()..=self.most()).contains(&self.size)
    }

    /// Pages that the ballast should have beside what is used.
    fn least(&self) -> u32 {
        match self.used + self.lent {
            0 => self.frames,
            _ => self.most() / UNIT * UNIT,
        }
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
    use super::{Ballast, Locking, STEP, UNIT};

    #[test]
    fn a_step_takes_no_more_than_it_may_and_drops_no_more_than_a_step() {
        let frames = 16 * STEP;
        let mut ballast = Ballast::hold(frames, Locking::Never).expect("memory");
        let mut sizes = vec![frames];
        ballast.lend(frames);
        while ballast.held().ballast > 0 {
            sizes.push(ballast.held().ballast);
            ballast.use_frames(0);
        }
        assert!(
            sizes.windows(2).all(|two| two[0] - two[1] <= STEP),
            "{sizes:?}"
        );
        ballast.restore(frames);
        for taken in 1..=frames / UNIT {
            ballast.refill(UNIT).expect("memory");
            assert_eq!(ballast.held().ballast, taken * UNIT);
        }
    }

    #[test]
    fn it_has_no_large_pages() {
        let ballast = Ballast::hold(16 * STEP, Locking::Never).expect("memory");
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
        let start = format!("{:x}-", ballast.span.start());
        let mut its = maps.lines().skip_while(|line| !line.starts_with(&start));
        let large = its.find(|line| line.starts_with("AnonHugePages:"));
        let kib = large.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(kib, Some("0"));
    }

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
