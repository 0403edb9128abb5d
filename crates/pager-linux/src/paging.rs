//! The memory of one cell: reservations, areas, and where they are attached.

use std::fs::File;
use std::marker::PhantomData;
use std::{fmt, io};

use leasehold_pager::{
    Account, AreaId, AttachmentId, CLUSTER, Contract, Counts, Ending, PAGE, Pager, Refused,
    ReservationId, Sharing, Usage,
};

use crate::attached::Role;
use crate::backend::{Linux, Placement};
use crate::copied::original;
use crate::detach::Retirement;
use crate::fault::Engine;
use crate::hold::{Ballast, Held, Locking};
use crate::memory::{Backing, Memory};
use crate::probe::{Unsupported, open};
use crate::refusal::{Answer, Denied};
use crate::signal::{Here, Serving};
use crate::slots::NOWHERE;
use crate::span::{BYTES, Span};
use crate::store::Store;

/// What a cell's memory is opened with.
pub struct Options {
    /// Frames of 4 KiB that all reservations share; taken from the host at once.
    pub frames: u32,
    /// Whether they are locked.
    pub locking: Locking,
    /// Where pages are written out. Without it nothing is ever evicted but shared pages, and an
    /// area larger than its reservation is refused.
    pub store: Option<Box<dyn Store>>,
    /// Most pages mapped ahead of a sequential reader; 0 for none.
    pub ahead: u32,
    /// Says what becomes of an access that cannot be served. Called in a signal handler.
    pub on_denied: fn(&Denied) -> Answer,
}

