//! The event loop: one processor, fixed priorities, self-suspension at major faults.

use alloc::vec::Vec;

use super::disk::{Disk, Queue};
use super::history::{History, Job};
use super::task::{Nanos, Task};
use crate::area::Sharing;
use crate::attachment::AttachmentId;
use crate::fault::Fault;
use crate::memory_backend::MemoryBackend;
use crate::page::PageNumber;
use crate::pager::Pager;
use crate::refused::Refused;
use crate::reservation::{Contract, ReservationId};

/// The management of the shared region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Reservations without shared-page management (SPC §III-B).
    Plain,
    /// The rule of Linux's memory control group (SPC §III-C).
    FirstTouch,
    /// Shared-Page Conservation (SPC §IV-A).
    Spc,
    /// Shared-Page Eviction Lock (SPC §IV-B).
    Spel,
}

/// Tasks, their region, and the machine.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The tasks, highest priority first.
    pub tasks: Vec<Task>,
    /// Pages of the shared region.
    pub region: u32,
    /// How the region is managed.
    pub scheme: Scheme,
    /// The task that writes to the whole region, once, before time starts.
    pub first: usize,
    /// Secondary storage.
    pub disk: Disk,
    /// Processor time of a fault: of mapping a shared page with management 1417 cycles at 2.6 GHz
    /// (SPC table II).
    pub fault: Nanos,
}

/// A task at work.
#[derive(Debug)]
struct Runner {
    task: Task,
    id: ReservationId,
    shared: AttachmentId,
    private: AttachmentId,
    /// Jobs completed.
    done: u64,
    /// Shared pages of the current job that were read; `None` before it begins.
    step: Option<u32>,
    /// Touches of the current step that succeeded.
    touched: u32,
    /// Processor time until the next touch, or until the end of the step.
    left: Nanos,
    /// Until when it waits for storage.
    until: Nanos,
    jobs: Vec<Job>,
    slices: Vec<(Nanos, Nanos)>,
}

impl Experiment {
    /// `tasks` with a region of `region` pages, which the first of them writes to.
    pub fn new(tasks: Vec<Task>, region: u32, scheme: Scheme) -> Self {
        Experiment {
            region,
            tasks,
            scheme,
            first: 0,
            disk: Disk::default(),
            fault: 545,
        }
    }

    /// Plays it from time 0 to `end`.
    ///
    /// # Errors
    /// What the pager [refuses](Refused): reservations that are too small for a lock, or empty.
    ///
    /// # Panics
    /// If a task reads no shared pages, or if `first` is not a task.
    pub fn run(&self, end: Nanos) -> Result<History, Refused> {
        let reads = self.tasks.iter().all(|task| task.shared > 0);
        assert!(reads && self.first < self.tasks.len(), "not an experiment");
        let mut machine = self.start()?;
        machine.play(end)?;
        let total = machine.pager.total_frames();
        let mut history = History {
            end,
            jobs: Vec::new(),
            slices: Vec::new(),
            counts: Vec::new(),
            physical: total - machine.pager.unreserved(),
        };
        for runner in machine.runners {
            history.counts.push(machine.pager.counts(runner.id)?);
            history.jobs.push(runner.jobs);
            history.slices.push(runner.slices);
        }
        Ok(history)
    }

    fn start(&self) -> Result<Machine, Refused> {
        // As in the paper, memory is not what the node is short of.
        let frames = self.region + self.tasks.iter().map(|task| task.reserve).sum::<u32>();
        let mut pager = Pager::new(frames, MemoryBackend::new(frames));
        let sharing = match self.scheme {
            Scheme::Plain => Sharing::Plain,
            Scheme::FirstTouch => Sharing::FirstTouch,
            Scheme::Spc | Scheme::Spel => Sharing::Conserve,
        };
        let region = pager.create_area(self.region, sharing)?;
        let mut runners = Vec::new();
        for &task in &self.tasks {
            let id = pager.reserve(&Contract::hard(task.reserve))?;
            let area = pager.create_area(task.private, Sharing::Conserve)?;
            runners.push(Runner {
                task,
                id,
                shared: pager.attach(id, region)?,
                private: pager.attach(id, area)?,
                done: 0,
                step: None,
                touched: 0,
                left: 0,
                until: 0,
                jobs: Vec::new(),
                slices: Vec::new(),
            });
        }
        if self.scheme == Scheme::Spel {
            pager.lock(region)?;
        }
        let first = runners[self.first].shared;
        for page in PageNumber::range(0..self.region) {
            pager.fault(first, page)?;
            pager.backend_mut().store(first, page, page.get().into());
        }
        Ok(Machine {
            pager,
            runners,
            disk: self.disk,
            queue: Queue::default(),
            fault: self.fault,
            region: self.region,
            now: 0,
        })
    }
}

