//! Why the memory of a cell refuses something.

use std::io;

use leasehold_pager::Refused;

use crate::probe::Unsupported;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The policy refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The kernel or the user lacks something.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The kernel refused it.
    #[error("{doing}: {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The store has too few unpromised places.
    #[error("{needed} pages to write out, the swap file has room for {left}")]
    SwapFull {
        /// Places that were asked for.
        needed: u32,
        /// Places that are left.
        left: u32,
    },
    /// The thread has a pager already.
    #[error("this thread has a pager already")]
    Opened,
    /// The reservation has too few kernel mappings left of its share.
    #[error("{needed} kernel mappings needed, the reservation has {left} left of {share}")]
    Mappings {
        /// Mappings that were asked for.
        needed: u32,
        /// Mappings that are left.
        left: u32,
        /// All that it may cause.
        share: u32,
    },
    /// Addresses that are not the start of a page, or go beyond the last.
    #[error("{address:#x} with {pages} pages is no range of pages")]
    Misplaced {
        /// The address.
        address: usize,
        /// Pages from there on.
        pages: u32,
    },
    /// Something is attached at one of these addresses, or was and could not be made inaccessible yet.
    #[error("something is attached at {address:#x}, or in the {pages} pages from there on")]
    Occupied {
        /// The address.
        address: usize,
        /// Pages from there on.
        pages: u32,
    },
    /// Pages of a file can be attached copy on write or to be read only.
    #[error("the area shows a file: it can be attached copy on write or read-only")]
    ReadOnly,
    /// The area for copies is smaller than the area to be copied, or attached already.
    #[error("the area for copies must be as long as the other, and new")]
    CopiesTooFew,
}

pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { doing, source }
}
