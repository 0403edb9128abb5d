//! The threads that help to compile programs.
//!
//! The engine compiles functions in parallel, on the threads of `rayon`'s global pool, which would
//! be made by whichever thread compiles first: with its core, its priority and its privileges. They
//! are made here instead, by the controller, and can do nothing but compile. They give way to other threads of
//! the host, a cell's included, and one program is compiled at a time: what a program may take to
//! [load](crate::load_limits) is taken once, in memory too.

use leasehold_confine::{Thread, narrow};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How much they give way: the host's `nice`.
const NICE: i32 = 10;

/// The turn to load a program, once it is there: one in the process has it.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A load that panicked left nothing half done.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether they were started. A process that is still to be confined has one thread: reading a program then must not
/// make the pool.
static ARE_STARTED: AtomicBool = AtomicBool::new(false);

/// What a function says of each item, in their order: on the threads that compile if they were started, or else on the
/// calling thread.
pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, function: impl Fn(T) -> R + Sync) -> Vec<R> {
    match ARE_STARTED.load(Ordering::Acquire) {
        true => items.into_par_iter().map(&function).collect(),
        false => items.into_iter().map(function).collect(),
    }
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
                // Without it they have the share of other threads.
                let _ = rustix::process::setpriority_process(None, NICE);
                if let Err(error) = narrow(Thread::Compiler) {
                    // It would have all that start-up takes: better no process.
                    tracing::error!(%error, "a thread for compiling is not confined");
                    std::process::abort();
                }
            })
            .build_global();
        match built {
            // In a program that uses the pool itself, it is as that program wants it.
            Err(error) if leasehold_confine::is_confined() => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    });
    ARE_STARTED.store(started.is_ok(), Ordering::Release);
    started
        .clone()
        .map_err(|error| anyhow::anyhow!("threads for compiling: {error}"))
}
