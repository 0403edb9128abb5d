//! The memory of an area: an extent of the cell's file whose cached pages are its frames, and its
//! places in storage.

use leasehold_door::{Call, pass};
use std::fs::File;
use std::io;

use leasehold_pager::{PAGE, PageNumber, ReservationId, Sparse};
use rustix::io::Errno;

use crate::bits::PageBits;
use crate::cached::{CachedPages, Punches};
use crate::hold::Ballast;
use crate::page_file::{Extent, PageFile};
use crate::span::BYTES;
use crate::swap_places::NOWHERE;

/// The storage of an area's pages that are in no frame.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Nowhere: they are never evicted.
    None,
    /// In the node's store, at these places.
    Store(Sparse<u32>),
    /// In a file, which is not written to.
    File(File),
}

/// An area's pages.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) backing: Backing,
    /// Places in the store that are promised to it, and the reservation whose share they are of;
    /// without one, they are of the unreserved ones.
    pub(crate) promised: u32,
    pub(crate) owner: Option<ReservationId>,
    /// Pages that the file has in memory.
    pub(crate) cached: CachedPages,
    /// Of these, pages that were released and are not punched out yet.
    pub(crate) vacant: PageBits,
    /// Pages written to since they were filled or written out.
    pub(crate) dirty: PageBits,
    /// Pages that are being written out, and count as written to until they are.
    pub(crate) leaving: Leaving,
    /// Pages that have a frame and whose contents the kernel refused to put there: they are read
    /// again, or denied.
    pub(crate) unfilled: PageBits,
    /// Pages that have a place in the store.
    pub(crate) written: u32,
    /// Attachments of the area, by their indices.
    pub(crate) attached: Vec<u32>,
}

impl Memory {
    pub(crate) fn new(extent: Extent, backing: Backing, owner: Option<ReservationId>) -> Self {
        let pages = extent.pages();
        let promised = if matches!(backing, Backing::Store(_)) {
            pages
        } else {
            0
        };
        Memory {
            backing,
            promised,
            owner,
            cached: CachedPages::new(extent),
            vacant: PageBits::new(pages),
            dirty: PageBits::new(pages),
            leaving: Leaving::default(),
            unfilled: PageBits::new(pages),
            written: 0,
            attached: Vec::new(),
        }
    }

    pub(crate) fn pages(&self) -> u32 {
        self.cached.extent().pages()
    }

    /// Writes to its pages have to be known, because pages that were not written to are evicted
    /// without being written out.
    pub(crate) fn is_tracked(&self) -> bool {
        matches!(self.backing, Backing::Store(_))
    }

    pub(crate) fn place(&self, page: PageNumber) -> Option<u32> {
        match &self.backing {
            Backing::Store(places) => Some(places[page]).filter(|&at| at != NOWHERE),
            Backing::None | Backing::File(_) => None,
        }
    }

    /// Gives the frames of cached pages of `from .. to` back to the kernel, as [`CachedPages::punch`] does, with what is
    /// recorded of them. Returns how far it came.
    ///
    /// # Errors
    /// The kernel's; pages behind those that were given back are as they were.
    pub(crate) fn punch(
        &mut self,
        file: &PageFile,
        ballast: &mut Ballast,
        (from, to): (PageNumber, PageNumber),
        punches: Punches,
    ) -> Result<PageNumber, Errno> {
        let punched = self.cached.punch(file, ballast, (from, to), punches)?;
        self.vacant.clear(from, punched);
        self.dirty.clear(from, punched);
        self.leaving.clear(from, punched);
        self.unfilled.clear(from, punched);
        Ok(punched)
    }

    /// Copies a page of the file that backs the area; what lies beyond its end is zero.
    pub(crate) fn load_backing(file: &File, page: PageNumber, into: &mut [u8]) -> io::Result<()> {
        let offset = u64::from(page.get()) * PAGE;
        let mut done = 0;
        while done < into.len() {
            pass(Call::Load)?;
            match rustix::io::pread(file, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        into[done..].fill(0);
        Ok(())
    }
}

/// Pages of an area that are being written out.
#[derive(Debug, Default)]
pub(crate) struct Leaving(Vec<PageNumber>);

impl Leaving {
    pub(crate) fn has(&self, page: PageNumber) -> bool {
        self.0.contains(&page)
    }

    pub(crate) fn put(&mut self, page: PageNumber) {
        debug_assert!(!self.has(page), "it is being written out already");
        self.0.push(page);
    }

    /// The page is no longer written out; returns whether it was.
    pub(crate) fn take(&mut self, page: PageNumber) -> bool {
        let found = self.0.iter().position(|&other| other == page);
        found.map(|at| self.0.swap_remove(at)).is_some()
    }

    fn clear(&mut self, from: PageNumber, to: PageNumber) {
        self.0.retain(|page| !(from..to).contains(page));
    }
}

/// Page-aligned room for a cluster.
#[derive(Debug)]
pub(crate) struct Staging {
    span: crate::span::Span,
}

impl Staging {
    pub(crate) fn new(pages: u32) -> io::Result<Self> {
        let span = crate::span::Span::allocate(pages)?;
        Ok(Staging { span })
    }

    pub(crate) fn span(&self) -> crate::span::Span {
        self.span
    }

    /// The bytes of pages `from .. to`.
    pub(crate) fn bytes(&mut self, from: usize, to: usize) -> &mut [u8] {
        let span = self.span.part(from as u32, to as u32);
        // SAFETY: the memory was allocated for this, is initialised (zeroed), lives as long as
        // this, and has no other borrow: the kernel reads it in system calls only.
        unsafe { std::slice::from_raw_parts_mut(span.start() as *mut u8, (to - from) * BYTES) }
    }

    /// The same, to read.
    pub(crate) fn read(&self, from: usize, to: usize) -> &[u8] {
        let span = self.span.part(from as u32, to as u32);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(span.start() as *const u8, (to - from) * BYTES) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = self.span.unmap();
    }
}
