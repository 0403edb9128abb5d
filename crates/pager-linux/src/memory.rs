//! The memory of an area: a memfd whose cached pages are its frames, and its places in storage.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use leasehold_pager::PAGE;
use rustix::fs::{FallocateFlags, MemfdFlags};

use crate::bits::Bits;
use crate::slots::NOWHERE;
use crate::span::BYTES;
use crate::store::{read_all, write_all};

/// Where the pages of an area are that are in no frame.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Nowhere: they are never evicted.
    None,
    /// In the node's store, at these places.
    Store(Box<[u32]>),
    /// In a file, which is not written to.
    File(File),
}

/// An area's pages. Which of them are cached is known only here: the file is this one's alone.
#[derive(Debug)]
pub(crate) struct Memory {
    file: OwnedFd,
    pages: u32,
    pub(crate) backing: Backing,
    /// Pages that the file has in memory.
    pub(crate) cached: Bits,
    /// Of these, pages that were released and are not punched out yet.
    pub(crate) vacant: Bits,
    /// Pages written to since they were filled or written out.
    pub(crate) dirty: Bits,
    /// Pages that have a place in the store.
    pub(crate) written: u32,
    /// Attachments of the area, by their indices.
    pub(crate) attached: Vec<u32>,
}

impl Memory {
    pub(crate) fn new(pages: u32, backing: Backing) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(
            "leasehold-area",
            MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL,
        )
        .or_else(|_| rustix::fs::memfd_create("leasehold-area", MemfdFlags::CLOEXEC))?;
        rustix::fs::ftruncate(&file, u64::from(pages) * PAGE)?;
        Ok(Memory {
            file,
            pages,
            backing,
            cached: Bits::new(pages),
            vacant: Bits::new(pages),
            dirty: Bits::new(pages),
            written: 0,
            attached: Vec::new(),
        })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Writes to its pages have to be known, because pages that were not written to are evicted
    /// without being written out.
    pub(crate) fn is_tracked(&self) -> bool {
        matches!(self.backing, Backing::Store(_))
    }

    pub(crate) fn place(&self, page: u32) -> Option<u32> {
        match &self.backing {
            Backing::Store(places) => Some(places[page as usize]).filter(|&at| at != NOWHERE),
            Backing::None | Backing::File(_) => None,
        }
    }

    /// Copies a cached page out.
    pub(crate) fn load(&self, page: u32, into: &mut [u8]) -> io::Result<()> {
        let offset = u64::from(page) * PAGE;
        read_all(into, |done, rest| {
            Ok(rustix::io::pread(&self.file, rest, offset + done as u64)?)
        })
    }

    /// Fills a page without mapping it; it is cached then.
    pub(crate) fn save(&mut self, page: u32, from: &[u8]) -> io::Result<()> {
        let offset = u64::from(page) * PAGE;
        write_all(from, |done, rest| {
            Ok(rustix::io::pwrite(&self.file, rest, offset + done as u64)?)
        })?;
        self.cached.put(page, true);
        Ok(())
    }

    /// Gives the frames of pages `from .. to` back to the kernel, which takes them out of every
    /// page table as well. Returns how many there were.
    pub(crate) fn punch(&mut self, from: u32, to: u32) -> u32 {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, bytes) = (u64::from(from) * PAGE, u64::from(to - from) * PAGE);
        loop {
            match rustix::fs::fallocate(&self.file, mode, offset, bytes) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                // What was in the pages must not be seen again by whoever gets them.
                Err(errno) => panic!("pages of an area cannot be dropped: {errno}"),
            }
        }
        self.vacant.clear(from, to);
        self.dirty.clear(from, to);
        self.cached.clear(from, to)
    }

    /// Copies a page of the file that backs the area; what lies beyond its end is zero.
    pub(crate) fn load_backing(file: &File, page: u32, into: &mut [u8]) -> io::Result<()> {
        let offset = u64::from(page) * PAGE;
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(file, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        into[done..].fill(0);
        Ok(())
    }

    /// Bytes that the file has in memory, as the kernel counts them: for tests.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_blocks as u64 * 512)
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
        // this, and is borrowed by nobody else: what the kernel reads it does in system calls.
        unsafe { std::slice::from_raw_parts_mut(span.start() as *mut u8, (to - from) * BYTES) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = self.span.unmap();
    }
}
