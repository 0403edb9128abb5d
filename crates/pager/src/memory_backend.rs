//! A backend that keeps everything in memory, for tests and simulations.
//!
//! It is exact in everything that a tenant can observe (mappings, contents, reference and dirty
//! bits), and stores one word for each page.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::attachment::AttachmentId;
use crate::backend::{Backend, Held, StoreError, Writing};
use crate::frame::Frame;
use crate::page::{AreaId, Page, PageNumber};

#[derive(Debug, Clone, Copy)]
struct Entry {
    frame: Frame,
    referenced: bool,
}

#[derive(Debug, Clone, Copy)]
struct Contents {
    /// The page that the frame holds, if any.
    page: Option<Page>,
    word: u64,
    dirty: bool,
}

/// The contents of a frame without a page.
const STALE: u64 = 0xDEAD_BEEF;

/// The operations of a [`MemoryBackend`] so far.
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
    /// Whether clusters are written later.
    suspends: bool,
    /// Pages that are being written, and what they held.
    leaving: BTreeMap<Page, (Held, u64)>,
}

impl MemoryBackend {
    /// Creates a node of `frames` frames with stale contents.
    pub fn new(frames: u32) -> Self {
        let stale = Contents {
            page: None,
            word: STALE,
            dirty: true,
        };
        MemoryBackend {
            frames: alloc::vec![stale; frames as usize],
            tables: Vec::new(),
            store: BTreeMap::new(),
            traffic: Traffic::default(),
            failing: false,
            suspends: false,
            leaving: BTreeMap::new(),
        }
    }

    /// The work done so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Makes storage fail, or work again.
    pub fn set_failing(&mut self, failing: bool) {
        self.failing = failing;
    }

    /// From now on, or no longer, writes only begin, one cluster at a time, until they [end](Self::end_writing).
    pub fn set_suspends(&mut self, suspends: bool) {
        self.suspends = suspends;
    }

    /// What is being written is written now, or turns out not to be.
    pub fn end_writing(&mut self, is_written: bool) {
        for (page, (held, word)) in core::mem::take(&mut self.leaving) {
            let contents = self.contents(held);
            if is_written && !contents.dirty {
                self.store.insert(page, word);
            } else {
                contents.dirty = true;
            }
        }
    }

    /// A tenant reads a page; `None` is a page fault.
    pub fn load(&mut self, at: AttachmentId, page: PageNumber) -> Option<u64> {
        let entry = self.entry(at, page)?;
        entry.referenced = true;
        let frame = entry.frame;
        Some(self.frames[frame.index() as usize].word)
    }

    /// A tenant writes to a page; `false` is a page fault.
    pub fn store(&mut self, at: AttachmentId, page: PageNumber, word: u64) -> bool {
        let Some(entry) = self.entry(at, page) else {
            return false;
        };
        entry.referenced = true;
        let frame = entry.frame;
        let contents = &mut self.frames[frame.index() as usize];
        contents.word = word;
        contents.dirty = true;
        true
    }

    /// Returns whether a tenant has a page in its page table.
    pub fn is_mapped(&self, at: AttachmentId, page: PageNumber) -> bool {
        self.frame(at, page).is_some()
    }

    /// The frame to which a tenant's page table points.
    pub fn frame(&self, at: AttachmentId, page: PageNumber) -> Option<Frame> {
        let (id, table) = self.tables.get(at.index() as usize)?.as_ref()?;
        let entry = (*id == at).then(|| table.get(page.index())).flatten()?;
        entry.map(|entry| entry.frame)
    }

    fn entry(&mut self, at: AttachmentId, page: PageNumber) -> Option<&mut Entry> {
        let (id, table) = self.tables.get_mut(at.index() as usize)?.as_mut()?;
        if *id != at {
            return None;
        }
        table.get_mut(page.index())?.as_mut()
    }

    fn place(&mut self, at: AttachmentId, page: PageNumber) -> &mut Option<Entry> {
        let table = self.tables[at.index() as usize].as_mut();
        let (id, table) = table.expect("an attachment");
        assert_eq!(*id, at, "an attachment that has gone");
        &mut table[page.index()]
    }

    /// The contents of a page's frame.
    fn contents(&mut self, held: Held) -> &mut Contents {
        let contents = &mut self.frames[held.frame.index() as usize];
        assert_eq!(contents.page, Some(held.page), "another page's frame");
        contents
    }

    /// Fills a frame that holds no page.
    fn fill(&mut self, held: Held, word: u64, dirty: bool) {
        let contents = &mut self.frames[held.frame.index() as usize];
        assert_eq!(contents.page, None, "a frame holds one page");
        *contents = Contents {
            page: Some(held.page),
            word,
            dirty,
        };
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

    fn map(&mut self, at: AttachmentId, page: PageNumber, frame: Frame) {
        let referenced = true;
        let before = self.place(at, page).replace(Entry { frame, referenced });
        assert!(before.is_none(), "mapped twice");
        self.traffic.maps += 1;
    }

    fn unmap(&mut self, at: AttachmentId, page: PageNumber) {
        let before = self.place(at, page).take();
        assert!(before.is_some(), "unmapped twice");
        self.traffic.unmaps += 1;
    }

    fn take_referenced(&mut self, at: AttachmentId, page: PageNumber) -> bool {
        let entry = self.place(at, page).as_mut().expect("a mapped page");
        core::mem::take(&mut entry.referenced)
    }

    fn is_dirty(&mut self, held: Held) -> bool {
        self.contents(held).dirty || self.leaving.contains_key(&held.page)
    }

    fn clear(&mut self, held: Held) {
        self.fill(held, 0, false);
    }

    fn read(&mut self, from: Page, held: Held) -> Result<(), StoreError> {
        self.works()?;
        let word = self.store[&from];
        self.fill(held, word, false);
        self.traffic.reads += 1;
        Ok(())
    }

    fn copy(&mut self, from: Held, to: Held) {
        let word = self.contents(from).word;
        self.fill(to, word, true);
    }

    fn mark_dirty(&mut self, held: Held) {
        self.contents(held).dirty = true;
    }

    fn write(&mut self, cluster: &[Held]) -> Result<Writing, StoreError> {
        self.works()?;
        if self.suspends && !self.leaving.is_empty() {
            return Ok(Writing::Waits);
        }
        for &held in cluster {
            let contents = self.contents(held);
            contents.dirty = false;
            let word = contents.word;
            if self.suspends {
                self.leaving.insert(held.page, (held, word));
            } else {
                // What is still being written is older.
                self.leaving.remove(&held.page);
                self.store.insert(held.page, word);
            }
        }
        self.traffic.writes += 1;
        self.traffic.written += cluster.len() as u64;
        Ok(match self.suspends {
            true => Writing::Begun,
            false => Writing::Done,
        })
    }

    fn release(&mut self, held: Held) {
        self.leaving.remove(&held.page);
        let contents = self.contents(held);
        contents.page = None;
        // The next one to have the frame must not depend on what this one left in it.
        contents.word = STALE;
        contents.dirty = true;
    }

    fn discard(&mut self, area: AreaId) {
        self.store.retain(|page, _| page.area != area);
        self.leaving.retain(|page, _| page.area != area);
    }
}
