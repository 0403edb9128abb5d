//! Threads that may block, shared by the tenants of a cell.
//!
//! Jobs wait in a queue of their tenant's. Every tenant that may have jobs is [promised](Promise) a
//! thread for calls and one for closing files, regardless of others; promises never exceed the
//! threads. Beyond these threads a tenant can have up to [`MOST_PER_TENANT`] jobs running, while at
//! most [`MOST_FURTHER`] such threads of a cell are in use. A call that never returns keeps its
//! thread and its tenant's promise, even after the tenant has ended.
//!
//! Up to [`MOST_THREADS`], one spare thread always exists. A thread that does no jobs makes it, so
//! that its cores and its ordinary priority do not depend on the thread that queued the job.

use crate::clock::thread_cpu_ns;
use crate::host::fs::account::Account;
use leasehold_crossing::{Condvar, Mutex};
use leasehold_door::{Call, on_behalf_of, pass};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Jobs of one top-level tenant that are done at the same time.
pub(crate) const MOST_PER_TENANT: usize = 4;

/// Threads of one cell.
pub(crate) const MOST_THREADS: usize = 512;

/// Threads that a tenant is promised: for a call, and for closing files.
const PROMISED: usize = 2;

/// Tenants of a cell that may have calls which block.
pub(crate) const MOST_TENANTS: usize = MOST_THREADS / PROMISED;

/// Threads that tenants have beyond those.
const MOST_FURTHER: usize = 128;

/// Threads that wait for jobs for as long as it takes.
const MOST_IDLE: usize = 4;

/// How long further threads wait before they end. Making and ending a thread changes the mappings of the
/// process, under a lock of the kernel that a cell's thread may wait for while other programs keep the changing
/// thread from running. So it is done seldom.
const IDLE: Duration = Duration::from_secs(10);

/// How long after the host refused a thread the next attempt is, at most.
const AGAIN: Duration = Duration::from_millis(20);

/// A thread's stack: a job is a few system calls deep.
const STACK_BYTES: usize = 128 << 10;

/// The job, and its tenant.
pub(super) struct Job {
    account: Arc<Account>,
    work: Box<dyn FnOnce() + Send>,
    /// Descriptors that are closed when the job is done.
    closes: u32,
}

/// Jobs of one tenant that wait for each other. Files are closed apart from its calls, so that an end does
/// not wait for calls that never return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    /// The number of the account.
    tenant: u64,
    closes: bool,
}

impl Lane {
    fn of(job: &Job) -> Self {
        Self {
            tenant: job.account.number(),
            closes: job.closes > 0,
        }
    }

    /// Returns the number of threads that the lane may have.
    fn most(self) -> usize {
        match self.closes {
            true => 1,
            false => MOST_PER_TENANT,
        }
    }
}

/// The jobs of one lane.
#[derive(Default)]
struct Queue {
    /// In the order in which they came.
    jobs: BTreeMap<u64, Job>,
    running: usize,
    /// Whether the lane is in `round`.
    in_round: bool,
    /// Whether the lane is in `further_round`.
    in_further: bool,
}

impl Queue {
    /// Whether nothing is left of the lane.
    fn is_over(&self) -> bool {
        self.running == 0 && self.jobs.is_empty() && !self.in_round && !self.in_further
    }
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<Lane, Queue>,
    /// Lanes with a job that have no thread.
    round: VecDeque<Lane>,
    /// Lanes with a job that have a thread, and could have another.
    further_round: VecDeque<Lane>,
    /// Threads that are promised to tenants.
    promised: usize,
    /// Threads that lanes have beyond the first of each.
    further: usize,
    threads: usize,
    /// Threads that were ever made.
    made: u64,
    idle: usize,
    /// Whether another thread is to be made.
    wants_thread: bool,
    stopped: bool,
    /// The number of the next job.
    next_job: u64,
}

impl State {
    fn put(&mut self, job: Job) -> u64 {
        let number = self.next_job;
        self.next_job += 1;
        let lane = Lane::of(&job);
        let queue = self.lanes.entry(lane).or_default();
        queue.jobs.insert(number, job);
        self.settle(lane);
        number
    }

