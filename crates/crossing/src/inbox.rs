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
//! applied to wake-ups from other threads. Nor does a message that is as urgent, unless it is for the same tenant; and one
//! that comes in the guest's non-preemptive region interrupts it at the end of that (SPR §III-F). All that one tenant can
//! interrupt another by is then what the admission test counts.
//!
//! A wake-up of an execution is a flag rather than a message ([`WakeFlag`]): a hostile guest whose
//! waker fires at any rate occupies at most one place in the inbox.

use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
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

/// A tenant, as a receiver of messages: any number that no other has, but not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    const NOBODY: Owner = Owner(0);

    /// The tenant with this number; 0 for the receivers that interrupt by their urgency alone.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
}

/// A receiver of messages.
pub trait Urgent {
    /// Returns the urgency of a message to it that is sent now: at least its urgency when the
    /// message is read. Called by the sender, on its thread.
    fn urgency(&self) -> Urgency;

    /// Whose the message is.
    fn owner(&self) -> Owner {
        Owner::NOBODY
    }

    /// The time, ns of the receiver's clock. Called by the sender, on its thread.
    fn now(&self) -> u64 {
        0
    }

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
    /// An execution may be able to continue.
    Wake {
        /// Its key.
        execution: u64,
        /// When it was woken, ns of its [clock](Urgent::now).
        sent: u64,
    },
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

/// In [`Inbox::threshold`]: the guest is interrupted at the end of its region, and by the controller at once.
const DEFERRED: u64 = u64::MAX;

const fn level(urgency: Urgency) -> u64 {
    urgency.0 + 1
}

/// The messages that interrupt an entered guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    least: Urgency,
    own: Owner,
    /// Messages from this urgency on are read before the guest is entered.
    read: Urgency,
    not_before: u64,
}

impl Attention {
    /// All messages that are at least as urgent as this.
    pub const fn to(least: Urgency) -> Self {
        Self {
            least,
            own: Owner::NOBODY,
            read: least,
            not_before: 0,
        }
    }

    /// All that are more urgent.
    pub const fn above(urgency: Urgency) -> Self {
        Self::to(urgency.above())
    }

    /// All that are more urgent, and those of one tenant, which are as urgent.
    pub const fn above_or_of(urgency: Urgency, own: Owner) -> Self {
        Self {
            own,
            read: urgency,
            ..Self::above(urgency)
        }
    }

    /// The same, but none but the controller's before an instant, ns: the end of a non-preemptive region.
    #[must_use]
    pub const fn not_before(self, instant: u64) -> Self {
        Self {
            not_before: instant,
            ..self
        }
    }
}

