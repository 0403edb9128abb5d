//! The mechanism that moves pages: page tables, frames and secondary storage, behind one trait.

use crate::attachment::AttachmentId;
use crate::frame::Frame;
use crate::page::{AreaId, Page, PageNumber};

/// A page, and the frame that holds it.
///
/// A backend may keep its frames by their numbers, or let the host pick the memory for each page
/// and treat the number as a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The page.
    pub page: Page,
    /// Its frame.
    pub frame: Frame,
}

/// Secondary storage failed to read or to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("secondary storage failed")]
pub struct StoreError;

/// How far a cluster is that was to be written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// It is written.
    Done,
    /// It is being written, beside the tenants.
    Begun,
    /// An earlier one is still being written.
    Waits,
}

/// Carries out the policy's decisions.
///
/// The policy calls [`map`](Backend::map) and [`unmap`](Backend::unmap) strictly in pairs, with
/// frames of the node only, and never has one frame hold two pages. A frame is filled
/// ([`clear`](Backend::clear), [`read`](Backend::read), [`copy`](Backend::copy)) right before its
/// page is mapped for the first time, and [released](Backend::release) after the page was unmapped
/// for the last time.
pub trait Backend {
    /// An area of `pages` pages becomes visible to a tenant; nothing is mapped yet.
    fn attach(&mut self, at: AttachmentId, area: AreaId, pages: u32);

    /// Detaches an area without mapped pages from a tenant.
    fn detach(&mut self, at: AttachmentId);

    /// Puts a page into one tenant's page table.
    fn map(&mut self, at: AttachmentId, page: PageNumber, frame: Frame);

    /// Takes a page out of one tenant's page table. What the tenant wrote must be in the frame
    /// afterwards, and [`is_dirty`](Backend::is_dirty) must know of it.
    fn unmap(&mut self, at: AttachmentId, page: PageNumber);

    /// Returns whether *this tenant* referenced the page since the last call, and clears that (the
    /// reference bit of SPC §II-B: each reservation reads its own page tables only).
    fn take_referenced(&mut self, at: AttachmentId, page: PageNumber) -> bool;

    /// Returns whether any tenant wrote to the frame since it was cleared, read or written out. As long as it is
    /// [being](Writing::Begun) written out it counts as written to.
    fn is_dirty(&mut self, held: Held) -> bool;

    /// Fills a frame with zeros; it is clean.
    fn clear(&mut self, held: Held);

    /// Fills a frame with the stored contents of `from`: its own page, or the original of a copy.
    /// The frame is clean.
    ///
    /// # Errors
    /// [`StoreError`]; the contents of the frame are then undefined and never visible: it is free
    /// again, and is not [released](Backend::release).
    fn read(&mut self, from: Page, held: Held) -> Result<(), StoreError>;

    /// Fills a frame with what another one holds; it is dirty.
    fn copy(&mut self, from: Held, to: Held);

    /// Makes a frame count as written to.
    fn mark_dirty(&mut self, held: Held);

    /// Writes the frames of a cluster out, in one go; they are clean afterwards. They may be
    /// mapped meanwhile: a tenant's later writes must make them dirty again.
    ///
    /// Where the tenant can wait, they may be written beside the tenants: those that no tenant has written to since
    /// are clean when that is over, and the request is repeated then.
    ///
    /// # Errors
    /// [`StoreError`]: frames that were not written are still dirty.
    fn write(&mut self, cluster: &[Held]) -> Result<Writing, StoreError>;

    /// Releases the frame of a page that is no longer mapped: its contents are not read again.
    fn release(&mut self, held: Held);

    /// Forgets some records of an area that is being removed and has no page in a frame, such as
    /// the stored copies of 512 pages. Returns whether there were any. [`discard`](Self::discard)
    /// removes the rest.
    fn shed(&mut self, area: AreaId) -> bool {
        let _ = area;
        false
    }

    /// Removes all records and stored pages of a removed area.
    fn discard(&mut self, area: AreaId);
}
