//! Linear memories that page.
//!
//! A memory is a row of attached areas, its *parts*: the first as large as the memory was made, the
//! others made when it grows, each larger than was asked for by a quarter of the memory, so that
//! there are few. Only what the guest has grown to is accessible. An area has places in the swap
//! file for all its pages from the start. A lack of places therefore refuses growth, and never a
//! later fault.
//!
//! Some parts are shared with other tenants: the [image](leasehold_wasm::image) of the program, whose pages
//! are copied when they are written to, and [data sets](super::data), which are read-only.
//! [Regions](super::region) lie between parts, because their mappings may change.

use super::attaching::Attaching;
use super::parts::{Left, Part, Prepared};
use super::ranges::Range;
use super::state::{CellMemory, with};
use leasehold_pager::{AttachmentId, Ending, PAGE, Refused, Sharing};
use leasehold_pager_linux::Error;
use leasehold_reclaim::GroupId;
use leasehold_slots::contents::Contents;
use leasehold_slots::engine::Wanted;
use leasehold_slots::slot::{MEMORY_GUARD, MEMORY_RESERVATION, SlotPool};
use leasehold_slots::warm_room::Keeper;
use leasehold_wasm::image::Image;
use std::cell::Cell;
use std::io;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// Makes the linear memories of a cell: attached areas for tenants that page, slots for all others.
pub(crate) struct Memories(pub(crate) SlotPool);

// SAFETY: `new_memory` gives what was asked for or an error: a slot, which is as its own creator
// promises, or unused addresses, at least as large as the reservation with at least the guard after
// it, whose accessible part reads as zero.
unsafe impl MemoryCreator for Memories {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved_size_in_bytes: Option<usize>,
        guard_size_in_bytes: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let mut creating = CREATING.take();
        let ahead = creating.as_mut().and_then(|creating| creating.ahead.take());
        let paged = match ahead {
            Some(ahead) => Some(ahead.into_memory(minimum)),
            None => creating
                .as_ref()
                .and_then(|creating| with(|memory| memory.make(creating, minimum)).flatten()),
        };
        let Some(paged) = paged else {
            let wanted = Wanted {
                is_64: ty.is_64(),
                minimum,
                reserved: reserved_size_in_bytes,
                guard: guard_size_in_bytes,
            };
            let image = creating
                .as_ref()
                .and_then(|creating| creating.image.as_ref());
            let contents = image.map(shown).transpose()?;
            let keeper = creating.as_ref().and_then(|creating| creating.keeper);
            let contents = contents.as_ref().map(|contents| (contents, keeper));
            return self.0.new_memory_showing(wanted, contents);
        };
        let fits = !ty.is_64()
            && reserved_size_in_bytes.is_none_or(|bytes| bytes as u64 <= MEMORY_RESERVATION)
            && guard_size_in_bytes as u64 <= MEMORY_GUARD;
        if !fits {
            return Err("the engine is not configured for memories that page".to_owned());
        }
        paged.map(|paged| Box::new(paged) as Box<dyn LinearMemory>)
    }
}

/// The contents of a memory that does not page.
fn shown(image: &Image) -> Result<Contents, String> {
    let (first, pages) = (image.first() as usize, image.pages() as usize);
    let (file, start) = image.place();
    // SAFETY: nothing changes the pages of an image.
    let contents = unsafe { Contents::of_constant(file, start, first, pages) };
    contents.map_err(|error| format!("the initial memory of the program: {error}"))
}

/// The linear memory that the engine is about to make.
struct Creating {
    /// The top-level group that it is for.
    root: GroupId,
    /// The memory that it holds when it is made.
    image: Option<Image>,
    /// The memory, if it has been made already.
    ahead: Option<Ahead>,
    /// The keeper of the memory when it is dropped, if it has an image and does not page.
    keeper: Option<Keeper>,
}

