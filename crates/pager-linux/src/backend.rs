//! The policy's decisions, carried out: [`Backend`] on memfd and userfaultfd.
//!
//! The policy's frame numbers are permits here: the kernel picks the memory of each page.

mod write_out;

use std::collections::BTreeMap;
use std::ops::Range;

use leasehold_pager::{
    AreaId, AttachmentId, Backend, CLUSTER, Frame, Held, PAGE, Page, PageNumber, ReservationId,
    StoreError, Writing,
};
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::ahead::Stream;
use crate::attached::{Attached, Role};
use crate::batch::{MOST, Releases, Run, Source, Zaps};
use crate::cached::Punches;
use crate::cluster_write::ClusterWrites;
use crate::fetch::{Fetches, Waited, Want};
use crate::hold::Ballast;
use crate::holders::Holders;
use crate::memory::{Backing, Memory, Staging};
use crate::page_file::PageFile;
use crate::present::Present;
use crate::refusal::Reason;
use crate::span::Span;
use crate::store::{Store, read_all};
use crate::swap_places::{NOWHERE, SwapPlaces};
use crate::transfer::Wanted;
use crate::userfault::{Stopped, Userfault};

/// Pages of the largest attachment that a spare can take the place of: those of a memory.
const SPARE: u32 = 1 << 20;

/// Pages of zeros that can be copied in one go.
const ZEROS: u32 = 64;

/// Where the next area is to be attached, and as what. Its addresses are mapped already.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) span: Span,
    pub(crate) accessible: u32,
    pub(crate) role: Role,
    /// The reservation, and the kernel mappings that it was charged for this.
    pub(crate) holder: ReservationId,
    pub(crate) mappings: u32,
}

/// Page tables, page cache and store of a cell.
pub(crate) struct Linux {
    pub(crate) userfault: Userfault,
    pub(crate) ballast: Ballast,
    /// The memory of all areas.
    pub(crate) file: PageFile,
    pub(crate) holders: Holders,
    /// Addresses of the crate's own that could not be unmapped when they were no longer used.
    pub(crate) unwanted: Vec<Span>,
    /// Untouched memory of the process's own, which replaces an attachment with a denied page when
    /// the kernel has no mapping to spare.
    pub(crate) spare: Span,
    /// Entries that were to be removed are still in a page table.
    unzapped: bool,
    /// By the indices of areas and attachments.
    pub(crate) areas: Vec<Option<Memory>>,
    pub(crate) attached: Vec<Option<Attached>>,
    /// Where faults are served: end and attachment, by the start.
    pub(crate) ranges: BTreeMap<usize, (usize, u32)>,
    pub(crate) placement: Option<Placement>,
    store: Option<Box<dyn Store>>,
    pub(crate) fetches: Fetches,
    cluster_writes: ClusterWrites,
    /// Places that are promised to none: those of pages that are written anew, and of clusters on their way.
    aside: u32,
    /// The access that is served, if its program can be suspended until pages are written.
    pub(crate) suspends: Option<usize>,
    /// Transfers of pages that were waited for where they were needed, wrapping.
    pub(crate) transfers: u64,
    /// What it would wait for.
    pub(crate) wanted: Option<Wanted>,
    pub(crate) swap_places: SwapPlaces,
    staging: Staging,
    /// Never written to.
    zeros: Staging,
    /// The page that the staging area holds, to be mapped next.
    staged: Option<Page>,
    run: Option<Run>,
    zaps: Zaps,
    releases: Releases,
    /// The fault that is served is a write.
    pub(crate) writing: bool,
    /// Why a page could not be put into a page table.
    failed: Option<Reason>,
}

impl Linux {
    pub(crate) fn new(
        userfault: Userfault,
        file: PageFile,
        ballast: Ballast,
        store: Option<Box<dyn Store>>,
        clusters_at_once: u32,
    ) -> std::io::Result<Self> {
        let pages = store.as_ref().map_or(0, |store| store.pages());
        let (staging, zeros) = (Staging::new(CLUSTER as u32)?, Staging::new(ZEROS)?);
        Ok(Linux {
            userfault,
            ballast,
            file,
            // The last that can fail: it is given back when this is dropped.
            spare: Span::allocate(SPARE)?,
            holders: Holders::default(),
            unwanted: Vec::new(),
            unzapped: false,
            areas: Vec::new(),
            attached: Vec::new(),
            ranges: BTreeMap::new(),
            placement: None,
            store,
            fetches: Fetches::default(),
            cluster_writes: ClusterWrites::new(clusters_at_once),
            aside: (1 + clusters_at_once) * CLUSTER as u32,
            suspends: None,
            transfers: 0,
            wanted: None,
            swap_places: SwapPlaces::new(pages),
            staging,
            zeros,
            staged: None,
            run: None,
            zaps: Zaps::new(),
            releases: Releases::new(),
            writing: false,
            failed: None,
        })
    }

