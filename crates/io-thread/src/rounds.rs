//! Fair shares of the thread, in rounds of its processor time.
//!
//! In a round, each share may use an equal part; what would use more waits until the round is over,
//! or until nothing else has anything to do. So an idle thread refuses no work, and what the peers of
//! one tenant send delays the I/O of another by about one step of each.
//!
//! A share with a [reservation](Share::reserving) has a part of each round of its own, and does not wait for
//! the end of a round while it has some of that left: it waits for about a round, however many others there are.
//! What it does not use of its parts adds up over [`KEPT_ROUNDS`], since a request may need several parts at once.
//!
//! Shares [in the crowd](Share::in_crowd) have one equal part together ([`crowd`](crate::crowd)).
//!
//! What waits stands in the line of its share, and a round calls one of each line at a time: the next is called when the
//! one before it has had its turn, and the share has some of its part left. So what a round costs grows with the shares that
//! wait, and not with their tasks, of which a peer can make thousands.
//!
//! When a round is over, all others wait. First the system is asked which sockets are ready, and
//! what it names has its turn ([`keep_rounds`](crate::keep_rounds)): otherwise a crowd of tasks that each use a
//! little could begin round after round before anything else is seen. In the next round those go first that
//! had nothing of the one before.

use crate::crowd::Crowd;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// Processor time of a round, ns: some tens of steps.
pub(crate) const ROUND_NS: u64 = 500_000;
/// Over how many rounds the parts of a reservation add up: others are delayed by so many rounds at most, once, by
/// all reservations together.
const KEPT_ROUNDS: u64 = 4;

/// What a tenant used in a round, or whatever else has an equal part. Only the I/O thread changes it.
#[derive(Debug, Default)]
pub struct Share {
    round: AtomicU64,
    used_ns: AtomicU64,
    /// What it has of each round whatever others do, ns.
    reserved_ns: u64,
    /// What was left of that after it last used something, and of rounds before, ns.
    left_ns: AtomicU64,
    /// It has its part together with others.
    in_crowd: bool,
    /// Its clock among these, ns.
    pub(crate) clock_ns: AtomicU64,
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

    /// A share that has one equal part together with all others made by this function.
    pub fn in_crowd() -> Self {
        Self {
            in_crowd: true,
            ..Self::default()
        }
    }

    /// What it has of each round whatever others do, ns: 0 without a reservation.
    pub const fn reserved_ns(&self) -> u64 {
        self.reserved_ns
    }
}

/// A task's turn, which it waits for in the line of its share.
#[derive(Debug, Default)]
enum Turn {
    #[default]
    NotAsked,
    /// It stands in a line. This wakes it.
    Waits(Waker),
    /// It was called, and has not gone on yet.
    Called,
}

/// What a task keeps of its turn. It leaves the line when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<Rc<RefCell<Turn>>>);

impl Place {
    /// Says what wakes the task, which may be another task's from poll to poll. Returns its place in line, unless it stands in one
    /// already.
    fn wait(&mut self, waker: &Waker) -> Option<Waiting> {
        let own = self.0.get_or_insert_default();
        match own.replace(Turn::Waits(waker.clone())) {
            Turn::Waits(_) => None,
            Turn::NotAsked | Turn::Called => Some(Waiting(own.clone())),
        }
    }

    /// Returns whether the task was called, once.
    fn was_called(&self) -> bool {
        let own = self.0.as_ref().map(|own| own.borrow_mut());
        own.is_some_and(|mut own| match *own {
            Turn::Called => {
                *own = Turn::NotAsked;
                true
            }
            Turn::NotAsked | Turn::Waits(_) => false,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(own) = &self.0 {
            own.replace(Turn::NotAsked);
        }
    }
}

/// A task in a line.
#[derive(Debug)]
pub(crate) struct Waiting(Rc<RefCell<Turn>>);

impl Waiting {
    /// Wakes the task, unless it has gone. Returns whether it is there.
    fn call(self) -> bool {
        let mut own = self.0.borrow_mut();
        match std::mem::take(&mut *own) {
            Turn::Waits(waker) => {
                *own = Turn::Called;
                drop(own);
                waker.wake();
                true
            }
            Turn::NotAsked | Turn::Called => false,
        }
    }
}

/// The tasks of a share that wait, in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    tasks: VecDeque<Waiting>,
    /// The last round of which the share had something while tasks waited.
    served: u64,
}

/// Names a share, as long as there is one: a new one at its place goes on with its line.
pub(crate) type Name = *const Share;

/// The rounds of a thread.
#[derive(Debug)]
pub(crate) struct Rounds {
    number: Cell<u64>,
    used_ns: Cell<u64>,
    /// The shares that were used in this round, and in the one before.
    active: Cell<u64>,
    active_before: Cell<u64>,
    /// The lines in which tasks wait, and their order. One that becomes empty is removed with the next round.
    lines: RefCell<HashMap<Name, Line>>,
    order: RefCell<Vec<Name>>,
    crowd: Crowd,
    /// The part that the crowd has together.
    of_crowd: Share,
    /// The tasks in all lines.
    waiting: Cell<usize>,
    /// Its time is used, or nothing else has anything to do.
    is_over: Cell<bool>,
    /// What begins the next.
    keeper: RefCell<Option<Waker>>,
}

impl Rounds {
    pub(crate) fn new() -> Self {
        Self {
            // That of a new share is zero.
            number: Cell::new(1),
            used_ns: Cell::new(0),
            active: Cell::new(0),
            active_before: Cell::new(0),
            lines: RefCell::default(),
            order: RefCell::default(),
            crowd: Crowd::default(),
            of_crowd: Share::default(),
            waiting: Cell::new(0),
            is_over: Cell::new(false),
            keeper: RefCell::new(None),
        }
    }

