//! A bell that wakes one thread which drains several pipes.

use crate::sync::{Arc, Condvar, Mutex, lock, wait};

/// Rung when something was written to a pipe; clones are the same bell.
#[derive(Clone)]
pub struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Default for Bell {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }
}

impl Bell {
    /// Wakes the thread that waits, or the next one that is going to. O(1), never blocks for long.
    pub fn ring(&self) {
        let (rung, condition) = &*self.0;
        let before = std::mem::replace(&mut *lock(rung), true);
        if !before {
            condition.notify_one();
        }
    }

    /// Blocks the calling thread until the bell was rung since the last call. Only one thread waits.
    pub fn wait(&self) {
        let (rung, condition) = &*self.0;
        let mut is_rung = lock(rung);
        while !*is_rung {
            is_rung = wait(condition, rung, is_rung, None);
        }
        *is_rung = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Bell;

    #[test]
    fn a_bell_that_was_rung_before_is_heard_once() {
        let bell = Bell::default();
        bell.ring();
        bell.ring();
        bell.wait();
        let other = bell.clone();
        let thread = std::thread::spawn(move || other.wait());
        bell.ring();
        thread.join().expect("it was woken");
    }
}