thread_local! {
    /// The next linear memory that the engine makes. The engine does not identify it to a memory
    /// creator, but asks the limiter right before ([`for_tenant`]).
    static CREATING: Cell<Option<Creating>> = const { Cell::new(None) };
}

/// The next linear memory is for the tenant of this top-level group, and holds `image`; it is `ahead`, if
/// that has been made, and `keeper` has it when it is dropped. Some nanoseconds.
pub(crate) fn for_tenant(
    root: GroupId,
    image: Option<Image>,
    ahead: Option<Ahead>,
    keeper: Option<Keeper>,
) {
    CREATING.set(Some(Creating {
        root,
        image,
        ahead,
        keeper,
    }));
}

/// A linear memory that is made before the engine asks for it, so that the image of its program can be
/// copied into it a page at a step: for all programs of a tenant but the first, which has the image where
/// others share it.
#[derive(Debug)]
pub(crate) struct Ahead {
    memory: PagedMemory,
    image: Image,
    /// The page of the image to copy next.
    next: u32,
}

/// Makes a linear memory of `bytes` bytes ahead; `None` if its tenant does not page, or has the image
/// prepared.
pub(crate) fn make_ahead(
    root: GroupId,
    image: &Image,
    bytes: usize,
) -> Option<Result<Ahead, String>> {
    let made = with(|memory| {
        if memory.tenancies.get(&root)?.prepared.is_some() {
            return None;
        }
        let creating = Creating {
            root,
            image: None,
            ahead: None,
            keeper: None,
        };
        memory.make(&creating, bytes)
    });
    let ahead = |memory| Ahead {
        memory,
        image: image.clone(),
        next: 0,
    };
    made.flatten().map(|made| made.map(ahead))
}

impl Ahead {
    /// Copies the next page of the image, for which one page of the memory may have to be fetched; false
    /// if all of it is there.
    ///
    /// # Errors
    /// The system's, when the image cannot be read.
    pub(crate) fn copy_page(&mut self) -> io::Result<bool> {
        let Some(page) = self.image.page(self.next)? else {
            return Ok(false);
        };
        let offset = (self.image.first() + self.next) as usize * PAGE as usize;
        // The last page of an image may be longer than what the program put there.
        let length = page.len().min(self.memory.bytes.saturating_sub(offset));
        let to = (self.memory.start + offset) as *mut u8;
        // SAFETY: within the first `bytes` bytes of the memory, which are accessible, and which
        // have no other reference yet.
        unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), to, length) };
        self.next += 1;
        Ok(true)
    }

    /// The memory, if it is as large as the engine wants it.
    fn into_memory(self, bytes: usize) -> Result<PagedMemory, String> {
        match self.memory.bytes == bytes {
            true => Ok(self.memory),
            false => Err("the memory was made for another program".to_owned()),
        }
    }
}

/// A linear memory of attached areas. Dropping it leaves them to the task that takes back the
/// program's memory.
#[derive(Debug)]
pub(super) struct PagedMemory {
    root: GroupId,
    start: usize,
    bytes: usize,
    /// `None` once it is left.
    range: Option<Range>,
    parts: Vec<Part>,
}

impl PagedMemory {
    /// The top-level group that it belongs to.
    pub(super) fn root(&self) -> GroupId {
        self.root
    }

    /// Makes parts, which are attached there, its end, at `bytes` bytes.
    pub(super) fn append(&mut self, parts: impl IntoIterator<Item = Part>, bytes: usize) {
        self.parts.extend(parts);
        self.bytes = bytes;
    }

    /// Where it ends now: the address, and the offset.
    pub(super) fn end(&self) -> (*mut u8, usize) {
        ((self.start + self.bytes) as *mut u8, self.bytes)
    }
}

