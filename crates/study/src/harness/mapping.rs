//! Memory whose pages are touched and given back: the cost of the kernel alone.

use leasehold_reclaim::PAGE;
use std::os::fd::AsFd;
use std::ptr::null_mut;

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::harness::clock::monotonic_ns;

/// A mapping of its own, without huge pages.
pub(crate) struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// Maps `pages` anonymous pages, of which none is resident.
    ///
    /// # Errors
    /// The system's, without address space.
    pub(crate) fn new(pages: usize) -> Result<Self> {
        let bytes = pages * PAGE;
        // SAFETY: the kernel chooses an unused place; nothing existing is replaced.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = start.context("mapping pages")?.cast();
        Self { start, bytes }.without_huge_pages()
    }

    /// Maps the first `pages` pages of a file, shared.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn of_file(file: impl AsFd, pages: usize) -> Result<Self> {
        let bytes = pages * PAGE;
        // SAFETY: the kernel chooses an unused place; nothing existing is replaced.
        let start = unsafe {
            mmap(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let start = start.context("mapping a file")?.cast();
        Self { start, bytes }.without_huge_pages()
    }

    fn without_huge_pages(self) -> Result<Self> {
        // SAFETY: the mapping just made; this changes nothing of its contents.
        unsafe { madvise(self.start.cast(), self.bytes, Advice::LinuxNoHugepage) }
            .context("asking for no huge pages")?;
        Ok(self)
    }

    /// Writes one byte to each page.
    pub(crate) fn touch(&self) {
        for at in (0..self.bytes).step_by(PAGE) {
            // SAFETY: within the mapping, which is writable and private to this value.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }

    /// Reads one byte of each page.
    pub(crate) fn read(&self) {
        for at in (0..self.bytes).step_by(PAGE) {
            // SAFETY: within the mapping, which is readable; a file's bytes may be anything.
            unsafe { self.start.add(at).read_volatile() };
        }
    }

    /// Unmaps it; how long that took.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn unmap(self) -> Result<u64> {
        let begin = monotonic_ns();
        drop(self);
        Ok(monotonic_ns() - begin)
    }

    /// Gives the pages back and keeps the mapping for further use; returns how long that took.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn discard(self) -> Result<u64> {
        let begin = monotonic_ns();
        // SAFETY: exactly the mapping, into which no reference exists.
        unsafe { madvise(self.start.cast(), self.bytes, Advice::LinuxDontNeed) }
            .context("giving pages back")?;
        Ok(monotonic_ns() - begin)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, into which no reference exists. An error
        // would mean that it was not mapped, and leaves nothing to undo.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}
