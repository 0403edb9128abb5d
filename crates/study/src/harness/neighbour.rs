//! A neighbour: a workload that repeats one operation and records how long each took, so that its
//! latency *during an event* can be compared with its usual latency.
//!
//! Both are taken from one run of one neighbour, so that machine, placement and cache history are
//! the same. Its timestamps and those of the events are of the same clock ([`monotonic_ns`]). Each
//! operation counts towards every interval that it overlaps: an operation that is stalled shows
//! however short the event's interval is.

mod load;
mod log;
mod memory_cgroup;
mod operation;

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::harness::affinity::pin;
use crate::harness::child_command::command;
use crate::harness::clock::monotonic_ns;
use crate::harness::samples::Samples;
use log::Log;
use memory_cgroup::MemoryCgroup;

pub use load::Load;
pub use operation::{Interval, Operation};

/// Role of a neighbour that is a process.
pub(crate) const ROLE: &str = "neighbour";

/// Where a neighbour runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// In a thread of this process: shares its address space.
    Thread,
    /// In a process of its own: shares only the kernel.
    Process,
    /// In a process and a memory cgroup of its own, as those of another container are: the kernel
    /// keeps its pages on another list, under another lock.
    Container,
}

impl Distance {
    /// The furthest away that this host lets a neighbour on processor `cpu` be:
    /// [`Container`](Self::Container), or [`Process`](Self::Process) where this program may not
    /// make a memory cgroup and enter it. Tries it.
    pub fn furthest(cpu: usize) -> Self {
        match Neighbour::start(Load::Compute, Self::Container, cpu) {
            Ok(_) => Self::Container,
            Err(error) => {
                tracing::debug!("{error:#}");
                Self::Process
            }
        }
    }

    /// Name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Container => "container",
        }
    }
}

/// A running neighbour. Dropping it ends it; [`finish`](Self::finish) also returns its latencies.
pub struct Neighbour {
    log: Arc<Log>,
    runner: Option<Runner>,
    #[expect(
        dead_code,
        reason = "removed when it is dropped, after the runner has ended"
    )]
    cgroup: Option<MemoryCgroup>,
}

enum Runner {
    Thread(JoinHandle<Result<()>>),
    Process(Child),
}