    pub(crate) fn add_area(&mut self, id: AreaId, memory: Memory) {
        let index = id.index() as usize;
        if self.areas.len() <= index {
            self.areas.resize_with(index + 1, || None);
        }
        self.areas[index] = Some(memory);
    }

    #[inline]
    pub(crate) fn memory(&mut self, area: u32) -> &mut Memory {
        self.areas[area as usize].as_mut().expect("an area")
    }

    #[inline]
    pub(crate) fn view(&mut self, attached: u32) -> &mut Attached {
        self.attached[attached as usize]
            .as_mut()
            .expect("an attachment")
    }

    /// Takes places in the store for an area of `pages` pages: of a reservation's share, if it has
    /// one, or of the unreserved ones.
    ///
    /// # Errors
    /// How many are left; nothing has changed.
    pub(crate) fn promise(&mut self, owner: Option<ReservationId>, pages: u32) -> Result<(), u32> {
        if let Some(owner) = owner {
            return self.holders.take_places(owner, pages);
        }
        // Writing a page out again takes a second place for a moment.
        let left = self.swap_places.unpromised().saturating_sub(self.aside);
        if pages > left {
            return Err(left);
        }
        self.swap_places.promise(pages);
        Ok(())
    }

    /// Gives back what was promised.
    pub(crate) fn unpromise(&mut self, owner: Option<ReservationId>, pages: u32) {
        match owner {
            Some(owner) => self.holders.give_places(owner, pages),
            None => self.swap_places.forget(pages),
        }
    }

