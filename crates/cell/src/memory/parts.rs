//! What linear memories that page consist of.

use super::ranges::Range;
use leasehold_pager::AttachmentId;
use leasehold_reclaim::GroupId;

/// An area of a linear memory.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) attachment: AttachmentId,
    /// Pages that the memory may come to have of it, and how many it has.
    pub(super) pages: u32,
    pub(super) accessible: u32,
}

impl Part {
    /// All of an area.
    pub(super) fn whole(attachment: AttachmentId, pages: u32) -> Self {
        Self {
            attachment,
            pages,
            accessible: pages,
        }
    }

    pub(super) fn inaccessible(&self) -> u32 {
        self.pages - self.accessible
    }
}

/// Where the first memory of a tenant will be, with the image of its program attached.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) range: Range,
    /// The first page of the image.
    pub(super) first: u32,
    pub(super) part: Part,
}

/// A linear memory whose program has gone.
#[derive(Debug)]
pub(crate) struct Left {
    pub(super) root: GroupId,
    pub(super) range: Range,
    pub(super) parts: Vec<Part>,
}

/// The tenant of these memories is being [retired](super::Tenancy::retire_step): their addresses are
/// its reservation's to give back.
pub(super) fn ranges_of(left: &mut Vec<Left>) -> impl Iterator<Item = Range> {
    left.drain(..).map(|gone| gone.range)
}
