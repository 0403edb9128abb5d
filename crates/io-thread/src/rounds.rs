//! Fair shares of the thread, in rounds of its processor time.
//!
//! In a round, each share may use an equal part; what would use more waits until the round is over,
//! or until nothing else has anything to do. So an idle thread refuses no work, and what the peers of
//! one tenant send delays the I/O of another by about one step of each.
//!
//! A share with a [reservation](Share::reserving) has a part of each round of its own, and does not wait for
//! the end of a round while it has some of that left: it waits for about a round, however many others there are.
//!
//! When a round is over, all others wait. First the system is asked which sockets are ready, and
//! what it names has its turn ([`keep_rounds`](crate::keep_rounds)): otherwise a crowd of tasks that each use a
//! little could begin round after round before anything else is seen. In the next round those go first that
//! had nothing of the one before.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// Processor time of a round, ns: some tens of steps.
const ROUND_NS: u64 = 500_000;

/// What a tenant used in a round, or whatever else has an equal part. Only the I/O thread changes it.
#[derive(Debug, Default)]
pub struct Share {
    round: AtomicU64,
    used_ns: AtomicU64,
    /// What it has of each round whatever others do, ns.
    reserved_ns: u64,
}

impl Share {
    /// A share that has `budget_ns` of each `period_ns` of the thread to itself. Reservations that are admitted
    /// for one processor leave something to the others.
    ///
    /// # Panics
    /// If the period is 0.
    pub fn reserving(budget_ns: u64, period_ns: u64) -> Self {
        let part = u128::from(ROUND_NS) * u128::from(budget_ns) / u128::from(period_ns);
        Self {
            reserved_ns: u64::try_from(part).unwrap_or(ROUND_NS).min(ROUND_NS),
            ..Self::default()
        }
    }
}

/// Why a task waits for the next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The round is over, and its share has used nothing of it.
    Unserved,
    /// Its share has used its part, or something of a round that is over.
    Served,
}

