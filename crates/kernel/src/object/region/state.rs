//! A region.

use leasehold_reclaim::Extent;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) bytes: Bytes,
}

/// Where the bytes of a region are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytes {
    /// In the arena.
    Here(Extent),
    /// In pages that the cell maps: so many.
    Mapped(u64),
}
