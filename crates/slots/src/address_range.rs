//! An address range reserved as a whole, of which parts are made accessible.
//!
//! All raw calls for guest memory and stacks are here; the pools above decide *when* to make
//! them. The range never moves and is unmapped when the owner drops it.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use leasehold_door::{Call, pass};
use rustix::io::pread;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

use crate::contents::Contents;
use crate::present::{Presence, Present};

/// Host page size assumed throughout: that of x86-64 and of stock arm64 kernels.
pub const PAGE: usize = 4096;

/// What one page of page-table entries covers. Discarding a whole aligned block lets the kernel
/// free its page table too (Linux 6.14 and later).
pub const BLOCK: usize = 2 << 20;

/// A reserved range. Pages are inaccessible until they are allowed, and read as
/// zero until written.
///
/// It hands out addresses and no references. What accesses memory through an address must know that the
/// page was allowed, and that nothing forbids, discards or clears it meanwhile.
#[derive(Debug)]
pub struct AddressRange {
    mapping: NonNull<u8>,
    mapped: usize,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an `AddressRange` owns its mapping; its methods are system calls on ranges, which the
// kernel serialises, and the unsafe one requires of the caller that the memory is unused.
unsafe impl Send for AddressRange {}
// SAFETY: as above.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Reserves `bytes`, a multiple of the page size, aligned to [`BLOCK`].
    ///
    /// # Errors
    ///
    /// The system's, when the address space is exhausted or limited.
    pub fn new(bytes: usize) -> io::Result<AddressRange> {
        let reservation = Self::inaccessible(bytes)?;
        // Huge pages would make one touched byte cost 512 pages, and their splitting would make a
        // bounded step of cleaning unbounded. Kernels without them refuse the advice: as good.
        let (start, mapped) = (reservation.mapping, reservation.mapped);
        let _ = pass(Call::Advise).and_then(|()| {
            // SAFETY: advice that changes no contents, on the mapping just made.
            unsafe { madvise(start.as_ptr().cast(), mapped, Advice::LinuxNoHugepage) }
        });
        Ok(reservation)
    }