    /// Whether so many more threads can be promised, or taken by lanes that have one.
    fn has_room(&self, threads: usize) -> bool {
        self.promised + self.further + threads <= MOST_THREADS
    }

    /// Puts a lane into its round, or removes it.
    fn settle(&mut self, lane: Lane) {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return;
        };
        if queue.is_over() {
            self.lanes.remove(&lane);
        } else if queue.jobs.is_empty() {
            // The lane comes back with its next job.
        } else if queue.running == 0 && !queue.in_round {
            queue.in_round = true;
            self.round.push_back(lane);
        } else if (1..lane.most()).contains(&queue.running) && !queue.in_further {
            queue.in_further = true;
            self.further_round.push_back(lane);
        }
    }

    fn take_back(&mut self, lane: Lane, job: u64) -> Option<Job> {
        let job = self.lanes.get_mut(&lane)?.jobs.remove(&job);
        self.settle(lane);
        job
    }

    /// Takes the next job: of a lane that has no thread, or else of one that may have another.
    fn next(&mut self) -> Option<(Lane, Job)> {
        while let Some(lane) = self.round.pop_front() {
            if let Some(job) = self.begin(lane, |queue| {
                queue.in_round = false;
                queue.running == 0
            }) {
                return Some((lane, job));
            }
        }
        while self.further < MOST_FURTHER
            && self.has_room(1)
            && let Some(lane) = self.further_round.pop_front()
        {
            if let Some(job) = self.begin(lane, |queue| {
                queue.in_further = false;
                (1..lane.most()).contains(&queue.running)
            }) {
                self.further += 1;
                return Some((lane, job));
            }
        }
        None
    }

    fn begin(&mut self, lane: Lane, may: impl FnOnce(&mut Queue) -> bool) -> Option<Job> {
        let queue = self.lanes.get_mut(&lane)?;
        let job = match may(queue) {
            true => queue.jobs.pop_first(),
            false => None,
        };
        queue.running += usize::from(job.is_some());
        self.settle(lane);
        job.map(|(_, job)| job)
    }

    fn done(&mut self, lane: Lane) {
        if let Some(queue) = self.lanes.get_mut(&lane) {
            queue.running -= 1;
            self.further -= usize::from(queue.running > 0);
            self.settle(lane);
        }
    }

    /// Whether another thread is to be made, now that none is idle.
    fn lacks_thread(&mut self) -> bool {
        let lacks = self.idle == 0 && self.threads < MOST_THREADS && !self.stopped;
        self.wants_thread |= lacks;
        lacks
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There are jobs.
    wanted: Condvar,
    /// There are too few threads.
    lacking: Condvar,
}

/// The threads of a cell that do what may block.
pub(crate) struct Pool(Arc<Shared>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// The promise of a thread for a tenant's blocking calls, and of another for closing its files,
/// until it is dropped.
pub(crate) struct Promise(Arc<Shared>);

impl std::fmt::Debug for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Promise").finish_non_exhaustive()
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.state.lock().promised -= PROMISED;
        self.0.wanted.notify_one();
    }
}

/// Why a promise cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "all {MOST_THREADS} threads of the cell for calls that may block are promised or taken: tenants with \
     directories have {promised}, two each, and calls of theirs that have not returned {further} more"
)]
pub(crate) struct TooMany {
    promised: usize,
    further: usize,
}

impl Pool {
    /// Creates a pool that promises threads and makes none.
    pub(super) fn rehearsed() -> Self {
        Self(Arc::default())
    }

