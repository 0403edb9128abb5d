//! Why an execution cannot be built.

use leasehold_kernel::Errno;
use std::path::PathBuf;

/// Why an execution could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("the lease does not pay for starting it: {0}")]
    Lease(#[from] Errno),
    #[error("directory {}: {source}", path.display())]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("data set {}: {source}", path.display())]
    Data {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    Memory(String),
    #[error("{0:#}")]
    Link(wasmtime::Error),
}

impl BuildError {
    /// The error code for a guest that requested the execution.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            BuildError::Lease(errno) => *errno,
            BuildError::Memory(_) => Errno::Memory,
            BuildError::Directory { .. } | BuildError::Data { .. } | BuildError::Link(_) => {
                Errno::Invalid
            }
        }
    }
}
