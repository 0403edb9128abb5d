//! Measures the cost of a page of a paging tenant's linear memory.

use super::effort::{Effort, median};
use crate::cell::Cell;
use crate::command::StartRequest;
use crate::config::CellConfig;
use crate::exit::Exit;
use crate::memory::{HeldMemory, Swap, swap_for};
use crate::profile::Profile;
use crate::surroundings::Surroundings;
use anyhow::{Context, Result, bail};
use leasehold_lease::{ByteSize, Lease, MemoryKind, Paging, SharedPages};
use leasehold_pager::PAGE;

const PAGES: u64 = 4096;
const BYTES: u64 = PAGES * PAGE;

/// Writes to every page of 16 MiB.
const TOUCH: &str = r#"(module (memory (export "memory") 256)
  (func (export "_start") (local $at i32)
    (loop $next
      (i32.store8 (local.get $at) (i32.const 1))
      (br_if $next (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 4096)))
        (i32.const 16777216))))))"#;

const EMPTY: &str = r#"(module (memory (export "memory") 0) (func (export "_start")))"#;

/// Median cost of a page that is resident, mapped, written to, and has a place in a swap file, ps:
/// a page that is out costs less. 0 where this host offers no paging: no cell pages then.
pub(super) fn page(effort: Effort) -> Result<u64> {
    let path = std::env::temp_dir().join(format!("leasehold-swap.{}", std::process::id()));
    let mut config = CellConfig::new(Profile::free());
    config.memory = Some(HeldMemory {
        bytes: 2 * BYTES,
        for_all: false,
        swap: Some(Swap {
            path,
            bytes: swap_for(ByteSize::new(2 * BYTES).context("in range")?),
        }),
    });
    let cell = match Cell::start(config) {
        Ok(cell) => cell,
        Err(error) => {
            tracing::warn!("paging is not calibrated, so that no tenant pages: {error:#}");
            return Ok(0);
        }
    };
    let mut lease = Lease::default();
    lease.memory.reserve = ByteSize::new(BYTES).context("in range")?;
    lease.memory.paging = Some(Paging {
        limit: ByteSize::new(2 * BYTES).context("in range")?,
        kind: MemoryKind::Hard,
        shared: SharedPages::None,
        mappings: Paging::MAPPINGS,
    });
    let end_of = |text: &str| -> Result<u64> {
        let tenant = cell.start_tenant(StartRequest {
            program: cell.compile_for(text.as_bytes(), &lease)?,
            lease,
            surroundings: Surroundings::default(),
        })?;
        let ended = tenant.wait()?;
        if ended.exit != Exit::Code(0) {
            bail!("a calibration program ended with {:?}", ended.exit);
        }
        Ok(ended.reclaimed.returned.cpu_ns)
    };
    end_of(TOUCH)?;
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for _ in 0..effort.samples() {
        full.push(end_of(TOUCH)?);
        empty.push(end_of(EMPTY)?);
    }
    let difference = median(full).saturating_sub(median(empty));
    Ok((difference * 1000).div_ceil(PAGES))
}