    /// Starts a pool whose threads run wherever the calling thread may.
    ///
    /// # Errors
    /// When the host refuses a thread, or a thread cannot give up the system calls of the controller.
    pub(super) fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let (sender, confined) = std::sync::mpsc::channel();
        pass(Call::StartThread)?;
        std::thread::Builder::new()
            .name("leasehold-io".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let narrowed = leasehold_confine::narrow(leasehold_confine::Thread::Io);
                let is_narrow = narrowed.is_ok();
                // The receiver waits, so the send cannot fail.
                let _ = sender.send(narrowed.map_err(std::io::Error::other));
                if is_narrow {
                    theirs.make_threads();
                }
            })?;
        confined.recv().map_err(std::io::Error::other)??;
        let pool = Self(shared);
        // The first thread is made before it is needed.
        pool.0.lack();
        Ok(pool)
    }

    /// Promises a tenant a thread for its calls, and one for closing files.
    ///
    /// # Errors
    /// When all are promised or taken.
    pub(crate) fn promise(&self) -> Result<Promise, TooMany> {
        let mut state = self.0.state.lock();
        if !state.has_room(PROMISED) {
            return Err(TooMany {
                promised: state.promised,
                further: state.further,
            });
        }
        state.promised += PROMISED;
        drop(state);
        Ok(Promise(self.0.clone()))
    }

    /// Queues `work` for a thread, and returns the number of the job. Neither blocks nor fails;
    /// waking a thread takes some microseconds.
    pub(super) fn put(&self, account: Arc<Account>, work: impl FnOnce() + Send + 'static) -> u64 {
        self.put_job(Job {
            account,
            work: Box::new(work),
            closes: 0,
        })
    }

    /// Makes a thread drop `what`, with `files` descriptors in it, independently of the tenant's
    /// calls.
    pub(crate) fn close(&self, account: Arc<Account>, files: u32, what: Box<dyn Send>) {
        self.put_job(Job {
            account,
            work: Box::new(move || drop(what)),
            closes: files,
        });
    }

    fn put_job(&self, job: Job) -> u64 {
        let mut state = self.0.state.lock();
        let number = state.put(job);
        let lacks = state.lacks_thread();
        drop(state);
        match lacks {
            true => self.0.lacking.notify_one(),
            false => self.0.wanted.notify_one(),
        }
        number
    }

    /// Takes a job out of the queue, if no thread has begun it.
    pub(super) fn take_back(&self, account: &Account, job: u64) -> Option<Job> {
        let lane = Lane {
            tenant: account.number(),
            closes: false,
        };
        self.0.state.lock().take_back(lane, job)
    }

    /// Stops the pool: its threads end when there are no more jobs.
    pub(super) fn stop(&self) {
        self.0.state.lock().stopped = true;
        self.0.wanted.notify_all();
        self.0.lacking.notify_all();
    }
}

impl Shared {
    /// Requests another thread.
    fn lack(&self) {
        self.state.lock().wants_thread = true;
        self.lacking.notify_one();
    }

    /// Makes threads whenever there are too few, until the pool is stopped.
    fn make_threads(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.stopped {
            if !std::mem::take(&mut state.wants_thread) || state.threads == MOST_THREADS {
                state = self.lacking.wait(&self.state, state);
                continue;
            }
            state.threads += 1;
            state.made += 1;
            drop(state);
            let made = self.make_thread();
            state = self.state.lock();
            if let Err(error) = made {
                // No job may come that would request a thread for those that wait.
                tracing::warn!(%error, "no thread for blocking calls of tenants; the next attempt is soon");
                state.threads -= 1;
                state.made -= 1;
                state = self.lacking.wait_for(&self.state, state, AGAIN).0;
                state.wants_thread |= state.idle == 0;
            }
        }
    }

    fn make_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let theirs = self.clone();
        pass(Call::StartThread)?;
        std::thread::Builder::new()
            .name("leasehold-io".into())
            .stack_size(STACK_BYTES)
            .spawn(move || theirs.work())
            .map(drop)
    }

    fn work(&self) {
        let mut is_late = false;
        let mut counted = thread_cpu_ns();
        let mut state = self.state.lock();
        loop {
            if let Some((lane, job)) = state.next() {
                let lacks = state.lacks_thread();
                drop(state);
                if lacks {
                    self.lacking.notify_one();
                }
                job.run(&mut counted);
                state = self.state.lock();
                state.done(lane);
            } else if state.stopped || (is_late && state.idle >= MOST_IDLE) {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                (state, is_late) = self.wanted.wait_for(&self.state, state, IDLE);
                state.idle -= 1;
            }
        }
    }
}

