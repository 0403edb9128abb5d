//! Limits the growth of a guest's memories and tables by its lease.
//!
//! The engine asks before every growth, so that everything a store holds is charged before it is
//! allocated. Beyond the lease, `memory.grow` fails, as the specification allows.

use crate::local;
use crate::memory::{self, Ahead};
use crate::meter::Held;
use crate::refusals::Reservation;
use crate::steps::caps::{TABLE_ELEMENTS, TABLE_GROWTH};
use crate::steps::step;
use crate::steps::watch::mark_instruction;
use leasehold_kernel::{Errno, TenantId};
use leasehold_reclaim::GroupId;
use leasehold_slots::address_range::PAGE;
use leasehold_slots::warm_room::Keeper;
use leasehold_wasm::image::Image;
use wasmtime::{ResourceLimiter, Result};

/// Most elements by which a table grows at once after it was made: the engine fills them in one
/// step that cannot be interrupted. A guest that wants more grows again. (A table is made with
/// what it declares, as the specification demands: [`Initial`]; the lease's limit bounds that
/// step.)
const TABLE_STEP: u64 = TABLE_GROWTH.most;

/// The limits of one execution.
#[derive(Debug)]
pub(crate) struct Limiter {
    tenant: TenantId,
    execution: u64,
    /// The group of the top-level tenant, and what it is charged for a page of linear memory.
    root: GroupId,
    page: Held,
    /// The initial contents of the program's memory, if the program does not write them itself.
    image: Option<Image>,
    /// Its memory, if that has been made before the engine asks for it.
    ahead: Option<Ahead>,
    /// The keeper of its memory when the execution has ended.
    keeper: Option<Keeper>,
    instances: usize,
    /// The charged objects that are still to be made when the program is instantiated.
    initial: Initial,
    /// A charge of the last growth that was allowed, in case the engine fails to make it.
    pending: Growth,
    /// Why the last growth was refused, for the report of a program that did not start.
    refused: Option<Errno>,
    /// Whether the program's instance is there: a refusal is no reason any more that it cannot start.
    has_started: bool,
}

/// The objects that a program declares; its caller has charged them before the engine makes any.
///
/// A core instance gets all its memories and tables or none. When the engine is refused one of
/// them, it frees the earlier ones at once. This could happen during the end of another tenant,
/// which would then clean pages that it was not charged for. The refusal therefore precedes the
/// first allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Initial {
    /// Linear memories, the heap of exceptions among them.
    pub(crate) memories: u64,
    /// Their bytes.
    pub(crate) memory_bytes: u64,
    /// Tables.
    pub(crate) tables: u64,
    /// Their elements.
    pub(crate) table_elements: u64,
}

impl Initial {
    /// Takes a memory that is made with `bytes` bytes out of the charged amount; false if it is not
    /// included. A memory that was declared empty and grows before others are made is counted as
    /// one of them: the total charge is then too high, never too low.
    fn take_memory(&mut self, bytes: u64) -> bool {
        let covered = self.memories > 0 && bytes <= self.memory_bytes;
        if covered {
            self.memories -= 1;
            self.memory_bytes -= bytes;
        }
        covered
    }

    /// Takes a table that is made with `elements` elements out of the charged amount; false if it
    /// is not included.
    fn take_table(&mut self, elements: u64) -> bool {
        let covered = self.tables > 0 && elements <= self.table_elements;
        if covered {
            self.tables -= 1;
            self.table_elements -= elements;
        }
        covered
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    memories: u64,
    bytes: u64,
    pages: u64,
}

impl Limiter {
    /// Limits for an execution of `tenant` with at most `instances` core instances; the caller
    /// has charged them and `initial`. `image` is what the program's only memory is to hold.
    pub(crate) fn new(
        tenant: TenantId,
        execution: u64,
        root: GroupId,
        image: Option<Image>,
        instances: usize,
        initial: Initial,
    ) -> Self {
        Self {
            tenant,
            execution,
            root,
            page: memory::page_class(root),
            image,
            ahead: None,
            keeper: None,
            instances,
            initial,
            pending: Growth::default(),
            refused: None,
            has_started: false,
        }
    }

    /// Has the memory with the image kept when the execution has ended.
    pub(crate) fn keep_for(&mut self, keeper: Keeper) {
        self.keeper = Some(keeper);
    }

    /// The group of the top-level tenant.
    pub(crate) fn root(&self) -> GroupId {
        self.root
    }

