//! Data sets: files of the host whose pages a guest has in its linear memory, to read.
//!
//! A guest maps a data set by growing its memory: the new pages are those of the file, and what a
//! guest grows by is its own to place. So nothing that it has can be in the way, and what it is
//! charged and limited by is growth, as for any other page. Tenants that map the same file share its
//! pages ([`super::shared`]).

use super::paged::{PagedMemory, Part};
use super::shared::{Content, Joining, Source};
use super::{CellMemory, with};
use leasehold_pager::{PAGE, Sharing};
use leasehold_pager_linux::{Error, Paging};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A longer file does not fit a linear memory beside anything else.
const MOST_BYTES: u64 = 2 << 30;

/// What tells one file from another, and from itself after it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A data set that a guest may map. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct DataSet {
    name: Arc<str>,
    file: Arc<File>,
    identity: Identity,
}

impl DataSet {
    /// Opens a data set.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if it is no regular file of 1 byte to 2 GiB.
    pub(crate) fn open(name: &str, path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || !(1..=MOST_BYTES).contains(&metadata.len()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a data set is a regular file of 1 byte to 2 GiB",
            ));
        }
        Ok(Self {
            name: name.into(),
            file: Arc::new(file),
            identity: Identity {
                device: metadata.dev(),
                inode: metadata.ino(),
                bytes: metadata.len(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
            },
        })
    }

    /// What the guest calls it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    fn pages(&self) -> u32 {
        self.bytes().div_ceil(PAGE) as u32
    }
}

/// A data set in a linear memory.
pub(crate) struct Mapped {
    /// Where it begins.
    pub(crate) address: usize,
    /// What is left to do before it is as the lease wants it.
    pub(crate) joining: Joining,
}

thread_local! {
    /// What the next growth of a linear memory shows instead of zeros, and what came of it.
    static MAPPING: RefCell<Mapping> = const { RefCell::new(Mapping::Nothing) };
}

enum Mapping {
    Nothing,
    Wanted(DataSet),
    Done(Mapped),
    Failed(Error),
}

/// Has the next growth show a data set: to be followed by that, in a memory that pages.
pub(crate) fn map_next(data: DataSet) {
    MAPPING.set(Mapping::Wanted(data));
}

/// What came of it: `None` if the memory was not grown at all, or does not page.
pub(crate) fn mapped() -> Option<Result<Mapped, Error>> {
    match MAPPING.replace(Mapping::Nothing) {
        Mapping::Nothing | Mapping::Wanted(_) => None,
        Mapping::Done(mapped) => Some(Ok(mapped)),
        Mapping::Failed(error) => Some(Err(error)),
    }
}

/// Grows a memory, by a data set if that was wanted.
pub(super) fn grow(memory: &mut PagedMemory, bytes: usize) -> wasmtime::Result<()> {
    let wanted = MAPPING.replace(Mapping::Nothing);
    let grown = with(|cell| {
        let Mapping::Wanted(data) = wanted else {
            return cell.grow(memory, bytes).map_err(wasmtime::Error::from);
        };
        let mapped = cell.map_data(memory, &data, bytes);
        let failed = mapped.as_ref().err().map(ToString::to_string);
        MAPPING.set(match mapped {
            Ok(mapped) => Mapping::Done(mapped),
            Err(error) => Mapping::Failed(error),
        });
        failed.map_or(Ok(()), |why| Err(wasmtime::format_err!("{why}")))
    });
    grown.unwrap_or_else(|| Err(wasmtime::format_err!("a memory grows on its cell's thread")))
}

impl CellMemory {
    /// Grows a memory to `bytes` bytes, of which the first new ones are those of a data set, or
    /// changes nothing.
    fn map_data(
        &mut self,
        memory: &mut PagedMemory,
        data: &DataSet,
        bytes: usize,
    ) -> Result<Mapped, Error> {
        self.seal(memory)?;
        let (address, offset) = memory.end();
        let make = |paging: &Paging| {
            let file = data.file.try_clone().map_err(|source| Error::System {
                doing: "open a data set",
                source,
            })?;
            paging.create_image(file, Sharing::Conserve)
        };
        let attach = |paging: &Paging, reservation, area| {
            // SAFETY: behind the last part of the memory, inside its range: nothing is there.
            unsafe { paging.attach_read_only(reservation, area, address) }
        };
        let pages = data.pages();
        let source = Source {
            content: Content::Data(data.identity),
            name: data.name(),
            pages,
            make: &make,
            attach: &attach,
        };
        // What is shared comes last: it may not be possible to undo.
        let rest = self.attach_behind(memory, pages, bytes)?;
        let joining = match self.join(memory.root(), &source) {
            Ok(joining) => joining,
            Err(error) => {
                if let Some(rest) = rest {
                    self.undo(memory.root(), &rest);
                }
                return Err(error);
            }
        };
        let data = Part::whole(joining.attachment(), pages);
        memory.append(std::iter::once(data).chain(rest), bytes);
        if let Some(tenancy) = self.tenancies.get_mut(&memory.root()) {
            tenancy.placed += pages;
        }
        Ok(Mapped {
            address: offset,
            joining,
        })
    }
}
