//! Holds a node's memory: frames without a page are kept from other programs.
//!
//! Frames of areas come from the kernel when a page is first filled, and go back when it is
//! released. A reservation promises that a frame is available then, so the process always holds as
//! much memory as the node has frames: as pages of areas, as memory that it has
//! [lent](crate::Paging::lend) to tenants that do not page, and for the rest as a *ballast*.
//!
//! The ballast consists of [prepared](Head) pages of the head of the page file: of its first pages, as many as the node
//! has frames. A mapping of the head, the *view*, populates them, and keeps them resident and locked. The first touch of a
//! page that is prepared takes no frame from the kernel: the page becomes the area's, and leaves the ballast and the view.
//! For other pages, as many prepared ones are punched out before.
//!
//! It has no large pages: to clear one takes 0.25 ms, and 5 ms in a virtual machine whose host must find memory for
//! it, and nothing interrupts that.

use std::io;
use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::Advice;

use crate::page_file::PageFile;
use crate::prepared::{Head, UNIT};
use crate::probe::locks_without_limit;
use crate::span::Span;

/// Pages of the ballast that are dropped in one step at the most: 50 µs.
const STEP: u32 = 64;
/// Pages that a call to drop fewer takes as long as: 3 µs. A step still has a call for each page that a fault maps.
const CALL: u32 = 3;

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
    /// The head of the file.
    view: Span,
    head: Head,
    /// Pages that areas took and that the view still has: neighbours, fewer than [`UNIT`], which leave it in one call.
    leaving: Range<u32>,
    /// Holes of which some may be in memory: they could neither be populated nor punched out.
    unsure: Option<Range<u32>>,
    frames: u32,
    used: u32,
    lent: u32,
    locked: bool,
    /// The user may lock so much and no more.
    limited: bool,
}

impl Ballast {
    /// Takes `frames` frames from the host, as pages of the file: takes time for each.
    pub(crate) fn hold(file: &PageFile, frames: u32, locking: Locking) -> io::Result<Self> {
        let mut ballast = Ballast {
            view: Span::allocate(frames)?,
            head: Head::new(frames),
            leaving: 0..0,
            unsure: None,
            frames,
            used: 0,
            lent: 0,
            locked: false,
            limited: !locks_without_limit(),
        };
        let view = ballast.view;
        view.map(file.as_fd(), 0)?;
        // A kernel that has none refuses the advice: as good.
        let _ = view.advise(Advice::LinuxNoHugepage);
        ballast.locked = locking == Locking::IfAllowed && view.lock_on_fault().is_ok();
        ballast.refill(file, u32::MAX)?;
        Ok(ballast)
    }

