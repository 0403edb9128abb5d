//! What moves pages: page tables, frames and secondary storage, behind one trait.

use crate::area::AreaId;
use crate::attachment::AttachmentId;
use crate::frame::Frame;

/// A page of an area: what is stored, whoever has it mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    /// The area.
    pub area: AreaId,
    /// Number of the page in its area.
    pub number: u32,
}

/// Secondary storage failed to read or to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("secondary storage failed")]
pub struct StoreError;

/// Carries out what the policy decides.
///
/// The policy calls [`map`](Backend::map) and [`unmap`](Backend::unmap) strictly in pairs, with
/// frames of the node only, and never has one frame hold two pages.
pub trait Backend {
    /// An area of `pages` pages becomes visible to a tenant; nothing is mapped yet.
    fn attach(&mut self, at: AttachmentId, area: AreaId, pages: u32);

    /// An area, of which nothing is mapped any more, disappears from a tenant.
    fn detach(&mut self, at: AttachmentId);

    /// Puts a page into one tenant's page table.
    fn map(&mut self, at: AttachmentId, page: u32, frame: Frame);

    /// Takes a page out of one tenant's page table. What the tenant wrote must be in the frame
    /// afterwards, and [`is_dirty`](Backend::is_dirty) must know of it.
    fn unmap(&mut self, at: AttachmentId, page: u32);

    /// Says whether *this tenant* referenced the page since the last call, and forgets it (the
    /// reference bit of SPC §II-B: each reservation looks at its own page tables only).
    fn take_referenced(&mut self, at: AttachmentId, page: u32) -> bool;

    /// Says whether anybody wrote to the frame since it was cleared, read or written out.
    fn is_dirty(&mut self, frame: Frame) -> bool;

    /// Fills a frame with zeros; it is clean.
    fn clear(&mut self, frame: Frame);

    /// Fills a frame with what was written out; it is clean.
    ///
    /// # Errors
    /// [`StoreError`]; what the frame holds is then undefined, and nobody will see it.
    fn read(&mut self, page: Page, frame: Frame) -> Result<(), StoreError>;

    /// Fills a frame with what another one holds; it is dirty.
    fn copy(&mut self, from: Frame, to: Frame);

    /// Makes a frame count as written to.
    fn mark_dirty(&mut self, frame: Frame);

    /// Writes the frames of a cluster out, in one go; they are clean afterwards. They may be
    /// mapped meanwhile: a tenant's later writes must make them dirty again.
    ///
    /// # Errors
    /// [`StoreError`]: frames that were not written are still dirty.
    fn write(&mut self, cluster: &[(Page, Frame)]) -> Result<(), StoreError>;

    /// The area has gone for good: so may all that was written out of it.
    fn discard(&mut self, area: AreaId);
}
