//! Tenants seen from their memory reservations: `leasehold up --memory`, and what every `leasehold up` reports.

use super::Running;
use super::table::{Column, lines};
use leasehold_cell::memory::{MemoryUse, SharedUse};
use leasehold_lease::ByteSize;
use leasehold_pager::{Account, PAGE, Technique};
use serde_json::{Value, json};

const fn column(title: &'static str, goes: u8) -> Column {
    Column { title, goes }
}

pub(super) const COLUMNS: [Column; 16] = [
    column("tenant", 0),
    column("state", 0),
    column("reserved", 0),
    column("limit", 9),
    column("linear", 4),
    column("resident", 0),
    column("private", 3),
    column("shared", 0),
    column("owned", 5),
    column("conserved", 1),
    column("locked", 2),
    column("swapped", 6),
    column("new", 8),
    column("minor", 7),
    column("major", 0),
    column("copied", 10),
];

const AREAS: [Column; 8] = [
    column("shared area", 0),
    column("by", 0),
    column("sharers", 0),
    column("Max", 0),
    column("peak", 1),
    column("n·Avg", 0),
    column("locked", 2),
    column("rule", 0),
];

/// The meaning of the tables.
pub(super) const LEGEND: &str = "\
linear     linear memory; resident: of that in frames, private or shared with other tenants
owned      shared pages in frames of its own; conserved: frames kept for pages that others own
locked     frames given up for areas that are locked; swapped: pages of which the swap file has a copy
new, minor, major, copied   faults: a new page, one that others had, one read back, one written to
Max, n·Avg the size of a shared area, and what all used of it on average; peak: the most that one did
–          does not page
";

/// The frames of a tenant's pages.
struct Residence {
    resident: u64,
    private: u64,
    shared: u64,
    /// Of the shared ones.
    owned: u64,
}

impl Residence {
    fn of(account: &Account, used: &MemoryUse) -> Self {
        let frames = [account.owned, account.conserved, account.locked];
        let resident = frames.map(u64::from).iter().sum::<u64>() * PAGE;
        let foreign = u64::from(account.conserved + account.locked) * PAGE;
        Self {
            resident,
            private: resident.saturating_sub(used.shared_bytes),
            shared: used.shared_bytes,
            owned: used.shared_bytes.saturating_sub(foreign),
        }
    }
}

impl Running<'_> {
    /// How it uses its memory, or did when it ended.
    fn memory(&self) -> Option<&MemoryUse> {
        match &self.ended {
            Some(ended) => Some(&ended.memory),
            None => self.memory.as_ref(),
        }
    }

    /// Whether its lease lets it have more than is reserved.
    pub(super) fn pages(&self) -> bool {
        self.spec.lease.memory.paging.is_some()
    }

    pub(super) fn memory_row(&self) -> Vec<String> {
        let lease = &self.spec.lease.memory;
        let used = self.memory();
        let mut row = vec![
            self.spec.name.clone(),
            self.state(),
            lease.reserve.to_string(),
            lease.limit().to_string(),
            used.map_or_else(|| "–".to_owned(), |used| size(used.linear_bytes)),
        ];
        if let Some((used, (account, counts))) = used.and_then(|used| Some((used, used.paging?))) {
            let residence = Residence::of(&account, used);
            let bytes = [
                residence.resident,
                residence.private,
                residence.shared,
                residence.owned,
                u64::from(account.conserved) * PAGE,
                u64::from(account.locked) * PAGE,
                used.swapped_bytes,
            ];
            row.extend(bytes.map(size));
            let faults = [counts.zero, counts.minor, counts.major, counts.copied];
            row.extend(faults.map(|faults| faults.to_string()));
        }
        row.resize(COLUMNS.len(), "–".to_owned());
        row
    }

    /// The same for programs.
    pub(super) fn memory_json(&self) -> Value {
        let lease = &self.spec.lease.memory;
        let used = self.memory();
        let paging = used.and_then(|used| {
            let (account, counts) = used.paging?;
            let residence = Residence::of(&account, used);
            let bytes = |frames: u32| u64::from(frames) * PAGE;
            Some(json!({
                "resident_bytes": residence.resident,
                "private_bytes": residence.private,
                "shared_bytes": residence.shared,
                "shared_owned_bytes": residence.owned,
                "conserved_bytes": bytes(account.conserved),
                "locked_bytes": bytes(account.locked),
                "free_bytes": bytes(account.free),
                "borrowed_bytes": bytes(account.borrowed),
                "swapped_bytes": used.swapped_bytes,
                "zero_faults": counts.zero,
                "minor_faults": counts.minor,
                "major_faults": counts.major,
                "copied": counts.copied,
                "mapped_ahead": counts.ahead,
                "evicted": counts.evicted,
                "unmapped": counts.unmapped,
                "written": counts.written,
                "inherited": counts.inherited,
            }))
        });
        json!({
            "reserved_bytes": lease.reserve.get(),
            "limit_bytes": lease.limit().get(),
            "linear_bytes": used.map(|used| used.linear_bytes),
            "paging": paging,
        })
    }
}

/// The areas that tenants shared, as they were last seen, with the most that shared each at once.
#[derive(Default)]
pub(crate) struct Areas(Vec<SharedUse>);

impl Areas {
    /// Adds what is shared now to what was seen before.
    pub(super) fn see(&mut self, now: Vec<SharedUse>) {
        for area in now {
            let same = |seen: &&mut SharedUse| {
                (&seen.name, seen.technique) == (&area.name, area.technique)
            };
            match self.0.iter_mut().find(same) {
                Some(seen) => {
                    // At the last observation some tenants may have ended.
                    let sharers = seen.sharers.max(area.sharers);
                    *seen = SharedUse { sharers, ..area };
                }
                None => self.0.push(area),
            }
        }
    }

    /// A table; nothing if nothing was shared.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let pages = |pages: u64| size(pages * PAGE);
        let rows: Vec<_> = self
            .0
            .iter()
            .map(|area| {
                vec![
                    area.name.clone(),
                    area.technique.to_string(),
                    area.sharers.to_string(),
                    pages(area.pages.into()),
                    pages(area.peak.into()),
                    pages(area.total_average),
                    if area.locked { "yes" } else { "no" }.to_owned(),
                    area.choice.map_or("–", name).to_owned(),
                ]
            })
            .collect();
        lines(&AREAS, &rows, width)
    }

    pub(super) fn json(&self) -> Value {
        let areas = self.0.iter().map(|area| {
            json!({
                "name": area.name,
                "shared": area.technique.to_string(),
                "sharers": area.sharers,
                "max_bytes": u64::from(area.pages) * PAGE,
                "peak_bytes": u64::from(area.peak) * PAGE,
                "total_average_bytes": area.total_average * PAGE,
                "looks": area.samples,
                "locked": area.locked,
                "rule": area.choice.map(name),
            })
        });
        areas.collect()
    }
}

/// The name of a technique in a lease.
fn name(technique: Technique) -> &'static str {
    match technique {
        Technique::Spc => "spc",
        Technique::Spel => "spel",
    }
}

/// A size for people: exact, in the largest unit that needs no fraction.
fn size(bytes: u64) -> String {
    ByteSize::new(bytes).map_or_else(|| "0".to_owned(), |size| size.to_string())
}
