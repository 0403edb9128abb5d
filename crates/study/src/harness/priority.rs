//! The measuring thread, with the processor and the priority of a cell's thread.
//!
//! A measured time belongs to a mechanism only if no other thread has the processor meanwhile. So a
//! cell's thread is bound to the last processor, and has real-time priority where the host grants
//! it. Parts of a cell are measured on such a thread, too.

use anyhow::Result;

use crate::harness::affinity::{bound_to, processors};

/// Gives this thread precedence over all others of its processor, but not the threads that it
/// starts; returns false if the host does not allow it.
pub(crate) fn before_everybody() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` outlives the call, which only reads it; 0 names this thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Lets all other threads of its processor go before this thread; returns false if the host does not allow it.
pub(crate) fn after_everybody() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` outlives the call, which only reads it; 0 names this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) == 0 }
}

/// Does `work` on a thread like a cell's, and says whether that has real-time priority.
///
/// # Errors
/// If the host refuses the processor, those of `work`, and if it panicked.
pub(crate) fn on_a_thread_like_a_cells<R: Send>(
    work: impl FnOnce() -> Result<R> + Send,
) -> Result<(R, bool)> {
    bound_to(processors()?.last().copied(), || {
        let first = before_everybody();
        Ok((work()?, first))
    })
}

/// Notes for the reader on times that were measured there.
pub(crate) const fn note(first: bool) -> &'static str {
    if first {
        "the measuring thread has real-time priority: no other turn is in its times"
    } else {
        "the host grants no real-time priority: times contain the turns of other programs"
    }
}