impl CellMemory {
    /// A memory of `bytes` bytes for a tenant; `None` if it does not page.
    fn make(&mut self, creating: &Creating, bytes: usize) -> Option<Result<PagedMemory, String>> {
        let root = creating.root;
        let tenancy = self.tenancies.get_mut(&root)?;
        tenancy.limit?;
        let prepared = creating.image.as_ref().and(tenancy.prepared.take());
        let (range, image) = match prepared {
            Some(Prepared { range, first, part }) => (Some(range), Some((first, part))),
            None => (self.ranges.take(&self.paging), None),
        };
        let Some(range) = range else {
            return Some(Err("no addresses are left for a memory".to_owned()));
        };
        let mut memory = PagedMemory {
            root,
            start: self.ranges.start(&range) as usize,
            bytes: 0,
            range: Some(range),
            parts: Vec::new(),
        };
        match self.fill_in(&mut memory, image, bytes) {
            Ok(()) => Some(Ok(memory)),
            Err(error) => {
                self.left.extend(memory.leave());
                Some(Err(format!("no room for a memory: {error}")))
            }
        }
    }

    /// Makes the parts of a new memory: around the image, if it has one.
    fn fill_in(
        &mut self,
        memory: &mut PagedMemory,
        image: Option<(u32, Part)>,
        bytes: usize,
    ) -> Result<(), Error> {
        if let Some((first, part)) = image {
            let below = self.grow(memory, first as usize * PAGE as usize);
            memory.bytes += part.pages as usize * PAGE as usize;
            memory.parts.push(part);
            below?;
        }
        self.grow(memory, bytes)
    }

    /// Gives up the reserve of a memory's last part, so that another area can follow it directly.
    pub(super) fn seal(&mut self, memory: &mut PagedMemory) -> Result<(), Error> {
        let Some(last) = memory.parts.last_mut() else {
            return Ok(());
        };
        if last.inaccessible() > 0 {
            self.paging.trim(last.attachment)?;
            last.pages = last.accessible;
        }
        Ok(())
    }

    /// Makes room behind a memory that is [sealed](Self::seal) for `pages` pages of something else,
    /// and puts zeros behind that, up to `bytes` bytes. Returns the part of zeros, if there are any.
    pub(super) fn attach_behind(
        &mut self,
        memory: &PagedMemory,
        pages: u32,
        bytes: usize,
    ) -> Result<Option<Part>, Error> {
        let end = (memory.bytes as u64 / PAGE) as u32 + pages;
        match ((bytes as u64).div_ceil(PAGE) as u32).saturating_sub(end) {
            0 => Ok(None),
            rest => self.attach(memory, pages, rest).map(Some),
        }
    }

    /// Takes a part back that was attached a moment ago, and never touched.
    pub(super) fn undo(&mut self, part: &Part) {
        // One step is all it takes; and what is private can always be detached.
        self.detach_attachment(part.attachment, u32::MAX);
    }

    /// Makes the first `bytes` bytes of a memory accessible, or changes nothing.
    pub(super) fn grow(&mut self, memory: &mut PagedMemory, bytes: usize) -> Result<(), Error> {
        let pages = |bytes: usize| (bytes as u64).div_ceil(PAGE) as u32;
        let more = pages(bytes) - pages(memory.bytes);
        let last = memory.parts.last().map_or(0, Part::inaccessible).min(more);
        let part = match more - last {
            0 => None,
            rest => Some(self.attach(memory, last, rest)?),
        };
        if last > 0
            && let Some(grown) = memory.parts.last_mut()
        {
            let accessible = grown.accessible + last;
            if let Err(error) = self.paging.grow(grown.attachment, accessible) {
                if let Some(part) = part {
                    self.undo(&part);
                }
                return Err(error);
            }
            grown.accessible = accessible;
        }
        memory.parts.extend(part);
        memory.bytes += more as usize * PAGE as usize;
        Ok(())
    }

