//! Threads that may block, shared by the tenants of a cell.
//!
//! Jobs wait in a queue of their tenant's. A tenant has at most [`MOST_PER_TENANT`] jobs in the hands of
//! threads, so that one whose calls never return does not take all of them; tenants with jobs take
//! turns. There is always a thread to spare, up to [`MOST_THREADS`]: a thread that finds no other idle
//! starts one before it begins a job.

use super::lock;
use crate::clock::thread_cpu_ns;
use crate::host::fs::account::Account;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};

/// Jobs of one top-level tenant that are done at the same time.
pub(crate) const MOST_PER_TENANT: usize = 4;

/// Threads of one cell.
pub(crate) const MOST_THREADS: usize = 128;

/// Threads that wait for jobs; one more ends.
const MOST_IDLE: usize = 4;

/// A thread's stack: a job is a few system calls deep.
const STACK_BYTES: usize = 128 << 10;

struct Job {
    account: Arc<Account>,
    work: Box<dyn FnOnce() + Send>,
}

/// The jobs of one tenant.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: usize,
    /// It is in the round.
    in_round: bool,
}

impl Queue {
    /// Whether it is to take turns and does not yet.
    fn joins(&mut self) -> bool {
        let joins = !self.in_round && !self.jobs.is_empty() && self.running < MOST_PER_TENANT;
        self.in_round |= joins;
        joins
    }
}

#[derive(Default)]
struct State {
    /// By the numbers of their accounts.
    tenants: HashMap<u64, Queue>,
    /// Tenants with a job that may be begun.
    round: VecDeque<u64>,
    threads: usize,
    idle: usize,
    stopped: bool,
}

impl State {
    fn put(&mut self, job: Job) {
        let tenant = job.account.number();
        let queue = self.tenants.entry(tenant).or_default();
        queue.jobs.push_back(job);
        if queue.joins() {
            self.round.push_back(tenant);
        }
    }

    fn next(&mut self) -> Option<(u64, Job)> {
        while let Some(tenant) = self.round.pop_front() {
            let Some(queue) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            queue.in_round = false;
            if let Some(job) = queue.jobs.pop_front() {
                queue.running += 1;
                if queue.joins() {
                    self.round.push_back(tenant);
                }
                return Some((tenant, job));
            }
        }
        None
    }

    fn done(&mut self, tenant: u64) {
        let Some(queue) = self.tenants.get_mut(&tenant) else {
            return;
        };
        queue.running -= 1;
        if queue.joins() {
            self.round.push_back(tenant);
        } else if queue.running == 0 && queue.jobs.is_empty() {
            self.tenants.remove(&tenant);
        }
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wanted: Condvar,
}

/// The threads of a cell that do what may block.
pub(crate) struct Pool(Arc<Shared>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool with one thread. Its threads run wherever the calling thread may.
    ///
    /// # Errors
    /// When the host refuses a thread.
    pub(super) fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        lock(&shared.state).threads = 1;
        spawn(&shared, Filter::OfItsKind)?;
        Ok(Self(shared))
    }

    /// Has a thread do `work` when it is the tenant's turn. Neither blocks nor fails; some microseconds
    /// to wake a thread up.
    pub(super) fn put(&self, account: Arc<Account>, work: impl FnOnce() + Send + 'static) {
        let job = Job {
            account,
            work: Box::new(work),
        };
        let mut state = lock(&self.0.state);
        state.put(job);
        // The host may have refused threads before.
        let alone = state.threads == 0 && !state.stopped;
        if alone {
            state.threads = 1;
        }
        drop(state);
        if alone {
            self.0.spawn_or_give_up();
        }
        self.0.wanted.notify_one();
    }

    /// Threads end when there are no more jobs.
    pub(super) fn stop(&self) {
        lock(&self.0.state).stopped = true;
        self.0.wanted.notify_all();
    }
}

impl Shared {
    /// Starts a thread that was counted already.
    fn spawn_or_give_up(self: &Arc<Self>) {
        if let Err(error) = spawn(self, Filter::Inherited) {
            tracing::warn!(%error, "no thread for blocking calls of tenants");
            lock(&self.state).threads -= 1;
        }
    }

    fn work(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        loop {
            if let Some((tenant, job)) = state.next() {
                let spawns = state.idle == 0 && state.threads < MOST_THREADS && !state.stopped;
                state.threads += usize::from(spawns);
                drop(state);
                if spawns {
                    self.spawn_or_give_up();
                }
                job.run();
                state = lock(&self.state);
                state.done(tenant);
            } else if state.stopped || state.idle == MOST_IDLE {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self
                    .wanted
                    .wait(state)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Job {
    fn run(self) {
        let began = thread_cpu_ns();
        let work = self.work;
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("a blocking call of a tenant panicked; the tenant waits for ever");
        }
        self.account.took(thread_cpu_ns() - began);
    }
}

/// Which system calls a new thread may make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// Those of threads that wait for disks; for the first, which the controller starts.
    OfItsKind,
    /// Those of the thread that starts it, which cannot be narrowed twice.
    Inherited,
}

fn spawn(shared: &Arc<Shared>, filter: Filter) -> std::io::Result<()> {
    let theirs = shared.clone();
    std::thread::Builder::new()
        .name("leasehold-io".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            if filter == Filter::OfItsKind
                && let Err(error) = leasehold_confine::narrow(leasehold_confine::Thread::Io)
            {
                tracing::error!(%error, "a thread for blocking calls is not confined and does none");
                lock(&theirs.state).threads -= 1;
                return;
            }
            theirs.work();
        })
        .map(drop)
}
