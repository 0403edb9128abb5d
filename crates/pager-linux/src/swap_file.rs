//! A swap file: one per node, on blocks that are allocated when it is made.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use leasehold_pager::PAGE;
use rustix::fs::{FallocateFlags, OFlags};

use crate::store::Store;

/// A swap file that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("swap file {}: {doing}", path.display())]
pub struct SwapFileError {
    path: PathBuf,
    doing: &'static str,
    source: io::Error,
}

/// Pages in a file that has no name any more: whatever happens to the process, nothing is left of
/// it. Read and written past the page cache, which would hold a second copy of each page in
/// memory that nobody reserved.
#[derive(Debug)]
pub struct SwapFile {
    file: File,
    pages: u32,
}

impl SwapFile {
    /// Makes a file for `pages` pages at `path`, where nothing may be, readable by this user only,
    /// allocates its blocks, and removes its name.
    ///
    /// # Errors
    /// [`SwapFileError`] names what failed: the file exists, the file system is full or has no
    /// direct input and output.
    pub fn create(path: &Path, pages: u32) -> Result<SwapFile, SwapFileError> {
        let failed = |doing| {
            move |source| SwapFileError {
                path: path.into(),
                doing,
                source,
            }
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .map_err(failed("create for direct input and output"))?;
        std::fs::remove_file(path).map_err(failed("remove its name"))?;
        if pages > 0 {
            let bytes = u64::from(pages) * PAGE;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)
                .map_err(io::Error::from)
                .map_err(failed("allocate"))?;
        }
        Ok(SwapFile { file, pages })
    }
}

impl Store for SwapFile {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.file, into, offset)?)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&self.file, from, offset)?)
    }
}