    /// Reserves a range of which nothing is made accessible here: other code maps something
    /// there and unmaps it again. The inaccessible part is then one mapping, regardless of its
    /// origin.
    ///
    /// # Errors
    ///
    /// The system's, when the address space is exhausted or limited.
    pub fn inaccessible(bytes: usize) -> io::Result<AddressRange> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        let mapped = bytes.checked_add(BLOCK).ok_or(io::ErrorKind::OutOfMemory)?;
        pass(Call::Map)?;
        // SAFETY: a new anonymous mapping where the kernel likes; no memory in use is affected.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?
        .cast::<u8>();
        let aligned = mapping.addr().next_multiple_of(BLOCK) - mapping.addr();
        let mapping = NonNull::new(mapping).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: `aligned` is less than BLOCK, by which the mapping is longer than `bytes`.
        let base = unsafe { mapping.add(aligned) };
        Ok(AddressRange {
            mapping,
            mapped,
            base,
            bytes,
        })
    }

    /// Address of the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If `offset` is not in the range.
    #[inline]
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(
            offset <= self.bytes,
            "offset {offset} is outside the reservation"
        );
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.base.add(offset) }
    }

    fn range(&self, offset: usize, bytes: usize) -> *mut c_void {
        let start = self.at(offset);
        self.at(offset + bytes);
        start.as_ptr().cast()
    }

    /// Makes pages readable and writable. Never takes anything away, so that it is safe to call
    /// at any time; the contents stay.
    ///
    /// # Errors
    ///
    /// The system's: too many mappings, or no memory to commit.
    pub(crate) fn allow(&self, offset: usize, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        pass(Call::Allow)?;
        // SAFETY: within the mapping, which is private to this reservation.
        unsafe {
            mprotect(
                self.range(offset, bytes),
                bytes,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }?;
        Ok(())
    }

    /// Makes pages inaccessible; the contents stay.
    ///
    /// # Errors
    ///
    /// The system's: too many mappings.
    pub(crate) fn forbid(&self, offset: usize, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        pass(Call::Allow)?;
        // SAFETY: within the mapping, to which there are no references.
        unsafe { mprotect(self.range(offset, bytes), bytes, MprotectFlags::empty()) }?;
        Ok(())
    }

    /// Replaces pages of a memory that begins at `start` by those of a file, readable and writable: a page that
    /// is written to is copied first.
    ///
    /// # Errors
    ///
    /// The system's: too many mappings. Then nothing has changed.
    pub(crate) fn show(&self, start: usize, contents: &Contents) -> io::Result<()> {
        let bytes = contents.bytes();
        let at = self.range(start + bytes.start, bytes.len());
        pass(Call::Map)?;
        // SAFETY: within the mapping, to which there are no references; a private mapping changes no file.
        unsafe {
            mmap(
                at,
                bytes.len(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
                contents.file(),
                contents.start(),
            )
        }?;
        Ok(())
    }

    /// Undoes [`show`](Self::show): the pages are inaccessible, without memory, and as they were when the range was
    /// reserved.
    ///
    /// # Errors
    ///
    /// The system's: too many mappings.
    pub(crate) fn hide(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let start = self.range(offset, bytes);
        pass(Call::Map)?;
        // SAFETY: within the mapping, to which there are no references.
        unsafe {
            mmap_anonymous(
                start,
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
            )
        }?;
        // As in `new`; with the same advice the pages are one mapping with those around.
        let _ = pass(Call::Advise).and_then(|()| {
            // SAFETY: advice that changes no contents, as above.
            unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) }
        });
        Ok(())
    }

    /// Gives the memory of pages back to the system; they read as zero afterwards, and where a file is
    /// [shown](Self::show) as the file.
    ///
    /// # Errors
    ///
    /// The system's; none is expected of an anonymous mapping.
    pub(crate) fn discard(&self, offset: usize, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        pass(Call::Advise)?;
        // SAFETY: within the mapping, to which there are no references.
        unsafe { madvise(self.range(offset, bytes), bytes, Advice::LinuxDontNeed) }?;
        Ok(())
    }

    /// Makes pages from `offset` on read as zero, up to [`LOOK_PAGES`] of them and `most` that have
    /// memory, which they keep; returns the bytes that were done. Never faults: pages without memory
    /// are left without, and of those that have some only what is not zero already is written to, so
    /// that a page that was only read keeps sharing the system's zero page. About 0.1 µs per resident
    /// page, and a system call per run of others.
    ///
    /// # Errors
    ///
    /// The system's; none is expected of an anonymous mapping.
    ///
    /// # Safety
    ///
    /// These pages are unused and accessible.
    pub(crate) unsafe fn clear(
        &self,
        offset: usize,
        bytes: usize,
        most: usize,
    ) -> io::Result<usize> {
        let mut residency = Residency::default();
        let found = residency.look(self, offset, bytes.min(LOOK_PAGES * PAGE))?;
        let done = prefix(found, most);
        let mut at = offset;
        for run in found[..done].chunk_by(|a, b| a & 1 == b & 1) {
            let length = run.len() * PAGE;
            if run[0] & 1 == 1 {
                // SAFETY: resident, by what was found; accessible and unused, by contract.
                unsafe { self.zero(at, length) };
            } else {
                // Without memory, but perhaps in the swap area.
                self.discard(at, length)?;
            }
            at += length;
        }
        Ok(done * PAGE)
    }

    /// Overwrites those of some pages with zeros that hold anything else. Never faults.
    ///
    /// # Safety
    ///
    /// These pages are resident, unused and accessible.
    pub(crate) unsafe fn zero(&self, offset: usize, bytes: usize) {
        // SAFETY: by contract; aligned to a page.
        let words = unsafe {
            let start = self.range(offset, bytes).cast::<u64>();
            std::slice::from_raw_parts_mut(start, bytes / size_of::<u64>())
        };
        for page in words.chunks_exact_mut(PAGE / size_of::<u64>()) {
            if page.iter().any(|&word| word != 0) {
                page.fill(0);
            }
        }
    }

    /// Overwrites pages with what contents have from byte `from` on: about 0.15 µs a page, and a system call.
    ///
    /// # Errors
    ///
    /// The system's; `UnexpectedEof` if their file has fewer. Then the pages hold anything.
    ///
    /// # Safety
    ///
    /// These pages are resident, unused and accessible.
    pub(crate) unsafe fn read_back(
        &self,
        offset: usize,
        bytes: usize,
        contents: &Contents,
        from: usize,
    ) -> io::Result<()> {
        pass(Call::Load)?;
        // SAFETY: by contract.
        let to = unsafe {
            std::slice::from_raw_parts_mut(self.range(offset, bytes).cast::<u8>(), bytes)
        };
        match pread(contents.file(), to, contents.start() + from as u64)? {
            read if read == bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// What is there of at most [`LOOK_PAGES`] pages.
    ///
    /// # Errors
    ///
    /// The system's; `Unsupported` if it does not tell.
    pub(crate) fn presence<'a>(
        &self,
        offset: usize,
        bytes: usize,
        found: &'a mut [Presence; LOOK_PAGES],
    ) -> io::Result<&'a [Presence]> {
        let start = self.range(offset, bytes);
        pass(Call::Look)?;
        Present::of_process().look(start.addr(), bytes, found)
    }

    /// How many of at most [`LOOK_PAGES`] pages have memory or show a page of a file; `None` if the system does not tell.
    pub(crate) fn present(&self, offset: usize, bytes: usize) -> Option<usize> {
        let start = self.range(offset, bytes);
        pass(Call::Look).ok()?;
        Present::of_process().count(start.addr(), bytes)
    }

    /// The bytes at the end of a range, of at most [`LOOK_PAGES`] pages, that hold at most `most`
    /// pages with memory.
    ///
    /// # Errors
    ///
    /// The system's; none is expected of an anonymous mapping.
    pub(crate) fn suffix(&self, offset: usize, bytes: usize, most: usize) -> io::Result<usize> {
        if bytes <= most * PAGE {
            return Ok(bytes);
        }
        let mut residency = Residency::default();
        let found = residency.look(self, offset, bytes)?;
        found.reverse();
        Ok(prefix(found, most) * PAGE)
    }
}

