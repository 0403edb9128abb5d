//! What a linear memory holds from the beginning, without being copied into it.
//!
//! An instance of a language engine begins with 10 to 40 MB that are the same in all of its instances, and writes to few
//! of them. They are shown in the memory as pages of a file, mapped privately: reading a page shares it, writing to it
//! copies it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::address_range::PAGE;

/// Pages of a file that nobody can change, and where in a memory they are shown. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Contents {
    file: Arc<File>,
    /// Byte of the file at which they begin.
    start: u64,
    /// Where they are in a memory.
    bytes: Range<usize>,
}

/// The seals without which a file could change, or end before its pages do.
const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW);

impl Contents {
    /// Shows the first `pages` pages of a sealed file from page `first` of a memory on.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the file is not sealed against changes, is shorter, or there are no pages; the
    /// system's if it is no file in memory.
    pub fn new(file: Arc<File>, first: usize, pages: usize) -> io::Result<Contents> {
        if !fcntl_get_seals(&*file)?.contains(SEALS) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: sealed.
        unsafe { Self::of_constant(file, 0, first, pages) }
    }

    /// Shows `pages` pages of a file, from its byte `start` on, from page `first` of a memory on. A page that is not
    /// in memory is read when a program looks at it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the file is shorter, `start` is within a page, or there are no pages; the system's.
    ///
    /// # Safety
    ///
    /// Nothing changes these pages of the file, or shortens it, as long as it is open here.
    pub unsafe fn of_constant(
        file: Arc<File>,
        start: u64,
        first: usize,
        pages: usize,
    ) -> io::Result<Contents> {
        let length = pages.checked_mul(PAGE).filter(|&length| length > 0);
        let place = length.zip(first.checked_mul(PAGE));
        let place = place.and_then(|(length, at)| Some(at..at.checked_add(length)?));
        let end = length.and_then(|length| start.checked_add(length as u64));
        let has = file.metadata()?.len();
        let fits = start.is_multiple_of(PAGE as u64) && end.is_some_and(|end| end <= has);
        match place {
            Some(bytes) if fits => Ok(Contents { file, start, bytes }),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Where they are in a memory, bytes from its start.
    #[inline]
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }

    /// Whether both show the same pages of the same file in the same place.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
            && self.start == other.start
            && self.bytes == other.bytes
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The byte of the file at which they begin.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}
