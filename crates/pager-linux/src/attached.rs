//! An area at addresses of a tenant.

use leasehold_pager::{AttachmentId, PageNumber, ReservationId};

use crate::ahead::Stream;
use crate::bits::Bits;
use crate::present::Present;
use crate::span::Span;

/// The role of an attachment.
#[derive(Debug)]
pub(crate) enum Role {
    /// The area, to be written to.
    Direct,
    /// The area, to be read only: a write is denied.
    ReadOnly,
    /// The shared pages of an area mapped copy on write: never writable. In blocks that were
    /// written to, the addresses show the copies.
    Original {
        /// The attachment of the copies.
        copies: u32,
        /// Blocks whose addresses show the copies.
        broken: Bits,
        /// Pages of a block, as a power of two.
        block: u32,
    },
    /// The copies of such an area. Their addresses are those of the original.
    Copies {
        /// The attachment of the shared pages.
        original: u32,
    },
}

#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) id: AttachmentId,
    /// Index of the area.
    pub(crate) area: u32,
    /// All of it, accessible or not.
    pub(crate) span: Span,
    /// Pages that are mapped from the area; from there on, nothing is.
    pub(crate) accessible: u32,
    /// Pages with an entry in a page table, and the tables. A page that the policy has mapped and that has no
    /// entry is not referenced since that was last asked.
    pub(crate) present: Present,
    pub(crate) role: Role,
    /// Its addresses have been given up.
    pub(crate) gone: bool,
    /// A page was denied: memory of the process's own is at all of its addresses, and its tenant
    /// does not run again.
    pub(crate) lost: bool,
    pub(crate) stream: Stream,
    /// The reservation that it is of, and the kernel mappings that this one was charged for it.
    pub(crate) holder: ReservationId,
    pub(crate) mappings: u32,
}

impl Attached {
    /// The addresses of a page.
    pub(crate) fn page_at(&self, page: PageNumber) -> Span {
        self.pages_at(page, page.next())
    }

    /// The addresses of the pages `from .. to`.
    pub(crate) fn pages_at(&self, from: PageNumber, to: PageNumber) -> Span {
        self.span.addresses_of(from, to)
    }

    /// The page behind those that are accessible.
    pub(crate) fn end(&self) -> PageNumber {
        PageNumber::new(self.accessible)
    }

    /// Writes go to copies.
    pub(crate) fn is_original(&self) -> bool {
        matches!(self.role, Role::Original { .. })
    }

    /// Writes are denied.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.role, Role::ReadOnly)
    }

    /// Writes to any page trap, whether it is dirty or not.
    pub(crate) fn traps_writes(&self) -> bool {
        self.is_original() || self.is_read_only()
    }
}
