//! Executions of a tenant that wait for the end of a job which was begun for another one.

use leasehold_crossing::Mutex;
use std::task::{Context, Waker};

/// The executions that wait.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Vec<Waker>>);

impl Turns {
    /// Has the context woken at the next [`end`](Self::ended) of a job.
    pub(crate) fn wait(&self, context: &Context<'_>) {
        let mut waiting = self.0.lock();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
    }

    /// Wakes all that wait.
    pub(crate) fn ended(&self) {
        let waiting = std::mem::take(&mut *self.0.lock());
        for waker in waiting {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_that_wait_are_woken_once_each() {
        let turns = Turns::default();
        let executions: [Arc<Woken>; 3] = std::array::from_fn(|_| Arc::default());
        for _ in 0..2 {
            for woken in &executions {
                let waker = Waker::from(woken.clone());
                turns.wait(&Context::from_waker(&waker));
            }
        }
        for _ in 0..2 {
            turns.ended();
            for woken in &executions {
                assert_eq!(woken.0.load(Ordering::Relaxed), 1);
            }
        }
    }
}
