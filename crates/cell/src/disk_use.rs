//! What a tenant has added to disks, in all its lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the lives of a tenant have added to disks so far. Each of them is given the same, so that a program that ends and
/// is started again adds no more than its lease allows.
///
/// Bytes and names are given back by any life that removes the files, and by the threads that close them. The default has
/// none. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct DiskUse(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    files: AtomicU64,
}

impl DiskUse {
    /// The bytes, as the file system counts blocks.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// The names of files, directories and links.
    pub fn files(&self) -> u64 {
        self.0.files.load(Ordering::Relaxed)
    }

    pub(crate) fn byte_count(&self) -> &AtomicU64 {
        &self.0.bytes
    }

    pub(crate) fn file_count(&self) -> &AtomicU64 {
        &self.0.files
    }
}