    /// Whether a share has had its part of this round.
    fn is_late(&self, share: &Share) -> bool {
        if self.left_of_reservation(share) > 0 {
            return false;
        }
        let used = self.used_by(self.part_of(share));
        let part = ROUND_NS / self.active.get().max(self.active_before.get()).max(1);
        self.is_over.get() || used >= part
    }

    /// Whether a task of this share has to wait: for the next round, or for others of the crowd, which wait already.
    pub(crate) fn has_to_wait(&self, share: &Share, place: &Place) -> bool {
        let was_called = place.was_called();
        self.is_late(share) || (share.in_crowd && !was_called && self.crowd.waits())
    }

    /// The share that has a part of its own: that of the crowd for one in it.
    fn part_of<'a>(&'a self, share: &'a Share) -> &'a Share {
        match share.in_crowd {
            true => &self.of_crowd,
            false => share,
        }
    }

    /// What a share has used of this round, ns.
    fn used_by(&self, share: &Share) -> u64 {
        match share.round.load(Ordering::Relaxed) == self.number.get() {
            true => share.used_ns.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// What a share has left of its reservation, ns.
    fn left_of_reservation(&self, share: &Share) -> u64 {
        let rounds = self.number.get() - share.round.load(Ordering::Relaxed);
        let added = share.reserved_ns * rounds.min(KEPT_ROUNDS);
        let left = share.left_ns.load(Ordering::Relaxed) + added;
        left.min(KEPT_ROUNDS * share.reserved_ns)
    }

    /// Puts a task at the end of its share's line, unless it stands there. It is woken when its turn has come.
    pub(crate) fn defer(&self, share: &Share, place: &mut Place, waker: &Waker) {
        let Some(waiting) = place.wait(waker) else {
            return;
        };
        self.waiting.set(self.waiting.get() + 1);
        if share.in_crowd {
            return self.crowd.defer(share, waiting);
        }
        let name = std::ptr::from_ref(share);
        let mut lines = self.lines.borrow_mut();
        let line = lines.entry(name).or_insert_with(|| {
            self.order.borrow_mut().push(name);
            Line::default()
        });
        line.tasks.push_back(waiting);
        if self.used_by(share) > 0 {
            line.served = self.number.get();
        }
    }

    /// Calls the first task of a line that is still there.
    fn call(&self, name: Name) {
        self.call_first(|| {
            let mut lines = self.lines.borrow_mut();
            lines.get_mut(&name)?.tasks.pop_front()
        });
    }

    /// The same of the crowd.
    fn call_crowd(&self) {
        self.call_first(|| self.crowd.next());
    }

    fn call_first(&self, next: impl Fn() -> Option<Waiting>) {
        while let Some(task) = next() {
            self.waiting.set(self.waiting.get() - 1);
            if task.call() {
                return;
            }
        }
    }

    /// Charges a share with processor time, ns.
    pub(crate) fn charge(&self, share: &Share, ns: u64) {
        let part = self.part_of(share);
        self.charge_part(part, ns);
        if share.in_crowd {
            self.crowd.charge(share, ns);
            if !self.is_late(share) {
                self.call_crowd();
            }
            return;
        }
        let name = std::ptr::from_ref(share);
        if let Some(line) = self.lines.borrow_mut().get_mut(&name) {
            line.served = self.number.get();
        }
        if !self.is_late(share) {
            self.call(name);
        }
    }

    fn charge_part(&self, share: &Share, ns: u64) {
        let number = self.number.get();
        let used = self.used_by(share);
        let left = self.left_of_reservation(share).saturating_sub(ns);
        share.left_ns.store(left, Ordering::Relaxed);
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
        if self.waiting.get() > 0 {
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

    /// Begins the next round: the first task of each line, and one of the crowd, are called, of those first that had nothing of
    /// the round before. O(n log n) in the lines.
    pub(crate) fn next(&self) {
        let over = self.number.get();
        let is_served = self.used_by(&self.of_crowd) > 0;
        self.is_over.set(false);
        self.number.set(over + 1);
        self.used_ns.set(0);
        self.active_before.set(self.active.replace(0));
        let mut order = self.order.borrow_mut();
        let mut lines = self.lines.borrow_mut();
        lines.retain(|_, line| !line.tasks.is_empty());
        order.retain(|name| lines.contains_key(name));
        order.sort_by_key(|name| lines[name].served == over);
        let called = order.clone();
        drop((order, lines));
        if !is_served {
            self.call_crowd();
        }
        called.into_iter().for_each(|name| self.call(name));
        if is_served {
            self.call_crowd();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_ROUNDS, Place, ROUND_NS, Rounds, Share};
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
            assert!(!rounds.is_late(&share));
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
            if !rounds.is_late(&shares[at]) {
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
        let mut place = Place::default();
        let mut defer = || rounds.defer(&hungry, &mut place, &Waker::from(woken.clone()));
        rounds.charge(&modest, 1);
        rounds.charge(&hungry, ROUND_NS / 2);
        assert!(rounds.is_late(&hungry) && !rounds.is_late(&modest));
        defer();
        rounds.idle();
        keep(&rounds);
        assert!(times() == 1 && !rounds.is_late(&hungry));
        rounds.charge(&hungry, ROUND_NS / 2);
        defer();
        defer();
        rounds.charge(&modest, ROUND_NS / 2);
        assert!(rounds.is_late(&hungry), "it is not kept yet");
        keep(&rounds);
        assert!(times() == 2 && !rounds.is_late(&hungry));
        rounds.idle();
        keep(&rounds);
        assert_eq!(times(), 2, "each is woken once");
    }

    #[test]
    fn a_share_with_a_reservation_does_not_wait_for_a_round_while_it_has_some_of_its_parts_left() {
        let rounds = Rounds::new();
        let (reserved, other) = (Share::reserving(4, 20), Share::default());
        let part = ROUND_NS / 5;
        let use_up = |parts: u64| {
            rounds.charge(&other, ROUND_NS);
            assert!(rounds.is_late(&other) && rounds.is_late(&Share::default()));
            assert!(!rounds.is_late(&reserved));
            rounds.charge(&reserved, parts * part - 1);
            assert!(!rounds.is_late(&reserved));
            rounds.charge(&reserved, 1);
            assert!(rounds.is_late(&reserved), "{parts} parts");
            keep(&rounds);
        };
        // The first round has one part, and what is not used is kept, for some rounds.
        use_up(1);
        use_up(1);
        for (unused, parts) in [(1, 2), (2, 3), (3, KEPT_ROUNDS), (9, KEPT_ROUNDS), (0, 1)] {
            for _ in 0..unused {
                rounds.charge(&other, ROUND_NS);
                keep(&rounds);
            }
            use_up(parts);
        }
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
        let shares: [Share; 4] = std::array::from_fn(|_| Share::default());
        for served in [0, 2] {
            rounds.charge(&shares[served], 1);
        }
        let mut places: [Place; 4] = std::array::from_fn(|_| Place::default());
        for (number, (share, place)) in shares.iter().zip(&mut places).enumerate() {
            rounds.defer(share, place, &note(number));
        }
        rounds.idle();
        keep(&rounds);
        assert_eq!(*order.lock().expect("one thread"), [1, 3, 0, 2]);
    }

    #[test]
    fn a_round_calls_one_task_of_a_share_and_the_next_when_that_has_had_its_turn() {
        let rounds = Rounds::new();
        let woken = Arc::new(Woken::default());
        let times = || woken.0.load(Ordering::Relaxed);
        let share = Share::default();
        let mut places: Vec<Place> = (0..1000).map(|_| Place::default()).collect();
        for place in &mut places {
            rounds.defer(&share, place, &Waker::from(woken.clone()));
        }
        rounds.idle();
        keep(&rounds);
        assert_eq!(times(), 1);
        rounds.charge(&share, ROUND_NS / 3);
        assert_eq!(times(), 2);
        rounds.charge(&share, ROUND_NS);
        assert_eq!(times(), 2, "its part is used");
        keep(&rounds);
        assert_eq!(times(), 3);
        // A task that was called, and does not go on, keeps none of the others for longer than that; one that is gone does not
        // even for so long.
        for called in 4..=500 {
            rounds.idle();
            keep(&rounds);
            assert_eq!(times(), called);
        }
        drop(places.drain(..999));
        rounds.idle();
        keep(&rounds);
        assert_eq!(times(), 501);
        assert_eq!(rounds.waiting.get(), 0);
        rounds.next();
        assert!(rounds.lines.borrow().is_empty() && rounds.order.borrow().is_empty());
    }

    /// What shares that always want more get of so many steps, each as long as these say, as the runtime has them go on: in the
    /// order in which they were woken. Also how many polls this took.
    fn served(
        rounds: &Rounds,
        shares: &[Share],
        step_ns: &[u64],
        steps: usize,
    ) -> (Vec<u32>, usize) {
        let mut places: Vec<Place> = shares.iter().map(|_| Place::default()).collect();
        let mut served = vec![0; shares.len()];
        let queue = Arc::new(std::sync::Mutex::new((0..shares.len()).collect::<Vec<_>>()));
        let (mut polls, mut done) = (0, 0);
        while done < steps {
            let next = {
                let mut queue = queue.lock().expect("one thread");
                (!queue.is_empty()).then(|| queue.remove(0))
            };
            let Some(at) = next else {
                rounds.idle();
                keep(rounds);
                continue;
            };
            polls += 1;
            if rounds.has_to_wait(&shares[at], &places[at]) {
                let waker = Waker::from(Arc::new(Note(at, queue.clone())));
                rounds.defer(&shares[at], &mut places[at], &waker);
            } else {
                rounds.charge(&shares[at], step_ns[at]);
                served[at] += 1;
                done += 1;
                queue.lock().expect("one thread").push(at);
            }
        }
        (served, polls)
    }

    #[test]
    fn every_one_of_many_shares_has_its_turn_although_a_step_is_longer_than_its_part() {
        for share in [Share::default, Share::in_crowd] {
            let shares: Vec<Share> = (0..40).map(|_| share()).collect();
            let (served, _) = served(&Rounds::new(), &shares, &[ROUND_NS / 10; 40], 10_000);
            let (least, most) = (served.iter().min(), served.iter().max());
            assert!(most.expect("40") - least.expect("40") <= 1, "{served:?}");
        }
    }

    #[test]
    fn a_crowd_has_one_equal_part_together_and_a_step_of_it_costs_the_same_however_many_it_is() {
        for many in [1, 10, 1000] {
            let tenants = (0..2).map(|_| Share::default());
            let shares: Vec<Share> = tenants
                .chain((0..many).map(|_| Share::in_crowd()))
                .collect();
            let (served, polls) = served(
                &Rounds::new(),
                &shares,
                &vec![ROUND_NS / 60; shares.len()],
                30_000,
            );
            let of_crowd: u32 = served[2..].iter().sum();
            for of_tenant in &served[..2] {
                assert!(of_tenant.abs_diff(10_000) <= 1_000, "{many}: {served:?}");
            }
            assert!(of_crowd.abs_diff(10_000) <= 1_000, "{many}: {served:?}");
            assert!(polls <= 2 * 30_000 + 2 * many, "{many}: {polls} polls");
        }
    }

    #[test]
    fn one_of_a_crowd_that_wants_little_waits_for_few_steps_of_those_that_want_much() {
        let rounds = Rounds::new();
        let shares: Vec<Share> = (0..121).map(|_| Share::in_crowd()).collect();
        // The first one wants a twentieth of what the others do at a time: it has its turn twenty times as often.
        let mut step_ns = [ROUND_NS; 121];
        step_ns[0] = ROUND_NS / 20;
        let (served, _) = served(&rounds, &shares, &step_ns, 10_000);
        let of_others = served[1..].iter().sum::<u32>() / 120;
        assert!(served[0] > 15 * of_others, "{} of {of_others}", served[0]);
        // One that comes anew goes before all of them, and has saved nothing.
        let (new, order) = (Share::in_crowd(), Arc::default());
        let note = |number| Waker::from(Arc::new(Note(number, Arc::clone(&order))));
        let mut places = [Place::default(), Place::default()];
        rounds.charge(&shares[1], ROUND_NS);
        rounds.defer(&shares[1], &mut places[0], &note(1));
        rounds.defer(&new, &mut places[1], &note(2));
        for _ in 0..200 {
            rounds.idle();
            keep(&rounds);
        }
        assert_eq!(*order.lock().expect("one thread"), [2, 1]);
        let clock = |share: &Share| share.clock_ns.load(Ordering::Relaxed);
        assert!(clock(&new) > 10 * ROUND_NS, "what it slept is lost");
    }
}
