//! The thread that closes tenants' files, and frees objects that embedders dropped.
//!
//! The last `close` of a file without a name frees its pages in that call: 170 ms for a GiB. So no file
//! that could be large is closed on the cell's thread, and a tenant that ends hands its whole table over
//! at once. The processor time of closing is the tenant's.

use crate::clock::thread_cpu_ns;
use crate::host::fs::account::Account;
use crate::host::fs::file::close_but_costly;
use leasehold_crossing::{Condvar, Mutex};
use leasehold_door::{Call, pass};
use rustix::process::setpriority_process;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the woken thread waits for more to drop, so that a tenant that closes many files wakes
/// it once.
const GATHER: Duration = Duration::from_millis(1);

/// The thread's `nice` value, which only a privileged process can lower. The end of a tenant waits
/// for this thread, which competes with hundreds of busy threads of tenants ([`pool`](super::pool))
/// and of the host.
const NICE: i32 = -20;

/// Costly files that a thread of their tenant is given at once: to wake it for each, some ten microseconds, took a
/// processor from the front for as many milliseconds as a tenant had hundreds of them.
const APART_AT_ONCE: usize = 64;

/// An object to be dropped.
enum Discarded {
    /// A tenant's object; the tenant pays for dropping it.
    Tenants {
        account: Arc<Account>,
        /// Descriptors among it.
        files: u32,
        what: Box<dyn Send>,
    },
    /// An embedder's object, of which this may be the last reference.
    Embedders {
        #[expect(dead_code, reason = "held to be dropped")]
        what: Box<dyn Send>,
    },
}

impl Discarded {
    fn drop_now(self) {
        match self {
            Self::Tenants {
                account,
                files,
                what,
            } => {
                let began = thread_cpu_ns();
                let mut costly = close_but_costly(what);
                while !costly.is_empty() {
                    let rest = costly.split_off(costly.len().min(APART_AT_ONCE));
                    let files = std::mem::replace(&mut costly, rest);
                    account.close_apart(files.len() as u32, files);
                }
                account.closed_for(thread_cpu_ns() - began);
                account.closed(files);
            }
            Self::Embedders { .. } => {}
        }
    }
}

#[derive(Default)]
struct State {
    discarded: Vec<Discarded>,
    /// A tenant waits for it.
    is_urgent: bool,
    stopped: bool,
}

/// The thread that closes files.
#[derive(Debug)]
pub(crate) struct Reaper {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl Reaper {
    /// Creates a reaper without a thread: what it is given is dropped with it.
    pub(super) fn rehearsed() -> Self {
        Self {
            shared: Arc::new((Mutex::new(State::default()), Condvar::new())),
            thread: Mutex::new(None),
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the host refuses it.
    pub(super) fn start() -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let theirs = shared.clone();
        pass(Call::StartThread)?;
        let thread = std::thread::Builder::new()
            .name("leasehold-reaper".into())
            .spawn(move || {
                if let Err(error) = setpriority_process(None, NICE) {
                    tracing::debug!(%error, "the thread that closes files is as urgent as others");
                }
                if let Err(error) = leasehold_confine::narrow(leasehold_confine::Thread::Io) {
                    tracing::error!(%error, "the thread that closes files has the controller's system calls");
                }
                reap(&theirs);
            })?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Makes the thread drop `what`, with `files` descriptors in it; at once if that is urgent.
    /// Takes some ten nanoseconds, or a system call if the thread has to be woken.
    pub(crate) fn discard(
        &self,
        account: Arc<Account>,
        files: u32,
        what: Box<dyn Send>,
        is_urgent: bool,
    ) {
        self.push(
            Discarded::Tenants {
                account,
                files,
                what,
            },
            is_urgent,
        );
    }

    /// Makes the thread drop an object of an embedder, or a program. Costs the same as
    /// [`Self::discard`].
    pub(crate) fn drop_given(&self, what: impl Send + 'static) {
        let what = Box::new(what);
        self.push(Discarded::Embedders { what }, false);
    }

    fn push(&self, discarded: Discarded, is_urgent: bool) {
        let mut state = self.shared.0.lock();
        let wakes = state.discarded.is_empty() || is_urgent;
        state.is_urgent |= is_urgent;
        state.discarded.push(discarded);
        drop(state);
        if wakes {
            self.shared.1.notify_one();
        }
    }

    /// Waits until everything is dropped, and ends the thread.
    pub(super) fn stop(&self) {
        self.shared.0.lock().stopped = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn reap(shared: &(Mutex<State>, Condvar)) {
    let mut state = shared.0.lock();
    loop {
        if state.discarded.is_empty() {
            if state.stopped {
                return;
            }
            state = shared.1.wait(&shared.0, state);
            continue;
        }
        let until = Instant::now() + GATHER;
        while !state.stopped && !state.is_urgent {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            state = shared.1.wait_for(&shared.0, state, rest).0;
        }
        state.is_urgent = false;
        let discarded = std::mem::take(&mut state.discarded);
        drop(state);
        discarded.into_iter().for_each(Discarded::drop_now);
        state = shared.0.lock();
    }
}
