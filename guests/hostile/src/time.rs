//! Spending time, and meeting at an instant.

use core::hint;

use crate::wasi::now;

/// Keeps the processor busy until `nanoseconds` have passed.
pub fn work_for(nanoseconds: u64) {
    let end = now().saturating_add(nanoseconds);
    while now() < end {
        hint::spin_loop();
    }
}

/// The first instant from now on that is a multiple of `period` plus `phase`: programs without
/// knowledge of each other can meet there. `period` is not 0.
#[must_use]
pub fn next_multiple(period: u64, phase: u64) -> u64 {
    let since = now().saturating_sub(phase);
    (since / period + 1) * period + phase
}
