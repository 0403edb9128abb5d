//! The memory of one cell: reservations, areas, and where they are attached.

use std::collections::BTreeMap;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::Range;
use std::{fmt, io};

use leasehold_door::{Call, pass};
use leasehold_pager::{
    Account, AreaId, AttachmentId, Beginning, Contract, Counts, Ending, PAGE, PageNumber, Pager,
    Refused, ReservationId, Sharing, Sparse, Usage,
};

use crate::attached::Role;
use crate::backend::{Linux, Placement};
use crate::copied::{BLOCKS, original};
use crate::detach::Retirement;
use crate::engine::Engine;
use crate::error::{Error, system};
use crate::fault::Served;
use crate::hold::{Ballast, Held, Locking};
use crate::holders::Limits;
use crate::memory::{Backing, Memory};
use crate::page_file::PageFile;
use crate::probe::open;
use crate::refusal::Denied;
use crate::signal::{Handlers, Serving, ThreadPager};
use crate::span::{BYTES, Span};
use crate::store::Store;
use crate::swap_places::NOWHERE;
use crate::transfer::{Finished, Wanted};

/// The parameters for opening a cell's memory.
pub struct Options {
    /// Frames of 4 KiB that all reservations share; taken from the host at once.
    pub frames: u32,
    /// Whether they are locked.
    pub locking: Locking,
    /// The store for pages that are written out. Without it only shared pages are evicted, and an
    /// area larger than its reservation is refused.
    pub store: Option<Box<dyn Store>>,
    /// Clusters of pages that other threads may be writing to the store, which needs room for as many more than are
    /// promised; 0 if no program is ever [suspended](Handlers::suspend) for one.
    pub clusters_at_once: u32,
    /// Most pages mapped ahead of a sequential reader; 0 for none.
    pub ahead: u32,
    /// Frames that are left to each reservation when pages are locked or kept: 1 as in the paper, or [`AT_ONCE`] where
    /// instructions touch several pages.
    pub at_once: u32,
    /// What is called in the signal handler of a fault.
    pub handlers: Handlers,
}

/// Pages that an instruction needs at the same time, at the most: one that copies a word from the border of two pages to
/// that of two others. With fewer frames its pages evict each other for ever.
pub const AT_ONCE: u32 = 4;

impl Options {
    /// Memory of `frames` frames: locked if allowed, no store, up to 16 pages mapped ahead, and
    /// accesses that cannot be served left to the handler of SIGBUS that was there before.
    pub fn new(frames: u32) -> Self {
        Options {
            frames,
            locking: Locking::IfAllowed,
            store: None,
            clusters_at_once: 0,
            ahead: 16,
            at_once: 1,
            handlers: Handlers::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("frames", &self.frames)
            .field("locking", &self.locking)
            .field("store", &self.store.as_ref().map(|store| store.pages()))
            .field("ahead", &self.ahead)
            .finish_non_exhaustive()
    }
}

/// Kernel mappings that an attachment may cause: itself, and what is left of the addresses behind it
/// unless it continues another one.
const MAPPINGS: u32 = 2;

/// An area attached copy on write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyOnWrite {
    /// The pages that are shared, while they are not written to.
    pub shared: AttachmentId,
    /// The tenant's own copies.
    pub copies: AttachmentId,
}

/// The memory of a cell.
///
/// It belongs to the thread that opened it (it is not `Send`): faults of that thread are served
/// while it lives. All methods take `&self`, because guest memory may be touched, and a fault
/// served, while its owner holds a reference to it.
pub struct Paging {
    /// Dropped first: faults are no longer served.
    _serving: Serving,
    thread: Box<ThreadPager>,
    book: std::cell::RefCell<Book>,
    this_thread: PhantomData<*const ()>,
}

/// The reservations that are ending.
type Book = BTreeMap<ReservationId, Retirement>;

