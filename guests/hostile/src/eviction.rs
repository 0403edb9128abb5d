//! Evicting the data of other tenants from the caches.

use crate::memory::{Page, grow};

/// Bytes that a processor fetches at once.
const LINE: usize = 64;

/// 64 MiB: more than a core's own caches hold.
const MOST_PAGES: usize = 1024;

/// Memory that is walked through again and again, so that the caches hold nothing else.
pub struct Eviction {
    pages: [Option<&'static mut Page>; MOST_PAGES],
    next: usize,
}

impl Eviction {
    /// Memory of that size, as far as the host gives it; with none there is nothing to walk through.
    #[must_use]
    pub fn with(bytes: u64) -> Self {
        let mut pages = [const { None }; MOST_PAGES];
        for (place, page) in pages.iter_mut().zip(grow(bytes)) {
            *place = Some(page);
        }
        Self { pages, next: 0 }
    }

    /// Walks through all of it once.
    pub fn walk(&mut self) {
        self.next = 0;
        while self.step() {}
    }

    /// Walks through the next page of it. False at its end: the next one is the first.
    pub fn step(&mut self) -> bool {
        let Some(Some(page)) = self.pages.get_mut(self.next) else {
            self.next = 0;
            return false;
        };
        for byte in page.iter_mut().step_by(LINE) {
            *byte = byte.wrapping_add(1);
        }
        self.next += 1;
        true
    }
}