/// Messages to one cell; any number of senders, one receiver.
pub struct Inbox<C> {
    queue: Mutex<Queue<C>>,
    arrived: Condvar,
    /// The [`level`] of the most urgent message, which the executor reads without the lock.
    waiting: AtomicU64,
    /// The [`level`] from which a message interrupts the running guest.
    threshold: AtomicU64,
    /// Whose messages interrupt it besides. Belongs to `threshold`, and is written before it.
    own: AtomicU32,
    /// When they do at the earliest, ns. Written before `threshold`.
    not_before: AtomicU64,
    interrupt: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
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
            own: AtomicU32::new(Owner::NOBODY.0),
            not_before: AtomicU64::new(0),
            interrupt: OnceLock::new(),
        }
    }

    /// Sets how a sender interrupts the guest that runs on the cell's thread, at an instant, ns, or at once if that has
    /// passed. The first call counts.
    pub fn interrupt_with(&self, interrupt: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.interrupt.set(Box::new(interrupt));
    }

    /// Puts a message in, wakes the cell if it sleeps, and interrupts the running guest if the
    /// message is urgent enough: at most once for each [`Inbox::enter_guest`]. O(log n) in the
    /// messages that wait.
    pub fn put(&self, message: Message<C>, urgency: Urgency) {
        self.send(message, urgency, Owner::NOBODY);
    }

    fn send(&self, message: Message<C>, urgency: Urgency, owner: Owner) {
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
        let is_control = urgency == Urgency::CONTROL;
        let mut threshold = self.threshold.load(Ordering::Acquire);
        loop {
            let is_heard = match threshold {
                NONE => false,
                DEFERRED => is_control,
                least => level(urgency) >= least || self.is_own(owner),
            };
            if !is_heard {
                return;
            }
            let (then, at) = match self.not_before.load(Ordering::Relaxed) {
                at if at > 0 && !is_control => (DEFERRED, at),
                _ => (NONE, 0),
            };
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .threshold
                .compare_exchange(threshold, then, success, failure)
            {
                Ok(_) => {
                    if let Some(interrupt) = self.interrupt.get() {
                        interrupt(at);
                    }
                    return;
                }
                // Another message has been heard meanwhile, which a command need not wait for.
                Err(now) => threshold = now,
            }
        }
    }

    fn is_own(&self, owner: Owner) -> bool {
        owner != Owner::NOBODY && owner.0 == self.own.load(Ordering::Relaxed)
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

    /// Records that a guest is about to run, and which messages interrupt it. Returns false if such a message waits
    /// already: the guest must then not be entered. A fence, a load and three stores.
    pub fn enter_guest(&self, attention: Attention) -> bool {
        self.own.store(attention.own.0, Ordering::Relaxed);
        self.not_before
            .store(attention.not_before, Ordering::Relaxed);
        self.threshold
            .store(level(attention.least), Ordering::Release);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) < level(attention.read) {
            return true;
        }
        self.leave_guest();
        false
    }

    /// Whether no message waits. An atomic load.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == NONE
    }

    /// Whether no message has arrived since [`Inbox::enter_guest`] that interrupts the entered
    /// guest by `now`, ns: for work on the cell's own thread that polls. An atomic load.
    pub fn is_quiet(&self, now: impl FnOnce() -> u64) -> bool {
        match self.threshold.load(Ordering::Relaxed) {
            NONE => false,
            DEFERRED => now() < self.not_before.load(Ordering::Relaxed),
            _ => true,
        }
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
            let message = Message::Wake {
                execution: self.execution,
                sent: self.whose.now(),
            };
            let (urgency, owner) = (self.whose.urgency(), self.whose.owner());
            self.inbox.send(message, urgency, owner);
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
    use super::{Attention, Inbox, Message, Owner, Urgency, Urgent, WakeFlag};
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
            inbox.interrupt_with(move |_| {
                counted.fetch_add(1, Ordering::Release);
            });
            let senders: Vec<_> = [3, 4]
                .map(|priority| {
                    let inbox = inbox.clone();
                    let urgency = Urgency::of_priority(priority);
                    thread::spawn(move || inbox.put(Message::Command(priority), urgency))
                })
                .into();
            let entered = inbox.enter_guest(Attention::to(Urgency::of_priority(3)));
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

    /// A tenant with a priority.
    struct Tenant(Owner);

    impl Urgent for Tenant {
        fn urgency(&self) -> Urgency {
            Urgency::of_priority(3)
        }

        fn owner(&self) -> Owner {
            self.0
        }
    }

    #[test]
    fn a_wake_up_of_the_entered_tenant_is_seen_before_or_interrupts_it_whoever_ran_before() {
        loom::model(|| {
            let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
            let interrupts = Arc::new(AtomicUsize::new(0));
            let counted = interrupts.clone();
            inbox.interrupt_with(move |_| {
                counted.fetch_add(1, Ordering::Release);
            });
            let [own, other] = [1, 2].map(Owner::new);
            let flag = Arc::new(WakeFlag::new(7, Tenant(own), inbox.clone()));
            let waker = {
                let flag = flag.clone();
                thread::spawn(move || flag.set())
            };
            let urgency = Urgency::of_priority(3);
            // Another tenant of the same priority has its turn before it.
            let mut is_read = !inbox.enter_guest(Attention::above_or_of(urgency, other));
            inbox.leave_guest();
            is_read |= inbox.take(urgency).is_some();
            is_read |= !inbox.enter_guest(Attention::above_or_of(urgency, own));
            waker.join().expect("waker");
            assert!(is_read || interrupts.load(Ordering::Acquire) == 1);
        });
    }

    #[test]
    fn what_comes_in_a_region_interrupts_at_its_end_and_a_command_at_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
            // A bit for the end of the region, and one for at once.
            let interrupts = Arc::new(AtomicUsize::new(0));
            let noted = interrupts.clone();
            inbox.interrupt_with(move |from| {
                noted.fetch_or(if from == 9 { 1 } else { 2 }, Ordering::AcqRel);
            });
            let senders = [Urgency::of_priority(4), Urgency::CONTROL].map(|urgency| {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.put(Message::Command(1), urgency))
            });
            let attention = Attention::above(Urgency::of_priority(3)).not_before(9);
            let entered = inbox.enter_guest(attention);
            for sender in senders {
                sender.join().expect("sender");
            }
            if entered {
                assert!(interrupts.load(Ordering::Acquire) & 2 == 2);
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Attention, Inbox, Message, Owner, Urgency, Urgent, WakeFlag};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    const LOW: Urgency = Urgency::BACKGROUND;

    #[test]
    fn a_waker_that_fires_often_occupies_one_place() {
        let inbox: Arc<Inbox<()>> = Arc::new(Inbox::new());
        let flag = Arc::new(WakeFlag::new(3, LOW, inbox.clone()));
        for _ in 0..1000 {
            flag.set();
        }
        assert!(matches!(
            inbox.take(LOW),
            Some(Message::Wake { execution: 3, .. })
        ));
        assert!(inbox.take(LOW).is_none());
        flag.begin_poll();
        flag.set();
        assert!(inbox.take(LOW).is_none(), "the cell looks itself");
        assert!(flag.end_poll());
        flag.set();
        assert!(matches!(
            inbox.take(LOW),
            Some(Message::Wake { execution: 3, .. })
        ));
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
        assert!(inbox.is_empty(), "an idle cell has time");
        inbox.put(Message::Command(1), LOW);
        assert!(!inbox.is_empty());
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
            Message::Wake { .. } => None,
        })
        .collect();
        assert_eq!(taken, [4, 1, 3, 0, 2, 5]);
    }

    #[test]
    fn what_is_less_urgent_than_the_guest_waits_and_does_not_interrupt_it() {
        let interrupts = Arc::new(AtomicU32::new(0));
        let inbox: Inbox<u32> = Inbox::new();
        let counted = interrupts.clone();
        inbox.interrupt_with(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let seven = Urgency::of_priority(7);
        assert!(inbox.enter_guest(Attention::to(seven)));
        inbox.put(Message::Command(1), Urgency::of_priority(6));
        assert_eq!(interrupts.load(Ordering::Relaxed), 0);
        assert!(inbox.take(seven).is_none());
        for n in 0..3 {
            inbox.put(Message::Command(n), seven);
        }
        assert_eq!(interrupts.load(Ordering::Relaxed), 1, "once is enough");
        assert!(!inbox.enter_guest(Attention::to(seven)), "a task waits");
        assert!(inbox.enter_guest(Attention::above(seven)));
    }

    struct Tenant(u32, u32);

    impl Urgent for Tenant {
        fn urgency(&self) -> Urgency {
            Urgency::of_priority(self.1)
        }

        fn owner(&self) -> Owner {
            Owner::new(self.0)
        }

        fn now(&self) -> u64 {
            77
        }
    }

    /// An inbox, and the instants of its interrupts.
    fn noted() -> (Arc<Inbox<u32>>, Arc<Mutex<Vec<u64>>>) {
        let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
        let instants = Arc::new(Mutex::new(Vec::new()));
        let noted = instants.clone();
        inbox.interrupt_with(move |from| noted.lock().expect("no panic").push(from));
        (inbox, instants)
    }

    #[test]
    fn of_equals_only_the_entered_tenants_own_wake_up_interrupts_it() {
        let (inbox, interrupts) = noted();
        let wake = |owner, priority| WakeFlag::new(1, Tenant(owner, priority), inbox.clone()).set();
        let seven = Urgency::of_priority(7);
        assert!(inbox.enter_guest(Attention::above_or_of(seven, Owner::new(5))));
        wake(4, 7);
        wake(6, 7);
        assert!(interrupts.lock().expect("no panic").is_empty());
        wake(5, 7);
        assert_eq!(*interrupts.lock().expect("no panic"), [0]);
        inbox.leave_guest();
        let again = Attention::above_or_of(seven, Owner::new(5));
        assert!(!inbox.enter_guest(again), "they wait");
        let taken: Vec<_> = std::iter::from_fn(|| inbox.take(seven)).collect();
        let is_of_then = |message: &Message<u32>| matches!(message, Message::Wake { sent: 77, .. });
        assert!(taken.len() == 3 && taken.iter().all(is_of_then));
        assert!(inbox.enter_guest(Attention::above(seven)));
        wake(5, 7);
        assert_eq!(*interrupts.lock().expect("no panic"), [0]);
        wake(4, 8);
        assert_eq!(*interrupts.lock().expect("no panic"), [0, 0]);
    }

    #[test]
    fn in_a_region_the_first_message_interrupts_at_its_end_and_a_command_at_once() {
        let (inbox, interrupts) = noted();
        let nine = Urgency::of_priority(9);
        let attention = Attention::above(Urgency::of_priority(7)).not_before(500);
        assert!(inbox.enter_guest(attention));
        assert!(inbox.is_quiet(|| 499) && inbox.is_quiet(|| 500));
        inbox.put(Message::Command(1), nine);
        inbox.put(Message::Command(2), nine);
        assert_eq!(*interrupts.lock().expect("no panic"), [500]);
        assert!(inbox.is_quiet(|| 499) && !inbox.is_quiet(|| 500));
        inbox.put(Message::Command(3), Urgency::CONTROL);
        inbox.put(Message::Command(4), Urgency::CONTROL);
        assert_eq!(*interrupts.lock().expect("no panic"), [500, 0]);
        assert!(!inbox.is_quiet(|| 499));
    }

    #[test]
    fn earlier_deadlines_are_more_urgent_and_the_controller_is_more_urgent_than_any() {
        let [soon, late, never] = [0, 1_000, 1 << 62].map(Urgency::of_deadline);
        assert!(Urgency::CONTROL > soon.above());
        assert!(soon > late && late > never && never > LOW);
        assert!(late.above() > late && late.above() <= Urgency::of_deadline(999));
        let inbox: Inbox<()> = Inbox::new();
        let wake = Message::Wake {
            execution: 1,
            sent: 0,
        };
        inbox.put(wake, late);
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