impl Options {
    /// Memory of `frames` frames: locked if allowed, no store, up to 16 pages mapped ahead, and
    /// accesses that cannot be served left to the handler of SIGBUS that was there before.
    pub fn new(frames: u32) -> Self {
        Options {
            frames,
            locking: Locking::IfAllowed,
            store: None,
            ahead: 16,
            on_denied: |_| Answer::Chain,
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

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The policy refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The kernel or the user lacks something.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The kernel refused it.
    #[error("{doing}: {source}")]
    System {
        /// What was done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The store has too few places that nobody has a claim on.
    #[error("{needed} pages to write out, the swap file has room for {left}")]
    SwapFull {
        /// Places that were asked for.
        needed: u32,
        /// Places that are left.
        left: u32,
    },
    /// The thread has a pager already.
    #[error("this thread has a pager already")]
    Opened,
    /// Addresses that are not the start of a page, or go beyond the last.
    #[error("{address:#x} with {pages} pages is no range of pages")]
    Misplaced {
        /// The address.
        address: usize,
        /// Pages from there on.
        pages: u32,
    },
    /// Pages of a file can be attached copy on write or to be read only.
    #[error("the area shows a file: it can be attached copy on write or read-only")]
    ReadOnly,
    /// The area for copies is smaller than the area to be copied, or somebody has attached it.
    #[error("the area for copies must be as long as the other, and new")]
    CopiesTooFew,
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { doing, source }
}

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
    here: Box<Here>,
    book: std::cell::RefCell<Book>,
    this_thread: PhantomData<*const ()>,
}

/// Who has attached what, and who is ending.
#[derive(Debug, Default)]
struct Book {
    attachments: Vec<(ReservationId, AttachmentId)>,
    retired: Vec<Retirement>,
}

impl fmt::Debug for Paging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paging")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl Paging {
    /// Opens the memory of a cell: asks the kernel for what it needs, takes the frames, and serves
    /// the faults of this thread from now on. The handler of SIGBUS is installed once per
    /// process, and calls the one before it for faults that are none of its own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by name, [`Error::Opened`], [`Error::System`] if the frames cannot
    /// be had.
    pub fn open(options: Options) -> Result<Paging, Error> {
        let (userfault, _) = open()?;
        let ballast = Ballast::hold(options.frames, options.locking)
            .map_err(system("hold the node's memory"))?;
        let linux = Linux::new(userfault, ballast, options.store)
            .map_err(system("allocate room for transfers"))?;
        let engine = Engine {
            pager: Pager::new(options.frames, linux),
            ahead: options.ahead,
        };
        let here = Box::new(Here::new(engine, options.on_denied));
        // SAFETY: the box outlives `serving`, which is dropped before it, and in this thread: the
        // whole is not `Send`.
        let serving = unsafe { Serving::begin(&raw const *here) };
        let serving = serving.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::Opened,
            _ => system("serve faults")(error),
        })?;
        Ok(Paging {
            _serving: serving,
            here,
            book: std::cell::RefCell::default(),
            this_thread: PhantomData,
        })
    }

    /// What is really held, and whether it is locked.
    pub fn held(&self) -> Held {
        self.here.with(|engine| engine.linux().ballast.held())
    }

    /// Lets somebody else have the memory of `frames` frames that are reserved here: for tenants
    /// whose memory is not attached here.
    pub fn lend(&self, frames: u32) {
        self.here.with(|engine| engine.linux().ballast.lend(frames));
    }

    /// Memory that was [lent](Self::lend) has been freed.
    pub fn restore(&self, frames: u32) {
        self.here
            .with(|engine| engine.linux().ballast.restore(frames));
    }

    /// Takes up to `limit` free frames (at least one large page) from the host again; says
    /// whether all are held now. Freed frames come back here, not when they are freed: it takes
    /// about as long as touching them.
    ///
    /// # Errors
    /// [`Error::System`] if the host has no memory.
    pub fn refill(&self, limit: u32) -> Result<bool, Error> {
        self.here
            .with(|engine| engine.linux().ballast.refill(limit))
            .map_err(system("hold the node's memory"))
    }

    /// Sets frames aside for a tenant.
    ///
    /// # Errors
    /// As [`Pager::reserve`].
    pub fn reserve(&self, contract: &Contract) -> Result<ReservationId, Error> {
        self.work(|engine| Ok(engine.pager.reserve(contract)?))
    }

    /// Makes an area that is never written out: for reservations without swap, and for shared
    /// areas under an [eviction lock](Self::lock). With [`Sharing::Conserve`] its pages can still
    /// be evicted from some of their sharers, but not from the last.
    ///
    /// # Errors
    /// As [`Pager::create_area`]; [`Error::System`].
    pub fn create_resident_area(&self, pages: u32, sharing: Sharing) -> Result<AreaId, Error> {
        self.create(pages, sharing, || Ok(Backing::None))
    }

    /// Makes an area of zeros whose pages have a place in the store each.
    ///
    /// # Errors
    /// [`Error::SwapFull`] if they cannot have; as [`Pager::create_area`]; [`Error::System`].
    pub fn create_area(&self, pages: u32, sharing: Sharing) -> Result<AreaId, Error> {
        let left = self.here.with(|engine| engine.linux().slots.unpromised());
        // Writing a page out again takes a second place for a moment.
        let left = left.saturating_sub(CLUSTER as u32);
        if pages > left {
            let needed = pages;
            return Err(Error::SwapFull { needed, left });
        }
        self.create(pages, sharing, || {
            let nowhere = vec![NOWHERE; pages as usize];
            Ok(Backing::Store(nowhere.into_boxed_slice()))
        })
    }

    /// Makes an area that shows a file, as long as it is now: initial images, data sets. To be
    /// attached [copy on write](Self::attach_copied) or [to be read](Self::attach_read_only). The file must not be changed while it is
    /// in use: pages are read when they are touched.
    ///
    /// # Errors
    /// [`Refused::Empty`] for an empty file; [`Error::System`].
    pub fn create_image(&self, file: File, sharing: Sharing) -> Result<AreaId, Error> {
        let bytes = file.metadata().map_err(system("ask for a file's length"))?;
        let pages = bytes.len().div_ceil(PAGE);
        let pages = u32::try_from(pages).map_err(|_| Error::Misplaced {
            address: 0,
            pages: u32::MAX,
        })?;
        self.work(|engine| {
            let id = engine.pager.create_stored_area(pages, sharing)?;
            let memory = Memory::new(pages, Backing::File(file));
            add_area(engine, id, memory)
        })
    }

    fn create(
        &self,
        pages: u32,
        sharing: Sharing,
        backing: impl FnOnce() -> Result<Backing, Error>,
    ) -> Result<AreaId, Error> {
        let backing = backing()?;
        self.work(|engine| {
            let id = engine.pager.create_area(pages, sharing)?;
            add_area(engine, id, Memory::new(pages, backing))
        })
    }

    /// Gives an area up that nobody has attached.
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
    /// As [`Pager::attach`]; [`Error::Misplaced`], [`Error::ReadOnly`], [`Error::System`].
    ///
    /// # Safety
    /// The addresses of all the area's pages from `address` on are the caller's, who has reserved
    /// them, and nothing that anybody relies on is there. They are the caller's again after the
    /// attachment is [detached](Self::detach) or [retired](Self::retire), or the pager dropped;
    /// until then only guests, and the host on their behalf, access them, in this thread, and
    /// nobody unmaps them.
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
            let span = unsafe { range(address as usize, pages) }?;
            let accessible = accessible.min(pages);
            let used = span.part(0, accessible);
            let tracked = engine.linux().memory(area.index()).is_tracked();
            show(engine, area.index(), used, 0, tracked)?;
            let placement = Placement {
                span,
                accessible,
                role: Role::Direct,
            };
            self.place(engine, (to, area), placement)
        })
    }

    /// Maps all pages of an area at `address`, for reading: a write is
    /// [denied](crate::Reason::ReadOnly). For data that tenants share: it takes no room in the store.
    /// Nothing is read or filled.
    ///
    /// # Errors
    /// As [`Pager::attach`]; [`Error::Misplaced`], [`Error::System`].
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
            let span = unsafe { range(address as usize, pages) }?;
            show(engine, area.index(), span, 0, true)?;
            let placement = Placement {
                span,
                accessible: pages,
                role: Role::ReadOnly,
            };
            self.place(engine, (to, area), placement)
        })
    }

    /// Has the policy attach an area whose pages are shown at its place, or takes them away.
    fn place(
        &self,
        engine: &mut Engine,
        (to, area): (ReservationId, AreaId),
        placement: Placement,
    ) -> Result<AttachmentId, Error> {
        let used = placement.span.part(0, placement.accessible);
        engine.linux().placement = Some(placement);
        match engine.pager.attach(to, area) {
            Ok(id) => {
                self.book.borrow_mut().attachments.push((to, id));
                Ok(id)
            }
            Err(refused) => {
                engine.linux().placement = None;
                used.forbid().map_err(system("take a mapping back"))?;
                Err(refused.into())
            }
        }
    }

    /// Gives up the addresses behind the accessible pages of an attachment, which are the caller's
    /// again: it does not grow any more. What was promised to it stays so until it is detached.
    ///
    /// # Errors
    /// [`Refused::Stale`]; [`Refused::OutOfRange`] if it is not [attached to be written
    /// to](Self::attach_at) or nothing of it is accessible.
    pub fn trim(&self, at: AttachmentId) -> Result<(), Error> {
        self.work(|engine| {
            let view = engine.linux().attached.get_mut(at.index() as usize);
            let view = view.and_then(Option::as_mut);
            let view = view.filter(|view| view.id == at && !view.gone);
            let view = view.ok_or(Refused::Stale)?;
            if !matches!(view.role, Role::Direct) || view.accessible == 0 {
                return Err(Refused::OutOfRange.into());
            }
            view.span = view.span.part(0, view.accessible);
            let end = view.span.end();
            let ranges = &mut engine.linux().ranges;
            let range = ranges.iter_mut().find(|range| range.2 == at.index());
            range.expect("it serves faults").1 = end;
            Ok(())
        })
    }

    /// Maps pages of an attachment as if they were touched: up to `limit` of them, from number
    /// `from` on. Returns where to go on, `None` if that was all. For what is under a
    /// [lock](Self::lock): so that it takes bounded steps to join.
    ///
    /// # Errors
    /// As [`Pager::fault`].
    pub fn prefault(&self, at: AttachmentId, from: u32, limit: u32) -> Result<Option<u32>, Error> {
        self.work(|engine| {
            let view = engine.linux().attached.get(at.index() as usize);
            let view = view.and_then(Option::as_ref);
            let view = view.filter(|view| view.id == at && !view.gone);
            let pages = view.ok_or(Refused::Stale)?.accessible;
            let to = pages.min(from.saturating_add(limit));
            for page in from..to {
                engine.pager.fault(at, page)?;
            }
            Ok((to < pages).then_some(to))
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
            if !matches!(view.role, Role::Direct) || accessible > span.pages() {
                return Err(Refused::OutOfRange.into());
            }
            if accessible > before {
                let tracked = engine.linux().memory(area).is_tracked();
                let part = span.part(before, accessible);
                show(engine, area, part, before, tracked)?;
                engine.linux().view(at.index()).accessible = accessible;
            }
            Ok(())
        })
    }

    /// Maps an area so that writes go to copies: pages of `copies`, an area that nobody else has
    /// and that is as long. A page takes a frame of the reservation when it is read, and one for
    /// its copy when it is written to, in exchange if others use the page too.
    ///
    /// # Errors
    /// As [`Pager::attach`] for both; [`Error::CopiesTooFew`], [`Error::Misplaced`],
    /// [`Error::System`].
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
            let span = unsafe { range(address as usize, pages) }?;
            show(engine, area.index(), span, 0, true)?;
            // The policy attaches them one by one; each is told of the other.
            let place = |role| Placement {
                // No more of the copies is shown than there are originals.
                span,
                accessible: pages,
                role,
            };
            let undo = |engine: &mut Engine, refused: Refused| {
                engine.linux().placement = None;
                let undone = span.forbid().map_err(system("take a mapping back"));
                undone.and(Err(Error::from(refused)))
            };
            engine.linux().placement = Some(place(Role::Copies { original: u32::MAX }));
            let own = match engine.pager.attach(to, copies) {
                Ok(own) => own,
                Err(refused) => return undo(engine, refused),
            };
            engine.linux().placement = Some(place(original(own.index(), pages)));
            let shared = match engine.pager.attach(to, area) {
                Ok(shared) => shared,
                Err(refused) => {
                    engine.pager.detach(own)?;
                    return undo(engine, refused);
                }
            };
            engine.linux().view(own.index()).role = Role::Copies {
                original: shared.index(),
            };
            let mut book = self.book.borrow_mut();
            book.attachments.extend([(to, shared), (to, own)]);
            Ok(CopyOnWrite {
                shared,
                copies: own,
            })
        })
    }

    /// Takes an area away from a tenant; its addresses are inaccessible then, and the caller's
    /// again. Takes a step per page, and writes out what only this tenant has mapped of an area
    /// that others have attached too. An area attached copy on write goes with its copies, by the
    /// attachment of the shared pages.
    ///
    /// # Errors
    /// As [`Pager::detach`]; the attachment stays then. [`Refused::Foreign`] for copies;
    /// [`Error::System`].
    pub fn detach(&self, at: AttachmentId) -> Result<(), Error> {
        while self.detach_step(at, u32::MAX)? == Ending::More {}
        Ok(())
    }

    /// Goes on [detaching](Self::detach) an area that its tenant does not use any more: looks at
    /// `limit` of its pages at the most ([`Pager::detach_step`]). Copies of an area that was
    /// attached copy on write go in a single step, the last.
    ///
    /// # Errors
    /// As [`detach`](Self::detach).
    pub fn detach_step(&self, at: AttachmentId, limit: u32) -> Result<Ending, Error> {
        self.work(|engine| {
            let view = engine.linux().attached.get(at.index() as usize);
            let view = view.and_then(Option::as_ref);
            let view = view.filter(|view| view.id == at).ok_or(Refused::Stale)?;
            let span = view.span.part(0, view.accessible);
            let copies = match &view.role {
                Role::Direct | Role::ReadOnly => None,
                Role::Original { copies, .. } => Some(*copies),
                Role::Copies { .. } => return Err(Refused::Foreign.into()),
            };
            let copies = copies.map(|copies| engine.linux().view(copies).id);
            if engine.pager.detach_step(at, limit)? == Ending::More {
                return Ok(Ending::More);
            }
            if !span.is_empty() {
                span.forbid().map_err(system("take a mapping back"))?;
            }
            if let Some(copies) = copies {
                // Nobody else has them, so nothing has to be written out.
                engine.pager.detach(copies)?;
            }
            let mut book = self.book.borrow_mut();
            let gone = [Some(at), copies];
            book.attachments.retain(|own| !gone.contains(&Some(own.1)));
            Ok(Ending::Done)
        })
    }

    /// Goes on mapping the pages of an attachment for good, `limit` of them at the most
    /// ([`Pager::pin_step`]): for memory that tenants communicate through, by whose it is.
    ///
    /// # Errors
    /// As [`Pager::pin_step`].
    pub fn pin_step(&self, at: AttachmentId, limit: u32) -> Result<Ending, Error> {
        self.work(|engine| Ok(engine.pager.pin_step(at, limit)?))
    }

    /// What an area holds is no longer wanted by anybody ([`Pager::abandon`]).
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

    /// Goes on locking an area, `limit` of its pages at the most, each for all its sharers
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
    /// mapped: to be written to by it (`write`, as by `read(2)`), or only read. Returns how many
    /// bytes from `address` on are mapped now, at least one and 64 pages at the most: transfer so
    /// many, and come again for the rest. They stay mapped until the next fault.
    ///
    /// # Errors
    /// [`Denied`] if not even the first page can be had.
    pub fn touch(&self, address: *const u8, bytes: usize, write: bool) -> Result<usize, Denied> {
        self.here.with(|engine| {
            let touched = engine.touch(address as usize, bytes, write);
            engine.linux().settle();
            touched
        })
    }

    /// The last access that could not be served, if any since this was last asked.
    pub fn take_denied(&self) -> Option<Denied> {
        self.here.take_denied()
    }

    /// Begins to end a reservation: the addresses of all its attachments are inaccessible, and may
    /// be used for something else at once. Its frames and pages come back in
    /// [steps](Self::end_step).
    ///
    /// Takes constant time for each attachment, and 10 ns for each resident page of those whose
    /// pages can be written out; attachments [copy on write](Self::attach_copied) are unmapped at
    /// once, 70 ns for each resident page.
    ///
    /// # Errors
    /// [`Refused::Stale`]; [`Error::System`].
    pub fn retire(&self, id: ReservationId) -> Result<(), Error> {
        let mut book = self.book.borrow_mut();
        if book.retired.iter().any(|retired| retired.id == id) {
            return Ok(());
        }
        self.work(|engine| {
            engine.pager.account(id)?;
            let own = book.attachments.iter().filter(|(of, _)| *of == id);
            let own: Vec<AttachmentId> = own.map(|&(_, at)| at).collect();
            let retirement = engine.retire(id, &own);
            let retirement = retirement.map_err(system("take addresses back"))?;
            book.attachments.retain(|(of, _)| *of != id);
            book.retired.push(retirement);
            Ok(())
        })
    }

    /// Goes on ending a reservation, [retiring](Self::retire) it first if that was not done:
    /// visits at most `limit` pages. All its pages are visited twice, once to unmap them and once
    /// to give their frames back, and there is a visit for each attachment.
    ///
    /// # Errors
    /// As [`retire`](Self::retire).
    pub fn end_step(&self, id: ReservationId, limit: u32) -> Result<Ending, Error> {
        self.retire(id)?;
        let mut book = self.book.borrow_mut();
        let at = book.retired.iter().position(|retired| retired.id == id);
        let at = at.ok_or(Refused::Stale)?;
        let ending = self.work(|engine| Ok(engine.end_step(&mut book.retired[at], limit)?))?;
        if ending == Ending::Done {
            book.retired.swap_remove(at);
        }
        Ok(ending)
    }

    /// Where the frames of a reservation are.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn account(&self, id: ReservationId) -> Result<Account, Refused> {
        self.here.with(|engine| engine.pager.account(id))
    }

    /// What paging did in a reservation.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn counts(&self, id: ReservationId) -> Result<Counts, Refused> {
        self.here.with(|engine| engine.pager.counts(id))
    }

    /// Attachments of an area.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn sharers(&self, area: AreaId) -> Result<u32, Refused> {
        self.here.with(|engine| engine.pager.sharers(area))
    }

    /// Pages of an attachment that its tenant has mapped.
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn mapped(&self, at: AttachmentId) -> Result<u32, Refused> {
        self.here.with(|engine| engine.pager.mapped(at))
    }

    /// Pages of a reservation that have a copy in the store, in frames or not. Takes a step for
    /// each attachment.
    pub fn swapped(&self, id: ReservationId) -> u32 {
        let book = self.book.borrow();
        let own = book.attachments.iter().filter(|(of, _)| *of == id);
        self.here.with(|engine| {
            let linux = engine.linux();
            own.map(|(_, at)| {
                let area = linux.view(at.index()).area;
                linux.memory(area).written
            })
            .sum()
        })
    }

    /// Notes how much of an area each sharer uses now, for the rule that picks a technique
    /// ([`Pager::observe`]).
    ///
    /// # Errors
    /// [`Refused::Stale`].
    pub fn observe(&self, area: AreaId) -> Result<Usage, Refused> {
        self.here.with(|engine| engine.pager.observe(area))
    }

    /// Frames that nobody reserved or borrowed.
    pub fn unreserved(&self) -> u32 {
        self.here.with(|engine| engine.pager.unreserved())
    }

    /// Places in the store that no area has a claim on.
    pub fn unpromised(&self) -> u32 {
        self.here.with(|engine| engine.linux().slots.unpromised())
    }

    /// Counts everything anew ([`Pager::audit`]), and compares frames with the kernel's count of
    /// each area's pages. For tests.
    ///
    /// # Panics
    /// If something does not hold.
    pub fn audit(&self) {
        self.here.with(|engine| engine.audit());
    }

    /// Does something, and then what was put off by it.
    fn work<R>(&self, work: impl FnOnce(&mut Engine) -> Result<R, Error>) -> Result<R, Error> {
        self.here.with(|engine| {
            let result = work(engine);
            engine.linux().settle();
            // What could not be mapped now is mapped when it is touched, or denied then.
            let _ = engine.linux().take_failure();
            result
        })
    }
}

