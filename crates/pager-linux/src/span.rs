//! Ranges of addresses, in whole pages, and the system calls on them.
//!
//! Every call is on addresses that the owner of a [`Paging`](crate::Paging) gave to it, or that
//! were mapped here; that is what makes them sound, and is said once, at [`Span::new`].

use leasehold_door::{Call, pass};
use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::mm::{Advice, MapFlags, MlockFlags, MremapFlags, ProtFlags};

use leasehold_pager::{PAGE, PageNumber};

/// Bytes of a page.
pub(crate) const BYTES: usize = PAGE as usize;
/// Page tables move in pieces of this size if both addresses are multiples of it.
const TABLE: usize = 2 << 20;

/// Addresses that may be mapped, unmapped and moved at will: nothing that Rust knows of is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: usize,
    bytes: usize,
}

impl Span {
    /// # Safety
    /// The addresses are the caller's, page-aligned, and no live Rust object is or will be in them.
    pub(crate) unsafe fn new(start: usize, pages: u32) -> Self {
        debug_assert!(start.is_multiple_of(BYTES));
        Span {
            start,
            bytes: pages as usize * BYTES,
        }
    }

    pub(crate) fn start(self) -> usize {
        self.start
    }

    pub(crate) fn end(self) -> usize {
        self.start + self.bytes
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    pub(crate) fn pages(self) -> u32 {
        (self.bytes / BYTES) as u32
    }

    pub(crate) fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// The addresses of the pages `from .. to` of an attachment whose first page is at its start.
    pub(crate) fn addresses_of(self, from: PageNumber, to: PageNumber) -> Span {
        self.part(from.get(), to.get())
    }

    /// The part of it that has `from` pages before it and ends after `to` pages.
    pub(crate) fn part(self, from: u32, to: u32) -> Span {
        let part = Span {
            start: self.start + from as usize * BYTES,
            bytes: (to - from) as usize * BYTES,
        };
        debug_assert!(part.end() <= self.end());
        part
    }

    /// The address that has `pages` pages of it before it.
    pub(crate) fn after(self, pages: u32) -> usize {
        self.start + pages as usize * BYTES
    }

    /// Both as one, if the other begins where this one ends.
    pub(crate) fn join(self, next: Span) -> Option<Span> {
        (self.end() == next.start).then_some(Span {
            start: self.start,
            bytes: self.bytes + next.bytes,
        })
    }

    fn pointer(self) -> *mut c_void {
        self.start as *mut c_void
    }

    /// New addresses that nothing can be read from, with the same place within a page table as
    /// `like`, and what is left over on both sides, which is to be unmapped.
    pub(crate) fn reserve_like(like: Span) -> io::Result<(Span, [Span; 2])> {
        let bytes = like.bytes + TABLE;
        pass(Call::Map)?;
        // SAFETY: the kernel picks addresses at which nothing is mapped.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }? as usize;
        let used = start + (like.start.wrapping_sub(start)) % TABLE;
        let span = Span {
            start: used,
            bytes: like.bytes,
        };
        let before = Span {
            start,
            bytes: used - start,
        };
        let after = Span {
            start: span.end(),
            bytes: start + bytes - span.end(),
        };
        Ok((span, [before, after]))
    }

    /// New zeroed memory of the process's own.
    pub(crate) fn allocate(pages: u32) -> io::Result<Span> {
        let bytes = pages as usize * BYTES;
        pass(Call::Map)?;
        // SAFETY: the kernel picks addresses at which nothing is mapped.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }? as usize;
        Ok(Span { start, bytes })
    }

    /// Maps a file's pages from number `first` on, shared, in place of what was there.
    pub(crate) fn map(self, file: BorrowedFd<'_>, first: u64) -> io::Result<()> {
        pass(Call::Map)?;
        // SAFETY: see `Span::new`.
        unsafe {
            rustix::mm::mmap(
                self.pointer(),
                self.bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                file,
                first * PAGE,
            )
        }?;
        Ok(())
    }

    /// Makes the addresses inaccessible, in place of what was there.
    pub(crate) fn forbid(self) -> io::Result<()> {
        pass(Call::Map)?;
        // SAFETY: see `Span::new`.
        unsafe {
            rustix::mm::mmap_anonymous(
                self.pointer(),
                self.bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        }?;
        Ok(())
    }

    /// Puts zeroed memory of the process's own in place of what was there.
    pub(crate) fn substitute(self) -> io::Result<()> {
        pass(Call::Map)?;
        // SAFETY: see `Span::new`.
        unsafe {
            rustix::mm::mmap_anonymous(
                self.pointer(),
                self.bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
        }?;
        Ok(())
    }

    /// Moves what is mapped to other addresses, and leaves an empty mapping of the same behind. If it is
    /// [locked](Self::lock_on_fault), kernels count it twice from then on.
    pub(crate) fn move_to(self, to: Span) -> io::Result<()> {
        debug_assert_eq!(self.bytes, to.bytes);
        pass(Call::Move)?;
        // SAFETY: see `Span::new`, for both.
        unsafe {
            rustix::mm::mremap_fixed(
                self.pointer(),
                self.bytes,
                self.bytes,
                MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP,
                to.pointer(),
            )
        }?;
        Ok(())
    }

    /// Moves what is mapped to other addresses, in place of what was there, and leaves nothing
    /// behind.
    pub(crate) fn replace(self, to: Span) -> io::Result<()> {
        debug_assert_eq!(self.bytes, to.bytes);
        pass(Call::Move)?;
        // SAFETY: see `Span::new`, for both; a span that was given away is not used again.
        unsafe {
            rustix::mm::mremap_fixed(
                self.pointer(),
                self.bytes,
                self.bytes,
                MremapFlags::MAYMOVE,
                to.pointer(),
            )
        }?;
        Ok(())
    }

    /// Copies bytes to the addresses, which can be written to.
    pub(crate) fn write(self, from: &[u8]) {
        assert_eq!(self.bytes, from.len());
        // SAFETY: see `Span::new`; the caller has mapped memory there to write to.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start as *mut u8, self.bytes) };
    }

    /// Gives the addresses back to the kernel.
    pub(crate) fn unmap(self) -> io::Result<()> {
        pass(Call::Unmap)?;
        // SAFETY: see `Span::new`; an unmapped span is not used again.
        unsafe { rustix::mm::munmap(self.pointer(), self.bytes) }?;
        Ok(())
    }

    pub(crate) fn advise(self, advice: Advice) -> io::Result<()> {
        pass(Call::Advise)?;
        // SAFETY: see `Span::new`.
        unsafe { rustix::mm::madvise(self.pointer(), self.bytes, advice) }?;
        Ok(())
    }

    /// Lets go of pages that are locked. Some 200 ns for each that is resident.
    pub(crate) fn unlock(self) -> io::Result<()> {
        pass(Call::Unlock)?;
        // SAFETY: see `Span::new`.
        unsafe { rustix::mm::munlock(self.pointer(), self.bytes) }?;
        Ok(())
    }

    /// Locks pages as they are touched.
    pub(crate) fn lock_on_fault(self) -> io::Result<()> {
        pass(Call::Lock)?;
        // SAFETY: see `Span::new`.
        unsafe { rustix::mm::mlock_with(self.pointer(), self.bytes, MlockFlags::ONFAULT) }?;
        Ok(())
    }
}