    /// The attachment that serves faults at an address, and the page there.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<(u32, PageNumber)> {
        let (&start, &(end, attached)) = self.ranges.range(..=address).next_back()?;
        let page = ((address - start) as u64 / PAGE) as u32;
        (address < end).then_some((attached, PageNumber::new(page)))
    }

    /// Returns whether nothing is attached at any of these addresses, or was and is there still.
    pub(crate) fn is_vacant(&self, addresses: Range<usize>) -> bool {
        let last = self.ranges.range(..addresses.end).next_back();
        last.is_none_or(|(_, &(end, _))| end <= addresses.start)
            && !self.holders.lingers_in(addresses)
    }

    /// Returns whether a page of an attachment is visible at its address now.
    fn is_shown(&self, attached: u32, page: PageNumber) -> bool {
        let view = self.attached[attached as usize].as_ref();
        let view = view.expect("an attachment");
        if view.gone || view.lost || !page.is_within(view.accessible) {
            return false;
        }
        match &view.role {
            Role::Direct | Role::ReadOnly => true,
            Role::Original { broken, block, .. } => !broken.get(page.get() >> block),
            Role::Copies { original } => {
                let original = self.attached[*original as usize].as_ref();
                match original.map(|view| &view.role) {
                    Some(Role::Original { broken, block, .. }) => broken.get(page.get() >> block),
                    _ => false,
                }
            }
        }
    }

    /// Returns whether an access to a page of an attachment would not fault.
    pub(crate) fn is_mapped(&self, attached: u32, page: PageNumber, write: bool) -> bool {
        let view = self.attached[attached as usize].as_ref();
        let mut view = view.expect("an attachment");
        if view.lost {
            // Memory of the process's own is there.
            return true;
        }
        if let Role::Original {
            copies,
            broken,
            block,
        } = &view.role
        {
            if broken.get(page.get() >> block) {
                let copies = self.attached[*copies as usize].as_ref();
                view = copies.expect("an attachment");
            } else if write {
                return false;
            }
        }
        let memory = self.areas[view.area as usize].as_ref();
        let memory = memory.expect("an area");
        let writable = !view.is_read_only() && (!memory.is_tracked() || memory.dirty.get(page));
        view.present.get(page) && (!write || writable)
    }

    /// Puts a page that the policy has mapped into the page table, at the latest when deferred
    /// calls are [made](Self::settle).
    pub(crate) fn restore(&mut self, attached: u32, page: PageNumber) {
        let writing = self.writing;
        let staged = self.staged.take();
        let shown = self.is_shown(attached, page);
        let view = self.view(attached);
        let (area, span, trapped) = (view.area, view.page_at(page), view.traps_writes());
        let memory = self.memory(area);
        let tracked = memory.is_tracked();
        if writing && tracked && !trapped && shown {
            memory.dirty.put(page, true);
        }
        let protect = trapped || (tracked && !memory.dirty.get(page));
        let cached = memory.cached.get(page);
        if let Some(staged) = staged {
            assert_eq!((staged.area.index(), staged.number), (area, page));
            self.fill_from_staging(attached, area, page, shown.then_some((span, protect)));
            return;
        }
        if self.memory(area).unfilled.get(page) {
            self.fill_again(attached, area, page, shown.then_some((span, protect)));
            return;
        }
        if !shown {
            return;
        }
        let source = if cached {
            Source::Cached
        } else {
            Source::Zeros
        };
        let run = Run {
            attached,
            from: page,
            to: page.next(),
            source,
            protect,
        };
        if !self.run.as_mut().is_some_and(|before| before.extend(run)) {
            self.settle_run();
            self.run = Some(run);
        }
    }

    /// Makes the staging area the contents of a page, and maps it if it can be seen.
    fn fill_from_staging(
        &mut self,
        attached: u32,
        area: u32,
        page: PageNumber,
        shown: Option<(Span, bool)>,
    ) {
        self.settle();
        self.memory(area).unfilled.put(page, false);
        let memory = self.areas[area as usize].as_mut().expect("an area");
        let bytes = self.staging.read(0, 1);
        // The remains of an earlier one may still be there, and are then overwritten.
        let is_stale = memory.cached.get(page);
        let is_filled = memory.cached.fill_prepared(&mut self.ballast, page, bytes);
        let is_there = is_stale || is_filled;
        if let (Some((span, protect)), false) = (shown, is_there) {
            self.ballast.make_room(&self.file, 1);
            let from = self.staging.span();
            match self.userfault.map_copies(span, from, protect) {
                Ok(()) => {
                    memory.cached.put(&mut self.ballast, page, page.next());
                    self.view(attached).present.put(page, true);
                    return;
                }
                Err(stopped) => self.failed = Some(Reason::Kernel(stopped.errno)),
            }
        }
        // The page that was read must not be lost: it may be the only copy.
        let saved = match is_filled {
            true => Ok(()),
            false => (memory.cached).save(&self.file, &mut self.ballast, page, bytes),
        };
        if let Err(error) = saved {
            self.leave_unfilled(area, page, Errno::from_io_error(&error));
        } else if let (Some((span, protect)), true) = (shown, is_there) {
            match self.userfault.map_cached(span, protect) {
                Ok(()) => {
                    self.view(attached).present.put(page, true);
                }
                Err(stopped) => self.failed = Some(Reason::Kernel(stopped.errno)),
            }
        }
    }

    /// Records that a page has a frame without its contents: the next access reads them again, or
    /// is denied.
    fn leave_unfilled(&mut self, area: u32, page: PageNumber, errno: Option<Errno>) {
        self.memory(area).unfilled.put(page, true);
        self.failed = Some(Reason::Kernel(errno.unwrap_or(Errno::IO)));
    }

    /// Reads the contents of a page again that could not be put into its frame before.
    fn fill_again(
        &mut self,
        attached: u32,
        area: u32,
        page: PageNumber,
        shown: Option<(Span, bool)>,
    ) {
        self.settle();
        match self.read_stored(area, page) {
            Ok(()) => self.fill_from_staging(attached, area, page, shown),
            Err(error) => {
                let errno = Errno::from_io_error(&error);
                self.failed = Some(Reason::Kernel(errno.unwrap_or(Errno::IO)));
            }
        }
    }

    /// Makes the deferred calls, except those that give frames back.
    pub(crate) fn settle(&mut self) {
        self.settle_zaps();
        self.settle_run();
    }

    /// Returns why a page could not be mapped since the last call.
    pub(crate) fn take_failure(&mut self) -> Option<Reason> {
        self.failed.take()
    }

    fn settle_zaps(&mut self) {
        let mut stuck = [None; MOST];
        let mut left = 0;
        self.zaps.drain(|span| {
            // The advice for locked memory is good for all.
            if span.advise(Advice::LinuxDontneedLocked).is_err() {
                stuck[left] = Some(span);
                left += 1;
            }
        });
        for span in stuck.into_iter().flatten() {
            self.keep_entries(span);
        }
    }

    /// Keeps the records of entries that could not be removed. Their tenant sees pages of its own
    /// areas for longer than the policy states, until these are punched out. This affects no other
    /// tenant, and writes to them are still detected.
    fn keep_entries(&mut self, span: Span) {
        self.unzapped = true;
        for before in 0..span.pages() {
            let Some((attached, page)) = self.find(span.after(before)) else {
                continue;
            };
            let shown = self.shown_by(attached, page);
            self.view(shown).present.put(page, true);
        }
    }

    /// The attachment whose page is seen at an address of another: it is another one if it was
    /// copied.
    pub(crate) fn shown_by(&self, attached: u32, page: PageNumber) -> u32 {
        let view = self.attached[attached as usize].as_ref();
        match &view.expect("an attachment").role {
            Role::Original {
                copies,
                broken,
                block,
            } if broken.get(page.get() >> block) => *copies,
            _ => attached,
        }
    }

    fn settle_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        // Entries that are to go must not take these with them.
        self.settle_zaps();
        let mut from = run.from;
        while from < run.to {
            match self.map_part(run, from) {
                Ok(to) => from = to,
                Err(errno) => {
                    self.failed = Some(Reason::Kernel(errno));
                    return;
                }
            }
        }
    }

    /// Maps the first pages of `from .. run.to`; returns how far it came.
    fn map_part(&mut self, run: Run, from: PageNumber) -> Result<PageNumber, Errno> {
        let (to, result) = match run.source {
            Source::Cached => {
                let span = self.view(run.attached).pages_at(from, run.to);
                (run.to, self.userfault.map_cached(span, run.protect))
            }
            Source::Zeros => self.map_zeros(run, from),
        };
        let (done, errno) = match result {
            Ok(()) => (to.since(from), None),
            Err(stopped) => (stopped.done, Some(stopped.errno)),
        };
        for page in PageNumber::range(from.get()..from.get() + done) {
            self.view(run.attached).present.put(page, true);
        }
        match errno {
            None => Ok(to),
            // Still mapped, because it was touched by the kernel for the tenant.
            Some(Errno::EXIST) if run.source == Source::Cached => {
                let page = from.plus(done);
                self.view(run.attached).present.put(page, true);
                let span = self.view(run.attached).page_at(page);
                self.userfault.protect(span, run.protect)?;
                Ok(page.next())
            }
            Some(errno) => Err(errno),
        }
    }

    /// Maps the first pages of `from .. run.to`, which are not cached, with zeros: those that are prepared, or those
    /// that are not. Returns how far this was to come, and whether it did.
    fn map_zeros(&mut self, run: Run, from: PageNumber) -> (PageNumber, Result<(), Stopped>) {
        let view = self.attached[run.attached as usize].as_ref();
        let view = view.expect("an attachment");
        let memory = self.areas[view.area as usize].as_mut();
        let cached = &mut memory.expect("an area").cached;
        let most = run.to.min(from.plus(ZEROS));
        let (is_prepared, pages) = cached.stretch(&self.ballast, from, most);
        let to = from.plus(pages);
        let span = view.pages_at(from, to);
        let result = if is_prepared {
            self.userfault.map_cached(span, run.protect)
        } else {
            self.ballast.make_room(&self.file, pages);
            match run.protect {
                true => (self.userfault).map_copies(span, self.zeros.span(), true),
                false => self.userfault.map_zeros(span),
            }
        };
        let done = result.map_or_else(|stopped| stopped.done, |()| pages);
        cached.put(&mut self.ballast, from, from.plus(done));
        (to, result)
    }

    /// Stops serving faults at the addresses of an attachment.
    pub(crate) fn forget_range(&mut self, attached: u32, span: Span) {
        let range = self.ranges.get(&span.start());
        if range.is_some_and(|&(_, other)| other == attached) {
            self.ranges.remove(&span.start());
        }
    }

    /// Puts memory of the process's own at all addresses of an attachment; returns whether that was
    /// possible.
    pub(crate) fn replace(&mut self, attached: u32) -> bool {
        let view = self.view(attached);
        let used = view.span.part(0, view.accessible);
        let spare = self.spare;
        if used.substitute().is_err() {
            if used.pages() > spare.pages() || spare.part(0, used.pages()).replace(used).is_err() {
                return false;
            }
            self.spare = spare.part(used.pages(), spare.pages());
        }
        self.lose(attached);
        true
    }

    /// Makes the spare whole again, if some of it was used.
    pub(crate) fn renew_spare(&mut self) {
        if self.spare.pages() < SPARE
            && let Ok(spare) = Span::allocate(SPARE)
        {
            let rest = std::mem::replace(&mut self.spare, spare);
            self.unmap_unwanted(rest);
        }
    }

    /// Memory of the process's own is at all addresses of an attachment.
    pub(crate) fn lose(&mut self, attached: u32) {
        let view = self.view(attached);
        view.lost = true;
        view.present.clear(PageNumber::FIRST, view.end());
        if let Role::Original { copies, .. } = view.role {
            self.lose(copies);
        }
    }

    /// Gives an attachment a page that the policy has refused, so that host code can continue when
    /// the kernel refuses [memory of the process's own](Self::lose). Pages that others may see are
    /// not touched.
    pub(crate) fn substitute_page(
        &mut self,
        attached: u32,
        page: PageNumber,
        span: Span,
    ) -> Result<(), Errno> {
        let shown = self.shown_by(attached, page);
        if self.view(shown).traps_writes() {
            return Err(Errno::PERM);
        }
        let area = self.view(shown).area;
        if self.memory(area).cached.get(page) {
            match self.userfault.map_cached(span, false) {
                Err(stopped) if stopped.errno != Errno::EXIST => return Err(stopped.errno),
                _ => self.userfault.protect(span, false)?,
            }
        } else {
            let run = Run {
                attached: shown,
                from: page,
                to: page.next(),
                source: Source::Zeros,
                protect: false,
            };
            let (_, filled) = self.map_zeros(run, page);
            filled.map_err(|stopped| stopped.errno)?;
        }
        self.memory(area).dirty.put(page, true);
        self.view(shown).present.put(page, true);
        Ok(())
    }

    /// Removes a page from the page table of an attachment, if it is there.
    pub(crate) fn forget_entry(&mut self, attached: u32, page: PageNumber) -> bool {
        if self.run.is_some_and(|run| run.has(attached, page)) {
            self.settle();
        }
        let view = self.view(attached);
        let was = !view.gone && view.present.put(page, false);
        if was {
            let span = view.page_at(page);
            if !self.zaps.push(span) {
                self.settle_zaps();
                self.zaps.push(span);
            }
        }
        was
    }

    /// Gives the frames of released pages back. A frame that cannot be given back now is retried
    /// when the page is filled again, or its area is removed.
    pub(crate) fn settle_releases(&mut self) {
        let mut runs = [(0, PageNumber::FIRST, PageNumber::FIRST); MOST];
        let mut count = 0;
        self.releases.drain(|area, from, to| {
            runs[count] = (area, from, to);
            count += 1;
        });
        for (area, from, to) in runs.into_iter().take(count) {
            let mut page = from;
            while page < to {
                let Some(memory) = &self.areas[area as usize] else {
                    break;
                };
                // Some may have been given back otherwise, or filled anew.
                let mut end = page;
                while end < to && memory.vacant.get(end) {
                    end = end.next();
                }
                if end > page {
                    let _ = self.drop_pages(area, page, end);
                }
                page = end.max(page.next());
            }
        }
    }

    /// Removes stale contents before a page is filled.
    fn make_vacant(&mut self, page: Page) {
        debug_assert!(self.staged.is_none(), "filled and not mapped");
        let area = page.area.index();
        if self.memory(area).vacant.get(page.number) {
            self.settle_releases();
        }
        let memory = self.areas[area as usize].as_mut().expect("an area");
        if memory.vacant.put(page.number, false) {
            // It could not be punched out, so it is overwritten.
            let zeros = self.zeros.read(0, 1);
            let cached = &mut memory.cached;
            if let Err(error) = cached.save(&self.file, &mut self.ballast, page.number, zeros) {
                self.leave_unfilled(area, page.number, Errno::from_io_error(&error));
            }
        }
        let memory = self.memory(area);
        memory.dirty.put(page.number, false);
    }

    /// Gives pages of `from .. to` of an area back, even if they are mapped. Returns how far it came in a step.
    ///
    /// # Errors
    /// The kernel's; it can be tried again.
    pub(crate) fn drop_pages(
        &mut self,
        area: u32,
        from: PageNumber,
        to: PageNumber,
    ) -> Result<PageNumber, Errno> {
        let memory = self.areas[area as usize].as_mut().expect("an area");
        let to = memory.punch(&self.file, &mut self.ballast, (from, to), Punches::STEP)?;
        if self.unzapped {
            for &attached in &memory.attached {
                if let Some(view) = &mut self.attached[attached as usize] {
                    let all = PageNumber::new(view.present.len());
                    view.present.clear(from, to.min(all));
                }
            }
        }
        Ok(to)
    }

    fn read_stored(&mut self, area: u32, page: PageNumber) -> std::io::Result<()> {
        let memory = self.areas[area as usize].as_ref();
        let memory = memory.expect("an area");
        let into = self.staging.bytes(0, 1);
        if let Backing::File(file) = &memory.backing {
            self.transfers = self.transfers.wrapping_add(1);
            return Memory::load_backing(file, page, into);
        }
        let place = memory.place(page);
        let (Some(place), Some(store)) = (place, &mut self.store) else {
            return Err(std::io::ErrorKind::NotFound.into());
        };
        let offset = u64::from(place) * PAGE;
        if let Some(page) = self.fetches.page(offset) {
            into.copy_from_slice(page);
            return Ok(());
        }
        self.transfers = self.transfers.wrapping_add(1);
        read_all(into, |done, rest| store.read_at(offset + done as u64, rest))
    }

    /// Where in the store a page is that is in no frame, bytes.
    pub(crate) fn place_to_read(&self, attached: u32, page: PageNumber) -> Option<u64> {
        let view = self.attached[attached as usize].as_ref()?;
        let memory = self.areas[view.area as usize].as_ref()?;
        // The remains of an earlier frame may still be there.
        let is_held = memory.cached.get(page) && !memory.vacant.get(page);
        let place = memory.place(page).filter(|_| !is_held)?;
        Some(u64::from(place) * PAGE)
    }

    /// Has a page read by another thread, if the store can.
    pub(crate) fn fetch(&mut self, want: Want, waited: Waited) -> Option<Wanted> {
        let file = self.store.as_ref()?.file()?;
        let (read, fetching) = self.fetches.begin(want, file);
        let found = self.fetches.take().waiting(waited);
        Some(Wanted::page(read, fetching, found))
    }

    /// Unmaps addresses of the crate's own.
    pub(crate) fn unmap_unwanted(&mut self, span: Span) {
        if !span.is_empty() && span.unmap().is_err() {
            self.unwanted.push(span);
        }
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        if !self.spare.is_empty() {
            let _ = self.spare.unmap();
        }
    }
}

