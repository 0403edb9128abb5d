//! The memory of all areas of a cell: one memfd, of which each area has an extent.
//!
//! With a file for each area, a tenant could use up the descriptors of the process by growing. This
//! one is made when the cell starts, and serves any number of areas. Its length is that of all
//! addresses: it takes memory only where pages are.
//!
//! An extent is given to the next area only after all pages that an area had in it were punched out, and after no mapping
//! of it is left: what cannot be punched or unmapped now stays in *limbo*, and is tried again. [Prepared](crate::prepared)
//! pages, which are zero, stay for the next area.

use leasehold_door::{Call, pass};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use leasehold_pager::{PAGE, PageNumber};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;

use crate::cached::CachedPages;
use crate::extents::Extents;
use crate::hold::Ballast;
use crate::store::{read_all, write_all};

/// Bytes of the file in memory that the areas of a cell are: far more than there are addresses, and less than an offset can be.
/// It takes memory only where pages are, but a process may not have it under a limit on the size of files (`RLIMIT_FSIZE`).
pub const PAGE_FILE_BYTES: u64 = 1 << 60;

/// Pages of the file that an area has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    first: u64,
    pages: u32,
}

impl Extent {
    pub(crate) fn pages(self) -> u32 {
        self.pages
    }

    /// The page of the file that is this page of the area.
    pub(crate) fn page(self, number: PageNumber) -> u64 {
        debug_assert!(number <= self.end());
        self.first + u64::from(number.get())
    }

    /// The page behind its last one.
    pub(crate) fn end(self) -> PageNumber {
        PageNumber::new(self.pages)
    }

    /// The power of two of pages that it takes.
    fn size(self) -> usize {
        self.pages.next_power_of_two().trailing_zeros() as usize
    }
}

/// The file, and which extents of it are free.
#[derive(Debug)]
pub(crate) struct PageFile {
    file: OwnedFd,
    free: Extents,
    /// Extents without an area that may hold pages, or be mapped, still.
    limbo: Vec<CachedPages>,
    /// Mappings of areas at addresses without an owner: until they are unmapped, no extent is used
    /// again.
    pub(crate) stale_mappings: usize,
}