struct Machine {
    pager: Pager<MemoryBackend>,
    runners: Vec<Runner>,
    disk: Disk,
    queue: Queue,
    fault: Nanos,
    region: u32,
    now: Nanos,
}

impl Machine {
    fn play(&mut self, end: Nanos) -> Result<(), Refused> {
        while self.now < end {
            let now = self.now;
            let Some(at) = self
                .runners
                .iter()
                .position(|runner| runner.ready_at() <= now)
            else {
                self.now = self.next_ready(self.runners.len()).min(end);
                continue;
            };
            if self.runners[at].left == 0 {
                self.advance(at)?;
                continue;
            }
            // A task of higher priority may become ready before that.
            let stop = (now + self.runners[at].left)
                .min(self.next_ready(at))
                .min(end);
            self.runners[at].execute(now, stop);
            self.now = stop;
        }
        Ok(())
    }

    /// When the first of the tasks above `below` becomes ready.
    fn next_ready(&self, below: usize) -> Nanos {
        let above = self.runners[..below].iter();
        above.map(Runner::ready_at).min().unwrap_or(Nanos::MAX)
    }

    /// Does what takes no processor time: completes a step or touches the next page.
    fn advance(&mut self, at: usize) -> Result<(), Refused> {
        let runner = &mut self.runners[at];
        let Some(step) = runner.step else {
            runner.begin();
            return Ok(());
        };
        if runner.touched <= runner.task.touches {
            return self.touch(at, step);
        }
        runner.touched = 0;
        if step + 1 == runner.task.shared {
            runner.complete(self.now);
        } else {
            runner.step = Some(step + 1);
        }
        Ok(())
    }

    /// Touches the next page of a step: the shared one first, then some private ones.
    fn touch(&mut self, at: usize, step: u32) -> Result<(), Refused> {
        let runner = &mut self.runners[at];
        let (attachment, page) = runner.target(step, self.region);
        let backend = self.pager.backend_mut();
        let present = if attachment == runner.shared {
            backend.load(attachment, page).is_some()
        } else {
            backend.store(attachment, page, runner.done)
        };
        if !present {
            return self.page_in(at, attachment, page);
        }
        runner.touched += 1;
        if runner.touched > runner.task.touches {
            runner.left = runner.task.part(step + 1) - runner.task.part(step);
        }
        Ok(())
    }

    /// Resolves a fault, and makes the task wait for storage if it must.
    fn page_in(
        &mut self,
        at: usize,
        attachment: AttachmentId,
        page: PageNumber,
    ) -> Result<(), Refused> {
        let before = self.pager.backend().traffic();
        let fault = self.pager.fault(attachment, page)?;
        let after = self.pager.backend().traffic();
        let writes = self.disk.write * (after.writes - before.writes);
        let reads = self.disk.read * (after.reads - before.reads);
        let runner = &mut self.runners[at];
        runner.left = self.fault;
        if writes + reads > 0 {
            runner.until = self.queue.request(self.now, writes + reads);
        }
        if let Some(job) = runner.jobs.last_mut() {
            job.suspended += runner.until.saturating_sub(self.now);
            match fault {
                Fault::Major => job.major += 1,
                Fault::Minor | Fault::Zero | Fault::Present => job.minor += 1,
            }
        }
        Ok(())
    }
}

impl Runner {
    /// When it can use the processor.
    fn ready_at(&self) -> Nanos {
        if self.step.is_some() {
            self.until
        } else {
            self.done * self.task.period
        }
    }

    /// The next page of a step.
    fn target(&self, step: u32, region: u32) -> (AttachmentId, PageNumber) {
        let number = self.done * u64::from(self.task.shared) + u64::from(step);
        let (attachment, number, pages) = if self.touched == 0 {
            (self.shared, number, region)
        } else {
            let number = number * u64::from(self.task.touches) + u64::from(self.touched);
            (self.private, number, self.task.private)
        };
        let page = (number % u64::from(pages)) as u32;
        (attachment, PageNumber::new(page))
    }

    fn begin(&mut self) {
        let release = self.done * self.task.period;
        self.step = Some(0);
        self.jobs.push(Job {
            release,
            deadline: release + self.task.period,
            completion: None,
            major: 0,
            minor: 0,
            suspended: 0,
        });
    }

    fn execute(&mut self, from: Nanos, to: Nanos) {
        self.left -= to - from;
        match self.slices.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.slices.push((from, to)),
        }
    }

    fn complete(&mut self, now: Nanos) {
        self.step = None;
        self.done += 1;
        if let Some(job) = self.jobs.last_mut() {
            job.completion = Some(now);
        }
    }
}
