//! A page of the store that another thread reads, while the program that needs it is suspended.
//!
//! A fault notes the place that it would read ([`Wanted`]), if the program can go on later. Its owner has the page read on
//! another thread, and gives the answer back before the program repeats the access: that fault then waits for nothing. In
//! between nothing of the page's state is different. If another page is written to the place meanwhile, the answer is
//! dropped, and the fault reads by itself or wants the page again.

use leasehold_pager::PAGE;
use std::cell::Cell;
use std::io;
use std::rc::{Rc, Weak};

use crate::store::{PageBytes, PageReader};

/// Bytes that an instruction reads or writes at most: those of a vector.
const WIDEST: usize = 64;

/// What a fault would wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// The place in the store, bytes.
    pub(crate) offset: u64,
    /// The address of the access.
    pub(crate) address: usize,
}

/// A page that a fault would have waited for.
#[derive(Debug)]
pub struct Wanted {
    want: Want,
    reader: PageReader,
    is_stale: Rc<Cell<bool>>,
}

/// What another thread has to do for it.
#[derive(Debug)]
pub struct PageRead {
    reader: PageReader,
    offset: u64,
}

/// The page after it was read.
#[derive(Debug)]
pub struct Fetched {
    want: Want,
    is_stale: Rc<Cell<bool>>,
    page: Option<Box<PageBytes>>,
}

impl Wanted {
    /// What another thread has to do, and what is to be told of its answer.
    pub fn begin(self) -> (PageRead, Fetching) {
        let read = PageRead {
            reader: self.reader,
            offset: self.want.offset,
        };
        let fetching = Fetching {
            want: self.want,
            is_stale: self.is_stale,
        };
        (read, fetching)
    }
}

/// A page that is being read.
#[derive(Debug)]
pub struct Fetching {
    want: Want,
    is_stale: Rc<Cell<bool>>,
}

impl PageRead {
    /// Reads the page. Waits for the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn run(self) -> io::Result<Box<PageBytes>> {
        self.reader.read(self.offset)
    }
}

impl Fetching {
    /// With the answer. A page that could not be read is read again by the fault, which then says so.
    pub fn done(self, read: io::Result<Box<PageBytes>>) -> Fetched {
        Fetched {
            want: self.want,
            is_stale: self.is_stale,
            page: read.ok(),
        }
    }
}

/// Pages that are being read, and the one that was.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    under_way: Vec<(u64, Weak<Cell<bool>>)>,
    fetched: Option<Fetched>,
}

impl Fetches {
    pub(crate) fn begin(&mut self, want: Want, reader: PageReader) -> Wanted {
        let is_stale = Rc::new(Cell::new(false));
        self.under_way.retain(|(_, page)| page.strong_count() > 0);
        self.under_way.push((want.offset, Rc::downgrade(&is_stale)));
        Wanted {
            want,
            reader,
            is_stale,
        }
    }

    /// The next faults find this page, or none.
    pub(crate) fn put(&mut self, fetched: Option<Fetched>) {
        self.fetched = fetched;
    }

    /// Whether this is not to be waited for: it was fetched, or was to be; or the access may be another part of the
    /// one for which a page was, and others would take that page away meanwhile, again and again.
    pub(crate) fn is_over(&self, want: Want) -> bool {
        self.fetched
            .as_ref()
            .is_some_and(|Fetched { want: fetched, .. }| {
                fetched.offset == want.offset || fetched.address.abs_diff(want.address) < WIDEST
            })
    }

    /// The page that was at this place when it was read, and is still.
    pub(crate) fn page(&self, offset: u64) -> Option<&[u8]> {
        let fetched = self.fetched.as_ref()?;
        let is_it = fetched.want.offset == offset && !fetched.is_stale.get();
        let page = fetched.page.as_ref().filter(|_| is_it)?;
        Some(&page.0)
    }

    /// Other pages are written from `offset` on: what was read there is theirs no longer.
    pub(crate) fn written(&self, offset: u64, pages: usize) {
        let written = offset..offset + pages as u64 * PAGE;
        for (_, page) in self.under_way.iter().filter(|(at, _)| written.contains(at)) {
            if let Some(is_stale) = page.upgrade() {
                is_stale.set(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fetches, WIDEST, Want};
    use crate::store::{PageBytes, PageReader};
    use leasehold_pager::PAGE;
    use std::sync::Arc;

    fn reader() -> PageReader {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(8 * PAGE).expect("room");
        PageReader::new(Arc::new(file))
    }

    fn want(offset: u64) -> Want {
        Want {
            offset,
            address: 0x10000 + offset as usize,
        }
    }

    #[test]
    fn a_page_is_found_at_its_place_until_another_is_written_there() {
        let mut fetches = Fetches::default();
        for written in [None, Some(0), Some(1), Some(2)] {
            let (read, fetching) = fetches.begin(want(PAGE), reader()).begin();
            let read = read.run();
            if let Some(first) = written {
                fetches.written(first * PAGE, 1);
            }
            fetches.put(Some(fetching.done(read)));
            assert!(fetches.is_over(want(PAGE)) && !fetches.is_over(want(0)));
            assert_eq!(fetches.page(PAGE).is_some(), written != Some(1));
            assert_eq!(fetches.page(0), None);
            fetches.put(None);
            assert_eq!(fetches.page(PAGE), None);
        }
    }

    #[test]
    fn what_was_written_before_a_read_began_is_what_it_reads() {
        let mut fetches = Fetches::default();
        fetches.written(0, 8);
        let (_, fetching) = fetches.begin(want(0), reader()).begin();
        fetches.put(Some(fetching.done(Ok(Box::new(PageBytes([7; 4096]))))));
        assert_eq!(fetches.page(0), Some(&[7; 4096][..]));
    }

    #[test]
    fn a_page_that_could_not_be_read_is_not_wanted_again_by_the_same_fault() {
        let mut fetches = Fetches::default();
        let (_, fetching) = fetches.begin(want(0), reader()).begin();
        fetches.put(Some(fetching.done(Err(std::io::ErrorKind::Other.into()))));
        assert!(fetches.is_over(want(0)));
        assert_eq!(fetches.page(0), None);
    }

    #[test]
    fn an_access_across_two_pages_waits_for_one_of_them() {
        let mut fetches = Fetches::default();
        let at = |offset, address| Want { offset, address };
        let (read, fetching) = fetches.begin(at(0, 0x10ffd), reader()).begin();
        fetches.put(Some(fetching.done(read.run())));
        assert!(fetches.is_over(at(5 * PAGE, 0x11000)));
        assert!(!fetches.is_over(at(5 * PAGE, 0x11000 + WIDEST)));
    }
}
