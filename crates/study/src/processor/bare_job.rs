//! The job of `job-probe` on a thread of its own, without a cell: the disturbance by the host
//! alone.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::harness::clock::{monotonic_ns, thread_cpu_ns};
use crate::harness::priority::on_a_thread_like_a_cells;

/// Readings of the clock that are further apart are an interruption, in which no work was done, ns;
/// as in the guest.
const INTERRUPTION: u64 = 5_000;
/// So long before a job is due its thread has woken up, ns: how late a sleep ends is no part of it.
const EARLY: u64 = 200_000;

/// The time of a job.
pub(crate) struct BareJob {
    /// From when it was due until it was done, ns.
    pub(crate) response: u64,
    /// Of the processor, as the kernel counts it, ns: what a cell would have taken from a budget. Time that
    /// the hypervisor takes unseen by the kernel is in it, and is not work.
    pub(crate) used: u64,
}

/// Does a job that takes `work` ns of the processor `count` times, `gap` ns apart. With real-time
/// priority, no ordinary thread delays it.
///
/// # Errors
/// If the host refuses the processor.
pub(crate) fn jobs(work: u64, gap: u64, count: usize) -> Result<Vec<BareJob>> {
    let (jobs, _) = on_a_thread_like_a_cells(|| {
        let job = |_| {
            thread::sleep(Duration::from_nanos(gap.saturating_sub(EARLY)));
            let planned = monotonic_ns() + EARLY;
            while monotonic_ns() < planned {}
            let before = thread_cpu_ns();
            BareJob {
                response: done(work) - planned,
                used: thread_cpu_ns() - before,
            }
        };
        Ok((0..count).map(job).collect())
    })?;
    Ok(jobs)
}

/// Works for `work` ns, and returns when it was done.
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
    use super::jobs;

    #[test]
    fn a_job_takes_its_work_at_least() {
        let jobs = jobs(100_000, 1_000_000, 5).expect("done");
        assert_eq!(jobs.len(), 5);
        assert!(jobs.iter().all(|job| job.response >= 100_000));
    }
}