impl fmt::Debug for Paging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paging")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl Paging {
    /// Opens the memory of a cell: checks the kernel's features, takes the frames, and serves the
    /// faults of this thread from now on. The handler of SIGBUS is installed once per process, and
    /// calls the one before it for faults that are none of its own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by name, [`Error::Opened`], [`Error::System`] if the frames cannot
    /// be had.
    pub fn open(options: Options) -> Result<Paging, Error> {
        let (userfault, _) = open()?;
        let file = PageFile::new().map_err(system("make the file of all areas"))?;
        let ballast = Ballast::hold(&file, options.frames, options.locking)
            .map_err(system("hold the node's memory"))?;
        let linux = Linux::new(
            userfault,
            file,
            ballast,
            options.store,
            options.clusters_at_once,
        );
        let linux = linux.map_err(system("allocate room for transfers"))?;
        let engine = Engine {
            pager: Pager::new(options.frames, linux).with_at_once(options.at_once),
            ahead: options.ahead,
        };
        let thread = Box::new(ThreadPager::new(engine, options.handlers));
        // SAFETY: the box outlives `serving`, which is dropped before it, and in this thread: the
        // whole is not `Send`.
        let serving = unsafe { Serving::begin(&raw const *thread) };
        let serving = serving.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::Opened,
            _ => system("serve faults")(error),
        })?;
        Ok(Paging {
            _serving: serving,
            thread,
            book: std::cell::RefCell::default(),
            this_thread: PhantomData,
        })
    }

    /// Returns the memory that is really held, and whether it is locked.
    pub fn held(&self) -> Held {
        self.thread.with(|engine| engine.linux().ballast.held())
    }

    /// Lends the memory of `frames` reserved frames to tenants whose memory is not attached here.
    pub fn lend(&self, frames: u32) {
        self.thread.with(|engine| {
            let linux = engine.linux();
            linux.ballast.lend(&linux.file, frames);
        });
    }

    /// Memory that was [lent](Self::lend) has been freed.
    pub fn restore(&self, frames: u32) {
        self.thread
            .with(|engine| engine.linux().ballast.restore(frames));
    }

    /// Takes up to `limit` free frames from the host again; returns
    /// whether all are held now. Freed frames come back here, not when they are freed: it takes
    /// about as long as touching them.
    ///
    /// # Errors
    /// [`Error::System`] if the host has no memory.
    pub fn refill(&self, limit: u32) -> Result<bool, Error> {
        let refilled = self.thread.with(|engine| {
            let linux = engine.linux();
            linux.ballast.refill(&linux.file, limit)
        });
        refilled.map_err(system("hold the node's memory"))
    }

    /// Whether [`refill`](Self::refill) has nothing to do.
    pub fn is_whole(&self) -> bool {
        self.thread.with(|engine| engine.linux().ballast.is_whole())
    }

    /// From now on, or no longer, a fault that would wait for the store suspends the code that it interrupted, if
    /// [that can be done](Handlers::suspend).
    pub fn set_suspends(&self, suspends: bool) {
        self.thread.suspends.set(suspends);
    }

    /// What the code that was suspended since the last call waits for. What it [finds](Self::put_finished) then is to be
    /// put there before it goes on.
    pub fn take_wanted(&self) -> Option<Wanted> {
        self.thread.with(|engine| engine.linux().wanted.take())
    }

    /// Puts the page at `address` into the page table for host code that is about to visit it and
    /// [can wait](Self::set_suspends) now; returns whether it has to, for what is [wanted](Self::take_wanted) then. It is
    /// asked for again afterwards. A page that cannot be had is none to wait for.
    pub fn waits_for(&self, address: usize) -> bool {
        self.thread.suspends.get()
            && self.thread.with(|engine| {
                !engine.is_accessible(address, false)
                    && engine.serve_or_wait(engine.access(address, false)) == Served::Waits
            })
    }

    /// What a fault of code that can be suspended does; returns whether it is served.
    #[cfg(test)]
    pub(crate) fn serve_or_wait(&self, address: usize, write: bool) -> bool {
        self.thread.with(|engine| {
            engine.is_accessible(address, write)
                || engine.serve_or_wait(engine.access(address, write)) == Served::Done
        })
    }

    /// The next faults find what this has brought. A page that could not be fetched is not wanted again: it is read
    /// where the fault happens.
    pub fn put_finished(&self, finished: Finished) {
        self.thread
            .with(|engine| engine.linux().fetches.put(finished.0));
    }

    /// Sets frames aside for a tenant, in one go.
    ///
    /// # Errors
    /// As [`Pager::reserve`].
    pub fn reserve(&self, contract: &Contract) -> Result<ReservationId, Error> {
        self.reserved(contract, None)
    }

    /// The same for a tenant with shares of other finite resources: its places in the store are
    /// promised to it, and it never has more kernel mappings than its share and [`Limits::SPARE`].
    ///
    /// # Errors
    /// As [`Pager::reserve`]; [`Error::SwapFull`] if the store has too few unpromised places.
    pub fn reserve_limited(
        &self,
        contract: &Contract,
        limits: Limits,
    ) -> Result<ReservationId, Error> {
        self.reserved(contract, Some(limits))
    }

    fn reserved(
        &self,
        contract: &Contract,
        limits: Option<Limits>,
    ) -> Result<ReservationId, Error> {
        let id = self.promise(contract, limits)?;
        loop {
            match self.reserve_step(id, u32::MAX) {
                Ok(Beginning::More) => {}
                Ok(Beginning::Done) => return Ok(id),
                Err(error) => {
                    while self.end_step(id, u32::MAX)? == Ending::More {}
                    return Err(error);
                }
            }
        }
    }

    /// Promises frames to a tenant, which gets them in [steps](Self::reserve_step), and its share of
    /// other finite resources.
    ///
    /// # Errors
    /// As [`Pager::promise`]; [`Error::SwapFull`] if the store has too few unpromised places.
    pub fn promise(
        &self,
        contract: &Contract,
        limits: Option<Limits>,
    ) -> Result<ReservationId, Error> {
        self.work(|engine| {
            let id = engine.pager.promise(contract)?;
            let needed = limits.map_or(0, |limits| limits.places);
            if let Err(left) = engine.linux().promise(None, needed) {
                engine.pager.end(id)?;
                return Err(Error::SwapFull { needed, left });
            }
            engine.linux().holders.open(id, limits);
            Ok(id)
        })
    }

    /// Gives a tenant more of the frames that it was [promised](Self::promise), as
    /// [`Pager::reserve_step`] does: at most one cluster is written out.
    ///
    /// # Errors
    /// As [`Pager::reserve_step`]: it can be tried again.
    pub fn reserve_step(&self, id: ReservationId, limit: u32) -> Result<Beginning, Error> {
        self.work(|engine| Ok(engine.pager.reserve_step(id, limit)?))
    }

    /// Makes an area that is never written out: for reservations without swap, and for shared
    /// areas under an [eviction lock](Self::lock). With [`Sharing::Conserve`] its pages can still
    /// be evicted from some of their sharers, but not from the last.
    ///
    /// # Errors
    /// As [`Pager::create_area`]; [`Error::System`].
    pub fn create_resident_area(&self, pages: u32, sharing: Sharing) -> Result<AreaId, Error> {
        self.work(|engine| {
            let id = engine.pager.create_area(pages, sharing)?;
            add_area(engine, id, Backing::None, None)
        })
    }

    /// Makes an area of zeros whose pages have a place in the store each, of those that no
    /// reservation has a share of.
    ///
    /// # Errors
    /// [`Error::SwapFull`] if the places are missing; as [`Pager::create_area`]; [`Error::System`].
    pub fn create_area(&self, pages: u32, sharing: Sharing) -> Result<AreaId, Error> {
        self.create_stored(None, pages, sharing)
    }

    /// The same for a reservation, of whose [share](Limits) the places are. Without a share it is as
    /// [`create_area`](Self::create_area).
    ///
    /// # Errors
    /// As [`create_area`](Self::create_area): no other reservation's areas make it fail.
    pub fn create_area_for(
        &self,
        owner: ReservationId,
        pages: u32,
        sharing: Sharing,
    ) -> Result<AreaId, Error> {
        let shared = self
            .thread
            .with(|engine| engine.linux().holders.has_places(owner));
        self.create_stored(shared.then_some(owner), pages, sharing)
    }

    fn create_stored(
        &self,
        owner: Option<ReservationId>,
        pages: u32,
        sharing: Sharing,
    ) -> Result<AreaId, Error> {
        self.work(|engine| {
            let promised = engine.linux().promise(owner, pages);
            let needed = pages;
            promised.map_err(|left| Error::SwapFull { needed, left })?;
            let made = engine.pager.create_area(pages, sharing);
            let made = made.map_err(Error::from).and_then(|id| {
                let nowhere = Sparse::new(NOWHERE, pages);
                add_area(engine, id, Backing::Store(nowhere), owner)
            });
            if made.is_err() {
                engine.linux().unpromise(owner, pages);
            }
            made
        })
    }

    /// Makes an area that shows a file, as long as it is now: initial images, data sets. To be attached [copy
    /// on write](Self::attach_copied) or [to be read](Self::attach_read_only). The file must not be changed
    /// while it is in use: pages are read when they are touched.
    ///
    /// # Errors
    /// [`Refused::Empty`] for an empty file; [`Error::System`].
    pub fn create_image(&self, file: File, sharing: Sharing) -> Result<AreaId, Error> {
        let asked = pass(Call::Ask).map_err(io::Error::from);
        let bytes = asked
            .and_then(|()| file.metadata())
            .map_err(system("ask for a file's length"))?;
        let pages = bytes.len().div_ceil(PAGE);
        let pages = u32::try_from(pages).map_err(|_| Error::Misplaced {
            address: 0,
            pages: u32::MAX,
        })?;
        self.work(|engine| {
            let id = engine.pager.create_stored_area(pages, sharing)?;
            add_area(engine, id, Backing::File(file), None)
        })
    }

    /// Removes an area that is not attached.
    ///
    /// # Errors
    /// As [`Pager::discard_area`].
    pub fn discard_area(&self, area: AreaId) -> Result<(), Error> {
        self.work(|engine| Ok(engine.pager.discard_area(area)?))
    }

    /// Maps the first `accessible` pages of an area at `address`; the rest of its pages stays as
    /// it is until it is made [accessible](Self::grow). Nothing is read or filled.
    ///
    /// # Errors
    /// As [`Pager::attach`]; [`Error::Misplaced`], [`Error::Occupied`], [`Error::ReadOnly`],
    /// [`Error::System`].
    ///
    /// # Safety
    /// The addresses of all the area's pages from `address` on are the caller's, which has reserved
    /// them, and no live object is there. They are the caller's again after the attachment is
    /// [detached](Self::detach) or [retired](Self::retire), or the pager dropped. Until then only
    /// guests, and the host on their behalf, access them, in this thread, and they are not
    /// unmapped.
    pub unsafe fn attach_at(
        &self,
        to: ReservationId,
        area: AreaId,
        address: *mut u8,
        accessible: u32,
    ) -> Result<AttachmentId, Error> {
        self.work(|engine| {
            let (pages, shows_file) = area_of(engine, area)?;
            if shows_file {
                return Err(Error::ReadOnly);
            }
            // SAFETY: the caller's promise.
            let span = unsafe { range(engine, address as usize, pages) }?;
            let accessible = accessible.min(pages);
            let tracked = engine.linux().memory(area.index()).is_tracked();
            let placement = Placement {
                span,
                accessible,
                role: Role::Direct,
                holder: to,
                mappings: mappings_at(engine, span),
            };
            place(engine, area, placement, tracked)
        })
    }

    /// Maps all pages of an area at `address`, for reading: a write is
    /// [denied](crate::Reason::ReadOnly). For data that tenants share: it takes no room in the store.
    /// Nothing is read or filled.
    ///
    /// # Errors
    /// As [`Pager::attach`]; [`Error::Misplaced`], [`Error::Occupied`], [`Error::System`].
    ///
    /// # Safety
    /// As for [`attach_at`](Self::attach_at).
    pub unsafe fn attach_read_only(
        &self,
        to: ReservationId,
        area: AreaId,
        address: *mut u8,
    ) -> Result<AttachmentId, Error> {
        self.work(|engine| {
            let (pages, _) = area_of(engine, area)?;
            // SAFETY: the caller's promise.
            let span = unsafe { range(engine, address as usize, pages) }?;
            let placement = Placement {
                span,
                accessible: pages,
                role: Role::ReadOnly,
                holder: to,
                mappings: mappings_at(engine, span),
            };
            place(engine, area, placement, true)
        })
    }

    /// Gives up the addresses behind the accessible pages of an attachment, which are the caller's
    /// again: it can no longer grow. If no other tenant has the area, it also gives up the places
    /// in the store that were promised to the pages behind. Returns how many pages these are.
    ///
    /// # Errors
    /// [`Refused::Stale`]; [`Refused::OutOfRange`] if it is not [attached to be written
    /// to](Self::attach_at) or nothing of it is accessible.
    pub fn trim(&self, at: AttachmentId) -> Result<u32, Error> {
        self.work(|engine| {
            let view = engine.linux().attached.get_mut(at.index() as usize);
            let view = view.and_then(Option::as_mut);
            let view = view.filter(|view| view.id == at && !view.gone);
            let view = view.ok_or(Refused::Stale)?;
            if !matches!(view.role, Role::Direct) || view.accessible == 0 {
                return Err(Refused::OutOfRange.into());
            }
            let trimmed = view.span.pages() - view.accessible;
            view.span = view.span.part(0, view.accessible);
            let (start, end, area) = (view.span.start(), view.span.end(), view.area);
            let linux = engine.linux();
            if let Some(range) = linux.ranges.get_mut(&start) {
                range.0 = end;
            }
            // Pages that cannot be touched are never written out.
            let memory = linux.memory(area);
            let owner = memory.owner;
            if memory.is_tracked() && memory.attached.len() == 1 {
                memory.promised -= trimmed;
                linux.unpromise(owner, trimmed);
            }
            Ok(trimmed)
        })
    }

    /// Maps pages of an attachment as if they were touched: up to `limit` of them, from `from` on.
    /// Returns where to go on, `None` if that was all. For what is under a [lock](Self::lock): so
    /// that it takes bounded steps to join.
    ///
    /// # Errors
    /// As [`Pager::fault`].
    pub fn prefault(
        &self,
        at: AttachmentId,
        from: PageNumber,
        limit: u32,
    ) -> Result<Option<PageNumber>, Error> {
        self.work(|engine| {
            let view = engine.linux().attached.get(at.index() as usize);
            let view = view.and_then(Option::as_ref);
            let view = view.filter(|view| view.id == at && !view.gone);
            let pages = view.ok_or(Refused::Stale)?.accessible;
            let to = pages.min(from.get().saturating_add(limit));
            for page in PageNumber::range(from.get()..to) {
                engine.pager.fault(at, page)?;
            }
            Ok((to < pages).then_some(PageNumber::new(to)))
        })
    }

    /// Makes the first `accessible` pages of an attachment accessible, if more than now.
    ///
    /// # Errors
    /// [`Refused::Stale`], [`Refused::OutOfRange`]; [`Error::System`].
    pub fn grow(&self, at: AttachmentId, accessible: u32) -> Result<(), Error> {
        self.work(|engine| {
            let view = engine.linux().attached.get(at.index() as usize);
            let view = view.and_then(Option::as_ref);
            let view = view.filter(|view| view.id == at && !view.gone);
            let view = view.ok_or(Refused::Stale)?;
            let (span, before, area) = (view.span, view.accessible, view.area);
            let first = view.end();
            if !matches!(view.role, Role::Direct) || accessible > span.pages() {
                return Err(Refused::OutOfRange.into());
            }
            if accessible > before {
                let holder = view.holder;
                let tracked = engine.linux().memory(area).is_tracked();
                let part = span.part(before, accessible);
                show(engine, (holder, area), part, first, tracked)?;
                engine.linux().view(at.index()).accessible = accessible;
            }
            Ok(())
        })
    }

    /// Maps an area so that writes go to copies: pages of `copies`, an area without another
    /// attachment that is as long. A page takes a frame of the reservation when it is read, and one
    /// for its copy when it is written to, in exchange if others use the page too.
    ///
    /// # Errors
    /// As [`Pager::attach`] for both; [`Error::CopiesTooFew`], [`Error::Misplaced`],
    /// [`Error::Occupied`], [`Error::System`].
    ///
    /// # Safety
    /// As for [`attach_at`](Self::attach_at).
    pub unsafe fn attach_copied(
        &self,
        to: ReservationId,
        area: AreaId,
        copies: AreaId,
        address: *mut u8,
    ) -> Result<CopyOnWrite, Error> {
        self.work(|engine| {
            let (pages, _) = area_of(engine, area)?;
            let (room, shows_file) = area_of(engine, copies)?;
            let fresh = engine.linux().memory(copies.index()).attached.is_empty();
            if room < pages || shows_file || !fresh || area == copies {
                return Err(Error::CopiesTooFew);
            }
            // SAFETY: the caller's promise.
            let span = unsafe { range(engine, address as usize, pages) }?;
            let left = engine.linux().holders.mappings_left(to);
            // Half of what is left stays for what the tenant grows by.
            let blocks = BLOCKS.min(left.saturating_sub(MAPPINGS) / 2).max(1);
            // Neighbouring blocks show the same file, or take turns.
            let mappings = blocks.min(pages) + MAPPINGS;
            take_mappings(engine, to, mappings)?;
            if let Err(error) = show(engine, (to, area.index()), span, PageNumber::FIRST, true) {
                engine.linux().holders.give_mappings(to, mappings);
                return Err(error);
            }
            // The policy attaches them one by one; each is told of the other.
            let place = |role, mappings| Placement {
                // No more of the copies is shown than there are originals.
                span,
                accessible: pages,
                role,
                holder: to,
                mappings,
            };
            engine.linux().placement = Some(place(Role::Copies { original: u32::MAX }, 0));
            let own = match engine.pager.attach(to, copies) {
                Ok(own) => own,
                Err(refused) => {
                    engine.linux().holders.give_mappings(to, mappings);
                    return Err(not_placed(engine, to, span, refused));
                }
            };
            let role = original(own.index(), pages, blocks);
            engine.linux().placement = Some(place(role, mappings));
            let shared = match engine.pager.attach(to, area) {
                Ok(shared) => shared,
                Err(refused) => {
                    engine.linux().holders.give_mappings(to, mappings);
                    engine.pager.detach(own)?;
                    return Err(not_placed(engine, to, span, refused));
                }
            };
            engine.linux().view(own.index()).role = Role::Copies {
                original: shared.index(),
            };
            Ok(CopyOnWrite {
                shared,
                copies: own,
            })
        })
    }

    /// Detaches an area from a tenant; its addresses are then inaccessible, and the caller's again.
    /// Takes a step per page, and writes out the pages that only this tenant has mapped, if others
    /// have attached the area too. An area attached copy on write goes with its copies, by the
    /// attachment of the shared pages.
    ///
    /// # Errors
    /// As [`Pager::detach`]; the attachment stays then. [`Refused::Foreign`] for copies.
    /// [`Error::System`] if the addresses cannot be made inaccessible: they stay unused until that
    /// is possible. It is retried when this is called again, and when the reservation ends.
    pub fn detach(&self, at: AttachmentId) -> Result<(), Error> {
        while self.detach_step(at, u32::MAX)? == Ending::More {}
        Ok(())
    }

    /// Continues to [detach](Self::detach) an area that its tenant no longer uses: visits at most
    /// `limit` of its pages ([`Pager::detach_step`]). Copies of an area that was attached copy on
    /// write are detached first.
    ///
    /// # Errors
    /// As [`detach`](Self::detach).
    pub fn detach_step(&self, at: AttachmentId, limit: u32) -> Result<Ending, Error> {
        self.work(|engine| {
            let view = engine.linux().attached.get(at.index() as usize);
            let view = view.and_then(Option::as_ref);
            let Some(view) = view.filter(|view| view.id == at) else {
                // The policy has detached it; only its addresses are left.
                let linux = engine.linux();
                let (id, span) = linux.holders.lingering(at).ok_or(Refused::Stale)?;
                linux.forbid_lingering(id, Some(at), span)?;
                return Ok(Ending::Done);
            };
            let copies = match &view.role {
                Role::Direct | Role::ReadOnly => None,
                Role::Original { copies, .. } => Some(*copies),
                Role::Copies { .. } => return Err(Refused::Foreign.into()),
            };
            if let Some(copies) = copies {
                // No other tenant has them, so nothing has to be written out.
                let own = engine.linux().view(copies).id;
                if engine.pager.detach_step(own, limit)? == Ending::Done {
                    engine.linux().view(at.index()).role = Role::ReadOnly;
                }
                return Ok(Ending::More);
            }
            if engine.pager.vacate_step(at, limit)? == Ending::More {
                return Ok(Ending::More);
            }
            if engine.linux().shorten(at.index())? == Ending::More {
                return Ok(Ending::More);
            }
            engine.pager.detach(at)?;
            Ok(Ending::Done)
        })
    }

    /// Continues to pin the pages of an attachment, at most `limit` of them ([`Pager::pin_step`]):
    /// for memory through which tenants communicate, under the owner's reservation.
    ///
    /// # Errors
    /// As [`Pager::pin_step`].
    pub fn pin_step(&self, at: AttachmentId, limit: u32) -> Result<Ending, Error> {
        self.work(|engine| Ok(engine.pager.pin_step(at, limit)?))
    }

    /// Abandons an area, whose contents are no longer needed ([`Pager::abandon`]).
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn abandon(&self, area: AreaId) -> Result<(), Error> {
        self.work(|engine| Ok(engine.pager.abandon(area)?))
    }

    /// Locks an area (SPC §IV-B): all its pages are mapped for all its sharers, and stay. Returns
    /// the frames that this makes unreserved.
    ///
    /// # Errors
    /// As [`Pager::lock`].
    pub fn lock(&self, area: AreaId) -> Result<u32, Error> {
        self.work(|engine| Ok(engine.pager.lock(area)?))
    }

    /// Continues to lock an area, at most `limit` of its pages, each for all its sharers
    /// ([`Pager::lock_step`]).
    ///
    /// # Errors
    /// As [`Pager::lock_step`].
    pub fn lock_step(&self, area: AreaId, limit: u32) -> Result<Ending, Error> {
        self.work(|engine| Ok(engine.pager.lock_step(area, limit)?))
    }

    /// Cancels the lock of an area.
    ///
    /// # Errors
    /// As [`Pager::unlock`].
    pub fn unlock(&self, area: AreaId) -> Result<(), Error> {
        self.work(|engine| Ok(engine.pager.unlock(area)?))
    }

    /// Maps a buffer for a system call, which would fail with `EFAULT` on pages that are not
    /// mapped: for the call to write to (`write`, as by `read(2)`), or only to read. Returns how
    /// many bytes from `address` on are mapped now, at least one and at most 64 pages. The caller
    /// transfers so many, and calls again for the rest. They stay mapped until the next fault.
    ///
    /// # Errors
    /// [`Denied`] if even the first page is denied.
    pub fn touch(&self, address: *const u8, bytes: usize, write: bool) -> Result<usize, Denied> {
        self.thread.with(|engine| {
            let touched = engine.touch(address as usize, bytes, write);
            engine.linux().settle();
            touched
        })
    }

    /// Returns the last access that could not be served since the last call, if any.
    pub fn take_denied(&self) -> Option<Denied> {
        self.thread.take_denied()
    }

    /// Begins to end a reservation, in one go: [`retire_step`](Self::retire_step) until the last.
    ///
    /// # Errors
    /// As [`retire_step`](Self::retire_step).
    pub fn retire(&self, id: ReservationId) -> Result<(), Error> {
        while self.retire_step(id, u32::MAX)? == Ending::More {}
        Ok(())
    }

    /// Begins or continues to end a reservation: it serves no faults from the first call on, and
    /// when this returns [`Ending::Done`] the addresses of all its attachments are inaccessible,
    /// and may be used for something else. Its frames and pages come back in
    /// [steps](Self::end_step).
    ///
    /// A step frees the addresses of 4 attachments at the most, of 16 page tables with resident pages, or up
    /// to the end of a page table after `limit` resident pages: some microseconds for each attachment, and 10
    /// ns for each resident page of those whose pages can be written out; attachments [copy on
    /// write](Self::attach_copied) are unmapped in place, 70 ns for each resident page. The first one takes a
    /// step for each attachment besides.
    ///
    /// # Errors
    /// [`Refused::Stale`]. [`Error::System`] if the kernel refuses a call: nothing is lost, the
    /// addresses stay unused, and the call can be repeated.
    pub fn retire_step(&self, id: ReservationId, limit: u32) -> Result<Ending, Error> {
        let mut book = self.book.borrow_mut();
        self.work(|engine| {
            let retirement = retirement(&mut book, engine, id)?;
            engine.retire_step(retirement, limit)
        })
    }

    /// Continues to end a reservation, [retiring](Self::retire_step) it first if that was not done:
    /// visits at most `limit` pages. All its pages are visited twice, once to unmap them and once
    /// to give their frames back, and there is a visit for each attachment.
    ///
    /// # Errors
    /// As [`retire_step`](Self::retire_step).
    pub fn end_step(&self, id: ReservationId, limit: u32) -> Result<Ending, Error> {
        let mut book = self.book.borrow_mut();
        let ending = self.work(|engine| {
            let retirement = retirement(&mut book, engine, id)?;
            engine.end_step(retirement, limit)
        })?;
        if ending == Ending::Done {
            book.remove(&id);
            self.thread.with(|engine| {
                let linux = engine.linux();
                let places = linux.holders.close(id);
                linux.unpromise(None, places);
                linux.tidy();
            });
        }
        Ok(ending)
    }

    /// Where the frames of a reservation are.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn account(&self, id: ReservationId) -> Result<Account, Refused> {
        self.thread.with(|engine| engine.pager.account(id))
    }

    /// Returns the paging counters of a reservation.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn counts(&self, id: ReservationId) -> Result<Counts, Refused> {
        self.thread.with(|engine| engine.pager.counts(id))
    }

    /// Pages of an area.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn pages(&self, area: AreaId) -> Result<u32, Refused> {
        self.thread.with(|engine| engine.pager.pages(area))
    }

    /// Attachments of an area.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn sharers(&self, area: AreaId) -> Result<u32, Refused> {
        self.thread.with(|engine| engine.pager.sharers(area))
    }

    /// Whether nothing is attached at these addresses, nor was and could not be made inaccessible yet: they are the
    /// caller's. Some 100 ns.
    pub fn is_vacant(&self, addresses: Range<usize>) -> bool {
        self.thread
            .with(|engine| engine.linux().is_vacant(addresses))
    }

    /// Pages of an attachment that its tenant has mapped.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn mapped(&self, at: AttachmentId) -> Result<u32, Refused> {
        self.thread.with(|engine| engine.pager.mapped(at))
    }

    /// Pages of a reservation that have a copy in the store, in frames or not. Takes a step for
    /// each attachment.
    pub fn swapped(&self, id: ReservationId) -> u32 {
        self.thread.with(|engine| {
            let linux = engine.linux();
            let own = linux.holders.attachments(id);
            let written = own.iter().filter_map(|at| {
                let view = linux.attached[at.index() as usize].as_ref()?;
                let memory = linux.areas[view.area as usize].as_ref()?;
                Some(memory.written)
            });
            written.sum()
        })
    }

    /// Records how much of an area each sharer uses now, for the rule that picks a technique
    /// ([`Pager::observe`]).
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn observe(&self, area: AreaId) -> Result<Usage, Refused> {
        self.thread.with(|engine| engine.pager.observe(area))
    }

    /// Frames that are neither reserved nor borrowed.
    pub fn unreserved(&self) -> u32 {
        self.thread.with(|engine| engine.pager.unreserved())
    }

    /// Places in the store that no area has a claim on.
    pub fn unpromised(&self) -> u32 {
        self.thread
            .with(|engine| engine.linux().swap_places.unpromised())
    }

    /// Kernel mappings that a reservation was charged for, of its [share](Limits).
    pub fn mappings(&self, id: ReservationId) -> u32 {
        self.thread
            .with(|engine| engine.linux().holders.mappings_taken(id))
    }

    /// Returns whether nothing waits to be given back that the kernel refused to take: no addresses
    /// and no pages.
    pub fn is_settled(&self) -> bool {
        self.thread.with(|engine| {
            let linux = engine.linux();
            linux.unwanted.is_empty() && linux.file.is_settled()
        })
    }

    /// Counts everything anew ([`Pager::audit`]), and compares frames with the kernel's count of
    /// each area's pages. For tests.
    ///
    /// # Panics
    /// If something does not hold.
    pub fn audit(&self) {
        self.thread.with(|engine| engine.audit());
    }

    /// Does some work, and then the calls that it deferred.
    fn work<R>(&self, work: impl FnOnce(&mut Engine) -> Result<R, Error>) -> Result<R, Error> {
        self.thread.with(|engine| {
            let result = work(engine);
            engine.linux().settle();
            // A page that could not be mapped now is mapped when it is touched, or denied then.
            let _ = engine.linux().take_failure();
            result
        })
    }
}

