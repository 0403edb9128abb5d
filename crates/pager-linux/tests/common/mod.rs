//! Addresses to attach areas at, tenants' accesses, and a store in memory that can fail.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_pager::{AreaId, AttachmentId, ReservationId};
use leasehold_pager_linux::{CopyOnWrite, Error, Locking, Options, Paging, Store};
use rustix::mm::{MapFlags, ProtFlags};

pub(crate) const BYTES: usize = 4096;

/// Addresses of a tenant, which the process has reserved for nothing else: for good, since a pager
/// puts inaccessible memory there when it is dropped, which may be after these. Unmapped before, they
/// would be another test's by then.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    start: *mut u8,
    pages: u32,
}

impl Addresses {
    pub(crate) fn reserve(pages: u32) -> Self {
        let bytes = pages as usize * BYTES;
        // SAFETY: the kernel picks addresses at which nothing is mapped.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = start.expect("addresses").cast();
        Addresses { start, pages }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    pub(crate) fn attach(&self, paging: &Paging, to: ReservationId, area: AreaId) -> AttachmentId {
        self.try_attach(paging, to, area).expect("attached")
    }

    pub(crate) fn try_attach(
        &self,
        paging: &Paging,
        to: ReservationId,
        area: AreaId,
    ) -> Result<AttachmentId, Error> {
        // SAFETY: the addresses were reserved for this, and are used by this test only.
        unsafe { paging.attach_at(to, area, self.start, self.pages) }
    }

    pub(crate) fn attach_copied(
        &self,
        paging: &Paging,
        to: ReservationId,
        area: AreaId,
        copies: AreaId,
    ) -> CopyOnWrite {
        // SAFETY: as for `try_attach`.
        unsafe { paging.attach_copied(to, area, copies, self.start) }.expect("attached")
    }

    fn word(&self, page: u32) -> *mut u64 {
        assert!(page < self.pages);
        // Not at the start of a page, so that whole pages must have been kept.
        let offset = page as usize * BYTES + 8 * (page as usize % 512);
        // SAFETY: within the addresses.
        unsafe { self.start.add(offset) }.cast()
    }

    /// The tenant reads.
    pub(crate) fn load(&self, page: u32) -> u64 {
        // SAFETY: within the addresses, at which the pager serves faults.
        unsafe { self.word(page).read_volatile() }
    }

    /// The tenant writes.
    pub(crate) fn store(&self, page: u32, word: u64) {
        // SAFETY: as for `load`.
        unsafe { self.word(page).write_volatile(word) }
    }

    /// Fills a page with noise.
    pub(crate) fn fill(&self, page: u32, seed: u64) {
        let words = self.start.wrapping_add(page as usize * BYTES).cast::<u64>();
        for at in 0..BYTES / 8 {
            // SAFETY: as for `load`.
            unsafe { words.add(at).write_volatile(noise(seed, at)) }
        }
    }

    /// Returns whether a page holds what it was filled with.
    pub(crate) fn holds(&self, page: u32, seed: u64) -> bool {
        let mut words = self.words(page).enumerate();
        words.all(|(at, word)| word == noise(seed, at))
    }

    /// Returns whether a page reads as zeros.
    pub(crate) fn is_zero(&self, page: u32) -> bool {
        self.words(page).all(|word| word == 0)
    }

    /// The tenant reads a page.
    fn words(&self, page: u32) -> impl Iterator<Item = u64> {
        assert!(page < self.pages);
        let start = self.start.wrapping_add(page as usize * BYTES).cast::<u64>();
        (0..BYTES / 8).map(move |at| {
            // SAFETY: as for `load`.
            unsafe { start.add(at).read_volatile() }
        })
    }
}

fn noise(seed: u64, at: usize) -> u64 {
    let mut word = seed ^ (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word ^ (word >> 27)
}

/// How a store is to fail from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fails {
    #[default]
    Not,
    /// Reads and writes with an error of the device.
    Device,
    /// Writes as if there was no room.
    Full,
    /// Transfers stop after the first bytes, and work when they are continued.
    Short,
    /// Transfers stop half-way and transfer nothing more.
    Stuck,
    /// Every other call is interrupted.
    Interrupted,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    bytes: Vec<u8>,
    pub(crate) fails: Fails,
    calls: u64,
}

/// A store in memory.
#[derive(Debug, Clone)]
pub(crate) struct MemoryStore {
    pub(crate) inner: Arc<Mutex<Inner>>,
    pages: u32,
    pub(crate) reads: Arc<AtomicU64>,
    pub(crate) writes: Arc<AtomicU64>,
}

impl MemoryStore {
    pub(crate) fn new(pages: u32) -> Self {
        let inner = Inner {
            bytes: vec![0xEE; pages as usize * BYTES],
            ..Inner::default()
        };
        MemoryStore {
            inner: Arc::new(Mutex::new(inner)),
            pages,
            reads: Arc::default(),
            writes: Arc::default(),
        }
    }

    pub(crate) fn set(&self, fails: Fails) {
        self.inner.lock().expect("no panic").fails = fails;
    }
}

impl Inner {
    /// How many of `wanted` bytes to transfer.
    fn allow(&mut self, wanted: usize, write: bool) -> io::Result<usize> {
        self.calls += 1;
        match self.fails {
            Fails::Not => Ok(wanted),
            Fails::Device => Err(io::Error::from_raw_os_error(libc::EIO)),
            Fails::Full if write => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Fails::Full => Ok(wanted),
            Fails::Short => Ok(wanted.min(1500)),
            Fails::Stuck if wanted.is_multiple_of(BYTES) => Ok(wanted / 2 + 100),
            Fails::Stuck => Ok(0),
            Fails::Interrupted if self.calls % 2 == 1 => Err(io::ErrorKind::Interrupted.into()),
            Fails::Interrupted => Ok(wanted),
        }
    }
}

impl Store for MemoryStore {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock().expect("no panic");
        let bytes = inner.allow(into.len(), false)?;
        let from = offset as usize;
        into[..bytes].copy_from_slice(&inner.bytes[from..from + bytes]);
        Ok(bytes)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<usize> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock().expect("no panic");
        let bytes = inner.allow(from.len(), true)?;
        let to = offset as usize;
        inner.bytes[to..to + bytes].copy_from_slice(&from[..bytes]);
        Ok(bytes)
    }
}

/// A cell with a store in memory; nothing is mapped ahead.
pub(crate) fn open(frames: u32, places: u32) -> (Paging, MemoryStore) {
    let store = MemoryStore::new(places);
    let paging = Paging::open(Options {
        store: Some(Box::new(store.clone())),
        ahead: 0,
        locking: Locking::Never,
        ..Options::new(frames)
    });
    (paging.expect("a kernel with userfaultfd"), store)
}
