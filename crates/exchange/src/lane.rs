//! The exchanges that wait for one tenant.

use crate::guest::GuestHalf;
use leasehold_crossing::{Mutex, Queue, Rejected};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

/// Why an exchange was not taken into a [`Lane`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// As many exchanges as may are waiting for the tenant.
    #[error("too many requests wait for the tenant")]
    Full,
    /// The tenant is over.
    #[error("the tenant is not running")]
    Closed,
}

/// The exchanges that wait for one tenant, at most a given number, which the I/O thread and the
/// cell share.
///
/// The cell's thread takes exchanges out and never waits for a thread that offers one.
pub struct Lane {
    waiting: Queue<GuestHalf>,
    /// The tenant's waker. The I/O thread locks it when it offers an exchange, and the cell only
    /// when a tenant begins to serve.
    waker: Mutex<Option<Waker>>,
    /// Processor time of the I/O thread on the tenant's behalf that was not taken yet, ns.
    charged: AtomicU64,
    /// Exchanges that were or are about to be offered, and are not over.
    under_way: AtomicU64,
    /// The most that one of those which were offered may hold, bytes.
    most_held: AtomicU64,
    /// The lane in which exchanges wait instead, since another life of the tenant has the place of this one.
    heir: OnceLock<Arc<Lane>>,
    /// Exchanges that ended with the execution of the guest, since that was last taken.
    failed: AtomicU64,
    /// What was said of the first of them.
    reason: Mutex<Option<String>>,
}

/// The exchanges of a [`Lane`] that failed with the execution of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// How many.
    pub exchanges: u64,
    /// Why one of them failed, at most [`Lane::REASON_BYTES`].
    pub reason: String,
}

/// An exchange that is under way, from before it is offered until it is over.
pub struct UnderWay(Arc<Passage>);

impl UnderWay {
    /// The lane that it goes through.
    pub fn lane(&self) -> Arc<Lane> {
        self.0.0.lock().clone()
    }

    /// For the exchange's half that waits in the lane.
    pub(crate) fn passage(&self) -> Weak<Passage> {
        Arc::downgrade(&self.0)
    }
}

/// The lane that an exchange goes through, among whose exchanges it is counted. The cell does not look at it.
pub(crate) struct Passage(Mutex<Arc<Lane>>);

impl Passage {
    fn of(lane: &Arc<Lane>) -> Self {
        lane.under_way.fetch_add(1, Ordering::Acquire);
        Self(Mutex::new(lane.clone()))
    }

    /// It goes through another lane. At each instant it is counted in one of them.
    pub(crate) fn turn_to(&self, lane: &Arc<Lane>) {
        let mut current = self.0.lock();
        lane.under_way.fetch_add(1, Ordering::Acquire);
        current.under_way.fetch_sub(1, Ordering::Release);
        *current = lane.clone();
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.0.lock().under_way.fetch_sub(1, Ordering::Release);
    }
}

impl Lane {
    /// A lane in which at most `most` exchanges wait, at least 1.
    pub fn new(most: usize) -> Self {
        Self {
            waiting: Queue::new(most),
            waker: Mutex::new(None),
            charged: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            most_held: AtomicU64::new(0),
            heir: OnceLock::new(),
            failed: AtomicU64::new(0),
            reason: Mutex::new(None),
        }
    }

    /// The longest reason that is kept, bytes.
    pub const REASON_BYTES: usize = 512;

    /// Counts an exchange that ended with the execution of the guest, and keeps the reason if none is
    /// kept. Never waits.
    pub fn record_failure(&self, what: &str, message: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        // Another thread holds it only to take it.
        if let Some(mut reason) = self.reason.try_lock()
            && reason.is_none()
        {
            let room = Self::REASON_BYTES.saturating_sub(what.len());
            let end = message.floor_char_boundary(room);
            *reason = Some([what, &message[..end]].concat());
        }
    }

    /// Takes what failed since the last call, if a reason was kept.
    pub fn take_failed(&self) -> Option<Failed> {
        let mut reason = self.reason.lock();
        let reason = reason.take()?;
        Some(Failed {
            exchanges: self.failed.swap(0, Ordering::Relaxed),
            reason,
        })
    }

    /// Puts an exchange at the end and wakes the tenant; gives it back if it is not taken. O(1).
    /// An exchange that is offered while the lane is being closed fails, as if it had waited. What is offered after
    /// the lane was [left](Lane::leave_to) goes to the heir.
    pub fn offer(self: &Arc<Self>, exchange: GuestHalf) -> Result<(), (GuestHalf, NotTaken)> {
        if let Some(heir) = self.heir.get() {
            return self.offer_to(heir, exchange);
        }
        self.put(exchange)?;
        // The queue has passed a fence: either this thread sees the heir, or the one that left the lane to it has seen
        // the exchange.
        if self.heir.get().is_some() {
            self.pass_on();
        }
        Ok(())
    }