    pub(crate) fn held(&self) -> Held {
        Held {
            frames: self.frames,
            ballast: self.head.prepared(),
            used: self.used,
            lent: self.lent,
            locked: self.locked,
            host_swaps: host_swaps(),
        }
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
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

    /// Drops as many pages of the ballast as pages of areas are about to be filled that are not prepared.
    #[inline]
    pub(crate) fn make_room(&mut self, file: &PageFile, pages: u32) {
        if self.unsure.is_some() {
            // Pages that are there unnoticed could not be filled.
            let _ = self.punch_unsure(file);
        }
        if self.excess(pages) > 0 {
            // After a failure the process has more than its frames until the next call, which is harmless.
            let _ = self.shrink(file, pages);
        }
    }

    /// Pages `from .. to` of the file have become pages of an area: prepared ones, or such for which there is
    /// [room](Self::make_room).
    #[inline]
    pub(crate) fn take(&mut self, from: u64, to: u64) {
        self.used += (to - from) as u32;
        let prepared = self.head.prepared_in(from, to);
        self.head.take(from, to);
        if prepared > 0 {
            debug_assert_eq!(u64::from(prepared), to - from, "alike");
            self.leave(from as u32..to as u32);
        }
    }

    /// Fills a page of the file, if it is prepared, for the area that is about to [take](Self::take) it.
    pub(crate) fn fill_prepared(&mut self, page: u64, from: &[u8]) -> bool {
        let is_prepared = self.head.is_prepared(page);
        if is_prepared {
            let page = page as u32;
            self.view.part(page, page + 1).write(from);
        }
        is_prepared
    }

    /// Pages `from .. to` of the file were punched out, of which `used` were areas'.
    #[inline]
    pub(crate) fn punched(&mut self, from: u64, to: u64, used: u32) {
        self.head.punched(from, to);
        self.used -= used;
    }

    pub(crate) fn lend(&mut self, file: &PageFile, pages: u32) {
        self.lent += pages;
        self.make_room(file, 0);
    }

    pub(crate) fn restore(&mut self, pages: u32) {
        self.lent = self.lent.saturating_sub(pages);
    }

    /// Pages that the ballast may have beside what is used.
    fn most(&self) -> u32 {
        let taken = self.used.saturating_add(self.lent);
        self.frames.saturating_sub(taken)
    }

    /// Pages that it has beyond those, if `pages` more are used.
    fn excess(&self, pages: u32) -> u32 {
        let most = self.most().saturating_sub(pages);
        self.head.prepared().saturating_sub(most)
    }

    /// Drops what `pages` more pages or lent ones are used instead of, [`STEP`] pages at the most: more than any one
    /// operation uses, so that only what was lent in a large piece is dropped later. Whole units where there are any;
    /// otherwise there may be a call for each page, which counts as [`CALL`] of them.
    fn shrink(&mut self, file: &PageFile, pages: u32) -> Result<(), Errno> {
        let mut left = STEP;
        while left > 0
            && let excess @ 1.. = self.excess(pages)
            && let Some(dropped) = self.head.highest_prepared(excess.min(left))
        {
            let (from, to) = (u64::from(dropped.start), u64::from(dropped.end));
            file.punch(from, to)?;
            self.head.punched(from, to);
            left = left.saturating_sub((dropped.len() as u32).max(CALL));
        }
        Ok(())
    }

    /// Takes up to `limit` frames again that were freed, or drops some that were lent; returns
    /// whether all are held now, and no more.
    pub(crate) fn refill(&mut self, file: &PageFile, limit: u32) -> io::Result<bool> {
        // What is prepared from here on must stay in the view.
        self.settle();
        self.punch_unsure(file)?;
        if self.excess(0) > 0 {
            self.shrink(file, 0)?;
            return Ok(false);
        }
        let least = self.least();
        let mut left = least.saturating_sub(self.head.prepared()).min(limit);
        while left > 0 {
            // The pages that are missing are neither prepared nor used, so no area has them.
            let Some(holes) = self.head.lowest_holes(left) else {
                debug_assert!(false, "frames are missing, and no hole is left");
                break;
            };
            let part = self.view.part(holes.start, holes.end);
            if let Err(error) = part.advise(Advice::LinuxPopulateWrite) {
                self.unsure = Some(holes);
                let _ = self.punch_unsure(file);
                return Err(error);
            }
            left -= holes.len() as u32;
            self.head.prepare(holes);
        }
        Ok(self.head.prepared() >= least)
    }

    /// Makes holes of pages that may have been populated, except for those that areas have taken since.
    fn punch_unsure(&mut self, file: &PageFile) -> Result<(), Errno> {
        while let Some(unsure) = &mut self.unsure {
            let Some(holes) = self.head.holes_in(unsure.clone()) else {
                self.unsure = None;
                break;
            };
            file.punch(u64::from(holes.start), u64::from(holes.end))?;
            unsure.start = holes.end;
        }
        Ok(())
    }

    /// Whether all free frames are held, and no more.
    pub(crate) fn is_whole(&self) -> bool {
        (self.least()..=self.most()).contains(&self.head.prepared())
    }

    /// Pages that the ballast should have beside what is used.
    fn least(&self) -> u32 {
        match self.used + self.lent {
            0 => self.frames,
            _ => self.most() / UNIT * UNIT,
        }
    }

    /// Pages that areas took leave the view, so that nothing is resident twice.
    fn leave(&mut self, pages: Range<u32>) {
        if self.leaving.end != pages.start {
            self.settle();
            self.leaving.start = pages.start;
        }
        self.leaving.end = pages.end;
        if self.leaving.len() >= UNIT as usize {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        if !leaving.is_empty() {
            let part = self.view.part(leaving.start, leaving.end);
            // The advice for locked memory suits all. After a failure the view has the pages until they are punched out.
            let _ = part.advise(Advice::LinuxDontneedLocked);
        }
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = self.view.unmap();
    }
}

/// Returns whether the host has swap space; if that cannot be read, it may have.
fn host_swaps() -> bool {
    std::fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, proptest};
    use proptest::{prop_assert, prop_assert_eq};
    use rustix::fs::{FallocateFlags, fallocate};

    use super::{Ballast, Locking, STEP, UNIT};
    use crate::page_file::PageFile;

    fn hold(frames: u32) -> (PageFile, Ballast) {
        let file = PageFile::new().expect("a file");
        let ballast = Ballast::hold(&file, frames, Locking::Never).expect("memory");
        (file, ballast)
    }

    /// The kernel allocates pages of the file for an area, or finds them prepared.
    fn fill(file: &PageFile, ballast: &mut Ballast, mut from: u64, to: u64) {
        while from < to {
            let (is_prepared, pages) = ballast.head().stretch(from, (to - from) as u32);
            if !is_prepared {
                ballast.make_room(file, pages);
            }
            let (end, mode) = (from + u64::from(pages), FallocateFlags::empty());
            fallocate(file.as_fd(), mode, from * 4096, (end - from) * 4096).expect("memory");
            ballast.take(from, end);
            from = end;
        }
    }

    fn free(file: &PageFile, ballast: &mut Ballast, from: u64, to: u64) {
        file.punch(from, to).expect("pages");
        ballast.punched(from, to, (to - from) as u32);
    }

    #[test]
    fn a_step_takes_no_more_than_it_may_and_drops_no_more_than_a_step() {
        let frames = 16 * STEP;
        let (file, mut ballast) = hold(frames);
        let mut sizes = vec![frames];
        ballast.lend(&file, frames);
        while ballast.held().ballast > 0 {
            sizes.push(ballast.held().ballast);
            ballast.make_room(&file, 0);
        }
        assert!(
            sizes.windows(2).all(|two| two[0] - two[1] <= STEP),
            "{sizes:?}"
        );
        ballast.restore(frames);
        for taken in 1..=frames / UNIT {
            ballast.refill(&file, UNIT).expect("memory");
            assert_eq!(ballast.held().ballast, taken * UNIT);
        }
    }

    /// What the kernel says of a mapping, KiB.
    fn kib(ballast: &Ballast, name: &str) -> u32 {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
        let start = format!("{:x}-", ballast.view.start());
        let mut its = maps.lines().skip_while(|line| !line.starts_with(&start));
        let line = its.find(|line| line.starts_with(name)).expect("a line");
        let word = line.split_whitespace().nth(1).expect("a number");
        word.parse().expect("a number")
    }

    #[test]
    fn it_has_no_large_pages() {
        let (_file, ballast) = hold(16 * STEP);
        assert_eq!(kib(&ballast, "AnonHugePages:"), 0);
        assert_eq!(kib(&ballast, "ShmemPmdMapped:"), 0);
    }

    #[test]
    fn what_is_used_lent_and_held_is_what_the_node_has() {
        for first in [0, 1_000] {
            let (file, mut ballast) = hold(200);
            assert_eq!(ballast.held().ballast, 200);
            for step in 1..=20 {
                let from = first + 7 * (step - 1);
                fill(&file, &mut ballast, from, from + 7);
                ballast.lend(&file, 3);
                let held = ballast.held();
                let sum = held.ballast + held.used + held.lent;
                assert!(sum <= 200 && sum + 16 > 200, "step {step}: {held:?}");
            }
            free(&file, &mut ballast, first, first + 140);
            ballast.restore(60);
            assert!(!ballast.refill(&file, 100).expect("memory"));
            assert!(ballast.refill(&file, u32::MAX).expect("memory"));
            assert_eq!(ballast.held().ballast, 200);
        }
    }

    #[test]
    fn what_areas_take_of_it_leaves_the_view() {
        let (file, mut ballast) = hold(200);
        for page in (0..64).chain(70..100) {
            fill(&file, &mut ballast, page, page + 1);
            let (resident, held) = (kib(&ballast, "Rss:") / 4, ballast.held().ballast);
            assert!(
                (held..held + UNIT).contains(&resident),
                "{held}, {resident}"
            );
        }
        // An area that has them in memory has them alone, and a page that is prepared anew stays.
        free(&file, &mut ballast, 98, 100);
        while !ballast.refill(&file, 8).expect("memory") {}
        assert_eq!(kib(&ballast, "Rss:") / 4, ballast.held().ballast);
    }

    proptest! {
        /// In whichever order pages are used and given back: the sum is what the node has, prepared pages are zero, and
        /// no page is in memory that is not counted.
        #[test]
        fn prepared_pages_are_zero_and_all_pages_are_counted(
            steps in prop::collection::vec((0u8..4, 0u64..200, 1u64..9), 0..60),
        ) {
            const FRAMES: u32 = 120;
            let (file, mut ballast) = hold(FRAMES);
            let mut areas = [false; 200];
            for (step, from, count) in steps {
                let to = (from + count).min(200);
                match step {
                    0 | 1 => for page in from..to {
                        let used = areas.iter().filter(|&&is_used| is_used).count();
                        if !areas[page as usize] && used < FRAMES as usize {
                            fill(&file, &mut ballast, page, page + 1);
                            rustix::io::pwrite(file.as_fd(), &[7; 4096], page * 4096).expect("memory");
                            areas[page as usize] = true;
                        }
                    },
                    2 => for page in from..to {
                        if std::mem::take(&mut areas[page as usize]) {
                            free(&file, &mut ballast, page, page + 1);
                        }
                    },
                    _ => {
                        ballast.refill(&file, count as u32).expect("memory");
                    }
                }
                let held = ballast.held();
                prop_assert!(held.ballast + held.used <= FRAMES, "{:?}", held);
                let resident = file.resident_bytes().expect("a size") / 4096;
                prop_assert_eq!(resident, u64::from(held.ballast + held.used));
                for (page, &is_used) in areas.iter().enumerate() {
                    let mut bytes = [1; 4096];
                    rustix::io::pread(file.as_fd(), &mut bytes, page as u64 * 4096).expect("a page");
                    prop_assert_eq!(bytes[9], if is_used { 7 } else { 0 });
                }
            }
            while !ballast.refill(&file, 8).expect("memory") {}
            let held = ballast.held();
            prop_assert!(held.ballast + held.used + UNIT > FRAMES && ballast.is_whole(), "{:?}", held);
        }
    }
}
