//! The threads that help to compile programs.
//!
//! The engine compiles functions in parallel, on the threads of `rayon`'s global pool. By default
//! the first thread that compiles makes this pool, and its threads inherit that thread's core,
//! priority and privileges. The controller makes them here instead, without any privilege but to
//! compile. They yield to other threads of the host, including a cell's. One program is compiled at
//! a time, so that the limits of [loading](crate::load_limits) a program, memory included, apply to
//! the process once.

use leasehold_confine::{Thread, narrow};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Their `nice` value.
const NICE: i32 = 10;

/// Waits for the process-wide lock under which a program is loaded.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A load that panicked left nothing half done.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the threads were started. A process that is not confined yet has one thread, and reading
/// a program must not make the pool.
static ARE_STARTED: AtomicBool = AtomicBool::new(false);

/// Maps items in order: several on the compiling threads if they were started, otherwise on the calling
/// thread. A single one would wait for a thread that may be starting, and gain nothing.
pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, function: impl Fn(T) -> R + Sync) -> Vec<R> {
    match items.len() > 1 && ARE_STARTED.load(Ordering::Acquire) {
        true => items.into_par_iter().map(&function).collect(),
        false => items.into_iter().map(function).collect(),
    }
}

/// Does the same until an item fails: returns the error of the first one that does. Items behind it are left
/// out where that is known.
///
/// # Errors
/// Those of `function`.
pub(crate) fn try_map<T: Send, R: Send, E: Send>(
    items: Vec<T>,
    function: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let failed = AtomicUsize::new(usize::MAX);
    let results = map(items.into_iter().enumerate().collect(), |(nth, item)| {
        if nth > failed.load(Ordering::Relaxed) {
            return None;
        }
        let result = function(item);
        if result.is_err() {
            failed.fetch_min(nth, Ordering::Relaxed);
        }
        Some(result)
    });
    results.into_iter().flatten().collect()
}

/// Starts them, once in a process.
///
/// # Errors
/// When the host refuses a thread.
pub fn start() -> anyhow::Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let built = rayon::ThreadPoolBuilder::new()
            .thread_name(|number| format!("leasehold-code{number}"))
            .start_handler(|_| {
                // On failure they compete with other threads as equals.
                let _ = rustix::process::setpriority_process(None, NICE);
                if let Err(error) = narrow(Thread::Compiler) {
                    // An unconfined thread would keep all privileges of start-up: the process
                    // aborts instead.
                    tracing::error!(%error, "a thread for compiling is not confined");
                    std::process::abort();
                }
            })
            .build_global();
        match built {
            // An embedding program that uses the pool itself configures it itself.
            Err(error) if leasehold_confine::is_confined() => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    });
    ARE_STARTED.store(started.is_ok(), Ordering::Release);
    started
        .clone()
        .map_err(|error| anyhow::anyhow!("threads for compiling: {error}"))
}
