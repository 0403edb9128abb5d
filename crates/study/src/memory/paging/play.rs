//! The tasks of SPC §VI-B on real pages, in real time: the simulator's experiment with nothing
//! simulated.
//!
//! One thread runs all tasks, by fixed priorities, as the executor of a cell does: a task gives the
//! processor up when one of higher priority is released, at the latest after the page that it is
//! at. A fault is served in that thread, so that no task runs while a page is read. Computing is
//! simulated by reading the clock until the time is over.

use std::hint::spin_loop;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_pager::simulate::{Experiment, History, Job, Nanos, Scheme, Task};
use leasehold_pager::{Contract, Counts, ReservationId, Sharing};

use super::space::{Space, View};
use crate::harness::clock::monotonic_ns;
use crate::harness::priority::on_a_thread_like_a_cells;

/// How long before a release the thread stops sleeping.
const AWAKE: Nanos = 200_000;
/// Places in the swap file beyond one for each page: pages that are written out again take another
/// place before they free the one they had.
const SPARE: u32 = 64;
/// Pages that the pager maps ahead of a task, as in a cell.
const AHEAD: u32 = 16;

/// The result of an experiment.
pub(crate) struct Played {
    pub(crate) history: History,
    /// Frames with pages in them at the end, as the kernel holds them.
    pub(crate) resident: u32,
    /// Whether the thread went before all others of its processor.
    pub(crate) realtime: bool,
}

/// Plays `experiment` for `end` nanoseconds of real time, and until each task has completed a job,
/// in a thread of its own, with a swap file in `directory`; before that, and not in the history,
/// `rehearsal` jobs of its last task and what the others do meanwhile, in no time.
///
/// # Errors
/// If the kernel lacks what the pager needs, storage fails, or a page is found changed.
pub(crate) fn play(
    experiment: &Experiment,
    rehearsal: u64,
    end: Nanos,
    directory: &Path,
) -> Result<Played> {
    let (played, realtime) = on_a_thread_like_a_cells(|| {
        let space = open(experiment, directory)?;
        let mut stage = Stage::new(&space, experiment)?;
        stage.rehearse(rehearsal)?;
        let history = stage.perform(end)?;
        space.denied()?;
        Ok((history, space.paging().held().used))
    })?;
    let (history, resident) = played;
    Ok(Played {
        history,
        resident,
        realtime,
    })
}

fn open(experiment: &Experiment, directory: &Path) -> Result<Space> {
    let sum = |of: fn(&Task) -> u32| experiment.tasks.iter().map(of).sum::<u32>();
    // As in the paper, memory is not what the node is short of.
    let frames = experiment.region + sum(|task| task.reserve);
    let swap = experiment.region + sum(|task| task.private) + SPARE;
    Space::open(frames, swap, directory, AHEAD)
}

/// The initial contents of a page of the region.
const fn pattern(page: u32) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

struct Stage<'a> {
    space: &'a Space,
    players: Vec<Player<'a>>,
    region: u32,
}

/// A task at work.
struct Player<'a> {
    task: Task,
    id: ReservationId,
    shared: View<'a>,
    private: View<'a>,
    /// Jobs completed.
    done: u64,
    /// The job that is released at `origin`.
    base: u64,
    origin: Nanos,
    /// Shared pages of the current job that were read; `None` before it begins.
    step: Option<u32>,
    /// Whether the pages of the step have been touched.
    touched: bool,
    /// Processor time until the end of the step.
    left: Nanos,
    jobs: Vec<Job>,
    /// The counts when the current job began.
    before: Counts,
}

impl<'a> Stage<'a> {
    /// As the simulator: the first task writes to the whole region before anything begins.
    fn new(space: &'a Space, experiment: &Experiment) -> Result<Self> {
        let paging = space.paging();
        let sharing = match experiment.scheme {
            Scheme::Plain => Sharing::Plain,
            Scheme::FirstTouch => Sharing::FirstTouch,
            Scheme::Spc | Scheme::Spel => Sharing::Conserve,
        };
        let region = paging.create_area(experiment.region, sharing)?;
        let mut players = Vec::new();
        for &task in &experiment.tasks {
            let id = paging.reserve(&Contract::hard(task.reserve))?;
            let area = paging.create_area(task.private, Sharing::Conserve)?;
            players.push(Player {
                task,
                id,
                shared: space.attach(id, region, experiment.region)?,
                private: space.attach(id, area, task.private)?,
                done: 0,
                base: 0,
                origin: 0,
                step: None,
                touched: false,
                left: 0,
                jobs: Vec::new(),
                before: Counts::default(),
            });
        }
        if experiment.scheme == Scheme::Spel {
            paging.lock(region)?;
        }
        let first = players.get(experiment.first).context("no such task")?;
        for page in 0..experiment.region {
            first.shared.store(page, pattern(page));
        }
        Ok(Self {
            space,
            players,
            region: experiment.region,
        })
    }

    /// Does what `jobs` jobs of the last task, and those of the others in the same time, do to
    /// their pages.
    fn rehearse(&mut self, jobs: u64) -> Result<()> {
        let Some(last) = self.players.last() else {
            return Ok(());
        };
        let until = jobs * last.task.period;
        loop {
            // By release; of those at the same time, by priority.
            let next = self
                .players
                .iter_mut()
                .min_by_key(|player| player.release());
            let Some(player) = next.filter(|player| player.release() < until) else {
                break;
            };
            for step in 0..player.task.shared {
                player.touch(step, self.region)?;
            }
            player.done += 1;
        }
        self.space.denied()
    }

