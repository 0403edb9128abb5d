//! Why a cell cannot hold the configured memory.

use leasehold_pager_linux::SwapFileError;

/// A part of a [`HeldMemory`](super::HeldMemory) that the host does not provide. An error of
/// [`Cell::start`](crate::Cell::start) that says so can be cast to it.
#[derive(Debug, thiserror::Error)]
pub enum Unheld {
    /// The swap file cannot be made.
    #[error("`memory.swap`: {0}")]
    Swap(#[source] SwapFileError),
    /// More than the host can spare.
    #[error("`cell.memory`: found {asked} bytes to be held; the host has {available} to spare")]
    Memory {
        /// Bytes to be held.
        asked: u64,
        /// Bytes that could be.
        available: u64,
    },
    /// The process may not have files that are long enough: held memory is a file in memory, as long as offsets reach.
    #[error(
        "the process may have files of {} KiB (`ulimit -f`), and held memory is a file in memory, most of which is never used; \
         allowed: unlimited",
        .allowed >> 10
    )]
    FileSize {
        /// Bytes that a file may have.
        allowed: u64,
    },
}
