//! Steps of tenants that page: regions and data sets of as many pages as a step takes.

use anyhow::{Context, Result, anyhow, ensure};
use leasehold_cell::calibrate::Effort;
use leasehold_cell::memory::{HeldMemory, Swap};
use leasehold_cell::profile::Profile;
use leasehold_cell::steps::StepSamples;
use leasehold_cell::steps::caps::NAME;
use leasehold_cell::{
    Cell, CellConfig, Exit, Lease, StartRequest, Surroundings, TenantHandle, WhenRealtime,
};
use leasehold_lease::{ByteSize, MemoryKind, Nanoseconds, Paging, SharedPages};
use std::path::Path;

/// Memory of the cell.
const HELD: u64 = 32 << 20;
const RESERVE: u64 = 4 << 20;
const LIMIT: u64 = 6 << 20;

/// The length of the data set, and of the initial contents: 64 pages.
const DATA: usize = 256 << 10;

/// Maps and loses pages; returns the steps that it took, none where this host offers no paging. In a cell of its own:
/// no other one has a processor of its own meanwhile.
///
/// # Errors
/// When the program cannot be started, or does not get what it asks for.
pub(super) fn samples(effort: Effort) -> Result<Vec<StepSamples>> {
    let runs = match effort {
        Effort::Quick => 6,
        Effort::Full => 20,
    };
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::write(&data, vec![b'd'; DATA])?;
    let mut config = CellConfig::new(Profile::free());
    config.sample_steps = true;
    config.realtime = WhenRealtime::Always;
    config.memory = Some(HeldMemory {
        bytes: HELD,
        for_all: false,
        swap: Some(Swap {
            path: directory.path().join("swap"),
            bytes: HELD,
        }),
    });
    let cell = match Cell::start(config) {
        Ok(cell) => cell,
        Err(error) => {
            tracing::warn!("the steps of tenants that page are not measured: {error:#}");
            return Ok(Vec::new());
        }
    };
    for run in 0..runs {
        // A lock holds all initial contents from the start on.
        let shared = [SharedPages::Conserve, SharedPages::Lock][run % 2];
        let tenants = ["1", "0"].map(|lends| start(&cell, lends, &data, shared));
        let [lender, borrower] = tenants;
        let (lender, borrower) = (lender?, borrower?);
        for _ in 0..2 {
            cell.connect(&lender, &borrower, 1024, 4)
                .map_err(|errno| anyhow!("a channel: {errno:?}"))?;
        }
        for tenant in [&lender, &borrower] {
            tenant.go();
        }
        for tenant in [lender, borrower] {
            let ended = tenant.wait()?;
            ensure!(
                ended.exit == Exit::Code(0),
                "a tenant that pages: {:?}",
                ended.exit
            );
        }
    }
    Ok(cell.take_step_samples())
}

fn start(cell: &Cell, lends: &str, data: &Path, shared: SharedPages) -> Result<TenantHandle> {
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(1_000_000_000).context("a budget")?;
    lease.memory.reserve = ByteSize::new(RESERVE).context("in range")?;
    lease.memory.paging = Some(Paging {
        limit: ByteSize::new(LIMIT).context("in range")?,
        kind: MemoryKind::Hard,
        shared,
        mappings: Paging::MAPPINGS,
    });
    let text = include_str!("paged.wat")
        .replace("LENDS", lends)
        .replace("IMAGE", &"x".repeat(DATA));
    let request = StartRequest {
        program: cell.compile_for(text.as_bytes(), &lease)?,
        lease,
        surroundings: Surroundings {
            data: vec![("x".repeat(NAME.size()), data.to_owned())],
            ..Surroundings::default()
        },
    };
    Ok(cell.start_held(request)?)
}