    /// Attaches an area `after` pages behind the accessible part of a memory, with `accessible`
    /// pages at once and perhaps more for later.
    fn attach(&mut self, memory: &PagedMemory, after: u32, accessible: u32) -> Result<Part, Error> {
        let tenancy = self.tenancies.get_mut(&memory.root);
        let tenancy = tenancy.ok_or(Refused::Stale)?;
        let had = (memory.bytes as u64 / PAGE) as u32 + after;
        let room = (MEMORY_RESERVATION / PAGE) as u32 - had;
        let pages = accessible.max(had / 4).min(room);
        let owner = tenancy.reservation;
        let area = self
            .paging
            .create_area_for(owner, pages, Sharing::Conserve)?;
        let address = (memory.start + had as usize * PAGE as usize) as *mut u8;
        let attaching = Attaching::new(&self.paging, &self.ranges);
        let attachment = match attaching.writable(owner, area, address, accessible) {
            Ok(attachment) => attachment,
            Err(error) => {
                // It has no attachment, so that this cannot fail.
                let _ = self.paging.discard_area(area);
                return Err(error);
            }
        };
        Ok(Part {
            attachment,
            pages,
            accessible,
        })
    }

    /// Leaves what cannot be detached to the end of its tenant.
    fn keep(&mut self, kept: Left) {
        match self.tenancies.get_mut(&kept.root) {
            Some(tenancy) => tenancy.kept.push(kept.range),
            // That has begun.
            None => self.ranges.give_back(kept.range, &self.paging),
        }
    }

    /// Continues to detach an unused attachment of a linear memory.
    pub(super) fn detach_attachment(&mut self, at: AttachmentId, pages: u32) -> Detached {
        match self.paging.detach_step(at, pages) {
            Ok(Ending::More) => Detached::More,
            Ok(Ending::Done) | Err(Error::Refused(Refused::Stale)) => Detached::Done,
            Err(error) => {
                // For example a lock whose frames are in use elsewhere by now.
                tracing::debug!(%error, "a part of a linear memory stays until its tenant ends");
                Detached::Kept
            }
        }
    }
}

/// The result of a step of detaching a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detached {
    More,
    Done,
    /// It cannot be detached now: it goes with its tenant.
    Kept,
}

// SAFETY: the first `bytes` bytes are readable and writable, by attachments that only the end of
// this memory's program takes away, and faults on them are served; the rest of its 4 GiB and the
// guard after it are not accessible. It never moves, and belongs to this memory until it is dropped.
unsafe impl LinearMemory for PagedMemory {
    fn byte_size(&self) -> usize {
        self.bytes
    }

    fn byte_capacity(&self) -> usize {
        MEMORY_RESERVATION as usize
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        super::growth::grow(self, new_size)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.start as *mut u8
    }
}

impl PagedMemory {
    /// Its parts and its addresses, unless it has given them up before.
    fn leave(&mut self) -> Option<Left> {
        let range = self.range.take()?;
        let parts = std::mem::take(&mut self.parts);
        let root = self.root;
        Some(Left { root, range, parts })
    }
}

impl Drop for PagedMemory {
    fn drop(&mut self) {
        if let Some(left) = self.leave() {
            // Off the cell's thread nothing can be given back, but no store is dropped there.
            with(|memory| memory.left.push(left));
        }
    }
}

/// Moves all memories that programs have left since the last call to `left`.
pub(crate) fn claim(left: &mut Vec<Left>) {
    with(|memory| left.append(&mut memory.left));
}

