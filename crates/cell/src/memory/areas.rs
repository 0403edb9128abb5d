//! The areas of a cell that can be shared.

use leasehold_lease::SharedPages;
use leasehold_pager::AreaId;
use std::collections::BTreeMap;

/// The identity of a file and of its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) modified: (i64, i64),
}

/// The contents of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Content {
    /// The image with this digest.
    Image([u8; 32]),
    /// A file, as it was.
    Data(Identity),
}

/// The contents of an area, and how its sharers keep it.
pub(super) type Key = (Content, SharedPages);

/// The areas of a cell that can be shared.
#[derive(Debug, Default)]
pub(super) struct Shared(pub(super) BTreeMap<Key, SharedArea>);

#[derive(Debug)]
pub(super) struct SharedArea {
    pub(super) area: AreaId,
    pub(super) pages: u32,
    /// Its name in reports.
    pub(super) name: String,
    pub(super) locked: bool,
}
