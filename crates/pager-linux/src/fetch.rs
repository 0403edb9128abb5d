//! A page of the store that another thread reads, while the program that needs it is suspended.
//!
//! A fault notes the place that it would read ([`Want`]), if the program can go on later. Its owner has the page read on
//! another thread, and gives the answer back before the program repeats the access: that fault then waits for nothing. In
//! between nothing of the page's state is different. If another page is written to the place meanwhile, the answer is
//! dropped, and the fault reads by itself or wants the page again.

use leasehold_pager::PAGE;
use std::cell::Cell;
use std::io;
use std::rc::{Rc, Weak};

use crate::store::{PageBytes, StoreFile};

/// Bytes that an instruction reads or writes at most: those of a vector.
const WIDEST: usize = 64;

/// How often an access waits for the store before the transfers are made where it happens.
const MOST_WAITS: u32 = 8;

/// What a fault would wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// The place in the store, bytes.
    pub(crate) offset: u64,
    /// The address of the access.
    pub(crate) address: usize,
}

/// A page that another thread reads.
#[derive(Debug)]
pub(crate) struct PageRead {
    file: StoreFile,
    offset: u64,
}

impl PageRead {
    /// Reads the page. Waits for the disk.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn run(self) -> io::Result<Box<PageBytes>> {
        self.file.read(self.offset)
    }
}

/// A page that is being read.
#[derive(Debug)]
pub(crate) struct Fetching {
    want: Want,
    is_stale: Rc<Cell<bool>>,
}

impl Fetching {
    /// With the answer. A page that could not be read is read again by the fault, which then says so.
    pub(crate) fn done(self, read: io::Result<Box<PageBytes>>) -> Fetched {
        Fetched {
            want: self.want,
            is_stale: self.is_stale,
            page: read.ok(),
        }
    }
}

/// The page after it was read.
#[derive(Debug)]
pub(crate) struct Fetched {
    want: Want,
    is_stale: Rc<Cell<bool>>,
    page: Option<Box<PageBytes>>,
}

/// How often an access has waited for the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waited {
    address: usize,
    times: u32,
}

/// What an access has waited for, and finds when it is repeated.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) fetched: Option<Fetched>,
    waited: Option<Waited>,
}

impl Found {
    /// The same after the access has waited again.
    pub(crate) fn waiting(self, waited: Waited) -> Self {
        Self {
            waited: Some(waited),
            ..self
        }
    }
}

/// Pages that are being read, and what the access at hand has waited for.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    under_way: Vec<(u64, Weak<Cell<bool>>)>,
    found: Found,
}

impl Fetches {
    pub(crate) fn begin(&mut self, want: Want, file: StoreFile) -> (PageRead, Fetching) {
        let is_stale = Rc::new(Cell::new(false));
        self.under_way.retain(|(_, page)| page.strong_count() > 0);
        self.under_way.push((want.offset, Rc::downgrade(&is_stale)));
        let offset = want.offset;
        (PageRead { file, offset }, Fetching { want, is_stale })
    }

    /// The next faults find this.
    pub(crate) fn put(&mut self, found: Found) {
        self.found = found;
    }

    /// Takes what was put, for the same access when it is repeated.
    pub(crate) fn take(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }

    /// Whether this is not to be waited for: it was fetched, or could not be.
    pub(crate) fn is_over(&self, want: Want) -> bool {
        let fetched = self.found.fetched.as_ref();
        fetched.is_some_and(|fetched| {
            fetched.want.offset == want.offset
                && !(fetched.page.is_some() && fetched.is_stale.get())
        })
    }

    /// Whether an access may wait once more. It may be a part of one that needs several pages; and tasks of its tenant
    /// may write to those that were written out, or take the room that it has waited for, but not again and again.
    pub(crate) fn wait_again(&self, address: usize) -> Option<Waited> {
        let before = self.found.waited;
        let before = before.filter(|waited| waited.address.abs_diff(address) < WIDEST);
        let times = before.map_or(1, |waited| waited.times + 1);
        (times <= MOST_WAITS).then_some(Waited { address, times })
    }

    /// The page that was at this place when it was read, and is still.
    pub(crate) fn page(&self, offset: u64) -> Option<&[u8]> {
        let fetched = self.found.fetched.as_ref()?;
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
    use super::{Fetched, Fetches, Found, MOST_WAITS, WIDEST, Want};
    use crate::store::{PageBytes, StoreFile};
    use leasehold_pager::PAGE;
    use std::sync::Arc;

    fn file() -> StoreFile {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(8 * PAGE).expect("room");
        StoreFile::new(Arc::new(file))
    }

    fn want(offset: u64) -> Want {
        Want {
            offset,
            address: 0x10000 + offset as usize,
        }
    }

    fn found(page: Fetched) -> Found {
        Found {
            fetched: Some(page),
            waited: None,
        }
    }

    #[test]
    fn an_access_waits_a_few_times_and_then_makes_its_transfers_by_itself() {
        let mut fetches = Fetches::default();
        for _ in 0..MOST_WAITS {
            let waited = fetches.wait_again(0x10ffd).expect("it may wait");
            let found = fetches.take().waiting(waited);
            assert!(fetches.found.waited.is_none());
            fetches.put(found);
        }
        assert!(fetches.wait_again(0x10ffd).is_none());
        assert!(fetches.wait_again(0x11000).is_none(), "the same access");
        assert!(fetches.wait_again(0x11000 + WIDEST).is_some(), "another");
        fetches.put(Found::default());
        assert!(fetches.wait_again(0x10ffd).is_some());
    }

    #[test]
    fn a_page_is_found_at_its_place_until_another_is_written_there() {
        let mut fetches = Fetches::default();
        for written in [None, Some(0), Some(1), Some(2)] {
            let (read, fetching) = fetches.begin(want(PAGE), file());
            let read = read.run();
            if let Some(first) = written {
                fetches.written(first * PAGE, 1);
            }
            fetches.put(found(fetching.done(read)));
            assert_eq!(fetches.is_over(want(PAGE)), written != Some(1));
            assert!(!fetches.is_over(want(0)));
            assert_eq!(fetches.page(PAGE).is_some(), written != Some(1));
            assert_eq!(fetches.page(0), None);
            fetches.put(Found::default());
            assert_eq!(fetches.page(PAGE), None);
        }
    }

    #[test]
    fn what_was_written_before_a_read_began_is_what_it_reads() {
        let mut fetches = Fetches::default();
        fetches.written(0, 8);
        let (_, fetching) = fetches.begin(want(0), file());
        fetches.put(found(fetching.done(Ok(Box::new(PageBytes([7; 4096]))))));
        assert_eq!(fetches.page(0), Some(&[7; 4096][..]));
    }

    #[test]
    fn a_page_that_could_not_be_read_is_not_wanted_again_by_the_same_fault() {
        let mut fetches = Fetches::default();
        let (_, fetching) = fetches.begin(want(0), file());
        fetches.put(found(fetching.done(Err(std::io::ErrorKind::Other.into()))));
        assert!(fetches.is_over(want(0)));
        assert_eq!(fetches.page(0), None);
    }
}
