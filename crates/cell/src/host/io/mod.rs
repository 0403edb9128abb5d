//! Threads for calls that may block ([`pool`]), and one that closes files ([`reaper`]); executions that wait for a
//! job of another one ([`Turns`]).
//!
//! A job is one or a few system calls, with all that they need: nothing of it refers to the guest, which
//! may be ended while the call is being made. The processor time of each job is the tenant's
//! ([`Account::called_for`](super::fs::account::Account::called_for)).

pub(crate) mod pool;
pub(crate) mod reaper;
mod turns;

pub(crate) use turns::Turns;

use super::fs::account::Account;
use leasehold_crossing::Mutex;
use pool::Pool;
use reaper::Reaper;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The threads of a cell that may block.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) pool: Pool,
    pub(crate) reaper: Reaper,
}

impl Io {
    /// Starts the first of the threads. They may run on the calling thread's cores, except the
    /// cell's `core` if there is another: a thread behind a real-time cell can wait until Linux
    /// balances its cores, and some hosts move no thread before its system call is over.
    ///
    /// # Errors
    /// When the host refuses a thread.
    pub(crate) fn start(core: Option<usize>) -> std::io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let mut others = all;
        if let Some(core) = core {
            others.unset(core);
        }
        let has_others = others.count() > 0;
        if has_others {
            // New threads inherit the affinity of this one.
            sched_setaffinity(None, &others)?;
        }
        let started = Pool::start().and_then(|pool| {
            let reaper = Reaper::start().inspect_err(|_| pool.stop())?;
            Ok(Self { pool, reaper })
        });
        if has_others {
            sched_setaffinity(None, &all)?;
        }
        started
    }

    /// Creates an account without threads: no job that is given to it is done.
    pub(crate) fn rehearsed() -> Self {
        Self {
            pool: Pool::rehearsed(),
            reaper: Reaper::rehearsed(),
        }
    }

    /// Stops the threads after the present jobs. Waits until every file is closed, but not for jobs
    /// that hang.
    pub(crate) fn stop(&self) {
        self.pool.stop();
        self.reaper.stop();
    }
}

/// The state of a job.
enum State<R> {
    /// The job waits or runs.
    Pending(Option<Waker>),
    Done(R),
    /// The result was taken, or the guest that waited for it was ended.
    Over,
}

/// Queues `work` of the tenant of `account` for a thread that may block.
pub(crate) fn run<R: Send + 'static>(
    account: &Arc<Account>,
    work: impl FnOnce() -> R + Send + 'static,
) -> Pending<R> {
    let state = Arc::new(Mutex::new(State::Pending(None)));
    let theirs = state.clone();
    let whose = account.clone();
    let job = account.io().pool.put(account.clone(), move || {
        let result = whose.during_call(work);
        let mut state = theirs.lock();
        if let State::Pending(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Done(result);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    });
    Pending {
        account: account.clone(),
        job,
        state,
    }
}

/// A job that another thread does. Dropping it takes the job back, or leaves it to the thread that has
/// begun it.
#[must_use = "a job is waited for"]
pub(crate) struct Pending<R: Send + 'static> {
    account: Arc<Account>,
    job: u64,
    state: Arc<Mutex<State<R>>>,
}

impl<R: Send + 'static> Future for Pending<R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let mut state = self.state.lock();
        if let State::Pending(waker) = &mut *state {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Done(result) => Poll::Ready(result),
            // Polled after it was ready, which no caller does.
            State::Pending(_) | State::Over => Poll::Pending,
        }
    }
}

impl<R: Send + 'static> Drop for Pending<R> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Over);
        match state {
            // Either may hold a file, and this is the cell's thread.
            State::Done(result) => self.account.discard(result),
            State::Pending(_) => {
                if let Some(job) = self.account.io().pool.take_back(&self.account, self.job) {
                    self.account.discard(job);
                }
            }
            State::Over => {}
        }
    }
}
