//! Areas: ranges of pages that one or more reservations use.
//!
//! Private memory is an area with one attachment. A page is *shared* while two or more
//! reservations have it mapped, and private again when one is left (SPC §IV-A, fig. 4c): nothing
//! is declared.

use alloc::vec::Vec;

use crate::attachment::Attachment;
use crate::frame::Frame;
use crate::lists::{BySharer, List};
use crate::page::PageNumber;
use crate::sparse::Sparse;
use crate::table::At;
use crate::usage::Usage;

/// The effect of mapping or evicting a page that other reservations have mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Shared-Page Conservation (SPC §IV-A), which isolates reservations: a frame is conserved for
    /// each foreign page, and evicting a shared page unmaps it from the evictor alone.
    Conserve,
    /// Baseline: reservations without shared-page management (SPC §III-B). A frame goes back to
    /// the node for each foreign page, and evicting a shared page evicts it for all. For hard
    /// reservations only.
    Plain,
    /// Baseline: the rule of Linux's memory control group (SPC §III-C). The first reservation that
    /// touches a page is charged for it and may evict it for all.
    FirstTouch,
}

/// One page of an area.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRecord {
    pub(crate) state: State,
    /// The ownership list (SPC fig. 7): the sharers of the page in the order of mapping. The first
    /// owns the frame, unless the area is locked.
    pub(crate) sharers: List<BySharer>,
    /// Secondary storage has a copy, or will have one before the page is clean.
    pub(crate) stored: bool,
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// In no frame: in secondary storage if [`PageRecord::stored`], else never written.
    Absent,
    /// In a frame.
    Resident(Frame),
    /// Gone: it could not be written out.
    Lost,
}

impl PageRecord {
    /// The frame of a page that is resident.
    #[inline]
    pub(crate) fn frame(&self) -> Frame {
        match self.state {
            State::Resident(frame) => frame,
            State::Absent | State::Lost => unreachable!("a mapped page is resident"),
        }
    }
}

const UNTOUCHED: PageRecord = PageRecord {
    state: State::Absent,
    sharers: List::EMPTY,
    stored: false,
};

#[derive(Debug, Clone)]
pub(crate) struct Area {
    pub(crate) sharing: Sharing,
    /// Pages from the first on that are under an eviction lock: the area itself holds a frame for each
    /// that is mapped. `None` if none is to be locked.
    pub(crate) lock: Option<u32>,
    /// Its contents are no longer needed.
    pub(crate) abandoned: bool,
    pub(crate) pages: Sparse<PageRecord>,
    /// Attachments, in the order in which they were made.
    pub(crate) attachments: Vec<At<Attachment>>,
    pub(crate) usage: Usage,
}

impl Area {
    /// An area of `pages` pages, which secondary storage holds already if they are `stored`.
    pub(crate) fn new(pages: u32, sharing: Sharing, stored: bool) -> Self {
        let untouched = PageRecord {
            stored,
            ..UNTOUCHED
        };
        Area {
            sharing,
            lock: None,
            abandoned: false,
            pages: Sparse::new(untouched, pages),
            attachments: Vec::new(),
            usage: Usage::default(),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.pages.len()
    }

    /// Returns whether a page is under the lock.
    #[inline]
    pub(crate) fn locks(&self, page: PageNumber) -> bool {
        self.lock.is_some_and(|locked| page.is_within(locked))
    }

    /// Returns whether all of it is under a lock.
    pub(crate) fn is_locked(&self) -> bool {
        self.lock == Some(self.len())
    }

    #[inline]
    pub(crate) fn page(&self, number: PageNumber) -> &PageRecord {
        &self.pages[number]
    }

    #[inline]
    pub(crate) fn page_mut(&mut self, number: PageNumber) -> &mut PageRecord {
        &mut self.pages[number]
    }

    /// The frame of a page that is resident.
    #[inline]
    pub(crate) fn frame(&self, number: PageNumber) -> Frame {
        self.page(number).frame()
    }
}
