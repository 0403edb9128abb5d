//! A backend that keeps everything in memory, for tests and simulations.
//!
//! It is exact about what a tenant could observe (which pages are mapped, what they hold, what
//! is referenced and dirty), and holds one word in place of the bytes of each page.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::area::AreaId;
use crate::attachment::AttachmentId;
use crate::backend::{Backend, Page, StoreError};
use crate::frame::Frame;

#[derive(Debug, Clone, Copy)]
struct Entry {
    frame: Frame,
    referenced: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Contents {
    word: u64,
    dirty: bool,
}

/// What a [`MemoryBackend`] was asked to do so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Pages mapped.
    pub maps: u64,
    /// Pages unmapped.
    pub unmaps: u64,
    /// Pages read from storage.
    pub reads: u64,
    /// Clusters written to storage.
    pub writes: u64,
    /// Pages written to storage.
    pub written: u64,
}

/// Page tables, frames and secondary storage in memory; one word stands for a page.
#[derive(Debug, Clone)]
pub struct MemoryBackend {
    frames: Vec<Contents>,
    /// By the index of the attachment.
    tables: Vec<Option<(AttachmentId, Vec<Option<Entry>>)>>,
    store: BTreeMap<Page, u64>,
    traffic: Traffic,
    failing: bool,
}

impl MemoryBackend {
    /// A node of `frames` frames, which hold what somebody else left in them.
    pub fn new(frames: u32) -> Self {
        let stale = Contents {
            word: 0xDEAD_BEEF,
            dirty: true,
        };
        MemoryBackend {
            frames: alloc::vec![stale; frames as usize],
            tables: Vec::new(),
            store: BTreeMap::new(),
            traffic: Traffic::default(),
            failing: false,
        }
    }

    /// What was done so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Makes storage fail, or work again.
    pub fn set_failing(&mut self, failing: bool) {
        self.failing = failing;
    }

    /// A tenant reads a page; `None` is a page fault.
    pub fn load(&mut self, at: AttachmentId, page: u32) -> Option<u64> {
        let entry = self.entry(at, page)?;
        entry.referenced = true;
        let frame = entry.frame;
        Some(self.frames[frame.index() as usize].word)
    }

    /// A tenant writes to a page; `false` is a page fault.
    pub fn store(&mut self, at: AttachmentId, page: u32, word: u64) -> bool {
        let Some(entry) = self.entry(at, page) else {
            return false;
        };
        entry.referenced = true;
        let frame = entry.frame;
        self.frames[frame.index() as usize] = Contents { word, dirty: true };
        true
    }

    /// Says whether a tenant has a page in its page table.
    pub fn is_mapped(&self, at: AttachmentId, page: u32) -> bool {
        self.frame(at, page).is_some()
    }

    /// The frame to which a tenant's page table points.
    pub fn frame(&self, at: AttachmentId, page: u32) -> Option<Frame> {
        let (id, table) = self.tables.get(at.index() as usize)?.as_ref()?;
        let entry = (*id == at).then(|| table.get(page as usize)).flatten()?;
        entry.map(|entry| entry.frame)
    }

    fn entry(&mut self, at: AttachmentId, page: u32) -> Option<&mut Entry> {
        let (id, table) = self.tables.get_mut(at.index() as usize)?.as_mut()?;
        if *id != at {
            return None;
        }
        table.get_mut(page as usize)?.as_mut()
    }

    fn place(&mut self, at: AttachmentId, page: u32) -> &mut Option<Entry> {
        let table = self.tables[at.index() as usize].as_mut();
        let (id, table) = table.expect("an attachment");
        assert_eq!(*id, at, "an attachment that has gone");
        &mut table[page as usize]
    }

    fn works(&self) -> Result<(), StoreError> {
        if self.failing {
            Err(StoreError)
        } else {
            Ok(())
        }
    }
}

impl Backend for MemoryBackend {
    fn attach(&mut self, at: AttachmentId, _: AreaId, pages: u32) {
        let index = at.index() as usize;
        if self.tables.len() <= index {
            self.tables.resize(index + 1, None);
        }
        let before = self.tables[index].replace((at, alloc::vec![None; pages as usize]));
        assert!(before.is_none(), "attached twice");
    }

    fn detach(&mut self, at: AttachmentId) {
        let table = self.tables[at.index() as usize].take();
        let (id, table) = table.expect("an attachment");
        assert_eq!(id, at, "an attachment that has gone");
        assert!(table.iter().all(Option::is_none), "detached while mapped");
    }

    fn map(&mut self, at: AttachmentId, page: u32, frame: Frame) {
        let referenced = true;
        let before = self.place(at, page).replace(Entry { frame, referenced });
        assert!(before.is_none(), "mapped twice");
        self.traffic.maps += 1;
    }

    fn unmap(&mut self, at: AttachmentId, page: u32) {
        let before = self.place(at, page).take();
        assert!(before.is_some(), "unmapped twice");
        self.traffic.unmaps += 1;
    }

    fn take_referenced(&mut self, at: AttachmentId, page: u32) -> bool {
        let entry = self.place(at, page).as_mut().expect("a mapped page");
        core::mem::take(&mut entry.referenced)
    }

    fn is_dirty(&mut self, frame: Frame) -> bool {
        self.frames[frame.index() as usize].dirty
    }

    fn clear(&mut self, frame: Frame) {
        self.frames[frame.index() as usize] = Contents::default();
    }

    fn read(&mut self, page: Page, frame: Frame) -> Result<(), StoreError> {
        self.works()?;
        let word = self.store[&page];
        self.frames[frame.index() as usize] = Contents { word, dirty: false };
        self.traffic.reads += 1;
        Ok(())
    }

    fn copy(&mut self, from: Frame, to: Frame) {
        let word = self.frames[from.index() as usize].word;
        self.frames[to.index() as usize] = Contents { word, dirty: true };
    }

    fn mark_dirty(&mut self, frame: Frame) {
        self.frames[frame.index() as usize].dirty = true;
    }

    fn write(&mut self, cluster: &[(Page, Frame)]) -> Result<(), StoreError> {
        self.works()?;
        for &(page, frame) in cluster {
            let contents = &mut self.frames[frame.index() as usize];
            contents.dirty = false;
            self.store.insert(page, contents.word);
        }
        self.traffic.writes += 1;
        self.traffic.written += cluster.len() as u64;
        Ok(())
    }

    fn discard(&mut self, area: AreaId) {
        self.store.retain(|page, _| page.area != area);
    }
}
