//! What happened in a simulation.

use alloc::vec::Vec;

use super::task::Nanos;
use crate::reservation::Counts;

/// One job of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// When it was released.
    pub release: Nanos,
    /// When it had to be complete.
    pub deadline: Nanos,
    /// When it was, if it was.
    pub completion: Option<Nanos>,
    /// Its faults that had to wait for storage.
    pub major: u32,
    /// Its other faults.
    pub minor: u32,
    /// How long it was suspended for storage.
    pub suspended: Nanos,
}

impl Job {
    /// Returns whether the deadline passed before `now` without completion, or before it.
    pub fn is_missed(&self, now: Nanos) -> bool {
        self.completion.unwrap_or(now + 1) > self.deadline && self.deadline <= now
    }
}

/// What each task did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The end of the simulation.
    pub end: Nanos,
    /// The jobs that each task began, in order.
    pub jobs: Vec<Vec<Job>>,
    /// When each task had the processor: from, to.
    pub slices: Vec<Vec<(Nanos, Nanos)>>,
    /// What paging did in the reservation of each task.
    pub counts: Vec<Counts>,
    /// Frames of the node in use at the end: in reservations and locked areas, less what
    /// reservations without management gave back (SPC table III).
    pub physical: u32,
}

impl History {
    /// Jobs of a task that missed their deadlines.
    pub fn missed(&self, task: usize) -> usize {
        self.missed_since(task, 0)
    }

    /// The same, for jobs released at `from` or later.
    pub fn missed_since(&self, task: usize, from: Nanos) -> usize {
        let jobs = self.jobs_since(task, from);
        jobs.filter(|job| job.is_missed(self.end)).count()
    }

    /// Major faults of the jobs of a task that were released at `from` or later.
    pub fn major_since(&self, task: usize, from: Nanos) -> u64 {
        let jobs = self.jobs_since(task, from);
        jobs.map(|job| u64::from(job.major)).sum()
    }

    fn jobs_since(&self, task: usize, from: Nanos) -> impl Iterator<Item = &Job> {
        self.jobs[task]
            .iter()
            .filter(move |job| job.release >= from)
    }
}