impl Drop for Paging {
    /// All addresses become inaccessible.
    fn drop(&mut self) {
        self.thread.with(|engine| {
            for view in engine.linux().attached.iter().flatten() {
                let used = view.span.part(0, view.accessible);
                let addressed = !matches!(view.role, Role::Copies { .. });
                if addressed && !view.gone && !used.is_empty() {
                    // On failure the tenant's own pages stay there, which harms no other tenant.
                    let _ = used.forbid();
                }
            }
        });
    }
}

/// Pages of an area, and whether they are a file's.
fn area_of(engine: &mut Engine, area: AreaId) -> Result<(u32, bool), Error> {
    // The policy knows whether the name is of an area that is there.
    engine.pager.pages(area)?;
    let memory = engine.linux().memory(area.index());
    let shows_file = matches!(memory.backing, Backing::File(_));
    Ok((memory.pages(), shows_file))
}

/// Makes the memory of an area that the policy has made, or takes the area back. The caller then
/// takes back the promise of places in the store.
fn add_area(
    engine: &mut Engine,
    id: AreaId,
    backing: Backing,
    owner: Option<ReservationId>,
) -> Result<AreaId, Error> {
    let pages = engine.pager.pages(id)?;
    engine.linux().tidy();
    match engine.linux().file.take(pages) {
        Ok(extent) => {
            let memory = Memory::new(extent, backing, owner);
            engine.linux().add_area(id, memory);
            Ok(id)
        }
        Err(error) => {
            engine.pager.discard_area(id)?;
            Err(system("make the memory of an area")(error))
        }
    }
}

