//! The inbox of a cell: other threads put commands and wake-ups in, the cell's thread takes them
//! out.
//!
//! All communication with the cell's thread passes here, so it is small and model-checked
//! (`RUSTFLAGS="--cfg loom" cargo test -p leasehold-crossing --release`). No message is lost. Every
//! message put after a cell's last check wakes the sleeping cell. Every message that is urgent
//! enough interrupts the running guest.
//!
//! Every message has an [`Urgency`]: the priority of its receiver. The most urgent message is taken
//! first. A message that is less urgent than the running guest neither interrupts it nor costs the
//! cell anything until the guest has stopped: SPR §III-D (deferred processing of activations),
//! applied to wake-ups from other threads.
//!
//! A wake-up of an execution is a flag rather than a message ([`WakeFlag`]): a hostile guest whose
//! waker fires at any rate occupies at most one place in the inbox.

use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use crate::sync::{Arc, Condvar, Mutex, lock, wait};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;
use std::time::Duration;

/// The urgency of a message; a greater value is more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Urgency(u64);

impl Urgency {
    /// The urgency of receivers without a reservation.
    pub const BACKGROUND: Urgency = Urgency(0);
    /// The controller's: before all tenants.
    pub const CONTROL: Urgency = Urgency(u64::MAX - 2);
    /// The greatest urgency of a reservation, including an increment by one.
    const RESERVED: Urgency = Urgency(u64::MAX - 4);

    /// The urgency of a reservation of this priority.
    pub const fn of_priority(priority: u32) -> Self {
        Urgency(priority as u64 + 1)
    }

    /// The urgency of a reservation with this deadline, ns, below 2⁶³. Not to be compared with that
    /// of a priority.
    pub const fn of_deadline(deadline: u64) -> Self {
        Urgency(Self::RESERVED.0 - deadline)
    }

    /// The number behind it.
    pub const fn level(self) -> u64 {
        self.0
    }

    /// The least urgency above this one.
    #[must_use]
    pub const fn above(self) -> Self {
        Urgency(self.0.saturating_add(1))
    }
}

/// A receiver of messages.
pub trait Urgent {
    /// Returns the urgency of a message to it that is sent now: at least its urgency when the
    /// message is read. Called by the sender, on its thread.
    fn urgency(&self) -> Urgency;

    /// Whether a wake-up of this execution is kept until its tenant can run, instead of being sent.
    /// Called by the sender, on its thread.
    fn defers(&self, _execution: u64) -> bool {
        false
    }
}

impl Urgent for Urgency {
    fn urgency(&self) -> Urgency {
        *self
    }
}

/// A message that arrives in an [`Inbox`].
#[derive(Debug)]
pub enum Message<C> {
    /// The execution with this key may be able to continue.
    Wake(u64),
    /// A command of the controller.
    Command(C),
}

/// A message in its queue: the most urgent first, and the oldest of those.
struct Waiting<C> {
    rank: (Urgency, Reverse<u64>),
    message: Message<C>,
}

impl<C> PartialEq for Waiting<C> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<C> Eq for Waiting<C> {}

impl<C> PartialOrd for Waiting<C> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> Ord for Waiting<C> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

struct Queue<C> {
    messages: BinaryHeap<Waiting<C>>,
    arrivals: u64,
    /// The cell's thread is waiting, or about to, and needs a notification.
    sleeping: bool,
}

/// In [`Inbox::waiting`]: nothing. In [`Inbox::threshold`]: no guest runs, or it has been
/// interrupted already.
const NONE: u64 = 0;

fn level(urgency: Urgency) -> u64 {
    urgency.0 + 1
}

/// Messages to one cell; any number of senders, one receiver.
pub struct Inbox<C> {
    queue: Mutex<Queue<C>>,
    arrived: Condvar,
    /// The [`level`] of the most urgent message, which the executor reads without the lock.
    waiting: AtomicU64,
    /// The [`level`] from which a message interrupts the running guest.
    threshold: AtomicU64,
    interrupt: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[cfg(not(loom))]
impl<C> Default for Inbox<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Inbox<C> {
    /// An empty inbox.
    pub fn new() -> Self {
        Self {
            queue: Mutex::new(Queue {
                messages: BinaryHeap::new(),
                arrivals: 0,
                sleeping: false,
            }),
            arrived: Condvar::new(),
            waiting: AtomicU64::new(NONE),
            threshold: AtomicU64::new(NONE),
            interrupt: OnceLock::new(),
        }
    }

