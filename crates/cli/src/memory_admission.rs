//! Whether the memory reservations of a lease file fit in what its cell holds.

use leasehold_lease::{ByteSize, LeaseFile};
use leasehold_pager::PAGE;
use leasehold_pager::admission::{NotAdmitted, Plan};
use serde_json::{Value, json};

/// What the reservations of a file come to, beside what the cell holds for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryVerdict {
    needed: u64,
    held: Option<ByteSize>,
}

impl MemoryVerdict {
    /// Adds up the reservations of all tenants, in whole frames. What SPC conserves is part of
    /// them (SPC §IV-A), so that sharing adds nothing.
    pub(crate) fn of(file: &LeaseFile) -> Self {
        let mut plan = Plan::new();
        for tenant in &file.tenants {
            let frames = tenant.lease.memory.reserve.get().div_ceil(PAGE);
            // A reservation is at most 1 TiB: 2²⁸ frames.
            plan.reservation(u32::try_from(frames).expect("the lease bounds it"));
        }
        let held = file.memory.map_or(u64::MAX, |memory| memory.get() / PAGE);
        let frames = match plan.check(held) {
            Ok(admitted) => admitted.physical,
            Err(NotAdmitted { needed, .. }) => needed,
        };
        Self {
            needed: frames * PAGE,
            held: file.memory,
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
        Some(match self.shortfall() {
            0 => format!("memory: fits: {needed} reserved, the cell holds {held}"),
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
            "cell_bytes": self.held.map(ByteSize::get),
            "shortfall_bytes": self.shortfall(),
        })
    }
}

/// A size for people: exact, in the largest unit that needs no fraction.
fn bytes(bytes: u64) -> String {
    ByteSize::new(bytes).map_or_else(|| format!("{bytes}B"), |size| size.to_string())
}