impl Drop for Paging {
    /// All addresses become inaccessible.
    fn drop(&mut self) {
        self.here.with(|engine| {
            for view in engine.linux().attached.iter().flatten() {
                let used = view.span.part(0, view.accessible);
                let addressed = !matches!(view.role, Role::Copies { .. });
                if addressed && !view.gone && !used.is_empty() {
                    // Without it, the tenant's own pages would stay there: no harm to others.
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

fn add_area(engine: &mut Engine, id: AreaId, memory: io::Result<Memory>) -> Result<AreaId, Error> {
    match memory {
        Ok(memory) => {
            engine.linux().add_area(id, memory);
            Ok(id)
        }
        Err(error) => {
            engine.pager.discard_area(id)?;
            Err(system("make the memory of an area")(error))
        }
    }
}

/// The addresses of `pages` pages from `address` on.
///
/// # Safety
/// As for [`Span::new`].
unsafe fn range(address: usize, pages: u32) -> Result<Span, Error> {
    let fits = address.checked_add(pages as usize * BYTES).is_some();
    if !address.is_multiple_of(BYTES) || address == 0 || !fits {
        return Err(Error::Misplaced { address, pages });
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Span::new(address, pages) })
}

/// Shows an area's pages from `first` on at addresses, whose faults are served here from then on;
/// writes to pages can be made to trap there if `writes` says so.
fn show(engine: &mut Engine, area: u32, span: Span, first: u32, writes: bool) -> Result<(), Error> {
    if span.is_empty() {
        return Ok(());
    }
    let linux = engine.linux();
    let memory = linux.areas[area as usize].as_ref().expect("an area");
    span.map(memory.file(), first)
        .map_err(system("map an area"))?;
    if linux.ballast.is_locked() && span.lock_on_fault().is_err() {
        linux.ballast.not_all_locked();
    }
    let registered = linux.userfault.register(span, writes);
    registered.map_err(system("serve the faults of an area"))
}
