//! Real-time priority for the thread that measures.
//!
//! A latency is that of a mechanism only if nobody else has the processor meanwhile.

/// Has this thread go before all others of its processor, but not those that it starts; false if
/// the host does not allow it.
pub(crate) fn before_everybody() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` outlives the call, which only reads it; 0 names this thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}
