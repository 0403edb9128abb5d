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
        let sealed = fcntl_get_seals(&*file)?.contains(SEALS);
        let length = pages.checked_mul(PAGE);
        let start = first.checked_mul(PAGE);
        let end = length
            .zip(start)
            .and_then(|(length, start)| start.checked_add(length));
        let has = file.metadata()?.len();
        let fits = length.is_some_and(|length| length > 0 && length as u64 <= has);
        match (start, end) {
            (Some(start), Some(end)) if sealed && fits => Ok(Contents {
                file,
                bytes: start..end,
            }),
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
        Arc::ptr_eq(&self.file, &other.file) && self.bytes == other.bytes
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
