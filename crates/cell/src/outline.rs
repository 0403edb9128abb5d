//! What is known of a program when one of its executions begins.
//!
//! The execution is [charged](crate::local::Local::begin) for that. The numbers are the same of a program that was
//! compiled and of one that was only read: what decides about a start decides about one that is only
//! [rehearsed](crate::rehearsal).

use crate::call_bytes::{OF_HANDLER, call_bytes, value_bytes};
use crate::meter::{Held, Shared};
use crate::steps::caps::{ALL_HANDLES, HANDLES, LENDS};
use leasehold_lease::Lease;
use leasehold_pager::{CLUSTER, PAGE};
use leasehold_slots::stack_class::StackClass;
use leasehold_wasm::inventory::Inventory;

/// Places of a component's [table](crate::wasi::table) that are charged when it starts.
pub(crate) const FIRST_PLACES: usize = 16;

/// Host memory of a component-model handle: an entry of 20 bytes in a vector whose capacity may be
/// twice its length.
const HANDLE_BYTES: u64 = 40;

/// The number of component-model handles of an execution that answers requests.
const HANDLES_OF_HANDLER: u64 = 1 << 10;

/// Limits of an execution that do not change while it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) call_bytes: u64,
    /// Component-model handles: the engine keeps them in tables that a guest can fill without
    /// asking the host.
    pub(crate) handles: u64,
    /// Pages of its memory that another thread may be reading or writing for it: one, and a cluster.
    pub(crate) awaited_pages: u64,
}

/// The part of a program that decides what its executions hold from the beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outline {
    pub(crate) inventory: Inventory,
    /// Pages of its memory that are apart from the code.
    pub(crate) image_pages: u64,
    pub(crate) stack: StackClass,
    pub(crate) is_component: bool,
    /// Whether it answers requests, in executions that are made for them.
    pub(crate) is_handler: bool,
    /// Whether its exported functions are called.
    pub(crate) is_called: bool,
    /// Whether its engine walks the stack when it traps.
    pub(crate) has_backtraces: bool,
}

impl Outline {
    /// Bytes that one of its host calls may hold under this lease.
    pub(crate) fn call_bytes(&self, lease: &Lease) -> u64 {
        let bytes = call_bytes(lease, self.is_component);
        match lease.reclaim.call_bytes {
            None if self.is_handler => bytes.min(OF_HANDLER),
            _ => bytes,
        }
    }

    /// The limits of its executions under this lease, where a page of the host's memory costs `page_ps`.
    pub(crate) fn limits(&self, lease: &Lease, page_ps: u64) -> Limits {
        let handles = match self.is_handler {
            // It has many executions at a time.
            true => HANDLES_OF_HANDLER,
            false => handles(lease.reclaim.budget.get(), page_ps, &self.inventory),
        };
        Limits {
            call_bytes: self.call_bytes(lease),
            handles,
            awaited_pages: match lease.memory.paging {
                Some(_) => 1 + CLUSTER as u64,
                None => 0,
            },
        }
    }

    /// Component-model handles of an execution.
    pub(crate) fn handles(&self, limits: &Limits) -> u64 {
        match self.is_component {
            true => limits.handles,
            false => 0,
        }
    }

    /// The holdings of an execution from the beginning, besides its linear memory; `page` is what a page of that is charged
    /// as.
    pub(crate) fn holdings(&self, limits: &Limits, page: Held) -> [(Held, u64); 7] {
        let inventory = &self.inventory;
        let memories = inventory.memories.saturating_add(inventory.heaps);
        // A page of the image and its private copy may be in two frames.
        let pages = inventory.memory_bytes.div_ceil(PAGE) + self.image_pages;
        [
            (Held::Store, 1),
            (Held::Instance, inventory.instances),
            (Held::TableElement, inventory.table_elements),
            (Held::Memory, memories),
            (page, pages),
            (Held::HostPage, self.host_pages(limits)),
            (Held::Backtrace, u64::from(self.has_backtraces)),
        ]
    }

    /// Pages of the host's memory that an execution holds from the beginning, besides a stack of the smallest class.
    fn host_pages(&self, limits: &Limits) -> u64 {
        let stack = self.stack.pages() - StackClass::SMALLEST.pages();
        // Lifted values take up to twice the bytes that they are charged as, beside the arguments.
        let values = match self.is_called {
            true => 3 * value_bytes(limits.call_bytes),
            false => 0,
        };
        self.inventory
            .instance_bytes
            .saturating_add(limits.call_bytes)
            .saturating_add(values)
            .saturating_add(self.handle_bytes(limits))
            .div_ceil(PAGE)
            .saturating_add(stack as u64)
            .saturating_add(limits.awaited_pages)
    }

    /// Bytes of all tables of handles. The engine limits the handles that exist at a time, and no
    /// table shrinks: each may have held all of them once.
    fn handle_bytes(&self, limits: &Limits) -> u64 {
        let tables = self.inventory.handle_tables();
        self.handles(limits)
            .saturating_mul(HANDLE_BYTES)
            .saturating_mul(tables)
    }

    /// The least `memory.host` with which a tenant starts, KiB: what an execution holds from the beginning, and the first
    /// places in its table. Executions that answer requests make that table later.
    pub(crate) fn host_kib(&self, limits: &Limits) -> u64 {
        let places = match self.is_component && !self.is_handler {
            true => FIRST_PLACES as u64,
            false => 0,
        };
        // No page of a linear memory is one of the host's, whatever it is charged as.
        let holdings = self.holdings(limits, Held::MemoryPage).into_iter();
        let pages = holdings
            .chain([(Held::WasiEntry, places)])
            .map(|(held, n)| host_pages_of(held).saturating_mul(n))
            .fold(0, u64::saturating_add);
        pages.saturating_mul(PAGE / 1024)
    }
}

/// Pages of the host's memory that one of a class takes of its tenant's share.
fn host_pages_of(held: Held) -> u64 {
    let takes = held.takes().iter();
    takes
        .filter(|(shared, _)| *shared == Shared::HostPages)
        .map(|(_, pages)| pages)
        .sum()
}

/// The number of component-model handles that a program may have: as many as a sixteenth of the
/// budget pays for with all tables full, at most 1,024, and within the caps.
fn handles(budget_ns: u64, page_ps: u64, inventory: &Inventory) -> u64 {
    let tables = inventory.handle_tables();
    let most = match inventory.adapters {
        0 => HANDLES.most,
        _ => LENDS.most,
    };
    let most = most.min(ALL_HANDLES.most / tables);
    let paid = share_of(budget_ns, 16, page_ps) / HANDLE_BYTES.saturating_mul(tables);
    paid.max(1 << 10).min(most)
}

/// Bytes of the host's memory whose pages a part of the budget pays for.
fn share_of(budget_ns: u64, part: u64, page_ps: u64) -> u64 {
    let pages = (budget_ns * 1000 / part).checked_div(page_ps);
    pages.map_or(u64::MAX, |pages| pages.saturating_mul(PAGE))
}