impl Backend for Linux {
    fn attach(&mut self, at: AttachmentId, area: AreaId, pages: u32) {
        let placement = self.placement.take().expect("addresses to attach at");
        debug_assert!(placement.span.pages() >= pages);
        let index = at.index();
        if self.attached.len() <= index as usize {
            self.attached.resize_with(index as usize + 1, || None);
        }
        self.memory(area.index()).attached.push(index);
        if !matches!(placement.role, Role::Copies { .. }) {
            let (start, end) = (placement.span.start(), placement.span.end());
            self.ranges.insert(start, (end, index));
        }
        self.attached[index as usize] = Some(Attached {
            id: at,
            area: area.index(),
            span: placement.span,
            accessible: placement.accessible,
            present: Present::new(pages),
            role: placement.role,
            gone: false,
            lost: false,
            stream: Stream::new(),
            holder: placement.holder,
            mappings: placement.mappings,
        });
        self.holders.attached(placement.holder, at);
    }

    fn detach(&mut self, at: AttachmentId) {
        self.settle();
        let gone = self.attached[at.index() as usize].take();
        let gone = gone.expect("an attachment");
        self.forget_range(at.index(), gone.span);
        self.holders.detached(gone.holder, at);
        self.holders.give_mappings(gone.holder, gone.mappings);
        let memory = self.memory(gone.area);
        memory.attached.retain(|&other| other != at.index());
    }

