//! Waiting for tasks and children that may never report.

use leasehold_guest::{Errno, Semaphore};

use crate::wasi;

/// Takes `count` reports from `reports`, to which each of so many tasks or children adds one when
/// its part is done. Gives up after ten seconds: some may have been refused even the resources to
/// report. Returns how many reported.
pub fn gather(reports: Semaphore, count: u64) -> u64 {
    const MILLISECOND_NS: u64 = 1_000_000;
    let (mut reported, mut patience) = (0, 10_000);
    while reported < count && patience > 0 {
        match reports.try_down() {
            Ok(()) => reported += 1,
            Err(Errno::Empty) => {
                patience -= 1;
                wasi::nap(MILLISECOND_NS);
            }
            Err(_) => break,
        }
    }
    reported
}
