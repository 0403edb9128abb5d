//! The pages of an area that its extent of the file has in memory.
//!
//! Pages become cached, and cease to be so, here only: the record of an area, the states of the
//! [head](crate::prepared) and the count of [used frames](Ballast) change together.
//!
//! Only these records tell what is in an extent, and nothing else is punched out when it is given back. So a page that
//! became cached unnoticed would be the next area's to read. Where that may have happened, because several calls failed,
//! the extent has [*strays*](CachedPages::has_strays), and all of it is punched out.

use std::io;

use leasehold_pager::PageNumber;
use rustix::io::Errno;

use crate::bits::PageBits;
use crate::hold::Ballast;
use crate::page_file::{Extent, PageFile};
use crate::prepared::Head;

/// Prepared pages between two cached ones that are punched out with them: 0.7 µs each, against 2.4 µs for a call more. So no
/// choice of touched pages makes the end of an area dearer than touching all of them does, by which its pages are priced.
const GAP: u32 = 3;

/// What one step may punch out besides the cached pages that it is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Punches {
    /// System calls.
    calls: u32,
    /// Prepared pages between cached ones.
    prepared: u32,
}

impl Punches {
    /// A step of the end of a tenant: 20 µs of calls, and 23 µs of prepared pages.
    pub(crate) const STEP: Self = Punches {
        calls: 8,
        prepared: 32,
    };
    /// No limit.
    const ALL: Self = Punches {
        calls: u32::MAX,
        prepared: u32::MAX,
    };
}

/// The pages of an area that the file has in memory: no other area shares the extent.
#[derive(Debug)]
pub(crate) struct CachedPages {
    extent: Extent,
    cached: PageBits,
    strays: bool,
}

