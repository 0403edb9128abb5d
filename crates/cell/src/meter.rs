//! The classes of what a tenant holds outside its arena, as the lease's account shows them.
//!
//! Everything here is charged before it is allocated, at the price the host's profile gives the
//! class ([`crate::profile`]), and not refunded until the tenant ends, unless stated otherwise.

use leasehold_reclaim::Resource;
use leasehold_slots::stack::STACK_PAGES;

/// The resources with shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    /// Places in the pools of memories and stacks.
    Places,
    /// Elements of tables.
    TableElements,
    /// Pages of the host's memory outside linear memories and the arena.
    HostPages,
}

/// A thing that a tenant holds and that is not a slot or an extent of its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A running program: its store, future and fiber, and the fixed part of everything below.
    Store,
    /// A core instance of a program.
    Instance,
    /// A linear memory: one slot to detach.
    Memory,
    /// A 4 KiB page that a linear memory has grown to.
    MemoryPage,
    /// A 4 KiB page that a linear memory has grown to whose tenant pages: its place in the areas
    /// and the swap file, and its frame and mapping while it is resident.
    PagedPage,
    /// An element of a table.
    TableElement,
    /// A place in a table of descriptors, filled with an open file.
    Descriptor,
    /// A place in `wasmtime-wasi`'s resource table, filled with what is dearer than a stream: an open
    /// directory.
    WasiEntry,
    /// A 4 KiB page of the host's heap: what the engine keeps for instances, and what a pending
    /// host call or a stream may hold.
    HostPage,
    /// A 4 KiB page that a file grew by through an open descriptor: closing that may free it.
    FilePage,
    /// The walk over the stack of a guest that is ended while it waits, on a cell with backtraces.
    Backtrace,
}

impl Held {
    /// All of them, in the order of `Held::index`.
    pub const ALL: [Held; 11] = [
        Held::Store,
        Held::Instance,
        Held::Memory,
        Held::MemoryPage,
        Held::PagedPage,
        Held::TableElement,
        Held::Descriptor,
        Held::WasiEntry,
        Held::HostPage,
        Held::FilePage,
        Held::Backtrace,
    ];

    /// The name under which reports and profiles show it.
    pub const fn name(self) -> &'static str {
        match self {
            Held::Store => "store",
            Held::Instance => "instance",
            Held::Memory => "memory",
            Held::MemoryPage => "memory_page",
            Held::PagedPage => "paged_page",
            Held::TableElement => "table_element",
            Held::Descriptor => "descriptor",
            Held::WasiEntry => "wasi_entry",
            Held::HostPage => "host_page",
            Held::FilePage => "file_page",
            Held::Backtrace => "backtrace",
        }
    }

    /// The part of a top-level tenant's limited shares that one of it takes, besides the charge to
    /// its budget.
    pub(crate) const fn takes(self) -> &'static [(Shared, u64)] {
        match self {
            Held::Store => &[(Shared::Places, 1), (Shared::HostPages, STACK_PAGES as u64)],
            Held::Memory => &[(Shared::Places, 1)],
            Held::TableElement => &[(Shared::TableElements, 1)],
            Held::WasiEntry | Held::HostPage => &[(Shared::HostPages, 1)],
            Held::Instance
            | Held::MemoryPage
            | Held::PagedPage
            | Held::Descriptor
            | Held::FilePage
            | Held::Backtrace => &[],
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The classes of [`Held`] as the groups know them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter([Resource; Held::ALL.len()]);

impl Meter {
    /// Registers every class with `register(name, class)`.
    pub(crate) fn register(mut register: impl FnMut(Held) -> Resource) -> Self {
        Self(Held::ALL.map(&mut register))
    }

    pub(crate) fn class(&self, held: Held) -> Resource {
        self.0[held.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::Held;

    #[test]
    fn every_class_stands_at_its_index() {
        for (index, held) in Held::ALL.into_iter().enumerate() {
            assert_eq!(held.index(), index);
        }
    }
}
