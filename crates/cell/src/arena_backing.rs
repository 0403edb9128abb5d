//! Arenas in anonymous memory of the operating system.

use std::ptr::{NonNull, null_mut};

use leasehold_door::{Call, pass};
use leasehold_reclaim::Backing;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Maps an address range per arena; pages cost nothing until they are touched, and go back to
/// the system when they are discarded.
///
/// `reserve` and `release` cost one system call each, `discard` about 0.1 µs per resident page.
/// A range that the kernel refuses to unmap, for which it may need a mapping more, is emptied and
/// unmapped when a later range is reserved or released.
#[derive(Debug, Default)]
pub struct MapBacking {
    /// What is still to be unmapped: where it starts, and its bytes.
    refused: Vec<(NonNull<u8>, usize)>,
}

impl MapBacking {
    /// Unmaps a range that was refused before, if there is one: one system call.
    fn settle(&mut self) {
        if let Some((start, bytes)) = self.refused.pop()
            && !Self::unmap(start, bytes)
        {
            self.refused.push((start, bytes));
        }
    }

    /// Unmaps a range that nothing refers to and that is used no more; whether the kernel did.
    fn unmap(start: NonNull<u8>, bytes: usize) -> bool {
        let unmapped = pass(Call::Unmap).and_then(|()| {
            // SAFETY: one whole range of `reserve`, which its user released.
            unsafe { munmap(start.as_ptr().cast(), bytes) }
        });
        unmapped.is_ok()
    }
}

impl Drop for MapBacking {
    fn drop(&mut self) {
        for (start, bytes) in self.refused.drain(..) {
            Self::unmap(start, bytes);
        }
    }
}

// SAFETY: a private anonymous mapping is page-aligned, zeroed, readable and writable, disjoint
// from all other memory, and stays until it is unmapped; after MADV_DONTNEED its pages read as
// zero again. Nothing here calls back.
unsafe impl Backing for MapBacking {
    fn reserve(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        self.settle();
        pass(Call::Map).ok()?;
        // SAFETY: a new mapping where the kernel likes; no memory in use is affected.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        NonNull::new(start.ok()?.cast())
    }

    unsafe fn discard(&mut self, start: NonNull<u8>, bytes: usize) {
        let discarded = pass(Call::Advise).and_then(|()| {
            // SAFETY: whole pages of a reserved range without references into it, by contract.
            unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }
        });
        if discarded.is_err() {
            // The kernel may refuse (locked pages); the promise that they read as zero remains.
            // SAFETY: as above, and the range is writable.
            unsafe { start.as_ptr().write_bytes(0, bytes) };
        }
    }

    unsafe fn release(&mut self, start: NonNull<u8>, bytes: usize) {
        self.settle();
        if !Self::unmap(start, bytes) {
            // Its addresses have to stay, and its pages need not.
            // SAFETY: the whole range, without references into it, by contract.
            unsafe { self.discard(start, bytes) };
            self.refused.push((start, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_pages_read_as_zero() {
        let mut backing = MapBacking::default();
        let bytes = 16 * 4096;
        let start = backing.reserve(bytes).expect("64 KiB of address space");
        // SAFETY: `start` is reserved, readable and writable for `bytes`; no other reference.
        unsafe {
            start.write_bytes(0xa5, bytes);
            backing.discard(start.add(4096), bytes - 4096);
            let contents = std::slice::from_raw_parts(start.as_ptr(), bytes);
            assert!(contents[..4096].iter().all(|&byte| byte == 0xa5));
            assert!(contents[4096..].iter().all(|&byte| byte == 0));
            backing.release(start, bytes);
        }
    }

    #[test]
    fn an_absurd_size_is_refused() {
        assert!(MapBacking::default().reserve(usize::MAX & !4095).is_none());
    }
}
