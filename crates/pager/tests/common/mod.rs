//! A backend that records its calls in order.

use std::collections::BTreeSet;

use leasehold_pager::{
    AreaId, AttachmentId, Backend, Frame, Held, MemoryBackend, Page, PageNumber, StoreError,
    Writing,
};

/// A change of a page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Map(AttachmentId, PageNumber),
    Unmap(AttachmentId, PageNumber),
}

#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) memory: MemoryBackend,
    pub(crate) changes: Vec<Change>,
    /// Attachments that there are.
    pub(crate) attached: BTreeSet<AttachmentId>,
    /// Reference bits looked at.
    pub(crate) looks: u32,
}

impl Watched {
    pub(crate) fn new(frames: u32) -> Self {
        Watched {
            memory: MemoryBackend::new(frames),
            changes: vec![],
            attached: BTreeSet::new(),
            looks: 0,
        }
    }
}

impl Backend for Watched {
    fn attach(&mut self, at: AttachmentId, area: AreaId, pages: u32) {
        self.attached.insert(at);
        self.memory.attach(at, area, pages);
    }

    fn detach(&mut self, at: AttachmentId) {
        self.attached.remove(&at);
        self.memory.detach(at);
    }

    fn map(&mut self, at: AttachmentId, page: PageNumber, frame: Frame) {
        self.changes.push(Change::Map(at, page));
        self.memory.map(at, page, frame);
    }

    fn unmap(&mut self, at: AttachmentId, page: PageNumber) {
        self.changes.push(Change::Unmap(at, page));
        self.memory.unmap(at, page);
    }

    fn take_referenced(&mut self, at: AttachmentId, page: PageNumber) -> bool {
        self.looks += 1;
        self.memory.take_referenced(at, page)
    }

    fn is_dirty(&mut self, held: Held) -> bool {
        self.memory.is_dirty(held)
    }

    fn clear(&mut self, held: Held) {
        self.memory.clear(held);
    }

    fn read(&mut self, from: Page, held: Held) -> Result<(), StoreError> {
        self.memory.read(from, held)
    }

    fn copy(&mut self, from: Held, to: Held) {
        self.memory.copy(from, to);
    }

    fn mark_dirty(&mut self, held: Held) {
        self.memory.mark_dirty(held);
    }

    fn write(&mut self, cluster: &[Held]) -> Result<Writing, StoreError> {
        self.memory.write(cluster)
    }

    fn release(&mut self, held: Held) {
        self.memory.release(held);
    }

    fn discard(&mut self, area: AreaId) {
        self.memory.discard(area);
    }
}