/// Kernel mappings that an attachment at these addresses may cause.
fn mappings_at(engine: &mut Engine, span: Span) -> u32 {
    let before = span.start().wrapping_sub(1);
    if engine.linux().find(before).is_some() {
        1
    } else {
        MAPPINGS
    }
}

/// Takes kernel mappings out of a reservation's share.
fn take_mappings(engine: &mut Engine, of: ReservationId, needed: u32) -> Result<(), Error> {
    let taken = engine.linux().holders.take_mappings(of, needed);
    taken.map_err(|(left, share)| Error::Mappings {
        needed,
        left,
        share,
    })
}

/// Shows an area at its place and has the policy attach it, or changes nothing. Writes to pages
/// trap if `tracked`.
fn place(
    engine: &mut Engine,
    area: AreaId,
    placement: Placement,
    tracked: bool,
) -> Result<AttachmentId, Error> {
    let (to, mappings) = (placement.holder, placement.mappings);
    let used = placement.span.part(0, placement.accessible);
    take_mappings(engine, to, mappings)?;
    let shown = show(engine, (to, area.index()), used, PageNumber::FIRST, tracked);
    let attached = shown.and_then(|()| {
        engine.linux().placement = Some(placement);
        let attached = engine.pager.attach(to, area);
        attached.map_err(|refused| not_placed(engine, to, used, refused))
    });
    if attached.is_err() {
        engine.linux().holders.give_mappings(to, mappings);
    }
    attached
}