impl PageFile {
    pub(crate) fn new() -> io::Result<Self> {
        pass(Call::MakeFile)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
        // Kernels before 6.3 do not know the seal.
        let file = match rustix::fs::memfd_create("leasehold-areas", flags) {
            Err(Errno::INVAL) => rustix::fs::memfd_create("leasehold-areas", MemfdFlags::CLOEXEC)?,
            file => file?,
        };
        pass(Call::Truncate)?;
        rustix::fs::ftruncate(&file, PAGE_FILE_BYTES)?;
        Ok(PageFile {
            file,
            free: Extents::new(PAGE_FILE_BYTES / PAGE),
            limbo: Vec::new(),
            stale_mappings: 0,
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Takes an extent whose pages read as zero.
    ///
    /// # Errors
    /// `StorageFull` when the file has no pages left, which takes more areas than can be made.
    pub(crate) fn take(&mut self, pages: u32) -> io::Result<Extent> {
        let mut extent = Extent { first: 0, pages };
        let first = self.free.take(extent.size());
        extent.first = first.ok_or(io::ErrorKind::StorageFull)?;
        Ok(extent)
    }

    /// Gives back the extent of a removed area, with the pages that are left in it.
    pub(crate) fn give_back(&mut self, ballast: &mut Ballast, left: CachedPages) {
        self.limbo.push(left);
        self.settle(ballast);
    }

    /// Tries again what could not be given back.
    pub(crate) fn settle(&mut self, ballast: &mut Ballast) {
        while self.stale_mappings == 0
            && let Some(mut left) = self.limbo.pop()
        {
            if left.vacate(self, ballast).is_err() {
                self.limbo.push(left);
                return;
            }
            let extent = left.extent();
            self.free.give_back(extent.first, extent.size());
        }
    }

    /// Gives the frames of the file's pages `from .. to` back to the kernel, which takes them out of every
    /// page table as well.
    pub(crate) fn punch(&self, from: u64, to: u64) -> Result<(), Errno> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, bytes) = (from * PAGE, (to - from) * PAGE);
        loop {
            pass(Call::Punch)?;
            match rustix::fs::fallocate(&self.file, mode, offset, bytes) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Copies a page that is cached out.
    pub(crate) fn load(&self, extent: Extent, page: PageNumber, into: &mut [u8]) -> io::Result<()> {
        let offset = extent.page(page) * PAGE;
        read_all(into, |done, rest| {
            pass(Call::Load)?;
            Ok(rustix::io::pread(&self.file, rest, offset + done as u64)?)
        })
    }

    /// Fills a page without mapping it.
    pub(crate) fn save(&self, extent: Extent, page: PageNumber, from: &[u8]) -> io::Result<()> {
        let offset = extent.page(page) * PAGE;
        write_all(from, |done, rest| {
            pass(Call::Save)?;
            Ok(rustix::io::pwrite(&self.file, rest, offset + done as u64)?)
        })
    }

    /// What is in limbo: for tests.
    pub(crate) fn limbo(&self) -> impl Iterator<Item = &CachedPages> {
        self.limbo.iter()
    }

    /// Bytes that the file has in memory, as the kernel counts them: for tests.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_blocks as u64 * 512)
    }

    /// Nothing is in limbo: for tests.
    pub(crate) fn is_settled(&self) -> bool {
        self.limbo.is_empty() && self.stale_mappings == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    use super::PageFile;
    use crate::cached::CachedPages;
    use crate::hold::{Ballast, Locking};
    use leasehold_pager::PageNumber;

    /// Some of the extents are in the head.
    fn hold(file: &PageFile) -> Ballast {
        Ballast::hold(file, 64, Locking::Never).expect("memory")
    }

    proptest! {
        /// Whatever is taken and given back: extents of areas never overlap, and read as zeros.
        #[test]
        fn extents_are_disjoint_and_empty(
            steps in prop::collection::vec((any::<bool>(), 1u32..20, any::<u8>()), 0..60),
        ) {
            let mut file = PageFile::new().expect("a file");
            let mut ballast = hold(&file);
            let mut taken: Vec<CachedPages> = Vec::new();
            for (take, pages, which) in steps {
                if take || taken.is_empty() {
                    let extent = file.take(pages).expect("pages");
                    prop_assert_eq!(extent.pages(), pages);
                    for other in &taken {
                        let other = other.extent();
                        let apart = other.page(other.end()) <= extent.page(PageNumber::FIRST)
                            || extent.page(extent.end()) <= other.page(PageNumber::FIRST);
                        prop_assert!(apart, "{:?} {:?}", other, extent);
                    }
                    let mut bytes = [1; 4096];
                    let last = PageNumber::new(pages - 1);
                    let mut cached = CachedPages::new(extent);
                    cached.load(&file, last, &mut bytes).expect("a page");
                    prop_assert!(bytes.iter().all(|&byte| byte == 0));
                    cached.save(&file, &mut ballast, last, &[7; 4096]).expect("room");
                    taken.push(cached);
                } else {
                    let gone = taken.swap_remove(usize::from(which) % taken.len());
                    file.give_back(&mut ballast, gone);
                }
                let held = ballast.held();
                prop_assert_eq!(held.used as usize, taken.len());
                let pages = u64::from(held.used + held.ballast);
                prop_assert_eq!(file.resident_bytes().expect("a size"), pages * 4096);
                ballast.refill(&file, 1).expect("memory");
            }
            prop_assert!(file.is_settled());
        }

        /// The pages of an extent that is given back with strays read as zeros.
        #[test]
        fn strays_are_punched_out_with_all_of_their_extent(pages in 1u32..20, stray in 0u32..20) {
            let mut file = PageFile::new().expect("a file");
            let mut ballast = hold(&file);
            let mut cached = CachedPages::new(file.take(pages).expect("pages"));
            let stray = PageNumber::new(stray % pages);
            file.save(cached.extent(), stray, &[7; 4096]).expect("room");
            cached.has_strays();
            file.give_back(&mut ballast, cached);
            prop_assert_eq!(file.resident_bytes().expect("a size"), u64::from(64 - pages) * 4096);
            prop_assert_eq!(ballast.held().ballast, 64 - pages);
        }

        /// An extent that may still be mapped is not used again.
        #[test]
        fn no_extent_is_used_again_while_a_mapping_is_stale(pages in 1u32..20) {
            let mut file = PageFile::new().expect("a file");
            let mut ballast = hold(&file);
            let first = file.take(pages).expect("pages");
            file.stale_mappings = 1;
            file.give_back(&mut ballast, CachedPages::new(first));
            let second = file.take(pages).expect("pages");
            prop_assert!(first != second && !file.is_settled());
            file.stale_mappings = 0;
            file.settle(&mut ballast);
            prop_assert_eq!(file.take(pages).expect("pages"), first);
        }
    }
}
