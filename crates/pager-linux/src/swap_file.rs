//! A swap file: one per node, on blocks that are written when it is made.

use leasehold_door::{Call, pass};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_pager::PAGE;
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, OFlags, StatxAttributes, StatxFlags, accessat, statx,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::memory::Staging;
use crate::store::{Store, StoreFile, write_all};

/// A swap file that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SwapFileError {
    /// The system refused it.
    #[error("swap file {}: {doing}: {source}", path.display())]
    System {
        /// Where it was to be.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Its pages would be in memory, which a swap file is there to save.
    #[error(
        "swap file {}: found a directory on {found}, which is memory; allowed: one on a file \
         system that keeps its files on a disk",
        path.display()
    )]
    InMemory {
        /// Where it was to be.
        path: PathBuf,
        /// The file system.
        found: &'static str,
    },
}

/// File systems whose files are memory, by what `fstatfs` calls them (statfs(2)).
const IN_MEMORY: [(u32, &str); 3] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x9584_58F6, "hugetlbfs"),
];

/// Pages in a file without a name: nothing is left of it after the process, however that ends. Read
/// and written past the page cache, which would hold a second copy of each page in unreserved
/// memory.
#[derive(Debug)]
pub struct SwapFile {
    file: StoreFile,
    pages: u32,
}

impl SwapFile {
    /// Makes a file for `pages` pages at `path`, where nothing may be, readable by this user only,
    /// allocates and writes its blocks, and removes its name. Takes as long as the disk needs for them.
    ///
    /// # Errors
    /// [`SwapFileError`] names what failed: the file exists, the file system is full, is in memory, or
    /// has no direct input and output. Nothing is left of it, unless its name could not be removed.
    pub fn create(path: &Path, pages: u32) -> Result<SwapFile, SwapFileError> {
        let failed = |doing| {
            move |source| SwapFileError::System {
                path: path.into(),
                doing,
                source,
            }
        };
        Self::check(path, pages)?;
        pass(Call::MakeSwap).map_err(|errno| failed("create")(errno.into()))?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .map_err(failed("create for direct input and output"))?;
        pass(Call::MakeSwap)
            .map_err(io::Error::from)
            .and_then(|()| std::fs::remove_file(path))
            .map_err(failed("remove its name"))?;
        if pages > 0 {
            let bytes = u64::from(pages) * PAGE;
            pass(Call::MakeSwap)
                .and_then(|()| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes))
                .map_err(io::Error::from)
                .map_err(failed("allocate"))?;
        }
        let file = StoreFile::new(Arc::new(file));
        fill(&file, pages).map_err(failed("write"))?;
        Ok(SwapFile { file, pages })
    }

    /// Checks what can be known before a swap file of `pages` pages is made at `path`: its directory is [on a
    /// disk](Self::is_on_disk), nothing has its name, the thread may write there, and its files may be so long. Makes nothing.
    ///
    /// # Errors
    /// [`SwapFileError`], as [`create`](Self::create) says it.
    pub fn check(path: &Path, pages: u32) -> Result<(), SwapFileError> {
        let failed = |doing| {
            move |errno: Errno| SwapFileError::System {
                path: path.into(),
                doing,
                source: errno.into(),
            }
        };
        Self::is_on_disk(path)?;
        let create = failed("create for direct input and output");
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(create(Errno::ISDIR));
        }
        match rustix::fs::lstat(path) {
            Err(Errno::NOENT) => {}
            found => return Err(create(found.err().unwrap_or(Errno::EXIST))),
        }
        // Whose names cannot be removed again.
        if Self::is_append_only(directory(path)).map_err(create)? {
            return Err(failed("remove its name")(Errno::PERM));
        }
        let may = Access::WRITE_OK | Access::EXEC_OK;
        accessat(CWD, directory(path), may, AtFlags::EACCESS).map_err(create)?;
        match getrlimit(Resource::Fsize).current {
            Some(most) if most < u64::from(pages) * PAGE => Err(failed("allocate")(Errno::FBIG)),
            _ => Ok(()),
        }
    }

    /// Whether names can be made in a directory and not removed (chattr(1), `a`).
    fn is_append_only(directory: &Path) -> Result<bool, Errno> {
        let status = statx(CWD, directory, AtFlags::empty(), StatxFlags::empty())?;
        let (known, set) = (status.stx_attributes_mask, status.stx_attributes);
        Ok((known & set).contains(StatxAttributes::APPEND))
    }

    /// Checks whether a swap file may be at `path`: in an existing directory, on a file system that
    /// is not in memory. Makes nothing.
    ///
    /// # Errors
    /// [`SwapFileError`] says what was found.
    pub fn is_on_disk(path: &Path) -> Result<(), SwapFileError> {
        let failed = |source: Errno| SwapFileError::System {
            path: path.into(),
            doing: "find out what its directory is on",
            source: source.into(),
        };
        let found = pass(Call::MakeSwap)
            .and_then(|()| rustix::fs::statfs(directory(path)))
            .map_err(failed)?;
        let kind = found.f_type as u32;
        match IN_MEMORY.iter().find(|&&(known, _)| known == kind) {
            None => Ok(()),
            Some(&(_, found)) => Err(SwapFileError::InMemory {
                path: path.into(),
                found,
            }),
        }
    }
}

/// Pages that are written in one go when the file is made.
const AT_ONCE: u32 = 1 << 10;

/// Writes all of a file. Blocks that are only allocated are marked as written at their first write, under a lock of the
/// file that every other transfer takes as well: a cell was seen to wait for it for more than a second, beside tenants
/// that kept the disk busy.
/// The directory of a file.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn fill(file: &StoreFile, pages: u32) -> io::Result<()> {
    let zeros = Staging::new(AT_ONCE.min(pages.max(1)))?;
    let mut from = 0;
    while from < pages {
        let to = pages.min(from.saturating_add(AT_ONCE));
        let offset = u64::from(from) * PAGE;
        write_all(zeros.read(0, (to - from) as usize), |done, rest| {
            pass(Call::MakeSwap)?;
            Ok(rustix::io::pwrite(
                file.as_fd(),
                rest,
                offset + done as u64,
            )?)
        })?;
        from = to;
    }
    Ok(())
}

impl Store for SwapFile {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        pass(Call::ReadSwap)?;
        Ok(rustix::io::pread(self.file.as_fd(), into, offset)?)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<usize> {
        pass(Call::WriteSwap)?;
        Ok(rustix::io::pwrite(self.file.as_fd(), from, offset)?)
    }

    fn file(&self) -> Option<StoreFile> {
        Some(self.file.clone())
    }
}
