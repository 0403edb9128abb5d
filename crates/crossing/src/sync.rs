//! The synchronisation primitives of the places where two threads meet, so that the model
//! checker can stand in for them: `RUSTFLAGS="--cfg loom"` swaps this crate's for
//! loom's, which explores every interleaving.

#[cfg(not(loom))]
pub(crate) use crate::condvar::Condvar;
#[cfg(not(loom))]
pub(crate) use crate::mutex::{Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, atomic};
use std::time::Duration;

/// Says that this thread looks again for what another thread is doing.
pub(crate) fn look_again() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Locks, ignoring poison: every critical section of this crate leaves its data consistent at
/// each instruction that can panic, and the cell must outlive a panicking controller thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(loom)]
    return mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    #[cfg(not(loom))]
    mutex.lock()
}

/// Waits for a notice with what is locked, for `timeout` at most. May return without one.
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    timeout: Option<Duration>,
) -> MutexGuard<'a, T> {
    #[cfg(not(loom))]
    match timeout {
        None => condition.wait(mutex, guard),
        Some(timeout) => condition.wait_for(mutex, guard, timeout).0,
    }
    #[cfg(loom)]
    {
        let _ = mutex;
        match timeout {
            None => condition
                .wait(guard)
                .unwrap_or_else(std::sync::PoisonError::into_inner),
            Some(timeout) => match condition.wait_timeout(guard, timeout) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            },
        }
    }
}
