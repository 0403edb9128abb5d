//! Measures the processor time that a host adds to work without system calls.
//!
//! A thread's processor time contains more than its work: interrupts, and on a virtual machine the
//! time for which the whole machine was stopped. An end that is interrupted takes that much longer,
//! however short it is. Here every processor repeats the same piece of arithmetic; the time of a
//! piece above the median was added by the host. All processors are busy, because hostile tenants
//! can keep them so, and because some hosts stop a machine for the total use of its processors.

use super::effort::{Effort, median};
use crate::clock::thread_cpu_ns;
use crate::profile::Interruption;
use anyhow::{Context as _, Result, anyhow};
use std::hint::black_box;
use std::thread;

/// How long a piece of work is, ns: longer than the median end of a hostile guest, since the longer
/// a piece, the more often it is interrupted.
const WINDOW_NS: u64 = 100_000;

/// Pieces of work in all: enough to have seen the largest of 10,000 ten times.
fn windows(effort: Effort) -> usize {
    match effort {
        Effort::Quick => 2_000,
        Effort::Full => 100_000,
    }
}

/// The shortest time for which the processors are busy, ns. On a host with many processors,
/// interruptions with intervals of seconds would otherwise be missed.
fn shortest_ns(effort: Effort) -> u64 {
    match effort {
        Effort::Quick => 0,
        Effort::Full => 5_000_000_000,
    }
}

/// Measures it on as many threads as there are processors.
///
/// # Errors
/// When a thread cannot be started.
pub(super) fn interruption(effort: Effort) -> Result<Interruption> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let shortest = (shortest_ns(effort) / WINDOW_NS) as usize;
    let each = windows(effort).div_ceil(processors).max(shortest);
    let steps = steps_of(WINDOW_NS);
    let threads: std::io::Result<Vec<_>> = (0..processors)
        .map(|_| {
            thread::Builder::new()
                .name("calibrate".into())
                .spawn(move || added_ns(&pieces(each, steps)))
        })
        .collect();
    let mut added = Vec::new();
    for thread in threads.context("a thread")? {
        let theirs = thread.join();
        added.extend(theirs.map_err(|_| anyhow!("measuring interruptions panicked"))?);
    }
    Ok(Interruption::of(WINDOW_NS, added))
}

/// Arithmetic that reads no memory, so that nothing but the host can make it slower.
fn work(steps: u64) {
    let mut value = black_box(1u64);
    for _ in 0..steps {
        value = black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
}

/// How many steps take `ns` of processor time.
fn steps_of(ns: u64) -> u64 {
    const STEPS: u64 = 100_000;
    let times = (0..31).map(|_| {
        let began = thread_cpu_ns();
        work(STEPS);
        thread_cpu_ns() - began
    });
    (ns * STEPS / median(times.collect()).max(1)).max(1)
}

/// The processor time of each of `count` pieces of work, ns.
fn pieces(count: usize, steps: u64) -> Vec<u64> {
    let mut began = thread_cpu_ns();
    let pieces = (0..count).map(|_| {
        work(steps);
        let ended = thread_cpu_ns();
        let took = ended - began;
        began = ended;
        took
    });
    pieces.collect()
}

/// The delay of each of these pieces of the same work, ns.
fn added_ns(pieces: &[u64]) -> Vec<u64> {
    let usual = median(pieces.to_vec());
    let added = pieces.iter().map(|took| took.saturating_sub(usual));
    added.collect()
}

#[cfg(test)]
mod tests {
    use super::{Effort, WINDOW_NS, added_ns, interruption};
    use crate::profile::Interruption;

    #[test]
    fn what_is_added_is_what_exceeds_the_usual_piece() {
        assert_eq!(added_ns(&[100, 99, 350, 100, 101]), [0, 0, 250, 0, 1]);
    }

    #[test]
    fn one_piece_in_ten_thousand_may_be_interrupted_for_longer() {
        // Four, where ten are expected: so few are rare if more than one in 10,000 is longer.
        let mut added = vec![5; 100_000];
        added[..4].fill(900);
        assert_eq!(Interruption::of(WINDOW_NS, added.clone()).p9999_ns, 5);
        added[4] = 700;
        assert_eq!(Interruption::of(WINDOW_NS, added).p9999_ns, 700);
        // Of fewer, the longest.
        assert_eq!(Interruption::of(WINDOW_NS, vec![3, 8, 2]).p9999_ns, 8);
        assert_eq!(Interruption::of(WINDOW_NS, Vec::new()).p9999_ns, 0);
    }

    #[test]
    fn a_host_is_watched_on_all_its_processors() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let measured = interruption(Effort::Quick).expect("measured");
        assert!(measured.windows >= 2_000 && measured.windows.is_multiple_of(processors as u64));
        assert!(measured.p9999_ns > 0, "a clock that nothing disturbs");
    }
}
