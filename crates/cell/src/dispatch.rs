//! Who runs next on a cell: the processor reservations of its tenants, and what their tasks are.
//!
//! The decision itself is [`leasehold_reserve`]'s, a state machine that knows tasks only by their
//! identifiers. Here they get a meaning: a task is an execution of a tenant, or the tenant's
//! *upkeep*: firing its timers and taking back what ended. Upkeep is a task like any other, so
//! that a tenant pays for its own timers and for its own end.

use crate::cell::CellConfig;
use crate::promises::Promise;
use leasehold_crossing::Urgency;
use leasehold_lease::Cpu;
use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Priority, Refused, Scheduler, ServerId, State, Supply,
    TaskId,
};
use std::fmt;
use std::time::Duration;

/// How long one of several tasks of tenants without a reservation runs before the next one does.
pub const BACKGROUND_SLICE: Duration = Duration::from_millis(1);

/// What a task of the scheduler is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Poll this execution.
    Execution(u64),
    /// Fire the timers of the top-level tenant with this key, and take back what of it ended.
    Upkeep(u64),
}

/// The part of the processor that a top-level tenant and all its descendants run on: their
/// reservation, or their turns in what nobody has reserved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    server: ServerId,
    reserved: bool,
    urgency: Urgency,
}

/// A processor reservation that the cell may keep.
#[derive(Debug)]
pub(crate) struct Promised {
    pub(crate) contract: Contract,
    /// `None` where nobody is refused.
    #[expect(dead_code, reason = "dropped when the reservation is given back")]
    pub(crate) promise: Option<Promise>,
}

impl Share {
    /// How urgent it is that this tenant runs.
    pub(crate) const fn urgency(&self) -> Urgency {
        self.urgency
    }
}

/// What a cell does next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) task: TaskId,
    pub(crate) work: Work,
    pub(crate) urgency: Urgency,
    /// Messages that are at least this urgent must not wait until the turn is over.
    pub(crate) interrupted_from: Urgency,
}

/// The tasks of a cell and the scheduler that picks one.
pub(crate) struct Dispatcher {
    scheduler: Scheduler,
    order: Order,
    /// What each task is, by its place in the scheduler.
    tasks: Vec<Option<(TaskId, Work, Share)>>,
    /// The task that ran last, unless the cell was idle since.
    last: Option<TaskId>,
}

impl Dispatcher {
    /// A dispatcher without tenants, for at most `executions` at once.
    pub(crate) fn new(config: &CellConfig, executions: u32) -> Self {
        let tasks = config.max_tenants.saturating_add(executions);
        let scheduler = Scheduler::new(Config {
            order: config.order,
            shielding: config.shielding,
            servers: config.max_tenants,
            tasks,
        });
        Self {
            scheduler,
            order: config.order,
            tasks: vec![None; tasks as usize],
            last: None,
        }
    }

    /// Sets the reservation of a tenant up; without one it gets what nobody reserved.
    ///
    /// # Errors
    /// When the cell has no place for another tenant.
    pub(crate) fn share(
        &mut self,
        contract: Option<&Contract>,
        now: Nanos,
    ) -> Result<Share, Refused> {
        let Some(contract) = contract else {
            let slice = BACKGROUND_SLICE.as_nanos() as Nanos;
            return Ok(Share {
                server: self.scheduler.add_background(slice)?,
                reserved: false,
                urgency: Urgency::BACKGROUND,
            });
        };
        let urgency = match self.order {
            Order::FixedPriority => Urgency::of_priority(u32::from(contract.priority().0)),
            // Whose deadline comes first is not known before the wake-up is processed.
            Order::EarliestDeadline => Urgency::of_priority(0),
        };
        Ok(Share {
            server: self.scheduler.add_server(contract, now)?,
            reserved: true,
            urgency,
        })
    }

    /// Gives a tenant's share back, and takes what is left of its tasks away.
    pub(crate) fn give_back(&mut self, share: Share, now: Nanos) {
        let removed = self.scheduler.remove_server(share.server, now);
        debug_assert!(removed.is_ok(), "a share is given back once");
    }

    /// What a tenant has got so far, and what it has left.
    pub(crate) fn processor(&self, share: Share, now: Nanos) -> Option<Processor> {
        let server = share.server;
        let state = match self.scheduler.state(server).ok()? {
            _ if self.running() == Some(server) => ProcessorState::Running,
            State::Ready => ProcessorState::Ready,
            State::Blocked => ProcessorState::Blocked,
            State::Depleted => ProcessorState::Depleted,
        };
        let left = share.reserved.then_some(server);
        Some(Processor {
            state,
            supply: self.scheduler.supply(server).ok()?,
            budget_left_ns: left.and_then(|server| self.scheduler.budget_left(server, now).ok()),
        })
    }

    /// What a tenant has got so far, up to the last decision.
    pub(crate) fn supply(&self, share: Share) -> Supply {
        self.scheduler.supply(share.server).unwrap_or_default()
    }

    fn running(&self) -> Option<ServerId> {
        let task = self.scheduler.running()?;
        self.scheduler.server_of(task).ok()
    }

    /// Adds a task, which waits until it is [woken](Self::wake).
    ///
    /// # Errors
    /// When the cell has no place for another task.
    pub(crate) fn add(&mut self, share: Share, work: Work) -> Result<TaskId, Refused> {
        let task = self.scheduler.add_task(share.server)?;
        self.tasks[task.index()] = Some((task, work, share));
        Ok(task)
    }

    /// Takes a task away, also the one that runs.
    pub(crate) fn remove(&mut self, task: TaskId, now: Nanos) {
        self.tasks[task.index()] = None;
        let removed = self.scheduler.remove_task(task, now);
        debug_assert!(removed.is_ok(), "a task is removed once");
    }

