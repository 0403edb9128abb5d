//! Measures how long a fault of a paging tenant blocks the cell's thread: the transfers of a page
//! in and of a cluster out.

use super::effort::Effort;
use crate::clock::monotonic_ns;
use crate::profile::{Latency, TransferCosts};
use anyhow::Result;
use leasehold_pager::{CLUSTER, PAGE};
use leasehold_pager_linux::{Store as _, SwapFile};
use leasehold_reserve::simulate::SplitMix;

/// Pages of the file, more than the caches of most disks hold.
const PAGES: u32 = 16 << 10;

/// Aligned for direct input and output.
#[repr(align(4096))]
struct Cluster([u8; CLUSTER * PAGE as usize]);

/// Reads and writes as the pager does, at places all over a file like a cell's. `None` where this
/// host offers no direct input and output: no cell pages then.
pub(super) fn transfer(effort: Effort) -> Result<Option<TransferCosts>> {
    let name = format!("leasehold-transfer.{}", std::process::id());
    let mut file = match SwapFile::create(&std::env::temp_dir().join(name), PAGES) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!("faults are not calibrated: {error}");
            return Ok(None);
        }
    };
    let mut cluster = Box::new(Cluster([0x5A; CLUSTER * PAGE as usize]));
    let clusters = u64::from(PAGES) / CLUSTER as u64;
    let bytes = cluster.0.len() as u64;
    // Blocks that were never written are not read from the disk.
    for at in 0..clusters {
        file.write_at(at * bytes, &cluster.0)?;
    }
    let samples = effort.samples() * 20;
    // In random order, which defeats read-ahead.
    let mut places = SplitMix::new(1);
    let (mut read, mut write) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let from = places.below(clusters) * bytes;
        let began = monotonic_ns();
        file.write_at(from, &cluster.0)?;
        write.push(monotonic_ns() - began);
        let from = places.below(PAGES.into()) * PAGE;
        let began = monotonic_ns();
        file.read_at(from, &mut cluster.0[..PAGE as usize])?;
        read.push(monotonic_ns() - began);
    }
    Ok(Some(TransferCosts {
        read: Latency::of(read),
        write: Latency::of(write),
    }))
}
