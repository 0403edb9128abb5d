//! The threads that help to compile programs.
//!
//! The engine compiles functions in parallel, on the threads of `rayon`'s global pool. By default
//! the first thread that compiles makes this pool, and its threads inherit that thread's core,
//! priority and privileges. Here one thread, the seed, is started before any program is read. It
//! gives up every privilege but to compile, and waits. At the first compilation it makes the
//! threads of the pool, which inherit what it is. A process whose programs are all in the cache
//! makes none of them.
//!
//! They yield to other threads of the host, including a cell's. One program is compiled at a time,
//! so that the limits of [loading](crate::load_limits) a program, memory included, apply to the
//! process once.

use leasehold_confine::{Thread, narrow};
use rayon::prelude::*;
use rustix::process::setpriority_process;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;

/// Their `nice` value.
const NICE: i32 = 10;

/// Waits for the process-wide lock under which a program is loaded.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A load that panicked left nothing half done.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the pool before the calling thread compiles, once in a process. Without a seed the engine
/// makes a pool as it likes: the process runs no programs.
///
/// # Errors
/// When the host refuses a thread. The next call asks for it again.
pub(crate) fn make() -> io::Result<()> {
    match SEED.get() {
        Some(Ok(seed)) => seed.grow(),
        Some(Err(_)) | None => Ok(()),
    }
}

/// Calls `compile` on a thread that is a pool of its own: for a module of a function or two, for which
/// the others need not be made.
///
/// # Errors
/// When the host refuses the thread.
pub fn alone<R: Send>(compile: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
            // It is left with the thread.
            let _pool = pool
                .use_current_thread()
                .build()
                .map_err(io::Error::other)?;
            Ok(compile())
        })?;
        let joined = thread.join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Maps items in order: several on the compiling threads if there is a seed, otherwise on the calling
/// thread. A process that is not confined yet has one thread, and reading a program must not make the
/// pool. A single item would wait for a thread that may be starting, and gain nothing.
pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, function: impl Fn(T) -> R + Sync) -> Vec<R> {
    let is_pooled = || matches!(SEED.get(), Some(Ok(_))) && make().is_ok();
    match items.len() > 1 && is_pooled() {
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

/// Starts the seed, once in a process.
///
/// # Errors
/// When the host refuses the thread.
pub fn start() -> anyhow::Result<()> {
    match SEED.get_or_init(|| Seed::start().map_err(|error| error.to_string())) {
        Ok(_) => Ok(()),
        Err(error) => Err(anyhow::anyhow!("the thread for compiling: {error}")),
    }
}

static SEED: OnceLock<Result<Seed, String>> = OnceLock::new();

/// The thread that makes the others.
struct Seed {
    /// Requests for the pool, each with a place for the answer; `None` when the pool is made.
    requests: Mutex<Option<Sender<Sender<io::Result<()>>>>>,
}

impl Seed {
    fn start() -> io::Result<Self> {
        // A confined thread does not read the limits of control groups.
        let count = std::thread::available_parallelism()?.get();
        let (requests, to_do) = channel();
        Builder::new()
            .name("leasehold-code".into())
            .spawn(move || {
                if let Err(error) = narrow(Thread::Compiler) {
                    // An unconfined thread would keep all privileges of start-up: the process
                    // aborts instead.
                    tracing::error!(%error, "a thread for compiling is not confined");
                    std::process::abort();
                }
                answer(&to_do, count);
            })?;
        let requests = Mutex::new(Some(requests));
        Ok(Self { requests })
    }

    /// Has the pool made if it is not.
    fn grow(&self) -> io::Result<()> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seed) = &*requests else {
            return Ok(());
        };
        let (answer, answered) = channel();
        let ended = |_| io::Error::other("their seed ended");
        seed.send(answer).map_err(|_| ended(()))?;
        answered.recv().map_err(|_| ended(()))??;
        *requests = None;
        Ok(())
    }
}

/// Answers requests until the pool of `count` threads is made.
fn answer(requests: &Receiver<Sender<io::Result<()>>>, count: usize) {
    for request in requests {
        // Now, since a process that ends waits for each of its threads. On failure they compete with
        // others as equals.
        let _ = setpriority_process(None, NICE);
        let made = pool(count);
        let done = made.is_ok();
        // The thread that asked waits for it.
        let _ = request.send(made);
        if done {
            return;
        }
    }
}

/// Makes the threads first, and then the pool of them: one that lacks a thread could never be made again.
fn pool(count: usize) -> io::Result<()> {
    let threads: io::Result<Vec<_>> = (0..count).map(worker).collect();
    let mut threads = threads?.into_iter();
    let built = rayon::ThreadPoolBuilder::new()
        .num_threads(count)
        .spawn_handler(|work| {
            let thread = threads.next();
            let given = thread.is_some_and(|thread| thread.send(work).is_ok());
            match given {
                true => Ok(()),
                false => Err(io::Error::other("a thread ended")),
            }
        })
        .build_global();
    match built {
        // An embedding program that uses the pool itself configures it itself.
        Err(error) if leasehold_confine::is_confined() => Err(io::Error::other(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Starts a thread that does the work which it is given, or ends if there will be none.
fn worker(number: usize) -> io::Result<SyncSender<rayon::ThreadBuilder>> {
    let (given, work) = sync_channel::<rayon::ThreadBuilder>(1);
    Builder::new()
        .name(format!("leasehold-code{number}"))
        .spawn(move || {
            if let Ok(work) = work.recv() {
                work.run();
            }
        })?;
    Ok(given)
}