/// Pages that are looked at in one call, to find those that have memory: those of one page table.
pub(crate) const LOOK_PAGES: usize = BLOCK / PAGE;

/// Which of some pages have memory: the lowest bit of a byte for each.
struct Residency([u8; LOOK_PAGES]);

impl Default for Residency {
    fn default() -> Self {
        Self([0; LOOK_PAGES])
    }
}

impl Residency {
    fn look(&mut self, range: &AddressRange, offset: usize, bytes: usize) -> io::Result<&mut [u8]> {
        let pages = &mut self.0[..bytes / PAGE];
        let start = range.range(offset, bytes);
        pass(Call::Look)?;
        // SAFETY: within the mapping, and the vector has a byte for each of its pages.
        match unsafe { libc::mincore(start, bytes, pages.as_mut_ptr()) } {
            0 => Ok(pages),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The first pages of these, of which `most` have memory.
fn prefix(pages: &[u8], most: usize) -> usize {
    let resident = pages.iter().enumerate().filter(|(_, page)| *page & 1 == 1);
    let next = resident.map(|(page, _)| page).nth(most);
    next.unwrap_or(pages.len())
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        let unmapped = pass(Call::Unmap).and_then(|()| {
            // SAFETY: the mapping made in `new`, whose owner goes away.
            unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) }
        });
        if let Err(error) = unmapped {
            // The addresses stay reserved; nothing refers to them.
            tracing::warn!(%error, bytes = self.mapped, "an address range stays mapped");
        }
    }
}
