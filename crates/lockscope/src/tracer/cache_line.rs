//! What it costs, on this machine, to write to a cache line that another processor wrote last.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Times that the line goes there and back.
const TURNS: u64 = 2_000;
/// Loads of its own value after which a thread lets another one run: its partner may have no processor.
const PATIENCE: u32 = 10_000;
/// Measurements, of which the shortest counts: what disturbs one makes it longer.
const REPETITIONS: usize = 5;

/// A value on a line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// The time in nanoseconds for one move, between the first two processors that this thread may use.
/// `None` if there is one only.
pub(crate) fn move_ns() -> Option<u64> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let pair = [processors.next()?, processors.next()?];
    let times = (0..REPETITIONS).filter_map(|_| there_and_back(pair));
    times.min()
}

fn there_and_back(processors: [usize; 2]) -> Option<u64> {
    let line = Line(AtomicU64::new(0));
    let begin = Barrier::new(2);
    let take_turns = |processor: usize, own: u64| {
        let mut only = CpuSet::new();
        only.set(processor);
        let pinned = sched_setaffinity(None, &only);
        begin.wait();
        let begun = Instant::now();
        for turn in 0..TURNS {
            let mut looked = 0;
            while line.0.load(Ordering::Acquire) != 2 * turn + own {
                looked += 1;
                match looked % PATIENCE {
                    0 => thread::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            }
            line.0.store(2 * turn + own + 1, Ordering::Release);
        }
        pinned.ok().map(|()| begun.elapsed())
    };
    let time = thread::scope(|scope| {
        let other = scope.spawn(|| take_turns(processors[1], 1));
        let time = scope.spawn(|| take_turns(processors[0], 0)).join();
        other.join().ok().flatten()?;
        time.ok().flatten()
    })?;
    u64::try_from(time.as_nanos())
        .ok()
        .map(|ns| ns / (2 * TURNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_takes_time_and_less_than_a_switch_of_tasks() {
        if let Some(ns) = move_ns() {
            assert!((1..1_000_000).contains(&ns), "{ns} ns");
        }
    }
}