    fn map(&mut self, at: AttachmentId, page: PageNumber, _: Frame) {
        self.restore(at.index(), page);
    }

    fn unmap(&mut self, at: AttachmentId, page: PageNumber) {
        self.forget_entry(at.index(), page);
    }

    fn take_referenced(&mut self, at: AttachmentId, page: PageNumber) -> bool {
        self.forget_entry(at.index(), page)
    }

    fn is_dirty(&mut self, held: Held) -> bool {
        let memory = self.memory(held.page.area.index());
        match memory.backing {
            Backing::Store(_) => {
                memory.dirty.get(held.page.number) || memory.leaving.has(held.page.number)
            }
            Backing::File(_) => false,
            // Writes are not tracked, so that it counts as dirty: it cannot be evicted.
            Backing::None => true,
        }
    }

    fn clear(&mut self, held: Held) {
        self.make_vacant(held.page);
    }

    fn read(&mut self, from: Page, held: Held) -> Result<(), StoreError> {
        self.make_vacant(held.page);
        self.settle();
        self.read_stored(from.area.index(), from.number)
            .map_err(|_| StoreError)?;
        self.staged = Some(held.page);
        Ok(())
    }

    fn copy(&mut self, from: Held, to: Held) {
        self.make_vacant(to.page);
        self.settle();
        let memory = self.areas[from.page.area.index() as usize].as_ref();
        let memory = memory.expect("an area");
        let into = self.staging.bytes(0, 1);
        let loaded = if memory.unfilled.get(from.page.number) {
            self.read_stored(from.page.area.index(), from.page.number)
        } else if memory.cached.get(from.page.number) {
            (memory.cached).load(&self.file, from.page.number, into)
        } else {
            into.fill(0);
            Ok(())
        };
        match loaded {
            Ok(()) => self.staged = Some(to.page),
            Err(error) => {
                let (area, page) = (to.page.area.index(), to.page.number);
                self.leave_unfilled(area, page, Errno::from_io_error(&error));
            }
        }
        self.mark_dirty(to);
    }

