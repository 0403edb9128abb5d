//! Connections without a request, which give way to new ones while a listener is nearly full.
//!
//! Otherwise a client with a few addresses holds all places of a listener for as long as a connection may be idle, at no cost, and
//! the clients of all tenants are refused. Of the source with most such connections the one gives way that has been quiet for
//! longest: a client that has few keeps them while another one has many.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use tokio::sync::Notify;

/// The quiet connections of a listener.
#[derive(Debug, Default)]
pub(crate) struct Quiet(RefCell<Order>);

#[derive(Debug, Default)]
struct Order {
    /// Of each source that has any, by the turns in which they became quiet.
    of_sources: HashMap<u128, BTreeMap<u64, Rc<Notify>>>,
    /// How many a source has, and its first turn: the source that is to give way comes last.
    by_count: BTreeSet<(usize, Reverse<u64>, u128)>,
    next: u64,
}

impl Order {
    /// Changes the connections of a source.
    fn change<R>(
        &mut self,
        source: u128,
        change: impl FnOnce(&mut BTreeMap<u64, Rc<Notify>>) -> R,
    ) -> R {
        let place = |turns: &BTreeMap<u64, Rc<Notify>>| {
            let first = turns.first_key_value().map(|(turn, _)| *turn);
            first.map(|first| (turns.len(), Reverse(first), source))
        };
        let turns = self.of_sources.entry(source).or_default();
        let before = place(turns);
        let result = change(turns);
        let after = place(turns);
        if after.is_none() {
            self.of_sources.remove(&source);
        }
        before.map(|before| self.by_count.remove(&before));
        self.by_count.extend(after);
        result
    }
}

impl Quiet {
    /// Tells one connection to give way, if there is one. O(log n).
    pub(crate) fn give_way(&self) {
        let mut order = self.0.borrow_mut();
        let Some(&(_, Reverse(first), source)) = order.by_count.last() else {
            return;
        };
        if let Some(gives_way) = order.change(source, |turns| turns.remove(&first)) {
            gives_way.notify_one();
        }
    }
}

/// Whether a connection is quiet, and what tells it to give way.
#[derive(Debug)]
pub(crate) struct Rest {
    of: Rc<Quiet>,
    source: u128,
    gives_way: Rc<Notify>,
    turn: Cell<Option<u64>>,
    is_over: Cell<bool>,
}

impl Rest {
    /// Of a connection from this source, which is quiet.
    pub(crate) fn new(of: Rc<Quiet>, source: u128) -> Rc<Self> {
        let rest = Self {
            of,
            source,
            gives_way: Rc::default(),
            turn: Cell::new(None),
            is_over: Cell::new(false),
        };
        rest.begin();
        Rc::new(rest)
    }

    /// The connection is quiet from now on.
    pub(crate) fn begin(&self) {
        if self.is_over.get() || self.turn.get().is_some() {
            return;
        }
        let mut order = self.of.0.borrow_mut();
        let turn = order.next;
        order.next += 1;
        self.turn.set(Some(turn));
        let gives_way = self.gives_way.clone();
        order.change(self.source, |turns| turns.insert(turn, gives_way));
    }

    /// It has a request.
    pub(crate) fn end(&self) {
        if let Some(turn) = self.turn.take() {
            let mut order = self.of.0.borrow_mut();
            order.change(self.source, |turns| turns.remove(&turn));
        }
    }

    /// It is closed.
    pub(crate) fn over(&self) {
        self.is_over.set(true);
        self.end();
    }

    /// Waits until it is to give way. It may have a request again by then.
    pub(crate) async fn comes(&self) {
        self.gives_way.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::{Quiet, Rest};
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    fn is_told(rest: &Rest) -> bool {
        let mut comes = pin!(rest.comes());
        let mut context = Context::from_waker(Waker::noop());
        comes.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn the_longest_quiet_connection_of_the_source_with_most_of_them_gives_way() {
        let quiet = Rc::<Quiet>::default();
        let of = |source| Rest::new(quiet.clone(), source);
        let (few, first, second, third) = (of(1), of(2), of(2), of(2));
        let all = [&few, &first, &second, &third];
        let told = || all.map(|rest| is_told(rest));
        quiet.give_way();
        assert_eq!(told(), [false, true, false, false]);
        // One that has a request is left alone, and is the last again when it has none.
        second.end();
        second.begin();
        quiet.give_way();
        assert_eq!(told(), [false, false, false, true]);
        // Of two sources that have as many, the one that has been quiet for longest.
        quiet.give_way();
        assert_eq!(told(), [true, false, false, false]);
        quiet.give_way();
        quiet.give_way();
        assert_eq!(told(), [false, false, true, false]);
    }

    #[test]
    fn nothing_is_left_of_connections_that_are_over() {
        let quiet = Rc::<Quiet>::default();
        let rests: Vec<_> = (0..9)
            .map(|source| Rest::new(quiet.clone(), source % 4))
            .collect();
        quiet.give_way();
        for rest in &rests {
            rest.over();
            rest.begin();
            assert_eq!(rest.turn.get(), None);
        }
        let order = quiet.0.borrow();
        assert!(order.of_sources.is_empty() && order.by_count.is_empty());
    }
}