    /// Sets how a sender interrupts the guest that runs on the cell's thread. The first call
    /// counts.
    pub fn interrupt_with(&self, interrupt: impl Fn() + Send + Sync + 'static) {
        let _ = self.interrupt.set(Box::new(interrupt));
    }

    /// Puts a message in, wakes the cell if it sleeps, and interrupts the running guest if the
    /// message is urgent enough: at most once for each [`Inbox::enter_guest`]. O(log n) in the
    /// messages that wait.
    pub fn put(&self, message: Message<C>, urgency: Urgency) {
        let wake = {
            let mut queue = lock(&self.queue);
            let rank = (urgency, Reverse(queue.arrivals));
            queue.arrivals += 1;
            queue.messages.push(Waiting { rank, message });
            self.publish(&queue);
            queue.sleeping
        };
        if wake {
            self.arrived.notify_one();
        }
        // Either this thread sees the guest that is being entered, or the cell sees the message:
        // each writes, passes a fence, and reads what the other writes.
        fence(Ordering::SeqCst);
        let threshold = self.threshold.load(Ordering::Relaxed);
        if threshold != NONE
            && level(urgency) >= threshold
            && self
                .threshold
                .compare_exchange(threshold, NONE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            && let Some(interrupt) = self.interrupt.get()
        {
            interrupt();
        }
    }

    fn publish(&self, queue: &Queue<C>) {
        let first = queue.messages.peek();
        let waiting = first.map_or(NONE, |first| level(first.rank.0));
        self.waiting.store(waiting, Ordering::Release);
    }

    /// Takes out the most urgent message, if it is at least as urgent as `least`.
    ///
    /// Costs one atomic load when there is none.
    pub fn take(&self, least: Urgency) -> Option<Message<C>> {
        if self.waiting.load(Ordering::Acquire) < level(least) {
            return None;
        }
        let mut queue = lock(&self.queue);
        let first = queue.messages.peek()?;
        if first.rank.0 < least {
            return None;
        }
        let taken = queue.messages.pop();
        self.publish(&queue);
        taken.map(|waiting| waiting.message)
    }

    /// Records that a guest is about to run, which messages from urgency `least` on interrupt.
    /// Returns false if such a message waits already: the guest must then not be entered. A fence,
    /// a store and a load.
    pub fn enter_guest(&self, least: Urgency) -> bool {
        self.threshold.store(level(least), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) < level(least) {
            return true;
        }
        self.leave_guest();
        false
    }

    /// Whether no message has arrived since [`Inbox::enter_guest`] that interrupts the entered
    /// guest: for work on the cell's own thread that polls. An atomic load.
    pub fn is_quiet(&self) -> bool {
        self.threshold.load(Ordering::Relaxed) != NONE
    }

    /// Records that no guest runs: the cell checks for messages itself.
    pub fn leave_guest(&self) {
        self.threshold.store(NONE, Ordering::Relaxed);
    }

    /// Sleeps until a message has arrived, or for `timeout` at most.
    ///
    /// May return early; the caller checks again.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut queue = lock(&self.queue);
        queue.sleeping = true;
        while queue.messages.is_empty() {
            queue = wait(&self.arrived, &self.queue, queue, timeout);
            if timeout.is_some() {
                break;
            }
        }
        queue.sleeping = false;
    }
}

/// The execution is to be polled.
const WOKEN: u8 = 1;
/// The execution is being polled: the cell will look at the flag afterwards.
const POLLED: u8 = 2;

/// The waker of one execution, with the urgency of `U`.
pub struct WakeFlag<C, U = Urgency> {
    execution: u64,
    whose: U,
    state: AtomicU8,
    inbox: Arc<Inbox<C>>,
}

impl<C, U: Urgent> WakeFlag<C, U> {
    /// The flag of one execution, which reports to `inbox`.
    pub fn new(execution: u64, whose: U, inbox: Arc<Inbox<C>>) -> Self {
        Self {
            execution,
            whose,
            state: AtomicU8::new(0),
            inbox,
        }
    }

    /// The receiver of the wake-ups.
    pub const fn whose(&self) -> &U {
        &self.whose
    }

