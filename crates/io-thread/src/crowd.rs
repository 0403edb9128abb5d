//! A crowd: shares that have one equal part of each round together, however many they are.
//!
//! Sources of connections are one. A client may have thousands of addresses, and if each had a part of its own, a tenant would
//! wait for a step of each of them. Among the crowd that one goes first which has used least, as in start-time fair queueing
//! (Goyal, Vin and Cheng, 1996): each has a clock that its use moves on, and that lags behind those of others by [`LAG_NS`] at
//! most. So a source that wants little waits for few steps of those that want much, and a long sleep saves nothing.

use crate::rounds::{Name, ROUND_NS, Share, Waiting};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// How far behind a clock may be, ns: about the longest step.
const LAG_NS: u64 = ROUND_NS;

/// The tasks of a crowd's shares that wait.
#[derive(Debug, Default)]
pub(crate) struct Crowd(RefCell<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// The shares of which tasks wait, by their turns.
    order: BTreeMap<Turn, Name>,
    lines: BTreeMap<Name, Line>,
    /// The clock of the share that was called last, ns.
    now: u64,
    /// Turns so far.
    turns: u64,
}

/// The clock of a share, and its number among turns: the one that is furthest behind comes first, or of several the one that has
/// waited for longest.
type Turn = (u64, u64);

/// The tasks of a share that wait, in the order in which they came.
#[derive(Debug)]
struct Line {
    turn: Turn,
    tasks: VecDeque<Waiting>,
}

impl Queue {
    /// Moves the clock of a share on. Returns its turn.
    fn turn(&mut self, share: &Share, ns: u64) -> Turn {
        let least = self.now.saturating_sub(LAG_NS);
        let clock = share.clock_ns.load(Ordering::Relaxed).max(least) + ns;
        share.clock_ns.store(clock, Ordering::Relaxed);
        self.turns += 1;
        (clock, self.turns)
    }
}

impl Crowd {
    /// Puts a task at the end of its share's line.
    pub(crate) fn defer(&self, share: &Share, task: Waiting) {
        let queue = &mut *self.0.borrow_mut();
        let name = std::ptr::from_ref(share);
        if let Some(line) = queue.lines.get_mut(&name) {
            return line.tasks.push_back(task);
        }
        let turn = queue.turn(share, 0);
        queue.order.insert(turn, name);
        let tasks = VecDeque::from([task]);
        queue.lines.insert(name, Line { turn, tasks });
    }

    /// Whether tasks wait.
    pub(crate) fn waits(&self) -> bool {
        !self.0.borrow().order.is_empty()
    }

    /// Moves a share's clock on by what it used, ns.
    pub(crate) fn charge(&self, share: &Share, ns: u64) {
        let queue = &mut *self.0.borrow_mut();
        let name = std::ptr::from_ref(share);
        let turn = queue.turn(share, ns);
        if let Some(line) = queue.lines.get_mut(&name) {
            queue.order.remove(&line.turn);
            queue.order.insert(turn, name);
            line.turn = turn;
        }
    }

    /// Takes the first task of the share whose turn it is, if one waits.
    pub(crate) fn next(&self) -> Option<Waiting> {
        let queue = &mut *self.0.borrow_mut();
        let first = queue.order.first_entry()?;
        queue.now = queue.now.max(first.key().0);
        let line = queue.lines.get_mut(first.get())?;
        let task = line.tasks.pop_front();
        if line.tasks.is_empty() {
            queue.lines.remove(&first.remove());
        }
        task
    }
}
