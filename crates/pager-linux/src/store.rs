//! Secondary storage: where pages are written out.

use leasehold_door::{Call, pass};
use leasehold_pager::{CLUSTER, PAGE};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

/// The contents of a page, where direct input can put them.
#[derive(Debug)]
#[repr(align(4096))]
pub(crate) struct PageBytes(pub(crate) [u8; PAGE as usize]);

impl PageBytes {
    /// A copy of a page.
    pub(crate) fn copied(from: &[u8]) -> Self {
        let mut page = Self([0; PAGE as usize]);
        page.0.copy_from_slice(from);
        page
    }
}

/// Reads and writes pages of a store on other threads.
#[derive(Debug, Clone)]
pub struct StoreFile(Arc<File>);

impl StoreFile {
    /// One for a store that is in a file.
    pub fn new(file: Arc<File>) -> Self {
        Self(file)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads the page at `offset`.
    pub(crate) fn read(&self, offset: u64) -> io::Result<Box<PageBytes>> {
        let mut page = Box::new(PageBytes([0; PAGE as usize]));
        read_all(&mut page.0, |done, rest| {
            pass(Call::ReadSwap)?;
            Ok(rustix::io::pread(&self.0, rest, offset + done as u64)?)
        })?;
        Ok(page)
    }

    /// Writes at most a cluster of pages from `offset` on.
    pub(crate) fn write(&self, offset: u64, pages: &[PageBytes]) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); CLUSTER];
        for (slice, page) in slices.iter_mut().zip(pages) {
            *slice = IoSlice::new(&page.0);
        }
        let mut rest = &mut slices[..pages.len()];
        let mut at = offset;
        while !rest.is_empty() {
            pass(Call::WriteSwap)?;
            match rustix::io::pwritev(&self.0, rest, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    at += bytes as u64;
                    IoSlice::advance_slices(&mut rest, bytes);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Holds pages at offsets, synchronously. Called in signal handlers: an implementation neither
/// allocates nor locks.
///
/// Transfers may be short, as the system's are: they are completed here, and one of nothing is an
/// error. What fails is reported to the tenant whose page it is.
pub trait Store: Send {
    /// Pages that there is room for, on storage that is allocated already.
    fn pages(&self) -> u32;

    /// Reads bytes from `offset` on; returns how many. `into` is page-aligned.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes bytes from `offset` on; returns how many. `from` is page-aligned.
    ///
    /// # Errors
    /// The system's.
    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<usize>;

    /// What reads and writes its pages on other threads; `None` if only this can.
    fn file(&self) -> Option<StoreFile> {
        None
    }
}

/// Reads all of `into`.
pub(crate) fn read_all(
    into: &mut [u8],
    mut read: impl FnMut(usize, &mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        match read(done, &mut into[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `from`.
pub(crate) fn write_all(
    from: &[u8],
    mut write: impl FnMut(usize, &[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < from.len() {
        match write(done, &from[done..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
