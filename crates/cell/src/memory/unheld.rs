//! Why a cell does not get the memory that it was told to hold.

use leasehold_pager_linux::SwapFileError;

/// What a [`HeldMemory`](super::HeldMemory) asks for and the host does not give. An error of
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
}