    /// Requests a poll of the execution: with a message, unless one is under way or the execution
    /// is being polled anyway. Idempotent until [`WakeFlag::begin_poll`].
    pub fn set(&self) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) == 0 && !self.whose.defers(self.execution) {
            let urgency = self.whose.urgency();
            self.inbox.put(Message::Wake(self.execution), urgency);
        }
    }

    /// Called just before the execution is polled: what happens from here on needs another poll.
    pub fn begin_poll(&self) {
        self.state.store(POLLED, Ordering::Release);
    }

    /// Called when the poll is over: whether the execution was woken meanwhile and has to be
    /// polled again. From here on a wake-up is a message.
    pub fn end_poll(&self) -> bool {
        self.state.swap(0, Ordering::AcqRel) & WOKEN != 0
    }
}

#[cfg(not(loom))]
impl<C: Send, U: Urgent + Send + Sync> std::task::Wake for WakeFlag<C, U> {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::{Inbox, Message, Urgency, WakeFlag};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::thread;

    const LOW: Urgency = Urgency::BACKGROUND;

    #[test]
    fn no_message_is_lost_and_a_sleeping_cell_wakes() {
        loom::model(|| {
            let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
            let senders: Vec<_> = (0..2)
                .map(|n| {
                    let inbox = inbox.clone();
                    thread::spawn(move || inbox.put(Message::Command(n), LOW))
                })
                .collect();
            let mut got = 0;
            while got < 2 {
                match inbox.take(LOW) {
                    Some(_) => got += 1,
                    // Deadlocks under the model if a message could arrive unnoticed.
                    None => inbox.wait(None),
                }
            }
            for sender in senders {
                sender.join().expect("sender");
            }
        });
    }

    #[test]
    fn a_wake_during_a_poll_or_after_it_is_delivered() {
        loom::model(|| {
            let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
            let flag = Arc::new(WakeFlag::new(7, LOW, inbox.clone()));
            let event = Arc::new(AtomicBool::new(false));
            let waker = {
                let (flag, event) = (flag.clone(), event.clone());
                thread::spawn(move || {
                    event.store(true, Ordering::Release);
                    flag.set();
                })
            };
            // The executor: poll, which looks for the event; sleep if it is not there yet.
            loop {
                flag.begin_poll();
                if event.load(Ordering::Acquire) {
                    break;
                }
                if !flag.end_poll() {
                    inbox.wait(None);
                    while inbox.take(LOW).is_some() {}
                }
            }
            waker.join().expect("waker");
        });
    }

