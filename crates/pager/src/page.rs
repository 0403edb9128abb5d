//! Names of pages: a page's number, and the area that it is in.

use core::ops::Range;

use crate::table::Key;

/// Names an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AreaId(pub(crate) Key);

impl AreaId {
    /// A small number that no other living area has.
    pub const fn index(self) -> u32 {
        self.0.index
    }
}

/// The number of a page in its area or attachment, from 0.
///
/// Counts of pages, such as lengths and limits, are plain integers. The end of a range is the page
/// behind it, which an area need not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PageNumber(u32);

impl PageNumber {
    /// The number of the first page.
    pub const FIRST: Self = PageNumber(0);

    /// Names the page that has `number` pages before it.
    #[inline]
    pub const fn new(number: u32) -> Self {
        PageNumber(number)
    }

    /// Returns the bare number, which is also the count of the pages before this one.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the place of the page in a list with an element for each page.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the next page.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the page that comes `pages` pages later.
    #[inline]
    #[must_use]
    pub const fn plus(self, pages: u32) -> Self {
        PageNumber(self.0 + pages)
    }

    /// Returns the count of the pages from `earlier` on that come before this one.
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0 - earlier.0
    }

    /// Returns whether it is one of the first `pages` pages.
    #[inline]
    pub const fn is_within(self, pages: u32) -> bool {
        self.0 < pages
    }

    /// Returns the pages with these numbers, in order.
    #[inline]
    pub fn range(numbers: Range<u32>) -> impl Iterator<Item = Self> {
        numbers.map(PageNumber)
    }
}

/// A page of an area, independent of its mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    /// The area.
    pub area: AreaId,
    /// Number of the page in its area.
    pub number: PageNumber,
}
