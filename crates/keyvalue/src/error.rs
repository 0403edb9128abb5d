//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use crate::limits::{KEY_BYTES, VALUE_BYTES};

/// Why an operation was not done. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The key is longer than [`KEY_BYTES`](crate::KEY_BYTES).
    #[error("a key has more than {KEY_BYTES} bytes")]
    Key,
    /// The value is longer than [`VALUE_BYTES`](crate::VALUE_BYTES).
    #[error("a value has more than {VALUE_BYTES} bytes")]
    Value,
    /// The keys and values would come to more than the quota.
    #[error("the quota of the store is exhausted")]
    Quota,
    /// The values together are more than the caller takes.
    #[error("the values together have more than {0} bytes")]
    Answer(usize),
    /// The value is no decimal number of 64 bits, or would be too large for one.
    #[error("the value is no number, or would be too large a one")]
    Number,
    /// The file could not be read or written.
    #[error("the file of the store failed: {0}")]
    File(String),
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be made, read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{}: another process has this store open", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// The file is no store, or is damaged.
    #[error("{}: found no store ({what}); allowed: a store, an empty file or none", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
}