/// The rounds of a thread.
#[derive(Debug)]
pub(crate) struct Rounds {
    number: Cell<u64>,
    used_ns: Cell<u64>,
    /// The shares that were used in this round, and in the one before.
    active: Cell<u64>,
    active_before: Cell<u64>,
    /// The tasks that wait, by [`Wait`].
    unserved: RefCell<Vec<Waker>>,
    served: RefCell<Vec<Waker>>,
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
            unserved: RefCell::new(Vec::new()),
            served: RefCell::new(Vec::new()),
            is_over: Cell::new(false),
            keeper: RefCell::new(None),
        }
    }

    /// The number of the round.
    pub(crate) const fn number(&self) -> u64 {
        self.number.get()
    }

    /// Why a task of this share has to wait for the next round, if it has.
    pub(crate) fn wait_of(&self, share: &Share) -> Option<Wait> {
        let used = self.used_by(share);
        if used < share.reserved_ns {
            return None;
        }
        let part = ROUND_NS / self.active.get().max(self.active_before.get()).max(1);
        match used {
            0 => self.is_over.get().then_some(Wait::Unserved),
            _ if used >= part || self.is_over.get() => Some(Wait::Served),
            _ => None,
        }
    }

    /// What a share has used of this round, ns.
    fn used_by(&self, share: &Share) -> u64 {
        match share.round.load(Ordering::Relaxed) == self.number.get() {
            true => share.used_ns.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// Wakes a task at the end of the round.
    pub(crate) fn defer(&self, wait: Wait, waker: Waker) {
        let waiting = match wait {
            Wait::Unserved => &self.unserved,
            Wait::Served => &self.served,
        };
        waiting.borrow_mut().push(waker);
    }

    /// Charges a share with processor time, ns.
    pub(crate) fn charge(&self, share: &Share, ns: u64) {
        let number = self.number.get();
        let used = self.used_by(share);
        if share.round.swap(number, Ordering::Relaxed) != number {
            self.active.set(self.active.get() + 1);
        }
        share.used_ns.store(used + ns, Ordering::Relaxed);
        self.used_ns.set(self.used_ns.get() + ns);
        if self.used_ns.get() >= ROUND_NS {
            self.end();
        }
    }

    /// The thread has nothing else to do: what was deferred goes on.
    pub(crate) fn idle(&self) {
        if !self.unserved.borrow().is_empty() || !self.served.borrow().is_empty() {
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
        for waiting in [&self.unserved, &self.served] {
            let woken = std::mem::take(&mut *waiting.borrow_mut());
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ROUND_NS, Rounds, Share, Wait};
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
            assert_eq!(rounds.wait_of(&share), None);
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
            if rounds.wait_of(&shares[at]).is_none() {
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
        assert_eq!(rounds.wait_of(&hungry), Some(Wait::Served));
        assert_eq!(rounds.wait_of(&modest), None);
        rounds.defer(Wait::Served, Waker::from(woken.clone()));
        rounds.idle();
        keep(&rounds);
        assert_eq!((times(), rounds.wait_of(&hungry)), (1, None));
        rounds.charge(&hungry, ROUND_NS / 2);
        rounds.defer(Wait::Served, Waker::from(woken.clone()));
        rounds.charge(&modest, ROUND_NS / 2);
        assert_eq!(
            rounds.wait_of(&hungry),
            Some(Wait::Served),
            "it is not kept yet"
        );
        keep(&rounds);
        assert_eq!((times(), rounds.wait_of(&hungry)), (2, None));
        rounds.idle();
        keep(&rounds);
        assert_eq!(times(), 2, "each is woken once");
    }

    #[test]
    fn a_share_with_a_reservation_does_not_wait_for_a_round_while_it_has_some_of_its_part_left() {
        let rounds = Rounds::new();
        let (reserved, other) = (Share::reserving(4, 20), Share::default());
        rounds.charge(&other, ROUND_NS);
        assert_eq!(rounds.wait_of(&other), Some(Wait::Served));
        assert_eq!(rounds.wait_of(&Share::default()), Some(Wait::Unserved));
        assert_eq!(rounds.wait_of(&reserved), None);
        rounds.charge(&reserved, ROUND_NS / 5 - 1);
        assert_eq!(rounds.wait_of(&reserved), None);
        rounds.charge(&reserved, 1);
        assert_eq!(rounds.wait_of(&reserved), Some(Wait::Served));
        keep(&rounds);
        assert_eq!(rounds.wait_of(&reserved), None);
    }

    /// Notes its number when it is woken.
    struct Note(usize, Arc<std::sync::Mutex<Vec<usize>>>);

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            self.1.lock().expect("one thread").push(self.0);
        }
    }

    #[test]
    fn what_had_nothing_of_a_round_goes_first_in_the_next() {
        let rounds = Rounds::new();
        let order = Arc::default();
        let note = |number| Waker::from(Arc::new(Note(number, Arc::clone(&order))));
        for (number, wait) in [Wait::Served, Wait::Unserved, Wait::Served, Wait::Unserved]
            .into_iter()
            .enumerate()
        {
            rounds.defer(wait, note(number));
        }
        rounds.idle();
        keep(&rounds);
        assert_eq!(*order.lock().expect("one thread"), [1, 3, 0, 2]);
    }

    #[test]
    fn every_one_of_many_shares_has_its_turn_although_a_step_is_longer_than_its_part() {
        let rounds = Rounds::new();
        let shares: [Share; 40] = std::array::from_fn(|_| Share::default());
        let mut served = [0_u32; 40];
        // As the runtime's queue, in which tasks are in the order in which they were woken.
        let mut queue: std::collections::VecDeque<usize> = (0..40).collect();
        let mut waiting = [Vec::new(), Vec::new()];
        for _ in 0..100_000 {
            let Some(at) = queue.pop_front() else {
                rounds.idle();
                keep(&rounds);
                queue.extend(waiting.iter_mut().flat_map(|list| list.drain(..)));
                continue;
            };
            match rounds.wait_of(&shares[at]) {
                Some(wait) => waiting[wait as usize].push(at),
                None => {
                    rounds.charge(&shares[at], ROUND_NS / 10);
                    served[at] += 1;
                    queue.push_back(at);
                }
            }
        }
        let (least, most) = (served.iter().min(), served.iter().max());
        assert!(most.expect("40") - least.expect("40") <= 1, "{served:?}");
    }
}
