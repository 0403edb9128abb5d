//! The waker of one waiting side: the other side takes it out and wakes it, and neither waits.
//!
//! This is the algorithm of the crate `atomic-waker` over a lock that is never contended: the state
//! says which side may touch the waker, so that a thread of low priority cannot hold up a cell.

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Mutex, lock, look_again};
use std::task::Waker;

/// Neither side touches the waker.
const IDLE: u8 = 0;
/// The waiting side is storing its waker.
const REGISTERING: u8 = 1;
/// The other side is taking the waker, or asks the waiting side to wake itself.
const WAKING: u8 = 2;

/// A place for the waker of one waiting side.
///
/// One thread at a time registers; any thread wakes. An event that is published before
/// [`WakerSlot::wake`] is either seen by a check after [`WakerSlot::register`], or the waker is woken.
#[derive(Debug)]
pub struct WakerSlot {
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

#[cfg(not(loom))]
impl Default for WakerSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl WakerSlot {
    /// A slot without a waker.
    pub fn new() -> Self {
        Self {
            state: AtomicU8::new(IDLE),
            waker: Mutex::new(None),
        }
    }

    /// Stores `waker` for the next [`WakerSlot::wake`], in place of one that was there. The caller
    /// then checks for the event that it waits for. Never waits.
    pub fn register(&self, waker: &Waker) {
        let registering =
            self.state
                .compare_exchange(IDLE, REGISTERING, Ordering::Acquire, Ordering::Acquire);
        if registering.is_err() {
            // The other side is waking just now: this side looks again at once.
            waker.wake_by_ref();
            look_again();
            return;
        }
        match &mut *lock(&self.waker) {
            Some(present) => present.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        let registered =
            self.state
                .compare_exchange(REGISTERING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if registered.is_err() {
            // A wake-up came meanwhile and left the waking to this side.
            let waker = lock(&self.waker).take();
            // A swap and not a store: what further wake-ups announced meanwhile is seen from here.
            self.state.swap(IDLE, Ordering::AcqRel);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Wakes the waiting side, if it has registered since the last wake-up. Never waits; costs one
    /// atomic operation if there is no waker, and that waker's own cost otherwise.
    pub fn wake(&self) {
        if self.state.fetch_or(WAKING, Ordering::AcqRel) != IDLE {
            return;
        }
        let waker = lock(&self.waker).take();
        self.state.fetch_and(!WAKING, Ordering::Release);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::WakerSlot;
    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;
    use std::task::Poll;

    #[test]
    fn an_event_is_seen_or_its_waker_is_woken() {
        loom::model(|| {
            let slot = Arc::new(WakerSlot::new());
            let event = Arc::new(AtomicBool::new(false));
            let other = {
                let (slot, event) = (slot.clone(), event.clone());
                thread::spawn(move || {
                    event.store(true, Ordering::Relaxed);
                    slot.wake();
                })
            };
            // Deadlocks under the model if the wake-up is lost.
            block_on(std::future::poll_fn(|context| {
                if event.load(Ordering::Relaxed) {
                    return Poll::Ready(());
                }
                slot.register(context.waker());
                match event.load(Ordering::Relaxed) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }));
            other.join().expect("other side");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::WakerSlot;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_registration_is_woken_once() {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let slot = WakerSlot::new();
        slot.wake();
        slot.register(&Waker::from(count.clone()));
        slot.register(&Waker::from(count.clone()));
        slot.wake();
        slot.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
