//! Linear memories that page.
//!
//! A memory is a row of attached areas, its *parts*: the first as large as the memory was made, the
//! others made when it grows, each larger than was asked for by a quarter of the memory, so that
//! there are few. Only what the guest has grown to is accessible. An area has places in the swap
//! file for all its pages from the start: so growth is refused when there are none, and no fault
//! is, later.

use super::ranges::Range;
use super::{CREATING, CellMemory, with};
use crate::engine_config::{MEMORY_GUARD, MEMORY_RESERVATION};
use crate::slot::SlotPool;
use leasehold_pager::{AttachmentId, Ending, PAGE, Sharing};
use leasehold_pager_linux::Error;
use leasehold_reclaim::GroupId;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// Makes the linear memories of a cell: attached areas for tenants that page, slots for all others.
pub(crate) struct Memories(pub(crate) SlotPool);

// SAFETY: `new_memory` gives what was asked for or an error: a slot, which is as its own creator
// promises, or addresses that nobody else uses, at least as large as the reservation with at least
// the guard after it, of which what is accessible reads as zero.
unsafe impl MemoryCreator for Memories {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved_size_in_bytes: Option<usize>,
        guard_size_in_bytes: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let root = CREATING.take();
        let paged = root.and_then(|root| with(|memory| memory.make(root, minimum)).flatten());
        let Some(paged) = paged else {
            return self.0.new_memory(
                ty,
                minimum,
                maximum,
                reserved_size_in_bytes,
                guard_size_in_bytes,
            );
        };
        let fits = !ty.is_64()
            && reserved_size_in_bytes.is_none_or(|bytes| bytes as u64 <= MEMORY_RESERVATION)
            && guard_size_in_bytes as u64 <= MEMORY_GUARD;
        if !fits {
            return Err("the engine is not configured for memories that page".to_owned());
        }
        Ok(Box::new(paged?))
    }
}

/// An area of a linear memory.
#[derive(Debug)]
struct Part {
    attachment: AttachmentId,
    /// Pages of the area, and how many of them are accessible.
    pages: u32,
    accessible: u32,
}

impl Part {
    fn inaccessible(&self) -> u32 {
        self.pages - self.accessible
    }
}

/// A linear memory of attached areas. Dropping it leaves them to whoever takes back what its
/// program left.
struct PagedMemory {
    root: GroupId,
    start: usize,
    bytes: usize,
    /// `None` once it is left.
    range: Option<Range>,
    parts: Vec<Part>,
}

/// A linear memory whose program has gone.
#[derive(Debug)]
pub(crate) struct Left {
    root: GroupId,
    range: Range,
    parts: Vec<Part>,
}

impl CellMemory {
    /// A memory of `bytes` bytes for a tenant; `None` if it does not page.
    fn make(&mut self, root: GroupId, bytes: usize) -> Option<Result<PagedMemory, String>> {
        self.tenancies.get(&root)?.limit?;
        let Some(range) = self.ranges.take() else {
            return Some(Err("no addresses are left for a memory".to_owned()));
        };
        let mut memory = PagedMemory {
            root,
            start: self.ranges.start(&range) as usize,
            bytes: 0,
            range: None,
            parts: Vec::new(),
        };
        let made = self.grow(&mut memory, bytes);
        if let Err(error) = made {
            self.ranges.give_back(range);
            return Some(Err(format!("no room for a memory: {error}")));
        }
        memory.range = Some(range);
        Some(Ok(memory))
    }

    /// Makes the first `bytes` bytes of a memory accessible, or changes nothing.
    fn grow(&mut self, memory: &mut PagedMemory, bytes: usize) -> Result<(), Error> {
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
                    // Nothing of it was touched: one step is all it takes.
                    self.detach_step(memory.root, &part, u32::MAX);
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
        let tenancy = tenancy.expect("whose programs run has a reservation");
        let unplaced = tenancy.limit.unwrap_or(0).saturating_sub(tenancy.placed);
        let had = (memory.bytes as u64 / PAGE) as u32 + after;
        let room = (MEMORY_RESERVATION / PAGE) as u32 - had;
        let pages = accessible.max((had / 4).min(unplaced)).min(room);
        let area = self.paging.create_area(pages, Sharing::Conserve)?;
        let address = (memory.start + had as usize * PAGE as usize) as *mut u8;
        // SAFETY: the range is this memory's, as are the pages after its parts, which lie inside
        // the range: nothing is there.
        let attached = unsafe {
            self.paging
                .attach_at(tenancy.reservation, area, address, accessible)
        };
        let attachment = match attached {
            Ok(attachment) => attachment,
            Err(error) => {
                // Nobody has it: it can only be there.
                let _ = self.paging.discard_area(area);
                return Err(error);
            }
        };
        tenancy.placed += pages;
        Ok(Part {
            attachment,
            pages,
            accessible,
        })
    }

    /// Goes on taking a part away from its tenant, which does not use it; whether it has gone.
    fn detach_step(&mut self, root: GroupId, part: &Part, pages: u32) -> bool {
        match self.paging.detach_step(part.attachment, pages) {
            Ok(Ending::More) => return false,
            Ok(Ending::Done) => {}
            Err(error) => {
                tracing::error!(%error, "a part of a linear memory could not be detached");
            }
        }
        if let Some(tenancy) = self.tenancies.get_mut(&root) {
            tenancy.placed -= part.pages;
        }
        true
    }
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
        let grown = with(|memory| memory.grow(self, new_size));
        match grown {
            Some(grown) => Ok(grown?),
            None => wasmtime::bail!("a memory grows on its cell's thread"),
        }
    }

    fn as_ptr(&self) -> *mut u8 {
        self.start as *mut u8
    }
}

impl Drop for PagedMemory {
    fn drop(&mut self) {
        let Some(range) = self.range.take() else {
            return;
        };
        let parts = std::mem::take(&mut self.parts);
        // Off the cell's thread nothing can be given back; nobody drops a store there.
        with(|memory| {
            memory.left.push(Left {
                root: self.root,
                range,
                parts,
            })
        });
    }
}

/// Moves all memories that programs have left since the last call to `left`.
pub(crate) fn claim(left: &mut Vec<Left>) {
    with(|memory| left.append(&mut memory.left));
}

/// Goes on taking these memories back, whose tenant goes on: visits `pages` pages at the most, of
/// one part.
pub(crate) fn detach(left: &mut Vec<Left>, pages: u32) {
    with(|memory| {
        let Some(last) = left.last_mut() else { return };
        if let Some(part) = last.parts.last() {
            if memory.detach_step(last.root, part, pages) {
                last.parts.pop();
            }
        } else if let Some(gone) = left.pop() {
            memory.ranges.give_back(gone.range);
        }
    });
}

/// The tenant of these memories has been [retired](super::Tenancy::retire): their addresses can be
/// used again.
pub(crate) fn give_ranges_back(left: &mut Vec<Left>) {
    with(|memory| {
        for gone in left.drain(..) {
            memory.ranges.give_back(gone.range);
        }
    });
}
