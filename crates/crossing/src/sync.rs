//! The synchronisation primitives of the places where two threads meet, so that the model
//! checker can stand in for them: `RUSTFLAGS="--cfg loom"` swaps the standard library's for
//! loom's, which explores every interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};

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
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