impl Neighbour {
    /// Starts a neighbour on processor `cpu` and waits until it has done its first operation.
    ///
    /// # Errors
    /// If it cannot be started or pinned, or fails at once; if `load` is [`Load::Spawn`] and
    /// `place` is a thread, since a fork would then copy this process; if it is to be in a
    /// container, and the host does not permit one.
    pub fn start(load: Load, place: Distance, cpu: usize) -> Result<Self> {
        let log = Arc::new(Log::create()?);
        let cgroup = match place {
            Distance::Thread | Distance::Process => None,
            Distance::Container => {
                Some(MemoryCgroup::beside_own().context("no memory cgroup for a neighbour")?)
            }
        };
        let runner = match place {
            Distance::Thread => {
                ensure!(
                    load != Load::Spawn,
                    "a neighbour that forks must be a process"
                );
                let log = Arc::clone(&log);
                Runner::Thread(thread::spawn(move || work(load, cpu, &log)))
            }
            Distance::Process | Distance::Container => {
                let mut command = command(ROLE)?;
                command
                    .arg(load.name())
                    .arg(cpu.to_string())
                    .arg(log.path())
                    .args(cgroup.as_ref().map(MemoryCgroup::entrance));
                command.stdin(Stdio::null()).stdout(Stdio::null());
                Runner::Process(command.spawn().context("starting a neighbour")?)
            }
        };
        let mut neighbour = Self {
            log,
            runner: Some(runner),
            cgroup,
        };
        while neighbour.log.logged() == 0 {
            let ended = match &mut neighbour.runner {
                Some(Runner::Thread(thread)) => thread.is_finished(),
                Some(Runner::Process(child)) => child.try_wait()?.is_some(),
                None => true,
            };
            if ended {
                neighbour.end()?;
                bail!("the neighbour ended before his first operation");
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(neighbour)
    }

    /// Ends the neighbour after its present operation, and returns its record.
    ///
    /// # Errors
    /// If an operation failed.
    pub fn finish(mut self) -> Result<Diary> {
        self.end()?;
        let (operations, lost) = self.log.read();
        Ok(Diary { operations, lost })
    }

    fn end(&mut self) -> Result<()> {
        self.log.stop();
        match self.runner.take() {
            None => Ok(()),
            Some(Runner::Thread(thread)) => thread
                .join()
                .map_err(|_| anyhow!("the neighbour panicked"))?,
            Some(Runner::Process(mut child)) => {
                let status = child.wait().context("waiting for the neighbour")?;
                ensure!(status.success(), "the neighbour failed: {status}");
                Ok(())
            }
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("{error:#}");
        }
    }
}

/// The life of a neighbour that is a process: `LOAD CPU LOG [CGROUP]`.
pub(crate) fn child(arguments: &[&str]) -> Result<()> {
    let [load, cpu, log, cgroup @ ..] = arguments else {
        bail!("a neighbour needs LOAD CPU LOG [CGROUP]")
    };
    // Before anything is allocated that is to be counted there.
    for entrance in cgroup {
        MemoryCgroup::enter(Path::new(entrance)).with_context(|| format!("entering {entrance}"))?;
    }
    work(load.parse()?, cpu.parse()?, &Log::open(Path::new(log))?)
}

fn work(load: Load, cpu: usize, log: &Log) -> Result<()> {
    pin(cpu)?;
    while !log.stopped() {
        let start_ns = monotonic_ns();
        load.operate()?;
        log.push(Operation {
            start_ns,
            duration_ns: monotonic_ns() - start_ns,
        });
    }
    Ok(())
}

/// The record of a neighbour.
#[derive(Debug, Clone)]
pub struct Diary {
    /// Its operations in the order of time.
    pub operations: Vec<Operation>,
    /// Older operations for which there was no more room.
    pub lost: u64,
}

impl Diary {
    /// Latencies of the operations that overlap any of `intervals`, which must be in the order of
    /// time and disjoint.
    pub fn during(&self, intervals: &[Interval]) -> Samples {
        self.latencies(intervals, true)
    }

    /// Returns the latencies of the operations that overlap none of `intervals`: the undisturbed
    /// latencies.
    pub fn outside(&self, intervals: &[Interval]) -> Samples {
        self.latencies(intervals, false)
    }

    fn latencies(&self, intervals: &[Interval], within: bool) -> Samples {
        let touched = |operation: &&Operation| {
            let next = intervals.partition_point(|i| i.end_ns <= operation.start_ns);
            intervals.get(next).is_some_and(|i| operation.overlaps(i)) == within
        };
        self.operations
            .iter()
            .filter(touched)
            .map(|operation| operation.duration_ns)
            .collect()
    }

    /// How many times longer a workload takes that begins with `disturbed` than undisturbed. The
    /// workload is as many operations as overlap the interval, but at least `least`: the delay of a
    /// whole workload is more meaningful than that of the one operation hit by a short disturbance.
    /// `None` if there were fewer in `disturbed` or after it, or fewer wholly in `quiet`: one that
    /// reaches out of it may be stretched by the very disturbance.
    pub fn slowdown(&self, disturbed: Interval, quiet: Interval, least: usize) -> Option<f64> {
        let undisturbed = self.within(quiet);
        if undisturbed.len() < least.max(1) {
            return None;
        }
        let count = self.overlapping(disturbed).len().max(least);
        let workload = self.from(disturbed.start_ns).get(..count)?;
        Some(mean(workload)? / mean(undisturbed)?)
    }

    /// The operations that end after `start_ns`.
    fn from(&self, start_ns: u64) -> &[Operation] {
        let first = self
            .operations
            .partition_point(|o| o.start_ns + o.duration_ns <= start_ns);
        &self.operations[first..]
    }

    fn within(&self, interval: Interval) -> &[Operation] {
        let first = self
            .operations
            .partition_point(|o| o.start_ns < interval.start_ns);
        let operations = &self.operations[first..];
        let ends_within = |o: &Operation| o.start_ns + o.duration_ns <= interval.end_ns;
        &operations[..operations.partition_point(ends_within)]
    }

    fn overlapping(&self, interval: Interval) -> &[Operation] {
        let operations = self.from(interval.start_ns);
        &operations[..operations.partition_point(|o| o.start_ns < interval.end_ns)]
    }
}

/// Mean duration in nanoseconds.
fn mean(operations: &[Operation]) -> Option<f64> {
    let total: u64 = operations
        .iter()
        .map(|operation| operation.duration_ns)
        .sum();
    (total > 0).then(|| total as f64 / operations.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::{Diary, Distance, Interval, Load, Neighbour, Operation};
    use crate::harness::clock::monotonic_ns;

    /// Operations of 10 ns back to back from 0 to 1,000, but one of 200 ns from 300 to 500.
    fn diary() -> Diary {
        let mut operations = Vec::new();
        let mut start_ns = 0;
        while start_ns < 1000 {
            let duration_ns = if start_ns == 300 { 200 } else { 10 };
            operations.push(Operation {
                start_ns,
                duration_ns,
            });
            start_ns += duration_ns;
        }
        Diary {
            operations,
            lost: 0,
        }
    }

    fn span(start_ns: u64, end_ns: u64) -> Interval {
        Interval { start_ns, end_ns }
    }

    #[test]
    fn an_operation_counts_towards_every_interval_that_it_overlaps() {
        let diary = diary();
        let felt = diary.during(&[span(0, 10), span(310, 311), span(700, 715)]);
        assert_eq!((felt.count(), felt.max()), (4, Some(200)));
        // Intervals end before their last nanosecond: touching is not overlapping.
        assert_eq!(diary.during(&[span(290, 300)]).max(), Some(10));
        assert_eq!(diary.during(&[span(500, 510)]).max(), Some(10));
    }

    #[test]
    fn outside_is_the_rest() {
        let diary = diary();
        let intervals = [span(0, 10), span(310, 311), span(700, 715)];
        let rest = diary.outside(&intervals);
        assert_eq!(rest.count() + 4, diary.operations.len() as u64);
        assert_eq!(rest.max(), Some(10));
        assert_eq!(diary.outside(&[]).count(), diary.operations.len() as u64);
    }

    #[test]
    fn slowdown_is_the_delay_of_a_workload() {
        let diary = diary();
        let slowdown = |disturbed, least| diary.slowdown(disturbed, span(600, 700), least);
        // As many operations as overlap: 10 of 10 ns and one of 200.
        assert_eq!(slowdown(span(200, 500), 1), Some(300.0 / 11.0 / 10.0));
        // A disturbance of a moment, within a workload of 10 operations: the long one and 9 after.
        assert_eq!(slowdown(span(310, 311), 10), Some(290.0 / 10.0 / 10.0));
    }

    #[test]
    fn an_operation_that_reaches_into_the_disturbance_is_not_quiet() {
        let slowdown = diary().slowdown(span(310, 320), span(195, 310), 1);
        assert_eq!(slowdown, Some(200.0 / 10.0));
    }

    #[test]
    fn there_is_no_slowdown_without_the_whole_workload() {
        let diary = diary();
        assert_eq!(diary.slowdown(span(2000, 2001), span(600, 700), 1), None);
        assert_eq!(diary.slowdown(span(950, 960), span(600, 700), 10), None);
        assert_eq!(diary.slowdown(span(200, 500), span(600, 700), 11), None);
    }

    #[test]
    fn a_neighbour_in_a_thread_works_until_he_is_finished() {
        for load in [Load::Compute, Load::Map] {
            let before = monotonic_ns();
            let neighbour = Neighbour::start(load, Distance::Thread, 0).expect("started");
            let diary = neighbour.finish().expect("finished");
            let span = span(before, monotonic_ns());
            assert_eq!(diary.lost, 0);
            assert_eq!(diary.during(&[span]).count(), diary.operations.len() as u64);
            assert!(!diary.operations.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let no_processor = Neighbour::start(Load::Compute, Distance::Thread, 1 << 20);
        assert!(no_processor.is_err_and(|error| error.to_string().contains("no processor")));
        assert!(Neighbour::start(Load::Spawn, Distance::Thread, 0).is_err());
    }
}
