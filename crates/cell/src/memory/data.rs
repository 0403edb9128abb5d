//! Data sets: files of the host whose pages a guest has in its linear memory, to read.
//!
//! A guest maps a data set by growing its memory by it ([`super::growth`]). Tenants that map the same
//! file share its pages ([shared](mod@super::shared)).

use super::areas::{Content, Identity};
use super::attaching::Attaching;
use super::growth;
use super::paged::PagedMemory;
use super::parts::Part;
use super::shared::{Joining, Source};
use super::state::CellMemory;
use leasehold_lease::RegularFile;
use leasehold_pager::{PAGE, Sharing};
use leasehold_pager_linux::{Error, Paging};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The longest data set that fits a linear memory beside other contents.
const MOST_BYTES: u64 = 2 << 30;

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
        let file = RegularFile::open(path)?;
        let metadata = file.metadata().clone();
        if !(1..=MOST_BYTES).contains(&metadata.len()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a data set is a regular file of 1 byte to 2 GiB",
            ));
        }
        Ok(Self {
            name: name.into(),
            file: Arc::new(file.into_file()),
            identity: Identity {
                device: metadata.dev(),
                inode: metadata.ino(),
                bytes: metadata.len(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
            },
        })
    }

    /// The guest's name of it.
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
    /// The remaining steps towards the state that the lease requires.
    pub(crate) joining: Joining,
}

/// Makes `grow` grow a linear memory by a data set; `None` if it grew no paging memory.
pub(crate) fn map_data(data: DataSet, grow: impl FnOnce()) -> Option<Result<Mapped, Error>> {
    growth::by(
        move |cell, memory, bytes| cell.map_data(memory, &data, bytes),
        grow,
    )
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
        // Nothing is behind the last part of the memory.
        let attach = |attaching: Attaching<'_>, reservation, area| {
            attaching.read_only(reservation, area, address)
        };
        let pages = data.pages();
        let source = Source {
            content: Content::Data(data.identity),
            name: data.name(),
            pages,
            make: &make,
            attach: &attach,
        };
        // Sharing comes last, because it may be impossible to undo.
        let rest = self.attach_behind(memory, pages, bytes)?;
        let joining = match self.join(memory.root(), &source) {
            Ok(joining) => joining,
            Err(error) => {
                if let Some(rest) = rest {
                    self.undo(&rest);
                }
                return Err(error);
            }
        };
        let data = Part::whole(joining.attachment(), pages);
        memory.append(std::iter::once(data).chain(rest), bytes);
        Ok(Mapped {
            address: offset,
            joining,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::DataSet;
    use std::io::ErrorKind;

    #[test]
    fn a_fifo_is_no_data_set_and_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a FIFO");
        let refused = DataSet::open("fifo", &path).expect_err("no regular file");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}
