//! A condition that threads wait for with a [`Mutex`](crate::Mutex).

use crate::mutex::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::thread::futex::{Flags, Timespec, wait, wake};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A condition variable. A thread may also be woken without a reason: it looks again.
#[derive(Debug, Default)]
pub struct Condvar {
    /// How often it was notified, wrapping.
    notices: AtomicU32,
    /// Threads that wait or are about to.
    waiting: AtomicU32,
}

impl Condvar {
    /// A condition that no thread waits for.
    pub const fn new() -> Self {
        Self {
            notices: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    /// Unlocks `guard` of `mutex` and waits until it was notified; then locks it again.
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_until(mutex, guard, None).0
    }

    /// The same for `timeout` at most, and whether it was over before a notice came.
    pub fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_until(mutex, guard, Some(timeout))
    }

    fn wait_until<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        // In the critical section, so that each notice of a change that follows it is seen, and finds the waiter.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let notices = self.notices.load(Ordering::SeqCst);
        drop(guard);
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // Woken, too late to wait, or interrupted: the caller looks again.
        let waited = wait(&self.notices, Flags::PRIVATE, notices, timeout.as_ref());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        (mutex.lock(), waited == Err(Errno::TIMEDOUT))
    }

    /// Wakes a thread that waits. No system call if none does.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all threads that wait. No system call if none does.
    pub fn notify_all(&self) {
        self.notify(i32::MAX.unsigned_abs());
    }

    fn notify(&self, most: u32) {
        self.notices.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // It fails for no word that can be read.
            let _ = wake(&self.notices, Flags::PRIVATE, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Condvar, Mutex};
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn no_notice_is_lost_between_two_threads_that_take_turns() {
        const TURNS: u32 = 20_000;
        let shared = Arc::new((Mutex::new(0_u32), Condvar::new()));
        let play = |parity: u32| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (turn, changed) = &*shared;
                let mut now = turn.lock();
                while *now < TURNS {
                    if *now % 2 == parity {
                        *now += 1;
                        changed.notify_one();
                    } else {
                        now = changed.wait(turn, now);
                    }
                }
            })
        };
        let players = [play(0), play(1)];
        for player in players {
            player.join().expect("it plays");
        }
        assert_eq!(*shared.0.lock(), TURNS);
    }

    #[test]
    fn all_that_wait_are_woken() {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (open, changed) = &*shared;
                    let mut is_open = open.lock();
                    while !*is_open {
                        is_open = changed.wait(open, is_open);
                    }
                })
            })
            .collect();
        *shared.0.lock() = true;
        shared.1.notify_all();
        for thread in threads {
            thread.join().expect("it was woken");
        }
    }

    #[test]
    fn a_wait_ends_without_a_notice_when_its_time_is_over() {
        let (mutex, changed) = (Mutex::new(()), Condvar::new());
        let timeout = Duration::from_millis(1);
        while !changed.wait_for(&mutex, mutex.lock(), timeout).1 {}
        assert!(mutex.try_lock().is_some());
    }
}
