//! The processor time of the I/O thread, charged to the tenants that it is for.
//!
//! The clock of the thread is read once for each poll, at its end: a poll is charged what the thread
//! used since the poll before it, its own waking included. A poll whose payer has used its part of a
//! [round](crate::rounds) waits for the next.

use crate::rounds::{Rounds, Share};
use crate::site::Site;
use leasehold_exchange::Lane;
use pin_project_lite::pin_project;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

thread_local! {
    /// The thread's clock at the end of the last poll, ns.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The payer of the poll that is under way.
    static CURRENT: RefCell<Option<Rc<Payer>>> = const { RefCell::new(None) };
    /// The number of the poll that is under way, or was last.
    static POLL: Cell<u64> = const { Cell::new(0) };
    static ROUNDS: Rounds = const { Rounds::new() };
}

/// The tenant that pays for a connection, or for a stream of it; none before its first request.
pub(crate) struct Payer {
    /// What pays with its share while there is no tenant.
    source: Rc<Share>,
    tenant: RefCell<Option<(Arc<Site>, Arc<Lane>)>>,
    /// The last round in which its task was deferred.
    deferred: Cell<u64>,
    /// What was used before a tenant was known, ns.
    owed: Cell<u64>,
}

impl Payer {
    fn new(source: Rc<Share>) -> Self {
        Self {
            source,
            tenant: RefCell::default(),
            deferred: Cell::new(0),
            owed: Cell::new(0),
        }
    }

    /// Whether its task has to wait for the next round; it is woken then.
    fn waits(&self, waker: &Waker) -> bool {
        ROUNDS.with(|rounds| {
            let tenant = self.tenant.borrow();
            let share = tenant.as_ref().map(|(site, _)| site.share());
            let used_up = rounds.used_up_by(share.unwrap_or(&self.source));
            let Some(round) = used_up else {
                return false;
            };
            if self.deferred.replace(round) != round {
                rounds.defer(waker.clone());
            }
            true
        })
    }

    fn charge(&self, ns: u64) {
        let tenant = self.tenant.borrow();
        let share = tenant.as_ref().map(|(site, _)| site.share());
        ROUNDS.with(|rounds| rounds.charge(share.unwrap_or(&self.source), ns));
        let ns = ns + self.owed.take();
        match &*tenant {
            Some((site, lane)) => {
                lane.charge(ns);
                site.usage().used(ns);
            }
            None => self.owed.set(ns),
        }
    }
}

/// Begins each round: when the one before it is over, the system was asked what else is to be done,
/// and that had its turn.
pub(crate) async fn keep_rounds() {
    loop {
        poll_fn(|context| ROUNDS.with(|rounds| rounds.poll_over(context))).await;
        tokio::task::yield_now().await;
        ROUNDS.with(Rounds::next);
    }
}

/// The number of the poll that is under way, among those of this thread.
pub(crate) fn poll() -> u64 {
    POLL.get()
}

/// The thread has nothing to do but what waits for the next round.
pub(crate) fn idle() {
    ROUNDS.with(Rounds::idle);
}

/// What pays for the poll that is under way with its share while there is no tenant.
pub(crate) fn source() -> Rc<Share> {
    CURRENT.with_borrow(|current| {
        let payer = current.as_ref().map(|payer| payer.source.clone());
        payer.unwrap_or_default()
    })
}

/// From now on this tenant pays for the poll that is under way, and for later ones of its task.
pub(crate) fn pays(site: &Arc<Site>, lane: &Arc<Lane>) {
    CURRENT.with_borrow(|current| {
        if let Some(payer) = current {
            *payer.tenant.borrow_mut() = Some((site.clone(), lane.clone()));
        }
    });
}

/// The processor time of this thread, ns.
fn used() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pin_project! {
    /// A task whose polls are charged to a payer of its own.
    pub(crate) struct Metered<F> {
        payer: Rc<Payer>,
        #[pin]
        task: F,
    }
}

impl<F> Metered<F> {
    pub(crate) fn new(source: Rc<Share>, task: F) -> Self {
        Self {
            payer: Rc::new(Payer::new(source)),
            task,
        }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if this.payer.waits(context.waker()) {
            return Poll::Pending;
        }
        CURRENT.set(Some(this.payer.clone()));
        POLL.set(POLL.get() + 1);
        let result = this.task.poll(context);
        CURRENT.set(None);
        let now = used();
        let before = LAST.replace(now);
        this.payer.charge(now.saturating_sub(before));
        result
    }
}

/// Runs tasks on this thread, each with a payer of its own.
#[derive(Clone, Copy)]
pub(crate) struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(Metered::new(source(), async move {
            task.await;
        }));
    }
}

/// Begins the next round, in tests of a thread without a keeper.
#[cfg(test)]
pub(crate) fn next_round() {
    ROUNDS.with(Rounds::next);
}

#[cfg(test)]
mod tests {
    use super::{Metered, idle, keep_rounds, used};
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::task::{Context, Poll};
    use tokio::io::AsyncReadExt as _;

    /// Processor time that a poll of the crowd uses at least, ns: 20 of them use a round.
    const POLL_NS: u64 = 100_000;

    /// Tasks that use the thread in each poll, and always want more.
    struct Crowd {
        polls: Cell<usize>,
        /// After so many polls, there is something to do for another source.
        most: usize,
        client: UnixStream,
    }

    impl Crowd {
        fn poll(&self, context: &Context<'_>) -> Poll<()> {
            let until = used() + POLL_NS;
            while used() < until {}
            self.polls.set(self.polls.get() + 1);
            if self.polls.get() == self.most {
                (&self.client).write_all(b"1").expect("written");
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }

    /// How many polls of so many tasks of one source pass before a task of another source reads what
    /// came on its socket.
    fn polls_before_another(tasks: usize) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .on_thread_park(idle)
            .build()
            .expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (client, socket) = UnixStream::pair().expect("a pair");
            socket.set_nonblocking(true).expect("it may be");
            let mut socket = tokio::net::UnixStream::from_std(socket).expect("a socket");
            let crowd = Rc::new(Crowd {
                polls: Cell::new(0),
                most: 2 * tasks,
                client,
            });
            tokio::task::spawn_local(keep_rounds());
            let source = Rc::default();
            for _ in 0..tasks {
                let crowd = crowd.clone();
                let hungry = poll_fn(move |context| crowd.poll(context));
                tokio::task::spawn_local(Metered::new(Rc::clone(&source), hungry));
            }
            let other = Metered::new(Rc::default(), async move { socket.read_u8().await });
            let other = tokio::task::spawn_local(other);
            other.await.expect("a task").expect("a byte");
            crowd.polls.get() - crowd.most
        })
    }

    #[test]
    fn a_crowd_of_a_source_delays_another_by_a_round_or_two() {
        for tasks in [1, 20, 200] {
            let polls = polls_before_another(tasks);
            assert!(polls <= 3 * 20, "{polls} of {tasks} tasks");
        }
    }
}
