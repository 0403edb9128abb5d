//! Which pages of this process are there: have memory, or show a page of a file.
//!
//! For pages of a file the system's `mincore` says what the file has in memory, and not what is mapped. The page tables say
//! it, as `/proc/self/pagemap` shows them (Documentation/admin-guide/mm/pagemap.rst).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::address_range::{LOOK_PAGES, PAGE};

/// Bytes of an entry.
const ENTRY: usize = size_of::<u64>();

/// Bits of an entry: the page is there, or in the swap area.
const THERE: u64 = 0b11 << 62;

/// The page tables of this process; none where the system does not show them.
#[derive(Debug)]
pub(crate) struct Present(Option<File>);

impl Present {
    /// Those of this process. The first call opens them, for as long as the process runs: one descriptor.
    pub(crate) fn of_process() -> &'static Self {
        static PRESENT: OnceLock<Present> = OnceLock::new();
        PRESENT.get_or_init(Self::open)
    }

    fn open() -> Self {
        let opened = File::open("/proc/self/pagemap");
        if let Err(error) = &opened {
            tracing::info!(%error, "the page tables cannot be seen: initial memory that is shown is cleaned in smaller steps");
        }
        Self(opened.ok())
    }

    /// How many of these pages are there, at most [`LOOK_PAGES`] in a call; `None` if the system does not tell. About
    /// 5 ns a page, and a system call.
    pub(crate) fn count(&self, address: usize, bytes: usize) -> Option<usize> {
        let mut entries = [0; LOOK_PAGES * ENTRY];
        let entries = entries.get_mut(..bytes / PAGE * ENTRY)?;
        let from = (address / PAGE * ENTRY) as u64;
        self.0.as_ref()?.read_exact_at(entries, from).ok()?;
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let there = entries
            .iter()
            .filter(|entry| u64::from_le_bytes(**entry) & THERE != 0);
        Some(there.count())
    }
}

#[cfg(test)]
mod tests {
    use super::Present;
    use crate::address_range::{AddressRange, PAGE};

    #[test]
    fn pages_are_counted_that_were_touched() {
        const PAGES: usize = 300;
        let (present, range) = (
            Present::open(),
            AddressRange::new(PAGES * PAGE).expect("addresses"),
        );
        range.allow(0, PAGES * PAGE).expect("accessible");
        let count = || present.count(range.at(0).as_ptr().addr(), PAGES * PAGE);
        assert_eq!(count(), Some(0));
        for page in (0..PAGES).step_by(7) {
            // SAFETY: an accessible page that nothing else refers to.
            unsafe { range.at(page * PAGE).write_volatile(1) };
        }
        assert_eq!(count(), Some(PAGES.div_ceil(7)));
        assert_eq!(present.count(range.at(0).as_ptr().addr(), 513 * PAGE), None);
    }
}
