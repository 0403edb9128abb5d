//! The results of a simulation, per server.

use alloc::vec::Vec;

use super::{Event, ServerIndex, Sink, TaskIndex};
use crate::{Contract, Nanos};

/// Counts and extremes of every server.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    servers: Vec<ServerTally>,
    tasks: Vec<ServerIndex>,
    timer_interrupts: u64,
    unnecessary: u64,
    decisions: u64,
    most_touched: Option<u32>,
    idle_overhead: Nanos,
}

/// The counts and extremes of one server.
#[derive(Debug, Clone, Default)]
pub struct ServerTally {
    period: Option<Nanos>,
    work: Nanos,
    overhead: Nanos,
    interference: Nanos,
    interrupts: u64,
    preemptions: u64,
    depletions: u64,
    activations: u64,
    misses: u64,
    worst_wakeup: Option<Nanos>,
    worst_response: Option<Nanos>,
    /// Time used in the current period.
    window_used: Nanos,
    windows: u64,
    least_used: Option<Nanos>,
    total_in_windows: u128,
}

impl Tally {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the tally of one server.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn server(&self, server: ServerIndex) -> &ServerTally {
        &self.servers[server.get()]
    }

    /// Timer interrupts in all.
    pub fn timer_interrupts(&self) -> u64 {
        self.timer_interrupts
    }

    /// Those after which the same task went on: unnecessary (SPR §III-A).
    pub fn unnecessary_interrupts(&self) -> u64 {
        self.unnecessary
    }

    /// Invocations of the scheduler.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Most reservations that one invocation touched, where that [is counted](crate::Decision::touched).
    pub fn most_touched(&self) -> Option<u32> {
        self.most_touched
    }

    /// Overhead that no server was charged for, because the processor was idle.
    pub fn idle_overhead(&self) -> Nanos {
        self.idle_overhead
    }

    /// The tally of the server whose task it is.
    fn of(&mut self, task: TaskIndex) -> &mut ServerTally {
        &mut self.servers[self.tasks[task.get()].get()]
    }
}

impl ServerTally {
    /// Time used: work and overhead, which is what its budget was charged for.
    pub fn used(&self) -> Nanos {
        self.work + self.overhead
    }

    /// Time in which its tasks advanced their work.
    pub fn work(&self) -> Nanos {
        self.work
    }

    /// Time charged to it in which they did not.
    pub fn overhead(&self) -> Nanos {
        self.overhead
    }

    /// The part of the overhead from timer interrupts that changed nothing: priority inversion if
    /// they were for another server (SPR §III-A).
    pub fn interference(&self) -> Nanos {
        self.interference
    }

    /// Timer interrupts while one of its tasks ran.
    pub fn timer_interrupts(&self) -> u64 {
        self.interrupts
    }

    /// How often one of its tasks had to stop although there was budget.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// How often its budget was used up.
    pub fn depletions(&self) -> u64 {
        self.depletions
    }

    /// How often one of its tasks began to execute after it had been activated.
    pub fn activations(&self) -> u64 {
        self.activations
    }

    /// Jobs that were not completed in time.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Longest time from a planned activation until the task executed.
    pub fn worst_wakeup(&self) -> Option<Nanos> {
        self.worst_wakeup
    }

    /// Longest time from a planned activation until the task was done.
    pub fn worst_response(&self) -> Option<Nanos> {
        self.worst_response
    }

    /// Whole periods seen, from 0 on.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Least time used in any whole period.
    pub fn least_used(&self) -> Option<Nanos> {
        self.least_used
    }

    /// Average time used in a whole period.
    pub fn mean_used(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.total_in_windows as f64 / self.windows as f64)
    }

    /// Adds a stretch of use, which may span periods. O(1), however many they are.
    fn charge(&mut self, from: Nanos, to: Nanos) {
        self.close_windows(from);
        let Some(period) = self.period else { return };
        let first = self.window_end(period).min(to);
        self.window_used += first - from;
        if first == to {
            return self.close_windows(to);
        }
        let rest = to - first;
        self.close(1, self.window_used);
        self.close(rest / period, period);
        self.window_used = rest % period;
    }

    fn window_end(&self, period: Nanos) -> Nanos {
        (self.windows + 1).saturating_mul(period)
    }

    /// Accounts for every period that ends by `now`.
    fn close_windows(&mut self, now: Nanos) {
        let Some(period) = self.period else { return };
        if let Some(beyond) = now.checked_sub(self.window_end(period)) {
            self.close(1, self.window_used);
            self.close(beyond / period, 0);
        }
    }

    /// Accounts for so many periods, in each of which so much was used.
    fn close(&mut self, windows: u64, used: Nanos) {
        if windows > 0 {
            self.least_used = Some(self.least_used.map_or(used, |least| least.min(used)));
            self.total_in_windows += u128::from(windows) * u128::from(used);
            self.windows += windows;
            self.window_used = 0;
        }
    }
}

impl Sink for Tally {
    fn server(&mut self, _server: ServerIndex, contract: Option<&Contract>) {
        self.servers.push(ServerTally {
            period: contract.map(Contract::period),
            ..ServerTally::default()
        });
    }

    fn task(&mut self, _task: TaskIndex, server: ServerIndex) {
        self.tasks.push(server);
    }

    fn record(&mut self, event: &Event) {
        match *event {
            Event::Ran { task, from, to } => {
                let server = self.of(task);
                server.work += to - from;
                server.charge(from, to);
            }
            Event::Overhead { task, from, to, .. } => match task {
                Some(task) => {
                    let server = self.of(task);
                    server.overhead += to - from;
                    server.charge(from, to);
                }
                None => self.idle_overhead += to - from,
            },
            Event::TimerInterrupt {
                at,
                to,
                task,
                switched,
            } => {
                self.timer_interrupts += 1;
                self.unnecessary += u64::from(!switched);
                if let Some(task) = task {
                    let server = self.of(task);
                    server.interrupts += 1;
                    if !switched {
                        server.interference += to - at;
                    }
                }
            }
            Event::Decided { touched, .. } => {
                self.decisions += 1;
                self.most_touched = self.most_touched.max(touched);
            }
            Event::Preempted { task, .. } => self.of(task).preemptions += 1,
            Event::Activated { task, planned, at } => {
                let server = self.of(task);
                server.activations += 1;
                server.worst_wakeup = server.worst_wakeup.max(Some(at - planned));
            }
            Event::Completed { task, planned, at } => {
                let server = self.of(task);
                server.worst_response = server.worst_response.max(Some(at - planned));
            }
            Event::Missed { task, jobs, .. } => self.of(task).misses += jobs,
            Event::Depleted { server, .. } => self.servers[server.get()].depletions += 1,
            Event::Budget { .. } => {}
            Event::Stopped { at } => {
                for server in &mut self.servers {
                    server.close_windows(at);
                }
            }
        }
    }
}