    /// Whether its tenant pages.
    pub(crate) fn pages(&self) -> bool {
        matches!(self.page, Held::PagedPage)
    }

    /// Copies the next page of the program's initial memory to where it will be, if that is not shared
    /// and the tenant pages; false if nothing is left to copy.
    ///
    /// # Errors
    /// The reason why the memory cannot be made.
    pub(crate) fn copy_image_page(&mut self) -> Result<bool, String> {
        if self.ahead.is_none() {
            let bytes = self.initial.memory_bytes as usize;
            let image = self.image.as_ref();
            let made = image.and_then(|image| memory::make_ahead(self.root, image, bytes));
            self.ahead = made.transpose()?;
        }
        let copied = self.ahead.as_mut().map_or(Ok(false), Ahead::copy_page);
        copied.map_err(|error| format!("the initial memory of the program: {error}"))
    }

    /// The program's instance is there: what it is refused from now on, it is told.
    pub(crate) fn started(&mut self) {
        self.has_started = true;
    }

    /// Whether the program's instance is there.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Why the last request was refused, if one was.
    pub(crate) fn refused(&self) -> Option<Errno> {
        self.refused
    }

    fn grow_memory(&mut self, growth: Growth) -> Result<(), Errno> {
        let (tenant, execution, page) = (self.tenant, self.execution, self.page);
        local::with(|local| {
            local.hold_memory(tenant, execution, growth.bytes)?;
            let charged = local
                .hold(tenant, execution, Held::Memory, growth.memories)
                .and_then(|()| {
                    local
                        .hold(tenant, execution, page, growth.pages)
                        .inspect_err(|_| {
                            local.release(tenant, execution, Held::Memory, growth.memories);
                        })
                });
            if charged.is_err() {
                local.release_memory(tenant, execution, growth.bytes);
            }
            charged
        })
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        mark_instruction(step!("engine", "memory.grow"));
        self.pending = Growth::default();
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        if current == 0 {
            // The engine makes a memory if this is granted. An empty one does not belong to the
            // image: it may be the heap of exceptions.
            let is_of_image = desired > 0 && desired as u64 == self.initial.memory_bytes;
            let image = self.image.clone().filter(|_| is_of_image);
            let ahead = self.ahead.take_if(|_| is_of_image);
            memory::for_tenant(self.root, image, ahead, self.keeper);
        }
        if current == 0 && self.initial.take_memory(desired as u64) {
            return Ok(true);
        }
        let growth = Growth {
            // If all memories are made, one that was made empty grows. If not, it is charged twice,
            // which is safe.
            memories: u64::from(current == 0 && self.initial.memories > 0),
            bytes: (desired - current) as u64,
            pages: (desired.div_ceil(PAGE) - current.div_ceil(PAGE)) as u64,
        };
        match self.grow_memory(growth) {
            Ok(()) => {
                self.pending = growth;
                Ok(true)
            }
            Err(errno) => {
                self.refused = Some(errno);
                Ok(false)
            }
        }
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> Result<()> {
        let growth = std::mem::take(&mut self.pending);
        if growth.pages > 0 {
            // Logged at this level because a guest can cause it at any rate, for example by
            // attaching an area twice.
            tracing::debug!(%error, bytes = growth.bytes, "the host could not grow a memory");
            let (tenant, execution, page) = (self.tenant, self.execution, self.page);
            local::with(|local| {
                if let Some(enough) = memory::mappings_enough(&error) {
                    local.record(self.root, Reservation::Mappings, enough);
                }
                local.release_memory(tenant, execution, growth.bytes);
                local.release(tenant, execution, Held::Memory, growth.memories);
                local.release(tenant, execution, page, growth.pages);
            });
        }
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        mark_instruction(step!("engine", "table.grow"));
        let elements = (desired - current) as u64;
        if current == 0 && self.initial.take_table(elements) {
            return Ok(true);
        }
        let is_long = elements > TABLE_STEP || desired as u64 > TABLE_ELEMENTS.most;
        if maximum.is_some_and(|maximum| desired > maximum) || is_long {
            return Ok(false);
        }
        let charged = local::with(|local| {
            local.hold(self.tenant, self.execution, Held::TableElement, elements)
        });
        match charged {
            Ok(()) => Ok(true),
            Err(errno) => {
                self.refused = Some(errno);
                Ok(false)
            }
        }
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn memories(&self) -> usize {
        // Each is charged when it is made.
        usize::MAX
    }

    fn tables(&self) -> usize {
        usize::MAX
    }
}
