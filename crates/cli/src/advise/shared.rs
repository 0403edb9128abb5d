//! The pages that several tenants with the program would share, and the best technique for them.
//!
//! SPC needs no frames beyond the reservations; SPEL takes fewer if all sharers use most of the
//! shared pages. The paper's rule decides from the observed use (SPC §IV-C), so tenants are run
//! side by side and observed.

use super::{Subject, size, useless};
use crate::exit::Failure;
use crate::run::{failure, load};
use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_cell::memory::SharedUse;
use leasehold_cell::{Exit, StartRequest};
use leasehold_lease::{ByteSize, MemoryKind, Paging, SharedPages};
use leasehold_pager::{PAGE, Technique};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The time between two observations.
const LOOK: Duration = Duration::from_millis(1);

/// Runs `tenants` tenants with the program at `path` side by side, each under `reserve` bytes, and
/// looks at what they share for as long as all of them are there. Empty if they share nothing.
pub(super) fn observe(
    subject: &Subject,
    path: &Path,
    tenants: u32,
    reserve: u64,
    limit: u64,
) -> Result<Vec<SharedUse>, Failure> {
    let cell = &subject.cell;
    let sized = |bytes| ByteSize::new(bytes).context("the size of a reservation");
    let mut lease = subject.lease;
    lease.memory.reserve = sized(reserve)?;
    lease.memory.paging = Some(Paging {
        limit: sized(limit)?,
        kind: MemoryKind::Hard,
        shared: SharedPages::Conserve,
        mappings: Paging::MAPPINGS,
    });
    let program = load(cell, path, &lease)?;
    if program.image().is_none() {
        return Ok(Vec::new());
    }
    let start = |_| {
        let request = StartRequest {
            program: program.clone(),
            lease,
            surroundings: subject.surroundings.clone(),
        };
        cell.start_held(request).map_err(failure)
    };
    let mut running = (0..tenants).map(start).collect::<Result<Vec<_>, _>>()?;
    running.iter().for_each(|tenant| tenant.go());
    let began = Instant::now();
    // All of them share one processor.
    let patience = subject.patience.saturating_mul(tenants);
    let mut seen = Vec::new();
    while running.len() == tenants as usize && began.elapsed() < patience {
        let now = cell.shared();
        if now.iter().all(|area| area.sharers == tenants) && !now.is_empty() {
            seen = now;
        }
        std::thread::sleep(LOOK);
        let mut left = Vec::new();
        for tenant in running {
            match tenant.wait_for(Duration::ZERO).map_err(failure)? {
                None => left.push(tenant),
                Some(ended) if ended.exit == Exit::Code(0) => {}
                Some(ended) => {
                    return Err(useless(&format!("beside others: {:?}", ended.exit)));
                }
            }
        }
        running = left;
    }
    running.iter().for_each(|tenant| tenant.kill());
    for tenant in running {
        tenant.wait().map_err(failure)?;
    }
    Ok(seen)
}

/// The rule's choice, as a lease states it.
fn technique(area: &SharedUse) -> Option<&'static str> {
    area.choice.map(|technique| match technique {
        Technique::Spc => "spc",
        Technique::Spel => "spel",
    })
}

/// The table and the advice; nothing if nothing is shared.
pub(super) fn text(areas: &[SharedUse]) -> String {
    if areas.is_empty() {
        return String::new();
    }
    let pages = |pages: u64| size(pages * PAGE);
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["shared area", "tenants", "Max", "peak", "n·Avg", "rule"]);
    for area in areas {
        table.add_row([
            area.name.clone(),
            area.sharers.to_string(),
            pages(area.pages.into()),
            pages(area.peak.into()),
            pages(area.total_average),
            technique(area).unwrap_or("–").to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let all = |wanted| areas.iter().all(|area| area.choice == Some(wanted));
    let advice = if all(Technique::Spel) {
        "shared = \"spel\": a lock takes fewer frames; make each reservation larger by Max − Avg"
    } else if all(Technique::Spc) {
        "shared = \"spc\": a lock would take more frames"
    } else {
        "shared = \"auto\": the rule decides for each area"
    };
    format!("{table}\n{advice}\n")
}

/// The same for programs.
pub(super) fn json(areas: &[SharedUse]) -> Value {
    let areas = areas.iter().map(|area| {
        json!({
            "name": area.name,
            "tenants": area.sharers,
            "max_bytes": u64::from(area.pages) * PAGE,
            "peak_bytes": u64::from(area.peak) * PAGE,
            "total_average_bytes": area.total_average * PAGE,
            "looks": area.samples,
            "rule": technique(area),
        })
    });
    areas.collect()
}
