//! The job of `job-probe` on a thread of its own, without a cell: what the host alone does to it.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::clock::monotonic_ns;
use crate::priority::on_a_thread_like_a_cells;

/// Readings of the clock that are further apart are an interruption, in which no work was done, ns;
/// as in the guest.
const INTERRUPTION: u64 = 5_000;
/// So long before a job is due its thread has woken up, ns: how late a sleep ends is no part of it.
const EARLY: u64 = 200_000;

/// Does a job that takes `work` ns of the processor `count` times, `gap` ns apart; returns how long each took,
/// ns. Nobody else's turn is in it where the host grants real-time priority.
///
/// # Errors
/// If the host refuses the processor.
pub(crate) fn responses(work: u64, gap: u64, count: usize) -> Result<Vec<u64>> {
    let (responses, _) = on_a_thread_like_a_cells(|| {
        let job = |_| {
            thread::sleep(Duration::from_nanos(gap.saturating_sub(EARLY)));
            let planned = monotonic_ns() + EARLY;
            while monotonic_ns() < planned {}
            done(work) - planned
        };
        Ok((0..count).map(job).collect())
    })?;
    Ok(responses)
}

/// Works for so long, and returns when it was done.
fn done(work: u64) -> u64 {
    let (mut done, mut last) = (0, monotonic_ns());
    while done < work {
        let read = monotonic_ns();
        let step = read - last;
        if step < INTERRUPTION {
            done += step;
        }
        last = read;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::responses;

    #[test]
    fn a_job_takes_its_work_at_least() {
        let responses = responses(100_000, 1_000_000, 5).expect("done");
        assert_eq!(responses.len(), 5);
        assert!(responses.iter().all(|&ns| ns >= 100_000), "{responses:?}");
    }
}