    fn mark_dirty(&mut self, held: Held) {
        let memory = self.memory(held.page.area.index());
        memory.dirty.put(held.page.number, true);
    }

    fn write(&mut self, cluster: &[Held]) -> Result<Writing, StoreError> {
        self.settle();
        self.write_cluster(cluster)
    }

    fn release(&mut self, held: Held) {
        let memory = self.memory(held.page.area.index());
        memory.dirty.put(held.page.number, false);
        memory.leaving.take(held.page.number);
        memory.unfilled.put(held.page.number, false);
        if !memory.cached.get(held.page.number) {
            return;
        }
        memory.vacant.put(held.page.number, true);
        if self.releases.push(held.page.area.index(), held.page.number) {
            self.settle();
            self.settle_releases();
        }
    }

    fn shed(&mut self, area: AreaId) -> bool {
        let memory = self.areas.get_mut(area.index() as usize);
        let Some(memory) = memory.and_then(Option::as_mut) else {
            return false;
        };
        let Backing::Store(places) = &mut memory.backing else {
            return false;
        };
        let Some(block) = places.take_block() else {
            return false;
        };
        for &place in block.iter().filter(|&&place| place != NOWHERE) {
            self.swap_places.give_back(place);
            memory.written -= 1;
        }
        true
    }

    fn discard(&mut self, area: AreaId) {
        self.settle();
        self.settle_releases();
        self.cluster_writes.forget(area);
        // An area whose memory could not be made has none.
        let Some(memory) = self.areas.get_mut(area.index() as usize) else {
            return;
        };
        let Some(memory) = memory.take() else { return };
        if let Backing::Store(places) = &memory.backing {
            for &place in places.touched().filter(|&&place| place != NOWHERE) {
                self.swap_places.give_back(place);
            }
            self.unpromise(memory.owner, memory.promised);
        }
        self.file.give_back(&mut self.ballast, memory.cached);
    }
}
