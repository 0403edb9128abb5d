//! Clusters that other threads write, while the programs that they make room for are suspended.
//!
//! A fault that has to write pages out copies them, and its owner has the copies written to places of their own. Until
//! that is over the pages count as written to, so that none is evicted. Afterwards those that no tenant has written
//! to meanwhile are clean, and the fault that is repeated evicts one of them without a transfer. A cluster that was
//! given up or could not be written leaves its pages as they were.
//!
//! A place belongs to the cluster until nothing can write to it any more: the last reference to the copies tells that,
//! wherever it is dropped.

use leasehold_pager::{AreaId, CLUSTER, PAGE, Page, ReservationId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::store::{PageBytes, StoreFile};

/// How far a write is.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU8);

impl Progress {
    const UNDER_WAY: u8 = 0;
    const WRITTEN: u8 = 1;
    const UNWRITTEN: u8 = 2;

    fn end(&self, is_written: bool) {
        let end = match is_written {
            true => Self::WRITTEN,
            false => Self::UNWRITTEN,
        };
        self.0.store(end, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) != Self::UNDER_WAY
    }

    fn is_written(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::WRITTEN
    }
}

/// What another thread has to do: pages, and the place of each.
pub(crate) struct ClusterWrite {
    file: StoreFile,
    pages: Box<[PageBytes]>,
    places: [u32; CLUSTER],
    is_written: bool,
    progress: Arc<Progress>,
    /// Called when it is over.
    pub(crate) bell: Option<Box<dyn FnOnce() + Send>>,
}

impl std::fmt::Debug for ClusterWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterWrite")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl ClusterWrite {
    /// Writes the pages, those at neighbouring places in one go. Waits for the disk.
    pub(crate) fn run(mut self) {
        let mut from = 0;
        while from < self.pages.len() {
            let is_next = |at: &usize| self.places[*at] == self.places[from] + (*at - from) as u32;
            let to = (from + 1..self.pages.len())
                .take_while(is_next)
                .last()
                .map_or(from + 1, |last| last + 1);
            let offset = u64::from(self.places[from]) * PAGE;
            if self.file.write(offset, &self.pages[from..to]).is_err() {
                return;
            }
            from = to;
        }
        self.is_written = true;
    }
}

impl Drop for ClusterWrite {
    fn drop(&mut self) {
        self.progress.end(self.is_written);
        if let Some(ring) = self.bell.take() {
            ring();
        }
    }
}

/// A page on its way, if it still is, and its place.
pub(crate) type Entry = (Option<Page>, u32);

/// A cluster on its way.
#[derive(Debug)]
pub(crate) struct UnderWay {
    owner: Option<ReservationId>,
    pub(crate) entries: Vec<Entry>,
    progress: Arc<Progress>,
}

/// The clusters that are being written.
#[derive(Debug)]
pub(crate) struct ClusterWrites {
    under_way: Vec<UnderWay>,
    most: usize,
}

impl ClusterWrites {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            under_way: Vec::new(),
            most: most as usize,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.under_way.len() < self.most
    }

    /// Begins the write of these pages, which `copies` has the contents of, for the reservation whose places they take.
    pub(crate) fn begin(
        &mut self,
        owner: Option<ReservationId>,
        entries: Vec<Entry>,
        copies: Box<[PageBytes]>,
        file: StoreFile,
    ) -> ClusterWrite {
        debug_assert!(self.has_room() && entries.len() == copies.len());
        let mut places = [0; CLUSTER];
        for (place, entry) in places.iter_mut().zip(&entries) {
            *place = entry.1;
        }
        let progress = Arc::<Progress>::default();
        self.under_way.push(UnderWay {
            owner,
            entries,
            progress: progress.clone(),
        });
        ClusterWrite {
            file,
            pages: copies,
            places,
            is_written: false,
            progress,
            bell: None,
        }
    }

    /// What is written for a reservation: at most a cluster at a time.
    pub(crate) fn of_owner(&self, owner: Option<ReservationId>) -> Option<&Arc<Progress>> {
        let mut all = self.under_way.iter();
        all.find(|cluster| cluster.owner == owner)
            .map(|cluster| &cluster.progress)
    }

    /// What writes this page.
    pub(crate) fn of_page(&self, page: Page) -> Option<&Arc<Progress>> {
        let mut all = self.under_way.iter();
        all.find(|cluster| cluster.entries.iter().any(|entry| entry.0 == Some(page)))
            .map(|cluster| &cluster.progress)
    }

    /// The area is removed.
    pub(crate) fn forget(&mut self, area: AreaId) {
        let all = self.under_way.iter_mut();
        for (page, _) in all.flat_map(|cluster| &mut cluster.entries) {
            if page.is_some_and(|page| page.area == area) {
                *page = None;
            }
        }
    }

    /// Takes one that is over: its pages and places, and whether it is written.
    pub(crate) fn take_over(&mut self) -> Option<(Vec<Entry>, bool)> {
        let mut all = self.under_way.iter();
        let over = all.position(|cluster| cluster.progress.is_over())?;
        let over = self.under_way.swap_remove(over);
        Some((over.entries, over.progress.is_written()))
    }
}