    /// Puts an exchange of this lane into another one, among whose exchanges it is counted if that takes it.
    fn offer_to(
        self: &Arc<Self>,
        heir: &Arc<Lane>,
        exchange: GuestHalf,
    ) -> Result<(), (GuestHalf, NotTaken)> {
        exchange.goes_through(heir);
        heir.offer(exchange)
            .inspect_err(|(exchange, _)| exchange.goes_through(self))
    }

    fn put(&self, exchange: GuestHalf) -> Result<(), (GuestHalf, NotTaken)> {
        let held = exchange.limits().held_bytes();
        // Its limits are those of the lease: they change less often than exchanges come.
        if held > self.most_held() {
            self.most_held.fetch_max(held, Ordering::Relaxed);
        }
        self.waiting.put(exchange).map_err(|(exchange, rejected)| {
            let why = match rejected {
                Rejected::Full => NotTaken::Full,
                Rejected::Closed => NotTaken::Closed,
            };
            (exchange, why)
        })?;
        self.wake();
        Ok(())
    }

    /// Bytes of the host's memory that the largest exchange which was offered may hold; 0 before the first.
    pub fn most_held(&self) -> u64 {
        self.most_held.load(Ordering::Relaxed)
    }

    /// Takes the exchange that waits for longest; it may have been abandoned. O(1).
    pub fn take(&self) -> Option<GuestHalf> {
        let exchange = self.waiting.take()?;
        exchange.taken();
        Some(exchange)
    }

    /// From now on exchanges wait in another lane, those that wait already included: another life of the tenant is to
    /// answer them. What was taken is not concerned. A lane is left once. O(n) in what waits.
    pub fn leave_to(self: &Arc<Self>, heir: &Arc<Lane>) {
        if self.heir.set(heir.clone()).is_ok() {
            fence(Ordering::SeqCst);
            self.pass_on();
        }
    }

    /// Passes on what waits in a lane that was [left](Lane::leave_to): all for which the heir has room. The rest may be
    /// taken here, or is passed on later.
    pub fn pass_on(self: &Arc<Self>) {
        let Some(heir) = self.heir.get() else {
            return;
        };
        while let Some(exchange) = self.waiting.take() {
            if let Err((exchange, _)) = self.offer_to(heir, exchange) {
                // If the lane was closed meanwhile, it fails as all that waited.
                drop(self.put(exchange));
                return;
            }
        }
    }

    /// Counts an exchange that is going to be offered as one that is under way.
    pub fn enter(self: &Arc<Self>) -> UnderWay {
        UnderWay(Arc::new(Passage::of(self)))
    }

    /// How many exchanges are under way, those that wait among them.
    pub fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Acquire)
    }

    /// How many exchanges wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no exchange waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The tenant is over: what waits and has no heir fails with [`Failure::Ended`], and nothing is taken any more.
    /// O(n) in what waits.
    ///
    /// [`Failure::Ended`]: crate::Failure::Ended
    pub fn close(self: &Arc<Self>) {
        self.pass_on();
        self.waiting.close();
    }

    /// Whether the lane was closed.
    pub fn is_closed(&self) -> bool {
        self.waiting.is_closed()
    }

    /// Sets the tenant's waker, which every later [`Lane::offer`] wakes, and so does this call if an
    /// exchange waits already. A waker that was set before is replaced.
    pub fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
        if !self.is_empty() {
            waker.wake_by_ref();
        }
    }

    fn wake(&self) {
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Adds processor time that the I/O thread used on the tenant's behalf, ns.
    pub fn charge(&self, ns: u64) {
        match self.heir.get() {
            // The life whose lane this was may be over.
            Some(heir) => heir.charge(ns),
            None => drop(self.charged.fetch_add(ns, Ordering::Relaxed)),
        }
    }

    /// Processor time of the I/O thread since the last call, ns.
    pub fn take_charged(&self) -> u64 {
        self.charged.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Failed, Lane};

    #[test]
    fn the_first_reason_is_kept_with_the_number_of_failures_until_it_is_taken() {
        let lane = Lane::new(1);
        assert_eq!(lane.take_failed(), None);
        lane.record_failure("trapped: ", "first");
        lane.record_failure("trapped: ", "second");
        let failed = |exchanges, reason: &str| {
            Some(Failed {
                exchanges,
                reason: reason.to_owned(),
            })
        };
        assert_eq!(lane.take_failed(), failed(2, "trapped: first"));
        assert_eq!(lane.take_failed(), None);
        lane.record_failure("", &"ä".repeat(1000));
        let reason = lane.take_failed().expect("one").reason;
        assert_eq!(reason, "ä".repeat(Lane::REASON_BYTES / 2));
    }
}
