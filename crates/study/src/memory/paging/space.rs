//! Memory reservations on Linux, and address space to attach areas in: real pages, a real swap
//! file.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Context, Result, ensure};
use leasehold_pager::{AreaId, AttachmentId, PAGE, ReservationId};
use leasehold_pager_linux::{Answer, CopyOnWrite, Options, Paging, SwapFile};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const PAGE_BYTES: usize = PAGE as usize;

/// The memory of one thread.
pub(crate) struct Space {
    /// Dropped first: it may still look at the windows.
    paging: Paging,
    /// Every window stays until the end, so that no view can outlive its own.
    windows: RefCell<Vec<Window>>,
}

/// Addresses that nothing is mapped at, until an area is.
struct Window {
    start: *mut u8,
    bytes: usize,
}

/// An area, where a tenant has it attached.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The attachment.
    pub(crate) id: AttachmentId,
    start: *mut u8,
    pages: u32,
    _space: &'a Space,
}

/// Addresses for areas that lie next to each other.
pub(crate) struct Range<'a> {
    start: *mut u8,
    pages: u32,
    /// Pages from the start that have been given to areas.
    taken: Cell<u32>,
    space: &'a Space,
}

impl Space {
    /// Memory of `frames` frames, with a swap file for `swap` pages in `directory`, which maps up
    /// to `ahead` pages ahead.
    ///
    /// # Errors
    /// If the kernel lacks something, or the file system.
    pub(crate) fn open(frames: u32, swap: u32, directory: &Path, ahead: u32) -> Result<Self> {
        let mut options = Options::new(frames);
        options.ahead = ahead;
        // A denied fault is an error of the study, reported after the task is done: see `denied`.
        options.handlers.on_denied = |_| Answer::Substitute;
        if swap > 0 {
            // Nothing may be at the path; the file loses its name at once, the directory here.
            let place = tempfile::tempdir_in(directory).context("a place for a swap file")?;
            let file = SwapFile::create(&place.path().join("swap"), swap)?;
            options.store = Some(Box::new(file));
        }
        Ok(Self {
            paging: Paging::open(options)?,
            windows: RefCell::default(),
        })
    }

    pub(crate) fn paging(&self) -> &Paging {
        &self.paging
    }

    /// Addresses for `pages` pages of areas.
    ///
    /// # Errors
    /// The system's without address space.
    pub(crate) fn range(&self, pages: u32) -> Result<Range<'_>> {
        let window = Window::reserve(pages)?;
        let start = window.start;
        self.windows.borrow_mut().push(window);
        Ok(Range {
            start,
            pages,
            taken: Cell::new(0),
            space: self,
        })
    }

    /// Attaches an area of `pages` pages at addresses of its own.
    ///
    /// # Errors
    /// The pager's, or the system's without address space.
    pub(crate) fn attach(&self, to: ReservationId, area: AreaId, pages: u32) -> Result<View<'_>> {
        let start = self.range(pages)?.start;
        // SAFETY: the window has just been reserved, for this alone, and stays reserved until
        // after the pager has gone. Only views of this thread, which cannot be sent, access it.
        let id = unsafe { self.paging.attach_at(to, area, start, pages) }?;
        Ok(View {
            id,
            start,
            pages,
            _space: self,
        })
    }

    /// Returns whether everything that was touched could be had.
    ///
    /// # Errors
    /// With the last access that could not.
    pub(crate) fn denied(&self) -> Result<()> {
        let denied = self.paging.take_denied();
        ensure!(denied.is_none(), "an access was denied: {denied:?}");
        Ok(())
    }
}

impl Range<'_> {
    /// The first address. It is valid until the space goes.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Attaches an area of `pages` pages behind the one before, so that writes go to `copies`.
    ///
    /// # Errors
    /// If it does not fit, or the pager's.
    pub(crate) fn attach_copied(
        &self,
        to: ReservationId,
        area: AreaId,
        copies: AreaId,
        pages: u32,
    ) -> Result<CopyOnWrite> {
        let first = self.taken.get();
        ensure!(pages <= self.pages - first, "{pages} more pages do not fit");
        self.taken.set(first + pages);
        let address = self.start.wrapping_add(first as usize * PAGE_BYTES);
        let paging = &self.space.paging;
        // SAFETY: these addresses were reserved for this range, were not in use before, and stay
        // reserved until after the pager has gone. Programs run on them in this thread only: the
        // range cannot be sent.
        Ok(unsafe { paging.attach_copied(to, area, copies, address) }?)
    }
}

impl View<'_> {
    /// The first word of a page.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline]
    pub(crate) fn load(&self, page: u32) -> u64 {
        // SAFETY: `word` is within the window, aligned, and mapped readable while the area is
        // attached; no reference into it exists.
        unsafe { self.word(page).read_volatile() }
    }

    /// Writes the first word of a page.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline]
    pub(crate) fn store(&self, page: u32, value: u64) {
        // SAFETY: as for `load`, and writable.
        unsafe { self.word(page).write_volatile(value) };
    }

    fn word(&self, page: u32) -> *mut u64 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        self.start
            .wrapping_add(page as usize * PAGE_BYTES)
            .cast::<u64>()
    }
}

impl Window {
    fn reserve(pages: u32) -> Result<Self> {
        let bytes = pages as usize * PAGE_BYTES;
        // SAFETY: the kernel chooses an unused place; nothing existing is replaced.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = start.context("reserving addresses")?.cast();
        Ok(Self { start, bytes })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: exactly the addresses reserved in `reserve`; the pager, and all views with it,
        // have gone. An error would mean that nothing was there, and leaves nothing to undo.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}