/// The policy has refused to attach what is shown at these addresses.
fn not_placed(engine: &mut Engine, to: ReservationId, used: Span, refused: Refused) -> Error {
    let linux = engine.linux();
    linux.placement = None;
    if !used.is_empty()
        && let Err(error) = used.forbid()
    {
        linux.linger(to, None, used);
        return system("take a mapping back")(error);
    }
    refused.into()
}

/// The retirement of a reservation, which begins if it has not.
fn retirement<'a>(
    book: &'a mut Book,
    engine: &mut Engine,
    id: ReservationId,
) -> Result<&'a mut Retirement, Error> {
    use std::collections::btree_map::Entry;
    match book.entry(id) {
        Entry::Occupied(begun) => Ok(begun.into_mut()),
        Entry::Vacant(place) => Ok(place.insert(engine.begin_retirement(id)?)),
    }
}

/// The addresses of `pages` pages from `address` on, if nothing is attached there.
///
/// # Safety
/// As for [`Span::new`].
unsafe fn range(engine: &mut Engine, address: usize, pages: u32) -> Result<Span, Error> {
    let end = address.checked_add(pages as usize * BYTES);
    let end = end.filter(|_| address.is_multiple_of(BYTES) && address != 0);
    let end = end.ok_or(Error::Misplaced { address, pages })?;
    // What ends later would take from the one that is there now what it has.
    if !engine.linux().is_vacant(address..end) {
        return Err(Error::Occupied { address, pages });
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Span::new(address, pages) })
}

/// Shows an area's pages from `first` on at addresses of a reservation, whose faults are served here
/// from then on; writes to pages can be made to trap there if `writes` says so.
fn show(
    engine: &mut Engine,
    (holder, area): (ReservationId, u32),
    span: Span,
    first: PageNumber,
    writes: bool,
) -> Result<(), Error> {
    if span.is_empty() {
        return Ok(());
    }
    let linux = engine.linux();
    let memory = linux.areas[area as usize].as_ref().expect("an area");
    span.map(linux.file.as_fd(), memory.cached.extent().page(first))
        .map_err(system("map an area"))?;
    if linux.ballast.is_locked() && span.lock_on_fault().is_err() {
        linux.ballast.not_all_locked();
    }
    linux.userfault.register(span, writes).map_err(|error| {
        // Pages that are touched there would be the kernel's to find.
        if span.forbid().is_err() {
            linux.memory(area).cached.has_strays();
            linux.linger(holder, None, span);
        }
        system("serve the faults of an area")(error)
    })
}