/// Continues to take back these memories of a running tenant: visits at most `pages` pages of one
/// part.
pub(crate) fn detach(left: &mut Vec<Left>, pages: u32) {
    with(|memory| {
        let Some(last) = left.last_mut() else { return };
        let start = memory.ranges.start(&last.range) as usize;
        let detached = match last.parts.last() {
            Some(part) => memory.detach_attachment(part.attachment, pages),
            None => match memory.leave_region(last.root, start, pages) {
                Some(Detached::Done) => Detached::More,
                Some(detached) => detached,
                None => Detached::Done,
            },
        };
        match detached {
            Detached::More => {}
            Detached::Done if last.parts.pop().is_some() => {}
            Detached::Done => {
                if let Some(gone) = left.pop() {
                    memory.ranges.give_back(gone.range, &memory.paging);
                }
            }
            Detached::Kept => {
                if let Some(kept) = left.pop() {
                    memory.keep(kept);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::places::Request;
    use super::super::{HeldMemory, Swap, admit, enter, leave, region, tenancy};
    use super::{Creating, GroupId, LinearMemory, PagedMemory, claim, detach, with};
    use crate::profile::Profile;
    use leasehold_kernel::{Kernel, KernelConfig};
    use leasehold_lease::{ByteSize, Lease, MemoryKind, Paging, SharedPages};
    use leasehold_reclaim::{Config, HeapBacking, Mode};

    /// Bytes of a memory, and of the region in it.
    const MEMORY: usize = 1 << 16;

    fn kernel() -> Kernel<HeapBacking> {
        let config = KernelConfig {
            reclaim: Config {
                arena_bytes: 1 << 20,
                keep_resident: 1 << 20,
                mode: Mode::Grouped,
                max_groups: 16,
            },
            max_executions: 16,
            max_channel_bytes: 1 << 16,
            max_region_bytes: 1 << 20,
            timer_floor_ns: 10,
        };
        Kernel::new(config, Profile::free().kernel_costs(), HeapBacking)
    }

    fn memory_of(root: GroupId) -> PagedMemory {
        let creating = Creating {
            root,
            image: None,
            ahead: None,
            keeper: None,
        };
        let made = with(|memory| memory.make(&creating, MEMORY)).flatten();
        made.expect("it pages").expect("a memory")
    }

    /// The memory of a task of a tenant that ends before all of it was taken back.
    #[test]
    fn addresses_are_used_again_when_nothing_is_attached_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let held = HeldMemory {
            bytes: 2 << 20,
            for_all: false,
            swap: Some(Swap {
                path: directory.path().join("swap"),
                bytes: 16 << 20,
            }),
        };
        enter(Some(&held), &Profile::free(), 8).expect("a cell's memory");
        let mut kernel = kernel();
        let mut lease = Lease::default().memory;
        lease.reserve = ByteSize::new(512 << 10).expect("in range");
        lease.paging = Some(Paging {
            limit: ByteSize::new(4 << 20).expect("in range"),
            kind: MemoryKind::Hard,
            shared: SharedPages::None,
            mappings: Paging::MAPPINGS,
        });
        let [(tenant, ending), (_, other)] = [0; 2].map(|_| {
            let tenant = kernel.admit(1_000_000, 0).expect("a tenant");
            let root = kernel.group_of(tenant).expect("its group");
            admit(root, &lease).expect("a reservation");
            (tenant, root)
        });
        let own = kernel.region_create_mapped(tenant, MEMORY as u64);
        let own = own.expect("a region");
        let mapping = kernel.region_mapping(tenant, own).expect("its own");
        let request = Request {
            region: mapping.region,
            length: mapping.length,
            by: (tenant, own),
            writable: true,
        };

        let mut memory = memory_of(ending);
        let start = memory.as_ptr();
        let grown = region::create(request, &mut || {
            memory.grow_to(2 * MEMORY).expect("room for it");
        });
        let at = grown.expect("it pages").expect("a region");
        // SAFETY: in the memory.
        unsafe { start.add(at).write(7) };
        drop(memory);
        let mut left = Vec::new();
        claim(&mut left);
        let mut tenancy = tenancy::end(ending).expect("its reservation");
        while !left.is_empty() {
            detach(&mut left, u32::MAX);
        }
        let meanwhile = memory_of(other);
        assert_ne!(meanwhile.as_ptr(), start, "the region is there");
        while !tenancy.retire_step() {}
        let afterwards = memory_of(other);
        assert_eq!(afterwards.as_ptr(), start);
        for memory in [&meanwhile, &afterwards] {
            // SAFETY: in the memory.
            unsafe { memory.as_ptr().add(MEMORY - 1).write(8) };
        }
        tenancy.give_back();
        drop((meanwhile, afterwards));
        leave();
    }
}
