//! The eager scheduler's timers: one for every pending replenishment and every sleeping task, in
//! one queue (SPR §III-A). The queue is an efficient 4-ary heap in which every timer knows its
//! place: the attacks exploit the number of timers and the times at which they fire, not the queue.

use alloc::vec;
use alloc::vec::Vec;

use crate::contract::Nanos;
use crate::id::{Index, NEVER, NOWHERE};
use crate::replenishment_queue::RING;

const ARITY: usize = 4;

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A replenishment of a server.
    Replenishment(Index),
    /// A task's wake-up.
    WakeUp(Index),
}

/// Timers are numbered: those of a server's replenishments by their positions in its ring, then those of tasks.
///
/// Invariant: no timer in the heap is earlier than the one above it; `places` says where each is.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Vec<(Nanos, u32)>,
    places: Vec<u32>,
    first_task: u32,
}

impl Timers {
    pub(crate) fn new(servers: u32, tasks: u32) -> Self {
        let first_task = servers * RING as u32;
        let timers = (first_task + tasks) as usize;
        Timers {
            heap: Vec::with_capacity(timers),
            places: vec![NOWHERE; timers],
            first_task,
        }
    }

    pub(crate) fn set_replenishment(&mut self, server: Index, position: u32, at: Nanos) {
        self.set(server * RING as u32 + position, at);
    }

    pub(crate) fn cancel_replenishment(&mut self, server: Index, position: u32) {
        self.cancel(server * RING as u32 + position);
    }

    pub(crate) fn cancel_replenishments(&mut self, server: Index) {
        for position in 0..RING as u32 {
            self.cancel_replenishment(server, position);
        }
    }

    pub(crate) fn set_wake_up(&mut self, task: Index, at: Nanos) {
        self.set(self.first_task + task, at);
    }

    pub(crate) fn cancel_wake_up(&mut self, task: Index) {
        self.cancel(self.first_task + task);
    }

    /// When the earliest timer fires; `NEVER` if there is none.
    pub(crate) fn earliest(&self) -> Nanos {
        self.heap.first().map_or(NEVER, |&(at, _)| at)
    }

    /// Takes the earliest timer, if it has expired.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<(Nanos, Timer)> {
        let &(at, timer) = self.heap.first().filter(|&&(at, _)| at <= now)?;
        self.cancel(timer);
        let what = match timer.checked_sub(self.first_task) {
            Some(task) => Timer::WakeUp(task),
            None => Timer::Replenishment(timer / RING as u32),
        };
        Some((at, what))
    }

    fn set(&mut self, timer: u32, at: Nanos) {
        let mut place = self.places[timer as usize];
        if place == NOWHERE {
            place = self.heap.len() as u32;
            self.heap.push((at, timer));
        }
        self.sift((at, timer), place as usize);
    }

    fn cancel(&mut self, timer: u32) {
        let place = core::mem::replace(&mut self.places[timer as usize], NOWHERE);
        if place == NOWHERE {
            return;
        }
        if let Some(last) = self.heap.pop()
            && (place as usize) < self.heap.len()
        {
            self.sift(last, place as usize);
        }
    }

    /// Puts a timer where it belongs, from a place that is free for it.
    fn sift(&mut self, entry: (Nanos, u32), mut place: usize) {
        while place > 0 && entry < self.heap[(place - 1) / ARITY] {
            self.put(self.heap[(place - 1) / ARITY], place);
            place = (place - 1) / ARITY;
        }
        loop {
            let first = ARITY * place + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child]) else {
                break;
            };
            if entry <= self.heap[child] {
                break;
            }
            self.put(self.heap[child], place);
            place = child;
        }
        self.put(entry, place);
    }

    fn put(&mut self, entry: (Nanos, u32), place: usize) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::{prop, proptest};

    use super::{Timer, Timers};

    proptest! {
        #[test]
        fn timers_fire_in_the_order_of_a_sorted_list(
            steps in prop::collection::vec((0..20u32, 0..4u8, 0..50u64), 0..200),
        ) {
            let mut timers = Timers::new(0, 20);
            let mut model = vec![None; 20];
            for (task, what, at) in steps {
                match what {
                    0 => {
                        timers.cancel_wake_up(task);
                        model[task as usize] = None;
                    }
                    1 => {
                                                let first = (0..20usize)
                            .filter_map(|task| model[task].filter(|&at| at <= 25).map(|at| (at, task)))
                            .min();
                        let popped = timers.pop(25);
                        assert_eq!(popped, first.map(|(at, task)| (at, Timer::WakeUp(task as u32))));
                        if let Some((_, task)) = first {
                            model[task] = None;
                        }
                    }
                    _ => {
                        timers.set_wake_up(task, at);
                        model[task as usize] = Some(at);
                    }
                }
                assert_eq!(timers.earliest(), model.iter().flatten().copied().min().unwrap_or(u64::MAX));
            }
        }
    }
}
