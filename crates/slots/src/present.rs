//! Which pages of this process are there: have memory, or show a page of a file.
//!
//! For pages of a file the system's `mincore` says what the file has in memory, and not what is mapped. The page tables say
//! it, as `/proc/self/pagemap` shows them (Documentation/admin-guide/mm/pagemap.rst): which pages are there, and which of
//! them are the file's. A page of a private mapping that was written to is none of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::address_range::{LOOK_PAGES, PAGE};

/// Bytes of an entry.
const ENTRY: usize = size_of::<u64>();

/// Bits of an entry: the page is there; it is in the swap area; it is one of a file.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// What a process has of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing: it has not been touched.
    Absent,
    /// The page of the file that is mapped there: it has not been written to.
    Shown,
    /// Memory of its own.
    Own,
    /// The same, in the swap area.
    Swapped,
}

impl Presence {
    fn of(entry: [u8; ENTRY]) -> Self {
        match u64::from_le_bytes(entry) {
            bits if bits & SWAPPED != 0 => Self::Swapped,
            bits if bits & PRESENT == 0 => Self::Absent,
            bits if bits & OF_FILE != 0 => Self::Shown,
            _ => Self::Own,
        }
    }
}

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

    /// Whether the system shows them.
    pub(crate) fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// What is there of some pages, at most [`LOOK_PAGES`]. About 5 ns a page, and a system call.
    ///
    /// # Errors
    ///
    /// The system's; `Unsupported` if it does not tell, `InvalidInput` for more pages.
    pub(crate) fn look<'a>(
        &self,
        address: usize,
        bytes: usize,
        found: &'a mut [Presence; LOOK_PAGES],
    ) -> io::Result<&'a [Presence]> {
        let mut entries = [0; LOOK_PAGES * ENTRY];
        let entries = entries.get_mut(..bytes / PAGE * ENTRY);
        let entries = entries.ok_or(io::ErrorKind::InvalidInput)?;
        let from = (address / PAGE * ENTRY) as u64;
        let tables = self.0.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        tables.read_exact_at(entries, from)?;
        let (entries, _) = entries.as_chunks::<ENTRY>();
        for (found, &entry) in found.iter_mut().zip(entries) {
            *found = Presence::of(entry);
        }
        Ok(&found[..entries.len()])
    }

    /// How many of these pages are there, at most [`LOOK_PAGES`] in a call; `None` if the system does not tell.
    pub(crate) fn count(&self, address: usize, bytes: usize) -> Option<usize> {
        let mut found = [Presence::Absent; LOOK_PAGES];
        let found = self.look(address, bytes, &mut found).ok()?;
        let there = found.iter().filter(|page| **page != Presence::Absent);
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
