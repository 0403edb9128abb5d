//! Fair shares of the thread, in rounds of its processor time.
//!
//! In a round, each share may use an equal part; what would use more waits until the round is over,
//! or until nothing else has anything to do. So what the peers of one tenant send delays the I/O
//! of another by about a round, and an idle thread refuses no work.
//!
//! A round that is over does not end at once. First the system is asked which sockets are ready, and
//! what it names has its turn ([`keep_rounds`](crate::keep_rounds)): otherwise a crowd of tasks that each use a
//! little could begin round after round before anything else is seen.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// Processor time of a round, ns.
const ROUND_NS: u64 = 2_000_000;

/// What a tenant used in a round, or whatever else has an equal part. Only the I/O thread changes it.
#[derive(Debug, Default)]
pub struct Share {
    round: AtomicU64,
    used_ns: AtomicU64,
}

/// The rounds of a thread.
#[derive(Debug)]
pub(crate) struct Rounds {
    number: Cell<u64>,
    used_ns: Cell<u64>,
    /// The shares that were used in this round, and in the one before.
    active: Cell<u64>,
    active_before: Cell<u64>,
    deferred: RefCell<Vec<Waker>>,
    /// Its time is used, or nothing else has anything to do.
    is_over: Cell<bool>,
    /// What begins the next.
    keeper: RefCell<Option<Waker>>,
}

impl Rounds {
    pub(crate) const fn new() -> Self {
        Self {
            // That of a new share is zero.
            number: Cell::new(1),
            used_ns: Cell::new(0),
            active: Cell::new(0),
            active_before: Cell::new(0),
            deferred: RefCell::new(Vec::new()),
            is_over: Cell::new(false),
            keeper: RefCell::new(None),
        }
    }

    /// The round, if this share has used its part of it.
    pub(crate) fn used_up_by(&self, share: &Share) -> Option<u64> {
        let number = self.number.get();
        let part = ROUND_NS / self.active.get().max(self.active_before.get()).max(1);
        let is_used = share.round.load(Ordering::Relaxed) == number
            && share.used_ns.load(Ordering::Relaxed) >= part;
        is_used.then_some(number)
    }

    /// Wakes a task at the end of the round.
    pub(crate) fn defer(&self, waker: Waker) {
        self.deferred.borrow_mut().push(waker);
    }

    /// Charges a share with processor time, ns.
    pub(crate) fn charge(&self, share: &Share, ns: u64) {
        let number = self.number.get();
        let used = match share.round.swap(number, Ordering::Relaxed) == number {
            true => share.used_ns.load(Ordering::Relaxed),
            false => {
                self.active.set(self.active.get() + 1);
                0
            }
        };
        share.used_ns.store(used + ns, Ordering::Relaxed);
        self.used_ns.set(self.used_ns.get() + ns);
        if self.used_ns.get() >= ROUND_NS {
            self.end();
        }
    }

    /// The thread has nothing else to do: what was deferred goes on.
    pub(crate) fn idle(&self) {
        if !self.deferred.borrow().is_empty() {
            self.end();
        }
    }

    fn end(&self) {
        self.is_over.set(true);
        if let Some(keeper) = self.keeper.take() {
            keeper.wake();
        }
    }

    /// Waits until the round is over.
    pub(crate) fn poll_over(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_over.get() {
            return Poll::Ready(());
        }
        self.keeper.replace(Some(context.waker().clone()));
        Poll::Pending
    }

    /// Begins the next round.
    pub(crate) fn next(&self) {
        self.is_over.set(false);
        self.number.set(self.number.get() + 1);
        self.used_ns.set(0);
        self.active_before.set(self.active.replace(0));
        let deferred = std::mem::take(&mut *self.deferred.borrow_mut());
        deferred.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::{ROUND_NS, Rounds, Share};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins the next round if this one is over.
    fn keep(rounds: &Rounds) {
        let over = rounds.poll_over(&Context::from_waker(Waker::noop()));
        if over.is_ready() {
            rounds.next();
        }
    }

    #[test]
    fn a_share_that_is_alone_is_never_deferred() {
        let (rounds, share) = (Rounds::new(), Share::default());
        for _ in 0..100 {
            assert_eq!(rounds.used_up_by(&share), None);
            rounds.charge(&share, ROUND_NS / 7);
            keep(&rounds);
        }
    }

    #[test]
    fn shares_that_want_more_than_their_parts_get_equal_ones() {
        let rounds = Rounds::new();
        let shares: [Share; 3] = std::array::from_fn(|_| Share::default());
        let mut used = [0; 3];
        // The first wants ten times as much of the thread as the others.
        let wants = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2];
        let mut steps = 0;
        while used.iter().sum::<u64>() < 1000 * ROUND_NS {
            let at = wants[steps % wants.len()];
            steps += 1;
            if rounds.used_up_by(&shares[at]).is_none() {
                rounds.charge(&shares[at], ROUND_NS / 50);
                used[at] += ROUND_NS / 50;
            }
            // As the keeper, which is one task among these.
            if steps.is_multiple_of(wants.len()) {
                keep(&rounds);
            }
        }
        let most = *used.iter().max().expect("three");
        assert!(used.iter().all(|used| most - used < most / 10), "{used:?}");
    }

    #[test]
    fn what_was_deferred_goes_on_when_the_round_is_over_or_nothing_else_is_to_do() {
        let rounds = Rounds::new();
        let (hungry, modest) = (Share::default(), Share::default());
        let woken = Arc::new(Woken::default());
        let times = || woken.0.load(Ordering::Relaxed);
        rounds.charge(&modest, 1);
        rounds.charge(&hungry, ROUND_NS / 2);
        assert!(rounds.used_up_by(&hungry).is_some());
        assert_eq!(rounds.used_up_by(&modest), None);
        rounds.defer(Waker::from(woken.clone()));
        rounds.idle();
        keep(&rounds);
        assert_eq!((times(), rounds.used_up_by(&hungry)), (1, None));
        rounds.charge(&hungry, ROUND_NS / 2);
        rounds.defer(Waker::from(woken.clone()));
        rounds.charge(&modest, ROUND_NS / 2);
        assert!(rounds.used_up_by(&hungry).is_some(), "it is not kept yet");
        keep(&rounds);
        assert_eq!((times(), rounds.used_up_by(&hungry)), (2, None));
        rounds.idle();
        keep(&rounds);
        assert_eq!(times(), 2, "each is woken once");
    }
}
