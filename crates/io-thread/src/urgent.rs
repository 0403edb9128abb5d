//! Urgent tasks, which are those that reservations pay for: once woken they go before others.
//!
//! The runtime's queue is first in, first out, and what another thread woke, such as a cell, has its turn after up to 31
//! others. So a task without a [reservation](crate::Share::reserving) makes room while one with a reservation was
//! woken and not polled: it goes to the end of the queue, which costs next to nothing. What has a reservation waits
//! for the poll that is under way, and for no others.

use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, Ordering};
use std::task::{Wake, Waker};

thread_local! {
    /// The urgent tasks of this thread that were woken, and not polled. Below 0 for the moment between what a wake
    /// and a poll count.
    static WOKEN: Arc<AtomicIsize> = Arc::default();
}

/// Whether an urgent task of this thread was woken, and not polled.
pub(crate) fn one_was_woken() -> bool {
    WOKEN.with(|woken| woken.load(Ordering::Relaxed) > 0)
}

const POLLED: u8 = 0;
const WOKEN_SINCE: u8 = 1;
/// Its task has gone: what still keeps a waker wakes nothing.
const GONE: u8 = 2;

/// What wakes a task, urgent or not.
#[derive(Debug)]
pub(crate) struct TaskWaker {
    shared: Arc<Shared>,
    /// The same, as what the task waits for keeps it.
    waker: Waker,
}

#[derive(Debug)]
struct Shared {
    is_urgent: AtomicBool,
    state: AtomicU8,
    woken: Arc<AtomicIsize>,
    task: AtomicWaker,
}

impl TaskWaker {
    /// That of a task of this thread.
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared {
            is_urgent: AtomicBool::new(false),
            state: AtomicU8::new(POLLED),
            woken: WOKEN.with(Arc::clone),
            task: AtomicWaker::new(),
        });
        Self {
            waker: shared.clone().into(),
            shared,
        }
    }

    /// Says whether the task is urgent from now on.
    pub(crate) fn set_urgent(&self, is_urgent: bool) {
        self.shared.is_urgent.store(is_urgent, Ordering::Relaxed);
    }

    /// The task is about to be polled. Returns what it is to be woken with, which goes through to `waker`.
    pub(crate) fn polled(&self, waker: &Waker) -> &Waker {
        self.shared.task.register(waker);
        self.shared.leave(POLLED);
        &self.waker
    }
}

impl Drop for TaskWaker {
    fn drop(&mut self) {
        self.shared.leave(GONE);
        self.shared.task.take();
    }
}

impl Shared {
    fn count(&self) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let woken = self
            .state
            .compare_exchange(POLLED, WOKEN_SINCE, success, failure);
        if woken.is_ok() {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts as woken no more.
    fn leave(&self, to: u8) {
        if self.state.swap(to, Ordering::AcqRel) == WOKEN_SINCE {
            self.woken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_urgent.load(Ordering::Relaxed) {
            self.count();
        }
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::{TaskWaker, one_was_woken};
    use std::task::Waker;

    #[test]
    fn an_urgent_task_counts_from_a_wake_until_it_is_polled_or_has_gone() {
        let task = TaskWaker::new();
        let waker = task.polled(Waker::noop()).clone();
        waker.wake_by_ref();
        assert!(!one_was_woken(), "it is not urgent");
        task.set_urgent(true);
        for _ in 0..3 {
            waker.wake_by_ref();
            waker.wake_by_ref();
            assert!(one_was_woken());
            task.polled(Waker::noop());
            assert!(!one_was_woken());
        }
        waker.wake_by_ref();
        assert!(one_was_woken());
        drop(task);
        assert!(!one_was_woken());
        waker.wake();
        assert!(!one_was_woken(), "it has gone");
    }
}
