//! The pools as the engine uses them: linear memories in [slots](SlotPool), and fibers' [stacks](StackPool).

use std::ops::Range;

use wasmtime::{LinearMemory, MemoryCreator, MemoryType, StackCreator, StackMemory};

use crate::contents::Contents;
use crate::slot::{MEMORY_GUARD, SLOT_BYTES, Slot, SlotPool};
use crate::stack::{Stack, StackPool};
use crate::warm_room::Keeper;

/// A memory in a slot; dropping it detaches the slot, at a cost that does not depend on what is
/// in it.
struct SlotMemory(Slot);

// SAFETY: a slot's first `accessible` bytes are readable and writable; the rest of its 4 GiB and
// the guard after it are not. It never moves, and belongs to this memory until it is dropped. A
// slot that is taken reads as zero, or as contents that its maker asked for, and cannot be cleaned while it is
// taken.
unsafe impl LinearMemory for SlotMemory {
    fn byte_size(&self) -> usize {
        self.0.accessible()
    }

    fn byte_capacity(&self) -> usize {
        SLOT_BYTES
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        Ok(self.0.grow(new_size)?)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.0.base()
    }
}

/// A memory as the engine asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Whether its addresses have 64 bits.
    pub is_64: bool,
    /// Its size, bytes.
    pub minimum: usize,
    /// The addresses that are to be reserved for it, bytes.
    pub reserved: Option<usize>,
    /// The inaccessible ones after that, bytes.
    pub guard: usize,
}

impl SlotPool {
    /// Makes a memory in a slot, in which `contents` are shown, and which is zero elsewhere. When it is dropped and cleaned,
    /// it is [warm](Self::warm) for the next such memory of the keeper, if there is one.
    ///
    /// # Errors
    ///
    /// When the pool's slots are not what the engine wants, no slot is clean, or the system refuses a call.
    pub fn new_memory_showing(
        &self,
        wanted: Wanted,
        contents: Option<(&Contents, Option<Keeper>)>,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let fits = !wanted.is_64
            && wanted.minimum <= SLOT_BYTES
            && wanted.reserved.is_none_or(|bytes| bytes <= SLOT_BYTES)
            && wanted.guard as u64 <= MEMORY_GUARD;
        if !fits {
            return Err("the engine is not configured for this pool's slots".to_owned());
        }
        let slot = match contents {
            Some((contents, keeper)) => self.take_showing(wanted.minimum, contents, keeper),
            None => self.take(wanted.minimum),
        };
        let slot = slot.map_err(|error| format!("no slot for a memory: {error}"))?;
        Ok(Box::new(SlotMemory(slot)))
    }
}

// SAFETY: `new_memory` gives exactly what was asked for or an error: a slot without another user,
// at least as large as the reservation with at least the guard after it, zero-filled.
unsafe impl MemoryCreator for SlotPool {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved_size_in_bytes: Option<usize>,
        guard_size_in_bytes: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let wanted = Wanted {
            is_64: ty.is_64(),
            minimum,
            reserved: reserved_size_in_bytes,
            guard: guard_size_in_bytes,
        };
        self.new_memory_showing(wanted, None)
    }
}

// SAFETY: the range is page-aligned, readable and writable, belongs to this stack until it is
// dropped, and has an inaccessible guard below it.
unsafe impl StackMemory for Stack {
    fn top(&self) -> *mut u8 {
        self.addresses().end
    }

    fn range(&self) -> Range<usize> {
        let Range { start, end } = self.addresses();
        start.addr()..end.addr()
    }

    fn guard_range(&self) -> Range<*mut u8> {
        self.guard()
    }
}

// SAFETY: every stack is zero-filled, has a guard, and is as large as was asked for.
unsafe impl StackCreator for StackPool {
    /// `zeroed` makes no difference: a clean stack reads as zero.
    fn new_stack(&self, size: usize, _zeroed: bool) -> wasmtime::Result<Box<dyn StackMemory>> {
        let bytes = self.bytes();
        if size > bytes {
            wasmtime::bail!("a stack of {size} bytes does not fit into the pool's {bytes}");
        }
        Ok(Box::new(self.take()?))
    }
}
