//! The thread that measures: where and how a cell's thread runs.
//!
//! A time is that of a mechanism only if nobody else has the processor meanwhile. So a cell's thread
//! is bound to a processor, the last one, and has real-time priority where the host grants it; and
//! what is measured of a cell's parts is measured on a thread like that.

use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::neighbour::pin;
use crate::processes::processors;

/// Has this thread go before all others of its processor, but not those that it starts; false if
/// the host does not allow it.
pub(crate) fn before_everybody() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` outlives the call, which only reads it; 0 names this thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Does something on a thread like a cell's, and says whether it has real-time priority.
///
/// # Errors
/// If the host refuses a thread or its processor, and the errors of `work`.
///
/// # Panics
/// If `work` does.
pub(crate) fn on_a_thread_like_a_cells<R: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<(R, bool)> {
    thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            if let Some(cpu) = processors()?.last() {
                pin(*cpu)?;
            }
            let first = before_everybody();
            Ok((work()?, first))
        })
        .context("a thread")?
        .join()
        .map_err(|_| anyhow!("measuring panicked"))?
}

/// What a reader must know of times that were taken there.
pub(crate) const fn note(first: bool) -> &'static str {
    if first {
        "the measuring thread has real-time priority: nobody else's turn is in its times"
    } else {
        "the host grants no real-time priority: times contain the turns of other programs"
    }
}
