//! The file of a store, which does not grow beyond a bound.

use leasehold_door::{Call, pass};
use redb::StorageBackend;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// The most bytes of a file, as a multiple of the quota.
pub const FILE_FACTOR: u64 = 8;

/// The bytes that a file may have whatever the quota is.
pub const LEAST_FILE: u64 = 8 << 20;

/// The file, locked for this process as long as it is open.
#[derive(Debug, Clone)]
pub(crate) struct BoundedFile {
    file: Arc<File>,
    most: u64,
}

impl BoundedFile {
    pub(crate) fn new(file: File, quota: u64) -> Self {
        Self {
            file: Arc::new(file),
            most: quota.saturating_mul(FILE_FACTOR).max(LEAST_FILE),
        }
    }
}

impl StorageBackend for BoundedFile {
    fn len(&self) -> Result<u64> {
        pass(Call::Store)?;
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        pass(Call::Store)?;
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        match length <= self.most {
            true => {
                pass(Call::Store)?;
                self.file.set_len(length)
            }
            false => Err(Error::from(ErrorKind::QuotaExceeded)),
        }
    }

    fn sync_data(&self) -> Result<()> {
        pass(Call::Store)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        pass(Call::Store)?;
        self.file.write_all_at(data, offset)
    }
}
