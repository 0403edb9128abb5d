//! The one door into a cell: other threads put commands and wake-ups here, the cell's thread
//! takes them out.
//!
//! This is where the cell's thread meets all others, so it is small and model-checked
//! (`RUSTFLAGS="--cfg loom" cargo test -p leasehold-crossing --release`): no message is lost,
//! and a cell that went to sleep is woken by every message put after its last look.
//!
//! A wake-up of an execution is a flag rather than a message ([`WakeFlag`]): however often a
//! hostile guest makes its waker fire, it occupies at most one place in the inbox.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Condvar, Mutex, lock};
use std::time::Duration;

/// What arrives in an [`Inbox`].
#[derive(Debug)]
pub enum Message<C> {
    /// The execution with this key may be able to go on.
    Wake(u64),
    /// A command of the controller.
    Command(C),
}

struct Queue<C> {
    messages: Vec<Message<C>>,
    /// The cell's thread is waiting, or about to, and needs a notification.
    sleeping: bool,
}

/// Messages to one cell; any number of senders, one receiver.
pub struct Inbox<C> {
    queue: Mutex<Queue<C>>,
    arrived: Condvar,
    /// True while `queue.messages` may hold something: lets the executor's loop look without
    /// taking the lock.
    nonempty: AtomicBool,
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
                messages: Vec::new(),
                sleeping: false,
            }),
            arrived: Condvar::new(),
            nonempty: AtomicBool::new(false),
        }
    }

    /// Puts a message in and wakes the cell if it sleeps.
    pub fn put(&self, message: Message<C>) {
        let wake = {
            let mut queue = lock(&self.queue);
            queue.messages.push(message);
            self.nonempty.store(true, Ordering::Release);
            queue.sleeping
        };
        if wake {
            self.arrived.notify_one();
        }
    }

    /// Moves everything that has arrived into `into`, without waiting.
    ///
    /// Costs one atomic load when nothing has arrived.
    pub fn take(&self, into: &mut Vec<Message<C>>) {
        if !self.nonempty.load(Ordering::Acquire) {
            return;
        }
        let mut queue = lock(&self.queue);
        self.nonempty.store(false, Ordering::Relaxed);
        into.append(&mut queue.messages);
    }

    /// Sleeps until a message has arrived, or for `timeout` at most.
    ///
    /// May return early; the caller looks again.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut queue = lock(&self.queue);
        queue.sleeping = true;
        while queue.messages.is_empty() {
            match timeout {
                None => {
                    queue = match self.arrived.wait(queue) {
                        Ok(queue) => queue,
                        Err(poisoned) => poisoned.into_inner(),
                    }
                }
                Some(timeout) => {
                    queue = match self.arrived.wait_timeout(queue, timeout) {
                        Ok((queue, _)) => queue,
                        Err(poisoned) => poisoned.into_inner().0,
                    };
                    break;
                }
            }
        }
        queue.sleeping = false;
    }
}

/// The waker of one execution.
pub struct WakeFlag<C> {
    execution: u64,
    queued: AtomicBool,
    inbox: Arc<Inbox<C>>,
}

impl<C> WakeFlag<C> {
    /// The flag of one execution, which reports to `inbox`.
    pub fn new(execution: u64, inbox: Arc<Inbox<C>>) -> Self {
        Self {
            execution,
            queued: AtomicBool::new(false),
            inbox,
        }
    }

    /// Asks for the execution to be polled. Idempotent until [`WakeFlag::clear`].
    pub fn set(&self) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.inbox.put(Message::Wake(self.execution));
        }
    }

    /// Called just before the execution is polled: what happens from here on needs a new wake-up.
    pub fn clear(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl<C: Send> std::task::Wake for WakeFlag<C> {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::{Inbox, Message, WakeFlag};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    #[test]
    fn no_message_is_lost_and_a_sleeping_cell_wakes() {
        loom::model(|| {
            let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
            let senders: Vec<_> = (0..2)
                .map(|n| {
                    let inbox = inbox.clone();
                    thread::spawn(move || inbox.put(Message::Command(n)))
                })
                .collect();
            let mut got = Vec::new();
            while got.len() < 2 {
                inbox.take(&mut got);
                if got.len() < 2 {
                    // Deadlocks under the model if a message could arrive unnoticed.
                    inbox.wait(None);
                }
            }
            for sender in senders {
                sender.join().expect("sender");
            }
        });
    }

    #[test]
    fn a_wake_after_the_flag_was_cleared_is_delivered() {
        loom::model(|| {
            let inbox: Arc<Inbox<u32>> = Arc::new(Inbox::new());
            let flag = Arc::new(WakeFlag::new(7, inbox.clone()));
            let event = Arc::new(AtomicBool::new(false));
            let waker = {
                let (flag, event) = (flag.clone(), event.clone());
                thread::spawn(move || {
                    event.store(true, Ordering::Release);
                    flag.set();
                })
            };
            let mut messages = Vec::new();
            // The executor: clear, look for the event, sleep if it is not there yet.
            loop {
                flag.clear();
                if event.load(Ordering::Acquire) {
                    break;
                }
                inbox.wait(None);
                inbox.take(&mut messages);
            }
            waker.join().expect("waker");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Inbox, Message, WakeFlag};
    use std::sync::Arc;

    #[test]
    fn a_waker_that_fires_often_occupies_one_place() {
        let inbox: Arc<Inbox<()>> = Arc::new(Inbox::new());
        let flag = Arc::new(WakeFlag::new(3, inbox.clone()));
        for _ in 0..1000 {
            flag.set();
        }
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        assert_eq!(messages.len(), 1);
        assert!(matches!(messages[0], Message::Wake(3)));
        flag.clear();
        flag.set();
        inbox.take(&mut messages);
        assert_eq!(messages.len(), 2);
    }

    #[test]
    fn waiting_returns_at_once_when_a_message_is_there() {
        let inbox: Inbox<u32> = Inbox::new();
        inbox.put(Message::Command(1));
        inbox.wait(None);
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        assert!(matches!(messages[..], [Message::Command(1)]));
    }
}