impl CachedPages {
    /// None of an extent.
    pub(crate) fn new(extent: Extent) -> Self {
        CachedPages {
            extent,
            cached: PageBits::new(extent.pages()),
            strays: false,
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    #[inline]
    pub(crate) fn get(&self, page: PageNumber) -> bool {
        self.cached.get(page)
    }

    /// The page where a walk from `from` ends that may meet `limit` cached pages.
    pub(crate) fn after(&self, from: PageNumber, to: PageNumber, limit: u32) -> PageNumber {
        self.cached.after(from, to, limit)
    }

    /// Compares these pages with the states of the head, and returns how many they are, and how many of the head: for
    /// tests.
    ///
    /// # Panics
    /// If they differ.
    pub(crate) fn audit(&self, head: &Head) -> (u32, u32) {
        let overlap = head.overlap(self.extent.page(PageNumber::FIRST), self.extent.pages());
        for number in PageNumber::range(0..overlap) {
            let page = self.extent.page(number);
            assert_eq!(head.is_taken(page), self.get(number), "page {page}");
        }
        let within = self
            .cached
            .count_in(PageNumber::FIRST, PageNumber::new(overlap));
        (self.cached.count(), within)
    }

    /// Returns whether a page is prepared, and how many pages from it on, up to `to`, are as it is.
    pub(crate) fn stretch(
        &self,
        ballast: &Ballast,
        page: PageNumber,
        to: PageNumber,
    ) -> (bool, u32) {
        ballast
            .head()
            .stretch(self.extent.page(page), to.since(page))
    }

    /// Records that pages `from .. to`, of which none was, are cached: the kernel has allocated them, or they were
    /// prepared.
    pub(crate) fn put(&mut self, ballast: &mut Ballast, from: PageNumber, to: PageNumber) {
        for page in PageNumber::range(from.get()..to.get()) {
            let was = self.cached.put(page, true);
            debug_assert!(!was, "cached twice");
        }
        ballast.take(self.extent.page(from), self.extent.page(to));
    }

    /// Pages of the extent may be cached that this does not know of.
    pub(crate) fn has_strays(&mut self) {
        self.strays = true;
    }

    /// Copies a cached page out.
    pub(crate) fn load(
        &self,
        file: &PageFile,
        page: PageNumber,
        into: &mut [u8],
    ) -> io::Result<()> {
        file.load(self.extent, page, into)
    }

    /// Fills a page without mapping it; it is cached then.
    ///
    /// # Errors
    /// The kernel's: its contents are undefined if it was cached.
    pub(crate) fn save(
        &mut self,
        file: &PageFile,
        ballast: &mut Ballast,
        page: PageNumber,
        from: &[u8],
    ) -> io::Result<()> {
        if self.get(page) {
            return file.save(self.extent, page, from);
        }
        if self.fill_prepared(ballast, page, from) {
            return Ok(());
        }
        ballast.make_room(file, 1);
        if let Err(error) = file.save(self.extent, page, from) {
            // The kernel may have allocated it before it failed.
            self.has_strays();
            return Err(error);
        }
        self.put(ballast, page, page.next());
        Ok(())
    }

    /// Fills a page without mapping it if it is prepared, by no system call; returns whether it was.
    pub(crate) fn fill_prepared(
        &mut self,
        ballast: &mut Ballast,
        page: PageNumber,
        from: &[u8],
    ) -> bool {
        let filled = ballast.fill_prepared(self.extent.page(page), from);
        if filled {
            self.put(ballast, page, page.next());
        }
        filled
    }

    /// Gives the frames of cached pages of `from .. to` back to the kernel, which takes them out of every page table as
    /// well; prepared pages stay, except for few between those. Returns how far it came.
    ///
    /// # Errors
    /// The kernel's; pages behind those that were given back are as they were.
    pub(crate) fn punch(
        &mut self,
        file: &PageFile,
        ballast: &mut Ballast,
        (from, to): (PageNumber, PageNumber),
        mut punches: Punches,
    ) -> Result<PageNumber, Errno> {
        let mut at = from;
        while let Some((first, end)) = self.next_run(ballast, (at, to), &mut punches.prepared) {
            if punches.calls == 0 {
                return Ok(first);
            }
            punches.calls -= 1;
            self.punch_all_of(file, ballast, first, end)?;
            at = end;
        }
        Ok(to)
    }

    /// Gives all frames of the extent back, so that it reads as zeros for the next area.
    ///
    /// # Errors
    /// The kernel's; it can be tried again.
    pub(crate) fn vacate(&mut self, file: &PageFile, ballast: &mut Ballast) -> Result<(), Errno> {
        let all = (PageNumber::FIRST, self.extent.end());
        if self.strays {
            self.punch_all_of(file, ballast, all.0, all.1)?;
            self.strays = false;
            return Ok(());
        }
        self.punch(file, ballast, all, Punches::ALL).map(|_| ())
    }

    /// The first cached pages of `from .. to`, with those behind them that one call does better than two for.
    fn next_run(
        &self,
        ballast: &Ballast,
        (from, to): (PageNumber, PageNumber),
        prepared: &mut u32,
    ) -> Option<(PageNumber, PageNumber)> {
        let end_of = |page| self.cached.first(page, to, false).unwrap_or(to);
        let first = self.cached.first(from, to, true)?;
        let mut end = end_of(first);
        while let Some(next) = self.cached.first(end, to, true) {
            let (from, to) = (self.extent.page(end), self.extent.page(next));
            let between = ballast.head().prepared_in(from, to);
            if between > GAP.min(*prepared) {
                break;
            }
            *prepared -= between;
            end = end_of(next);
        }
        Some((first, end))
    }

    /// Gives the frames of all pages of `from .. to` back, prepared or not.
    fn punch_all_of(
        &mut self,
        file: &PageFile,
        ballast: &mut Ballast,
        from: PageNumber,
        to: PageNumber,
    ) -> Result<(), Errno> {
        let (first, end) = (self.extent.page(from), self.extent.page(to));
        file.punch(first, end)?;
        let freed = self.cached.clear(from, to);
        ballast.punched(first, end, freed);
        Ok(())
    }
}
