//! Stopping: what was recorded until then is kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// How often to look whether a workload has ended, or this program is to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

pub(crate) fn stop_on_signals() -> Result<()> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed)).context("cannot handle signals")
}

/// Whether this program is to stop.
pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}
