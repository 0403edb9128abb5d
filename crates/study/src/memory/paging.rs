//! The common part of the studies of memory reservations: the tasks of SPC §VI-B, the techniques
//! for their shared pages, and the evaluation of a run.

mod play;
mod space;

use anyhow::Result;
use leasehold_pager::PAGE;
use leasehold_pager::simulate::{Job, Scheme, TAU1, TAU2, Task};
use leasehold_pager_linux::Features;

pub(crate) use play::play;
pub(crate) use space::{Range, Space};

use crate::harness::report::Report;
use crate::harness::samples::Spread;

/// The platform of rows that come from the simulator, as rows name it.
pub(crate) const SIMULATOR: &str = "simulator";

/// The platform of rows that were measured on real pages, as rows name it.
pub(crate) const LINUX: &str = "linux";

/// Notes for the reader on the simulator.
pub(crate) const NOTE_ON_SIMULATOR: &str = "simulator: the real policy in virtual time; a disk takes 0.3 ms to read a page and as much \
     for each page of a cluster that is written (the paper does not say how long its disk took); \
     besides what they share, tasks have 1 MB each (nor does it say how large its tasks were)";

/// Notes for the reader on runs on real pages.
const NOTE_ON_LINUX: &str = "linux: real pages (memfd, userfaultfd) and a real swap file (direct input and output), in real \
     time. One thread runs both tasks by fixed priorities, as in a cell, and serves their faults: \
     while a page is read neither computes, and a disk that reads 256 pages in less than tau1's \
     slack of 60 ms costs it no deadline. The region's pages hold a pattern that every read checks";

/// Bytes of `frames` frames.
pub(crate) const fn bytes(frames: u32) -> u64 {
    frames as u64 * PAGE
}

/// A task of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tau {
    One,
    Two,
}

impl Tau {
    pub(crate) const ALL: [Tau; 2] = [Tau::One, Tau::Two];

    /// As rows name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Tau::One => "tau1",
            Tau::Two => "tau2",
        }
    }

    /// The task, under the reservation that it needs if nothing is locked (SPC fig. 8).
    pub(crate) const fn task(self) -> Task {
        match self {
            Tau::One => TAU1,
            Tau::Two => TAU2,
        }
    }
}

/// As rows name it.
pub(crate) const fn technique(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Plain => "none",
        Scheme::FirstTouch => "first_touch",
        Scheme::Spc => "spc",
        Scheme::Spel => "spel",
    }
}

/// How long a job took from when it could begin, at its release or after the job before it;
/// `None` if it did not end.
pub(crate) fn duration(jobs: &[Job], index: usize) -> Option<u64> {
    let job = &jobs[index];
    let before = index
        .checked_sub(1)
        .and_then(|before| jobs[before].completion);
    Some(job.completion? - before.unwrap_or(0).max(job.release))
}

/// The measurements on real pages; none, and the report says why, if the kernel or the user has not
/// what the pager needs.
///
/// # Errors
/// Those of the measurement.
pub(crate) fn if_supported<T>(
    report: &mut Report,
    measure: impl FnOnce() -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    if let Err(unsupported) = Features::probe() {
        report
            .notes
            .push(format!("{LINUX}: not measured: {unsupported}"));
        return Ok(Vec::new());
    }
    report.notes.push(NOTE_ON_LINUX.to_owned());
    measure()
}

/// One value, as a figure shows it.
pub(crate) const fn exactly(value: f64) -> Spread {
    Spread {
        median: value,
        p5: value,
        p95: value,
    }
}

#[cfg(test)]
mod tests {
    use super::duration;
    use leasehold_pager::simulate::Job;

    #[test]
    fn a_job_that_waits_for_the_one_before_it_begins_late() {
        let job = |release, completion| Job {
            release,
            deadline: release + 10,
            completion,
            major: 0,
            minor: 0,
            suspended: 0,
        };
        let jobs = [
            job(0, Some(25)),
            job(10, Some(31)),
            job(40, Some(44)),
            job(50, None),
        ];
        let durations: Vec<_> = (0..jobs.len()).map(|at| duration(&jobs, at)).collect();
        assert_eq!(durations, [Some(25), Some(6), Some(4), None]);
    }
}