impl Job {
    /// Does it. The tenant pays for what the thread has used since `counted`: waking up for the job is part of it. Up to
    /// then the thread's time is counted afterwards.
    fn run(self, counted: &mut u64) {
        let work = || on_behalf_of(|| self.account.number(), self.work);
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("a blocking call of a tenant panicked; the tenant waits for ever");
        }
        let now = thread_cpu_ns();
        let took = now - std::mem::replace(counted, now);
        match self.closes {
            0 => self.account.called_for(took),
            _ => self.account.closed_for(took),
        }
        self.account.closed(self.closes);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_FURTHER, MOST_PER_TENANT, MOST_THREADS, PROMISED};
    use crate::clock::thread_cpu_ns;
    use crate::host::fs::account::Account;
    use crate::host::io::{Io, Pending, run};
    use leasehold_lease::Lease;
    use std::collections::HashMap;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(20);

    fn account(io: &Arc<Io>) -> Option<Arc<Account>> {
        let promise = io.pool.promise().ok()?;
        Some(Arc::new(Account::new(
            &Lease::default(),
            None,
            Some(promise),
            io.clone(),
        )))
    }

    /// Jobs that return only when the senders are dropped, and what waits for them.
    fn hang(account: &Arc<Account>, jobs: usize) -> (Vec<Sender<()>>, Vec<Pending<bool>>) {
        let hangs = (0..jobs).map(|_| {
            let (sender, receiver): (Sender<()>, Receiver<()>) = channel();
            (sender, run(account, move || receiver.recv().is_ok()))
        });
        hangs.unzip()
    }

    fn answers(account: &Arc<Account>) -> bool {
        let (sender, receiver) = channel();
        std::mem::forget(run(account, move || sender.send(()).is_ok()));
        receiver.recv_timeout(SOON).is_ok()
    }

    #[test]
    fn calls_that_never_return_leave_a_thread_to_every_tenant_that_has_started() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let others: Vec<_> = (0..50).filter_map(|_| account(&io)).collect();
        let mut hanging = Vec::new();
        // As long as tenants are admitted.
        while let Some(hostile) = account(&io) {
            let hangs = hang(&hostile, 2 * MOST_PER_TENANT);
            hanging.push((hostile, hangs));
            assert!(hanging.len() <= MOST_THREADS);
        }
        let least = (MOST_THREADS - MOST_FURTHER) / PROMISED - others.len();
        assert!(hanging.len() >= least, "{}", hanging.len());
        assert!(others.iter().all(answers));
        // Ended tenants keep the threads of calls that have not returned.
        let begun = hanging.into_iter().map(|(_, (begun, _))| begun);
        let begun: Vec<_> = begun.collect();
        assert!(account(&io).is_none());
        drop(begun);
        let began = std::time::Instant::now();
        while account(&io).is_none() {
            assert!(began.elapsed() < SOON);
            std::thread::sleep(Duration::from_millis(1));
        }
        io.stop();
    }

    #[test]
    fn a_tenant_pays_for_waking_the_threads_that_work_for_it() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let tenant = account(&io).expect("a promise");
        let mut used = HashMap::new();
        for _ in 0..300 {
            let (sender, receiver) = channel();
            let look = move || {
                sender
                    .send((std::thread::current().id(), thread_cpu_ns()))
                    .is_ok()
            };
            std::mem::forget(run(&tenant, look));
            let (thread, ns) = receiver.recv_timeout(SOON).expect("an answer");
            used.insert(thread, ns);
            // It waits for the next one asleep.
            std::thread::sleep(Duration::from_micros(300));
        }
        let (paid, used) = (tenant.take_cpu_ns(), used.values().sum::<u64>());
        assert!(paid > used / 5 * 4, "{paid} of {used} ns");
        io.stop();
    }

    #[test]
    fn an_account_knows_the_calls_that_have_not_returned() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let tenant = account(&io).expect("a promise");
        let wait_for = |calls: u32| {
            let began = std::time::Instant::now();
            while tenant.calls_under_way() != calls {
                assert!(began.elapsed() < SOON);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let (begun, _waiting) = hang(&tenant, MOST_PER_TENANT);
        wait_for(MOST_PER_TENANT as u32);
        drop(begun);
        wait_for(0);
        io.stop();
    }

    #[test]
    fn a_burst_of_calls_finds_the_threads_of_the_one_before() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let tenants: Vec<_> = (0..4).filter_map(|_| account(&io)).collect();
        let burst = || {
            let begun = tenants.iter().map(|tenant| hang(tenant, MOST_PER_TENANT));
            let begun: Vec<_> = begun.collect();
            let calls = || tenants.iter().map(|tenant| tenant.calls_under_way());
            let wait_for = |sum: u32| {
                let began = std::time::Instant::now();
                while calls().sum::<u32>() != sum {
                    assert!(began.elapsed() < SOON);
                    std::thread::yield_now();
                }
            };
            wait_for((4 * MOST_PER_TENANT) as u32);
            drop(begun);
            wait_for(0);
        };
        burst();
        for _ in 0..50 {
            burst();
        }
        let made = io.pool.0.state.lock().made;
        // One is spare, and a thread that is about to wait is not found.
        assert!(made <= 4 * 4 * MOST_PER_TENANT as u64, "{made}");
        io.stop();
    }

    /// A file whose close never returns.
    struct Hanging(Receiver<()>);

    impl Drop for Hanging {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn a_close_that_never_returns_delays_no_other_tenant_and_no_call_of_its_own() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let [hostile, other, slow] = [(); 3].map(|()| account(&io).expect("a promise"));
        let (sender, receiver) = channel();
        hostile.expect_slow_files();
        slow.expect_slow_files();
        hostile.close(1, Hanging(receiver));
        for tenant in [&other, &slow] {
            tenant.close(1, ());
            let began = std::time::Instant::now();
            while !tenant.is_closed() {
                assert!(began.elapsed() < SOON);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(answers(&hostile));
        assert!(!hostile.is_closed());
        drop(sender);
        io.stop();
    }

    #[test]
    fn threads_run_where_the_host_lets_them_and_without_priority_whatever_thread_needs_them() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let all = rustix::thread::sched_getaffinity(None)
            .expect("an affinity")
            .count();
        let theirs = io.clone();
        let asking = std::thread::spawn(move || {
            // As a cell's thread is.
            let mut one = rustix::thread::CpuSet::new();
            one.set(0);
            rustix::thread::sched_setaffinity(None, &one).expect("bound to a core");
            crate::realtime::ask();
            let account = account(&theirs).expect("a promise");
            let together = Arc::new(Barrier::new(MOST_PER_TENANT));
            let (sender, receiver) = channel();
            for _ in 0..MOST_PER_TENANT {
                let (sender, together) = (sender.clone(), together.clone());
                std::mem::forget(run(&account, move || {
                    together.wait();
                    let cores = rustix::thread::sched_getaffinity(None).map(|set| set.count());
                    let policy = crate::system::scheduler();
                    sender.send((cores, policy)).is_ok()
                }));
            }
            let found = (0..MOST_PER_TENANT).map(|_| receiver.recv_timeout(SOON));
            found.collect::<Result<Vec<_>, _>>()
        });
        for (cores, policy) in asking.join().expect("no panic").expect("answers") {
            assert_eq!(cores, Ok(all));
            assert_eq!(policy, libc::SCHED_OTHER);
        }
        io.stop();
    }

    #[test]
    fn threads_leave_the_core_of_their_cell_to_it_if_there_is_another() {
        let all = rustix::thread::sched_getaffinity(None).expect("an affinity");
        let core = (0..).find(|core| all.is_set(*core)).expect("a core");
        let io = Arc::new(Io::start(Some(core)).expect("threads"));
        let account = account(&io).expect("a promise");
        let (sender, receiver) = channel();
        std::mem::forget(run(&account, move || {
            sender.send(rustix::thread::sched_getaffinity(None)).is_ok()
        }));
        let theirs = receiver.recv_timeout(SOON).expect("an answer");
        let theirs = theirs.expect("an affinity");
        assert_eq!(theirs.is_set(core), all.count() == 1);
        assert_eq!(rustix::thread::sched_getaffinity(None), Ok(all));
        drop(account);
        io.stop();
    }
}