    #[test]
    fn an_urgent_message_is_seen_before_a_guest_is_entered_or_interrupts_it() {
        loom::model(|| {
            let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
            // The guest runs until it is interrupted.
            let interrupts = Arc::new(AtomicUsize::new(0));
            let counted = interrupts.clone();
            inbox.interrupt_with(move || {
                counted.fetch_add(1, Ordering::Release);
            });
            let senders: Vec<_> = [3, 4]
                .map(|priority| {
                    let inbox = inbox.clone();
                    let urgency = Urgency::of_priority(priority);
                    thread::spawn(move || inbox.put(Message::Command(priority), urgency))
                })
                .into();
            let entered = inbox.enter_guest(Urgency::of_priority(3));
            for sender in senders {
                sender.join().expect("sender");
            }
            inbox.leave_guest();
            let interrupted = interrupts.load(Ordering::Acquire);
            if entered {
                assert_eq!(interrupted, 1, "by one of the two, and once");
            } else {
                assert!(interrupted <= 1);
            }
            let first = inbox.take(LOW);
            assert!(
                matches!(first, Some(Message::Command(4))),
                "the most urgent"
            );
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Inbox, Message, Urgency, Urgent, WakeFlag};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const LOW: Urgency = Urgency::BACKGROUND;

    #[test]
    fn a_waker_that_fires_often_occupies_one_place() {
        let inbox: Arc<Inbox<()>> = Arc::new(Inbox::new());
        let flag = Arc::new(WakeFlag::new(3, LOW, inbox.clone()));
        for _ in 0..1000 {
            flag.set();
        }
        assert!(matches!(inbox.take(LOW), Some(Message::Wake(3))));
        assert!(inbox.take(LOW).is_none());
        flag.begin_poll();
        flag.set();
        assert!(inbox.take(LOW).is_none(), "the cell looks itself");
        assert!(flag.end_poll());
        flag.set();
        assert!(matches!(inbox.take(LOW), Some(Message::Wake(3))));
    }

    /// Keeps every wake-up.
    struct Deferring(AtomicU32);

    impl Urgent for Deferring {
        fn urgency(&self) -> Urgency {
            LOW
        }

        fn defers(&self, execution: u64) -> bool {
            self.0.fetch_add(execution as u32, Ordering::Relaxed);
            true
        }
    }

    #[test]
    fn a_wake_up_that_its_tenant_defers_is_no_message() {
        let inbox: Arc<Inbox<()>> = Arc::new(Inbox::new());
        let flag = WakeFlag::new(3, Deferring(AtomicU32::new(0)), inbox.clone());
        flag.set();
        flag.set();
        assert!(inbox.take(LOW).is_none());
        assert_eq!(flag.whose().0.load(Ordering::Relaxed), 3, "kept once");
        flag.begin_poll();
        assert!(!flag.end_poll());
    }

    #[test]
    fn waiting_returns_at_once_when_a_message_is_there() {
        let inbox: Inbox<u32> = Inbox::new();
        inbox.put(Message::Command(1), LOW);
        inbox.wait(None);
        assert!(matches!(inbox.take(LOW), Some(Message::Command(1))));
    }

    #[test]
    fn the_most_urgent_is_taken_first_and_equals_in_the_order_of_arrival() {
        let inbox: Inbox<u32> = Inbox::new();
        for (n, priority) in [(0, 7), (1, 9), (2, 7), (3, 9)] {
            inbox.put(Message::Command(n), Urgency::of_priority(priority));
        }
        inbox.put(Message::Command(4), Urgency::CONTROL);
        inbox.put(Message::Command(5), LOW);
        let taken: Vec<_> = std::iter::from_fn(|| match inbox.take(LOW)? {
            Message::Command(n) => Some(n),
            Message::Wake(_) => None,
        })
        .collect();
        assert_eq!(taken, [4, 1, 3, 0, 2, 5]);
    }

    #[test]
    fn what_is_less_urgent_than_the_guest_waits_and_does_not_interrupt_it() {
        let interrupts = Arc::new(AtomicU32::new(0));
        let inbox: Inbox<u32> = Inbox::new();
        let counted = interrupts.clone();
        inbox.interrupt_with(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let seven = Urgency::of_priority(7);
        assert!(inbox.enter_guest(seven));
        inbox.put(Message::Command(1), Urgency::of_priority(6));
        assert_eq!(interrupts.load(Ordering::Relaxed), 0);
        assert!(inbox.take(seven).is_none());
        for n in 0..3 {
            inbox.put(Message::Command(n), seven);
        }
        assert_eq!(interrupts.load(Ordering::Relaxed), 1, "once is enough");
        assert!(!inbox.enter_guest(seven), "a task waits");
        assert!(inbox.enter_guest(seven.above()));
    }

    #[test]
    fn earlier_deadlines_are_more_urgent_and_the_controller_is_more_urgent_than_any() {
        let [soon, late, never] = [0, 1_000, 1 << 62].map(Urgency::of_deadline);
        assert!(Urgency::CONTROL > soon.above());
        assert!(soon > late && late > never && never > LOW);
        assert!(late.above() > late && late.above() <= Urgency::of_deadline(999));
        let inbox: Inbox<()> = Inbox::new();
        inbox.put(Message::Wake(1), late);
        assert!(inbox.take(late.above()).is_none());
        assert!(inbox.take(late).is_some());
    }

    #[test]
    fn a_waking_thread_asks_how_urgent_the_task_is_then() {
        struct Deadline(AtomicU32);
        impl Urgent for Arc<Deadline> {
            fn urgency(&self) -> Urgency {
                Urgency::of_deadline(self.0.load(Ordering::Relaxed).into())
            }
        }
        let inbox: Arc<Inbox<()>> = Arc::new(Inbox::new());
        let deadline = Arc::new(Deadline(AtomicU32::new(10)));
        let flag = WakeFlag::new(3, deadline.clone(), inbox.clone());
        deadline.0.store(20, Ordering::Relaxed);
        flag.set();
        assert!(inbox.take(Urgency::of_deadline(19)).is_none());
        assert!(inbox.take(Urgency::of_deadline(20)).is_some());
    }
}
