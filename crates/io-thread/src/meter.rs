//! The processor time of the thread, charged to what it is for.
//!
//! The clock of the thread is read once for each poll, at its end: a poll is charged what the thread
//! used since the poll before it, its own waking included. A poll waits for the next
//! [round](crate::rounds) where its payer has to.

use crate::rounds::{Place, Rounds, Share};
use crate::urgent::{self, TaskWaker};
use pin_project_lite::pin_project;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

thread_local! {
    /// The thread's clock at the end of the last poll, ns.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The number of the poll that is under way, or was last.
    static POLL: Cell<u64> = const { Cell::new(0) };
    static ROUNDS: Rounds = Rounds::new();
}

/// What pays for polls.
pub trait Payer {
    /// Looks at the share of each round that it pays with.
    fn with_share<R>(&self, look: impl FnOnce(&Share) -> R) -> R;

    /// A poll is over, and took this much processor time of the thread, ns.
    fn charge(&self, ns: u64);

    /// A poll begins that this pays for.
    fn begin(self: &Rc<Self>) {}

    /// The poll is over.
    fn end(&self) {}
}

/// Begins each round: when the one before it is over, the system was asked what else is to be done,
/// and that had its turn. A task of each thread that has [metered](Metered) ones.
pub async fn keep_rounds() {
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

/// The processor time of this thread, ns.
fn used() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pin_project! {
    /// A task whose polls a payer pays for. It is polled only while its payer does not have
    /// to wait for the next round.
    pub struct Metered<P, F> {
        payer: Rc<P>,
        // In the line of its payer's share.
        place: Place,
        // What wakes it. It is urgent if a reservation paid for the last poll.
        waker: TaskWaker,
        #[pin]
        task: F,
    }
}

impl<P: Payer, F> Metered<P, F> {
    /// Lets a payer pay for a task.
    pub fn new(payer: Rc<P>, task: F) -> Self {
        Self {
            payer,
            place: Place::default(),
            waker: TaskWaker::new(),
            task,
        }
    }
}

/// Whether a task makes room for one that a reservation pays for: it goes to the end of the queue.
fn makes_room(payer: &impl Payer, context: &Context<'_>) -> bool {
    let makes_room = urgent::one_was_woken() && payer.with_share(|share| share.reserved_ns() == 0);
    if makes_room {
        context.waker().wake_by_ref();
    }
    makes_room
}

/// Whether a task has to wait for the next round; it is woken then.
fn waits(payer: &impl Payer, place: &mut Place, context: &Context<'_>) -> bool {
    ROUNDS.with(|rounds| {
        payer.with_share(|share| {
            let waits = rounds.has_to_wait(share, place);
            if waits {
                rounds.defer(share, place, context.waker());
            }
            waits
        })
    })
}

impl<P: Payer, F: Future> Future for Metered<P, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let waker = this.waker.polled(context.waker());
        let payer = &**this.payer;
        // In this order: one that makes room when its turn has come keeps its turn.
        if makes_room(payer, context) || waits(payer, this.place, context) {
            return Poll::Pending;
        }
        this.payer.begin();
        POLL.set(POLL.get() + 1);
        let result = this.task.poll(&mut Context::from_waker(waker));
        this.payer.end();
        let now = used();
        let ns = now.saturating_sub(LAST.replace(now));
        this.payer.with_share(|share| {
            ROUNDS.with(|rounds| rounds.charge(share, ns));
            this.waker.set_urgent(share.reserved_ns() > 0);
        });
        this.payer.charge(ns);
        result
    }
}

/// A share that pays for itself, in tests.
#[cfg(test)]
impl Payer for Share {
    fn with_share<R>(&self, look: impl FnOnce(&Share) -> R) -> R {
        look(self)
    }

    fn charge(&self, _: u64) {}
}

/// Begins the next round, in tests of a thread without a keeper.
#[cfg(test)]
pub(crate) fn next_round() {
    ROUNDS.with(Rounds::next);
}

#[cfg(test)]
mod tests {
    use super::{Metered, idle, keep_rounds, used};
    use crate::rounds::Share;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::task::{Context, Poll};
    use tokio::io::AsyncReadExt as _;

    /// Processor time that a poll of the crowd uses at least, ns: 20 of them use a round.
    const POLL_NS: u64 = 25_000;

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

    /// How many polls of so many tasks pass before a task of a share of its own reads what came on its socket. They are of
    /// these shares, in turns.
    fn polls_before_another(tasks: usize, shares: &[Rc<Share>]) -> usize {
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
            for (_, share) in (0..tasks).zip(shares.iter().cycle()) {
                let crowd = crowd.clone();
                let hungry = poll_fn(move |context| crowd.poll(context));
                tokio::task::spawn_local(Metered::new(Rc::clone(share), hungry));
            }
            let other = Metered::new(
                Rc::<Share>::default(),
                async move { socket.read_u8().await },
            );
            let other = tokio::task::spawn_local(other);
            other.await.expect("a task").expect("a byte");
            crowd.polls.get() - crowd.most
        })
    }

    /// How many polls of ordinary tasks pass before one that a reservation pays for goes on, which another
    /// thread woke.
    fn polls_before_an_urgent_one(tasks: usize) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .on_thread_park(idle)
            .build()
            .expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(keep_rounds());
            let polls = Rc::new(Cell::new(0));
            let (send, receive) = tokio::sync::oneshot::channel();
            let mut send = Some(send);
            for number in 0..tasks {
                let polls = polls.clone();
                let mut send = send.take_if(|_| number == 0);
                let ordinary = poll_fn(move |context| {
                    polls.set(polls.get() + 1);
                    if polls.get() > 2 * tasks
                        && let Some(send) = send.take()
                    {
                        let other = std::thread::spawn(move || send.send(()));
                        other.join().expect("a thread").expect("sent");
                        polls.set(0);
                    }
                    context.waker().wake_by_ref();
                    Poll::<()>::Pending
                });
                tokio::task::spawn_local(Metered::new(Rc::<Share>::default(), ordinary));
            }
            let reserved = Rc::new(Share::reserving(1, 5));
            let urgent = async move {
                receive.await.expect("sent");
                polls.get()
            };
            let urgent = tokio::task::spawn_local(Metered::new(reserved, urgent));
            urgent.await.expect("a task")
        })
    }

    #[test]
    fn what_a_reservation_pays_for_waits_for_the_poll_that_is_under_way_and_no_others() {
        for tasks in [1, 20, 200] {
            assert_eq!(polls_before_an_urgent_one(tasks), 0, "{tasks} tasks");
        }
    }

    #[test]
    fn a_crowd_of_a_source_delays_another_by_a_round_or_two() {
        for tasks in [1, 20, 200] {
            let polls = polls_before_another(tasks, &[Rc::default()]);
            assert!(polls <= 3 * 20, "{polls} of {tasks} tasks");
        }
    }

    #[test]
    fn a_crowd_of_sources_delays_another_by_a_round_or_two_as_one_source_does() {
        for tasks in [1, 20, 200] {
            let sources: Vec<_> = (0..tasks).map(|_| Rc::new(Share::in_crowd())).collect();
            let polls = polls_before_another(tasks, &sources);
            assert!(polls <= 3 * 20, "{polls} of {tasks} sources");
        }
    }
}
