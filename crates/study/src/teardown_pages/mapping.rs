//! Anonymous memory whose pages are written to and given back: what the kernel alone takes.

use std::ptr::null_mut;

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::clock::monotonic_ns;

const PAGE: usize = 4096;

/// A private anonymous mapping without huge pages.
pub(super) struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// Maps `pages` pages, of which none is resident.
    ///
    /// # Errors
    /// The system's, without address space.
    pub(super) fn new(pages: usize) -> Result<Self> {
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
        let mapping = Self { start, bytes };
        // SAFETY: the mapping just made; this changes nothing of its contents.
        unsafe { madvise(start.cast(), bytes, Advice::LinuxNoHugepage) }
            .context("asking for no huge pages")?;
        Ok(mapping)
    }

    /// Writes one byte to each page.
    pub(super) fn touch(&self) {
        for at in (0..self.bytes).step_by(PAGE) {
            // SAFETY: within the mapping, which is writable and nobody else's.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }

    /// Unmaps it; how long that took.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn unmap(self) -> Result<u64> {
        let begin = monotonic_ns();
        drop(self);
        Ok(monotonic_ns() - begin)
    }

    /// Gives the pages back and keeps the mapping, as one does who will use it again; how long
    /// that took.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn discard(self) -> Result<u64> {
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