    /// Something happened that a task waits for. Idempotent.
    pub(crate) fn wake(&mut self, task: TaskId, now: Nanos) {
        // A task that is gone has nothing to do.
        let _ = self.scheduler.wake(task, now);
    }

    /// A task has nothing to do, until somebody wakes it or `until`. For one that waits already,
    /// `until` replaces the earlier one.
    pub(crate) fn block(&mut self, task: TaskId, now: Nanos, until: Option<Nanos>) {
        let _ = self.scheduler.block(task, now, until);
    }

    /// The cell does what no tenant asked for, such as admitting another one, or waits for others
    /// to have the processor: until [`resume`](Self::resume) nobody is charged.
    pub(crate) fn pause(&mut self, now: Nanos) {
        self.scheduler.pause(now);
    }

    /// The cell is the tenants' again.
    pub(crate) fn resume(&mut self, now: Nanos) {
        self.scheduler.resume(now);
    }

    /// Decides what runs from `now` on, and when the cell has to decide again at the latest.
    pub(crate) fn decide(&mut self, now: Nanos) -> (Option<Turn>, Option<Nanos>) {
        let decision = self.scheduler.schedule(now);
        let again = self.last.is_some() && self.last == decision.run;
        let turn = decision.run.and_then(|task| {
            let (_, work, share) = self.tasks[task.index()].filter(|(owner, ..)| *owner == task)?;
            Some(Turn {
                task,
                work,
                urgency: share.urgency,
                interrupted_from: interrupted_from(share, self.order, again, decision.protected),
            })
        });
        if turn.is_none() {
            self.last = None;
        }
        (turn, decision.timer)
    }

    /// The task of a turn really runs now.
    pub(crate) const fn entered(&mut self, turn: &Turn) {
        self.last = Some(turn.task);
    }
}

/// From which urgency on a message interrupts whoever runs.
///
/// Who has no reservation is interrupted by everything. A reservation is interrupted once by a
/// message of equal urgency, because the wake-up may be for another task of the same tenant; when
/// the cell has looked and the same task goes on, only by what is more urgent; and in its
/// non-preemptive region not a second time by anybody but the controller (SPR §III-F), for then
/// its timer is set to the end of that region.
fn interrupted_from(share: Share, order: Order, again: bool, protected: bool) -> Urgency {
    if !share.reserved {
        Urgency::BACKGROUND
    } else if again && protected {
        Urgency::CONTROL
    } else if again && order == Order::FixedPriority {
        share.urgency.above()
    } else {
        share.urgency
    }
}

/// What a tenant has got of the processor.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    /// Whether it runs, and if not, what keeps it from running.
    pub state: ProcessorState,
    /// Its counters since it was started.
    pub supply: Supply,
    /// What of its reservation it may still use before more comes back, ns; `None` for a tenant
    /// without a reservation.
    pub budget_left_ns: Option<u64>,
}

/// Whether a tenant runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessorState {
    /// It runs now.
    Running,
    /// It would run, but somebody else does.
    Ready,
    /// It waits for something.
    Blocked,
    /// It has used its budget up and waits for more.
    Depleted,
}

impl fmt::Display for ProcessorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Blocked => "blocked",
            Self::Depleted => "depleted",
        })
    }
}

/// The contract that a lease's processor reservation is.
///
/// # Panics
/// Never: what a lease accepts, a contract does.
pub fn contract(cpu: &Cpu) -> Contract {
    let policy = match cpu.policy() {
        leasehold_lease::Policy::Sporadic => Policy::Sporadic,
        leasehold_lease::Policy::Deferrable => Policy::Deferrable,
    };
    let nonpreemptive = cpu.nonpreemptive().map_or(0, |length| length.get());
    Contract::new(cpu.budget().get(), cpu.period().get())
        .and_then(|contract| contract.with_nonpreemptive(nonpreemptive))
        .and_then(|contract| contract.with_replenishments(cpu.replenishments().into()))
        .expect("a lease is at least as strict as a contract")
        .with_priority(Priority(cpu.priority()))
        .with_policy(policy)
        .with_slice(cpu.slice().get())
}

#[cfg(test)]
mod tests {
    use super::{Dispatcher, Work};
    use crate::cell::CellConfig;
    use crate::profile::Profile;
    use leasehold_reserve::Contract;

    #[test]
    fn what_the_controller_asks_for_is_charged_to_nobody() {
        let config = CellConfig::new(Profile::free());
        let mut dispatcher = Dispatcher::new(&config, 2);
        let mut share = |now| {
            let contract = Contract::new(20_000, 100_000_000).expect("a contract");
            let share = dispatcher.share(Some(&contract), now).expect("it fits");
            let task = dispatcher.add(share, Work::Execution(1)).expect("a place");
            (share, task)
        };
        let ((selected, task), (other, _)) = (share(0), share(0));
        dispatcher.wake(task, 0);
        let (turn, _) = dispatcher.decide(0);
        assert_eq!(turn.map(|turn| turn.task), Some(task));

        // Before it is entered, a command comes that takes five milliseconds.
        dispatcher.pause(0);
        dispatcher.give_back(other, 2_000_000);
        dispatcher.resume(5_000_000);
        let (turn, timer) = dispatcher.decide(5_000_000);
        assert_eq!(turn.map(|turn| turn.task), Some(task));
        assert_eq!(timer, Some(5_020_000));
        let processor = dispatcher.processor(selected, 5_000_000).expect("there");
        assert_eq!(processor.supply.used, 0);
        assert_eq!(processor.budget_left_ns, Some(20_000));
    }
}
