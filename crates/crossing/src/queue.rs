//! A bounded queue between threads whose two ends are locked apart: a thread that puts something
//! in never holds up the thread that takes out.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Mutex, lock};

/// Why a [`Queue`] did not take a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// As many things as it may hold are waiting.
    Full,
    /// It was closed.
    Closed,
}

/// A queue of at most a given number of things, first in, first out.
pub struct Queue<T> {
    places: Box<[Mutex<Option<T>>]>,
    /// Put in and taken out since the beginning; their difference is the length.
    put: AtomicUsize,
    taken: AtomicUsize,
    closed: AtomicBool,
    /// Held by a thread that puts in, and by one that takes out: the threads of one end exclude
    /// each other, and those of the other end are not concerned.
    putting: Mutex<()>,
    taking: Mutex<()>,
}

impl<T> Queue<T> {
    /// An empty queue for at most `most` things, at least 1; allocates for all of them.
    pub fn new(most: usize) -> Self {
        Self {
            places: (0..most.max(1)).map(|_| Mutex::new(None)).collect(),
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            putting: Mutex::new(()),
            taking: Mutex::new(()),
        }
    }

    /// Puts a thing in; gives it back if the queue is full or closed. O(1). A thing that is put in
    /// while the queue is being closed is dropped, as if it had been in before.
    pub fn put(&self, thing: T) -> Result<(), (T, Rejected)> {
        let putting = lock(&self.putting);
        if self.closed.load(Ordering::Acquire) {
            return Err((thing, Rejected::Closed));
        }
        let put = self.put.load(Ordering::Relaxed);
        if put - self.taken.load(Ordering::Acquire) == self.places.len() {
            return Err((thing, Rejected::Full));
        }
        *lock(&self.places[put % self.places.len()]) = Some(thing);
        self.put.store(put + 1, Ordering::Release);
        drop(putting);
        // Closing empties the queue once: what came in after that is dropped here. Either this
        // thread sees that the queue is closed, or the closing thread sees what was put in: each
        // writes, passes a fence, and reads what the other writes.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.empty();
        }
        Ok(())
    }

    /// Takes the oldest thing out. O(1), without waiting for a thread that puts in.
    pub fn take(&self) -> Option<T> {
        let _taking = lock(&self.taking);
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.put.load(Ordering::Acquire) {
            return None;
        }
        let thing = lock(&self.places[taken % self.places.len()]).take();
        self.taken.store(taken + 1, Ordering::Release);
        thing
    }

    /// How many things wait.
    pub fn len(&self) -> usize {
        // The count that only grows behind the other is read first.
        let taken = self.taken.load(Ordering::Acquire);
        self.put
            .load(Ordering::Acquire)
            .saturating_sub(taken)
            .min(self.places.len())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes no more in, and drops what waits. O(n) in what waits.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.empty();
    }

    fn empty(&self) {
        while self.take().is_some() {}
    }

    /// Whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::{Queue, Rejected};
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn what_is_put_into_a_queue_that_closes_does_not_stay_in_it() {
        loom::model(|| {
            let queue = Arc::new(Queue::new(1));
            let thing = std::sync::Arc::new(());
            let putting = {
                let (queue, thing) = (queue.clone(), thing.clone());
                thread::spawn(move || match queue.put(thing) {
                    Ok(()) | Err((_, Rejected::Closed)) => {}
                    Err(other) => panic!("{other:?}"),
                })
            };
            queue.close();
            putting.join().expect("putting");
            assert!(queue.is_empty());
            assert_eq!(std::sync::Arc::strong_count(&thing), 1);
        });
    }

    #[test]
    fn two_threads_that_put_in_lose_nothing() {
        loom::model(|| {
            let queue = Arc::new(Queue::new(2));
            let putting: Vec<_> = (0..2)
                .map(|n| {
                    let queue = queue.clone();
                    thread::spawn(move || queue.put(n).expect("room"))
                })
                .collect();
            let mut taken: Vec<_> = queue.take().into_iter().collect();
            for thread in putting {
                thread.join().expect("putting");
            }
            taken.extend(std::iter::from_fn(|| queue.take()));
            taken.sort_unstable();
            assert_eq!(taken, [0, 1]);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Queue, Rejected};

    #[test]
    fn things_come_out_in_order_and_no_more_wait_than_may() {
        let queue = Queue::new(3);
        for round in 0..10 {
            for n in 0..3 {
                queue.put(round * 3 + n).expect("room");
            }
            assert_eq!(queue.put(99), Err((99, Rejected::Full)));
            assert_eq!(queue.len(), 3);
            for n in 0..3 {
                assert_eq!(queue.take(), Some(round * 3 + n));
            }
            assert_eq!(queue.take(), None);
        }
        queue.close();
        assert_eq!(queue.put(1), Err((1, Rejected::Closed)));
    }
}
