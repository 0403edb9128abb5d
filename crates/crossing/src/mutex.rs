//! A mutex whose holder runs with the priority of the most important thread that waits for it.
//!
//! A cell's thread has real-time priority, and the threads that it shares data with have none. The host takes the
//! processor from them whenever another program is to run, in the midst of a critical section, too; behind an
//! ordinary mutex the cell and all of its tenants would wait until that program has had its turn. With priority
//! inheritance (`FUTEX_LOCK_PI`, futex(2); L. Sha, R. Rajkumar, J. P. Lehoczky, 1990) the holder runs at once,
//! and the cell waits for the rest of its critical section only.
//!
//! So whatever a cell's thread locks, and other threads as well, is a mutex of this kind.

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Timespec, lock_pi, lock_pi2, unlock_pi};
use rustix::thread::{gettid, sched_yield};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

thread_local! {
    /// The number of this thread; 0 if it is not known yet.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The number of this thread, as the kernel knows it.
fn number() -> u32 {
    if NUMBER.get() == 0 {
        NUMBER.set(gettid().as_raw_nonzero().get().unsigned_abs());
    }
    NUMBER.get()
}

/// Which thread holds the mutex: its number, with a mark of the kernel's if others wait; 0 if none does.
#[derive(Debug, Default)]
struct Holder(AtomicU32);

impl Holder {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// # Panics
    /// If this thread has it already.
    fn take(&self) {
        while !self.try_take() {
            match lock_pi(&self.0, Flags::PRIVATE, None) {
                Ok(()) => return,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::DEADLK) => panic!("this thread has locked the mutex already"),
                // A kernel without inheritance.
                Err(_) => sched_yield(),
            }
        }
    }

    /// The same for `patience` at most. Returns whether this thread has it.
    fn take_within(&self, patience: Duration) -> Result<bool, Errno> {
        // The kernel waits by this clock.
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        let until = Timespec::try_from(now + patience).ok();
        while !self.try_take() {
            match lock_pi2(&self.0, Flags::PRIVATE, until.as_ref()) {
                Ok(()) => return Ok(true),
                Err(Errno::TIMEDOUT) => return Ok(false),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn try_take(&self) -> bool {
        let taken = self
            .0
            .compare_exchange(0, number(), Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    fn give_back(&self) {
        let given = self
            .0
            .compare_exchange(number(), 0, Ordering::Release, Ordering::Relaxed);
        if given.is_err() {
            // The kernel chooses who is next. It refuses only what does not hold the mutex.
            let given = unlock_pi(&self.0, Flags::PRIVATE);
            debug_assert_eq!(given, Ok(()));
        }
    }
}

/// A mutex with priority inheritance. Poison is ignored: each critical section leaves its data consistent at each
/// instruction that can panic, and a cell must outlive a thread that panics.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    holder: Holder,
    /// Never contended.
    value: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self {
            holder: Holder::new(),
            value: std::sync::Mutex::new(value),
        }
    }

    /// Waits until no other thread has it. Without contention two atomic operations, and no system call.
    ///
    /// # Panics
    /// If this thread has locked it already.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.holder.take();
        self.taken()
    }

    /// Locks it, if no thread has it or the one that has it gives it back within `patience`; that thread has the
    /// priority of this one meanwhile.
    ///
    /// # Errors
    /// When the kernel cannot wait so (`FUTEX_LOCK_PI2`, Linux 5.14), or this thread has locked it already.
    pub fn lock_for(&self, patience: Duration) -> Result<Option<MutexGuard<'_, T>>, Errno> {
        let is_taken = self.holder.take_within(patience)?;
        Ok(is_taken.then(|| self.taken()))
    }

    /// Locks it, if no thread has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.holder.try_take().then(|| self.taken())
    }

    /// What is in it.
    pub fn into_inner(self) -> T {
        self.value
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            value: self.value.lock().unwrap_or_else(PoisonError::into_inner),
            _held: Held(&self.holder),
        }
    }
}

#[derive(Debug)]
struct Held<'a>(&'a Holder);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// A locked [`Mutex`], until it is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // Dropped in this order.
    value: std::sync::MutexGuard<'a, T>,
    _held: Held<'a>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::Mutex;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_it() {
        let mutex = Arc::new(Mutex::new(0_u64));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let mutex = mutex.clone();
                thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut value = mutex.lock();
                        let seen = *value;
                        std::hint::black_box(&mut value);
                        *value = seen + 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it counts");
        }
        assert_eq!(*mutex.lock(), 160_000);
    }

    #[test]
    fn what_is_locked_is_not_locked_again_without_waiting() {
        let mutex = Mutex::new(1);
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(held);
        *mutex.try_lock().expect("free") += 1;
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn a_thread_waits_no_longer_than_its_patience() {
        let mutex = Arc::new(Mutex::new(1));
        let held = mutex.lock();
        let theirs = mutex.clone();
        let waiter = thread::spawn(move || {
            let patience = std::time::Duration::from_millis(2);
            let began = std::time::Instant::now();
            let is_locked = theirs.lock_for(patience).map(|locked| locked.is_some());
            (is_locked, began.elapsed() >= patience)
        });
        assert_eq!(waiter.join().expect("it gave up"), (Ok(false), true));
        drop(held);
        let locked = mutex.lock_for(std::time::Duration::ZERO);
        assert_eq!(locked.map(|value| value.map(|value| *value)), Ok(Some(1)));
    }

    #[test]
    #[should_panic = "locked the mutex already"]
    fn a_thread_that_would_wait_for_itself_panics() {
        let mutex = Mutex::new(());
        let _held = mutex.lock();
        let _again = mutex.lock();
    }

    #[test]
    fn a_thread_that_panics_leaves_it_unlocked() {
        let mutex = Arc::new(Mutex::new(1));
        let theirs = mutex.clone();
        let panicked = thread::spawn(move || {
            let _held = theirs.lock();
            panic!("in a critical section");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*mutex.lock(), 1);
    }
}
