//! Whether the memory reservations of a lease file fit in what its cell holds.

use leasehold_cell::{InitialMemory, Outlines};
use leasehold_lease::{ByteSize, LeaseFile, SharedPages, TenantSpec};
use leasehold_pager::PAGE;
use serde_json::{Value, json};
use std::collections::HashSet;

/// The sum of a file's reservations, beside what the cell holds for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryVerdict {
    /// The most that is reserved at a time, from the first start to the last.
    needed: u64,
    /// The part that eviction locks give back when all tenants have started.
    saved: u64,
    held: Option<ByteSize>,
}

impl MemoryVerdict {
    /// Adds up the reservations of all tenants, in whole frames and in the order in which they are
    /// started. Conserved frames are part of them (SPC §IV-A), so that conservation adds nothing
    /// and saves nothing. Under an eviction lock, every tenant but the first that runs a program
    /// gives back the frames of its initial memory once it has started (SPC §IV-B), for later
    /// tenants. A guest's mappings and the rule's choice are not known in advance.
    pub(crate) fn of(file: &LeaseFile, outlines: &Outlines) -> Self {
        Self::among(&file.tenants, file.memory, outlines)
    }

    /// The same of some tenants, of a cell that holds so much for them.
    pub(crate) fn among<'a>(
        tenants: impl IntoIterator<Item = &'a TenantSpec>,
        held: Option<ByteSize>,
        outlines: &Outlines,
    ) -> Self {
        let (mut reserved, mut saved, mut needed) = (0, 0, 0);
        let mut locked = HashSet::new();
        for tenant in tenants {
            reserved += tenant.lease.memory.reserve.get().div_ceil(PAGE);
            needed = needed.max(reserved - saved);
            if let Some(memory) = locked_memory(tenant, outlines)
                && !locked.insert(memory.digest)
            {
                saved += u64::from(memory.pages);
            }
        }
        Self {
            needed: needed * PAGE,
            saved: saved * PAGE,
            held,
        }
    }

    /// How many bytes are missing; 0 if all reservations fit.
    pub(crate) fn shortfall(&self) -> u64 {
        let held = self.held.map(|held| held.get() / PAGE * PAGE);
        held.map_or(0, |held| self.needed.saturating_sub(held))
    }

    /// Whether every tenant can have what its lease reserves.
    pub(crate) fn fits(&self) -> bool {
        self.shortfall() == 0
    }

    /// For people; `None` if the file does not say what the cell holds.
    pub(crate) fn text(&self) -> Option<String> {
        let held = self.held?;
        let needed = bytes(self.needed);
        let saved = match self.saved {
            0 => String::new(),
            saved => format!(", eviction locks save {}", bytes(saved)),
        };
        Some(match self.shortfall() {
            0 => format!("memory: fits: {needed} reserved, the cell holds {held}{saved}"),
            short => format!(
                "memory: does NOT fit: {needed} reserved, the cell holds {held} (cell.memory): {} \
                 too little",
                bytes(short)
            ),
        })
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "fits": self.fits(),
            "reserved_bytes": self.needed,
            "saved_bytes": self.saved,
            "cell_bytes": self.held.map(ByteSize::get),
            "shortfall_bytes": self.shortfall(),
        })
    }
}

/// The initial memory of a tenant's program, if it will be locked. A program that cannot be read is
/// refused when it is started.
fn locked_memory(tenant: &TenantSpec, outlines: &Outlines) -> Option<InitialMemory> {
    let sharing = tenant.lease.memory.paging?.shared;
    let memory = || outlines.initial_memory(&tenant.component, tenant.http.is_some());
    (sharing == SharedPages::Lock).then(memory).flatten()
}

/// A size for people: exact, in the largest unit that needs no fraction.
fn bytes(bytes: u64) -> String {
    ByteSize::new(bytes).map_or_else(|| format!("{bytes}B"), |size| size.to_string())
}