    fn perform(mut self, end: Nanos) -> Result<History> {
        let start = monotonic_ns();
        for player in &mut self.players {
            (player.base, player.origin) = (player.done, start);
        }
        while monotonic_ns() < start + end || self.players.iter().any(Player::is_new) {
            let now = monotonic_ns();
            match self.players.iter().position(|player| player.is_ready(now)) {
                // A task of higher priority may be released before the step is over.
                Some(at) => self.advance(at, self.next_release(at))?,
                None => idle(self.next_release(self.players.len()).saturating_sub(now)),
            }
        }
        let mut history = History {
            end: monotonic_ns() - start,
            jobs: Vec::new(),
            slices: vec![Vec::new(); self.players.len()],
            counts: Vec::new(),
            physical: self.physical()?,
        };
        for player in &mut self.players {
            history.counts.push(self.space.paging().counts(player.id)?);
            for job in &mut player.jobs {
                job.release -= start;
                job.deadline -= start;
                job.completion = job.completion.map(|at| at - start);
            }
            history.jobs.push(std::mem::take(&mut player.jobs));
        }
        Ok(history)
    }

    /// Frames that are reserved, less what reservations without management gave back.
    fn physical(&self) -> Result<u32> {
        let sizes = self.players.iter().map(|player| player.task.reserve);
        let node = self.region + sizes.sum::<u32>();
        Ok(node - self.space.paging().unreserved())
    }

    /// When the first of the tasks above `below` is released again.
    fn next_release(&self, below: usize) -> Nanos {
        let above = self.players[..below].iter();
        let waiting = above.filter(|player| player.step.is_none());
        waiting.map(Player::release).min().unwrap_or(Nanos::MAX)
    }

    /// Continues with a task: touches the pages of its step, or computes until `stop` at the
    /// latest.
    fn advance(&mut self, at: usize, stop: Nanos) -> Result<()> {
        let player = &mut self.players[at];
        let counts = || self.space.paging().counts(player.id);
        let Some(step) = player.step else {
            let before = counts()?;
            player.begin(before);
            return Ok(());
        };
        if !player.touched {
            player.touch(step, self.region)?;
            player.touched = true;
            player.left = player.part(step + 1) - player.part(step);
        } else if player.left > 0 {
            player.left = player.left.saturating_sub(compute(player.left, stop));
        } else if step + 1 < player.task.shared {
            player.step = Some(step + 1);
            player.touched = false;
        } else {
            let after = counts()?;
            player.complete(&after);
        }
        Ok(())
    }
}

impl Player<'_> {
    /// When the next job is released, or the current one was.
    fn release(&self) -> Nanos {
        self.origin + (self.done - self.base) * self.task.period
    }

    /// Whether it has completed none of its jobs yet.
    fn is_new(&self) -> bool {
        self.done == self.base
    }

    fn is_ready(&self, now: Nanos) -> bool {
        self.step.is_some() || self.release() <= now
    }

    /// Processor time of the first `steps` steps of a job.
    fn part(&self, steps: u32) -> Nanos {
        u64::from(steps) * self.task.execution / u64::from(self.task.shared)
    }

    /// Reads the shared page of a step, and writes to some private ones.
    fn touch(&self, step: u32, region: u32) -> Result<()> {
        let number = self.done * u64::from(self.task.shared) + u64::from(step);
        let page = (number % u64::from(region)) as u32;
        let found = self.shared.load(page);
        ensure!(
            found == pattern(page),
            "page {page} was changed: {found:#x}"
        );
        for touch in 1..=self.task.touches {
            let number = number * u64::from(self.task.touches) + u64::from(touch);
            let page = (number % u64::from(self.task.private)) as u32;
            self.private.store(page, self.done);
        }
        Ok(())
    }

    fn begin(&mut self, before: Counts) {
        let release = self.release();
        self.step = Some(0);
        self.touched = false;
        self.left = 0;
        self.before = before;
        self.jobs.push(Job {
            release,
            deadline: release + self.task.period,
            completion: None,
            major: 0,
            minor: 0,
            suspended: 0,
        });
    }

    fn complete(&mut self, after: &Counts) {
        self.step = None;
        self.done += 1;
        if let Some(job) = self.jobs.last_mut() {
            job.completion = Some(monotonic_ns());
            job.major = (after.major - self.before.major) as u32;
            let minor = |counts: &Counts| counts.minor + counts.zero;
            job.minor = (minor(after) - minor(&self.before)) as u32;
        }
    }
}

/// Reads the clock for `most` nanoseconds, until `stop` at the latest; returns for how long it did.
fn compute(most: Nanos, stop: Nanos) -> Nanos {
    let begin = monotonic_ns();
    loop {
        let now = monotonic_ns();
        if now - begin >= most || now >= stop {
            return now - begin;
        }
        spin_loop();
    }
}

/// Waits for some time, not long enough to be late.
fn idle(time: Nanos) {
    if time > AWAKE {
        thread::sleep(Duration::from_nanos(time - AWAKE));
    } else {
        spin_loop();
    }
}
