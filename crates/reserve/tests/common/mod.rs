//! A scheduler in virtual time, and the schedule that it produced.
#![allow(dead_code)]

pub(crate) mod world;

use leasehold_reserve::{
    Config, Contract, Decision, Nanos, Order, Priority, Scheduler, ServerId, Shielding, TaskId,
};

/// From when to when a server ran.
pub(crate) type Slice = (Nanos, Nanos, &'static str);

/// A scheduler whose timer fires exactly when it is set.
pub(crate) struct Machine {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Nanos,
    pub(crate) last: Decision,
    /// When the timer fired.
    pub(crate) fired: Vec<Nanos>,
    /// When it fired and nothing switched.
    pub(crate) idle_fires: Vec<Nanos>,
    pub(crate) slices: Vec<Slice>,
    names: Vec<(TaskId, &'static str)>,
}

pub(crate) fn config(shielding: Shielding) -> Config {
    Config {
        order: Order::FixedPriority,
        shielding,
        servers: 16,
        tasks: 32,
        seed: 0,
    }
}

impl Machine {
    pub(crate) fn new(config: Config) -> Self {
        Machine {
            scheduler: Scheduler::new(config),
            now: 0,
            last: Decision::default(),
            fired: Vec::new(),
            idle_fires: Vec::new(),
            slices: Vec::new(),
            names: Vec::new(),
        }
    }

    /// A server with one task, which is blocked.
    pub(crate) fn server(&mut self, name: &'static str, contract: Contract) -> (ServerId, TaskId) {
        let server = self.scheduler.add_server(&contract, self.now).unwrap();
        (server, self.task(name, server))
    }

    pub(crate) fn task(&mut self, name: &'static str, server: ServerId) -> TaskId {
        let task = self.scheduler.add_task(server).unwrap();
        self.names.push((task, name));
        task
    }

    pub(crate) fn schedule(&mut self) -> Decision {
        self.last = self.scheduler.schedule(self.now);
        self.last
    }

    /// Lets time pass until `to`, timers included that fire at `to`.
    pub(crate) fn run_to(&mut self, to: Nanos) {
        while let Some(timer) = self.last.timer.filter(|&timer| timer <= to) {
            assert!(timer >= self.now, "a timer in the past");
            self.pass(timer);
            self.fired.push(timer);
            if !self.schedule().switched {
                self.idle_fires.push(timer);
            }
        }
        self.pass(to);
    }

    pub(crate) fn wake(&mut self, task: TaskId) {
        self.scheduler.wake(task, self.now).unwrap();
        self.schedule();
    }

    pub(crate) fn block(&mut self, task: TaskId, until: Option<Nanos>) {
        self.scheduler.block(task, self.now, until).unwrap();
        self.schedule();
    }

    fn pass(&mut self, to: Nanos) {
        if let Some(task) = self.last.run
            && to > self.now
        {
            let name = self.names.iter().find(|(id, _)| *id == task).unwrap().1;
            match self.slices.last_mut() {
                Some((_, end, last)) if *end == self.now && *last == name => *end = to,
                _ => self.slices.push((self.now, to, name)),
            }
        }
        self.now = to;
    }
}

pub(crate) fn contract(budget: Nanos, period: Nanos, priority: u8) -> Contract {
    Contract::new(budget, period)
        .unwrap()
        .with_priority(Priority(priority))
}
