//! The events of a simulation.

use super::{ServerIndex, TaskIndex};
use crate::{Contract, Nanos};

/// The causes of overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A timer interrupt or an event from outside, until the scheduler's timestamp. Charged to
    /// the task that it interrupts, unless it is a timer's that fires for a more urgent server of
    /// a shielded scheduler: then to that one.
    Interrupt,
    /// A call of the scheduler by the running task, until the timestamp. Charged to that task.
    Call,
    /// An invocation of the scheduler after its timestamp, with the context switch if there is
    /// one. Charged to the task that runs next.
    Decision,
    /// Reloading what other tasks evicted from the caches. Charged to the task that reloads.
    Refill,
}

/// An event. Events are reported in the order of time, except that an activation may be reported
/// after its instant, when the scheduler processes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A task ran and advanced its work.
    Ran {
        /// Which.
        task: TaskIndex,
        /// From when.
        from: Nanos,
        /// Until when.
        to: Nanos,
    },
    /// The processor was busy with overhead.
    Overhead {
        /// The charged task; `None` if the processor was idle.
        task: Option<TaskIndex>,
        /// With what.
        cause: Cause,
        /// From when.
        from: Nanos,
        /// Until when.
        to: Nanos,
    },
    /// The timer fired and the scheduler has decided.
    TimerInterrupt {
        /// When it fired.
        at: Nanos,
        /// When the next task could continue.
        to: Nanos,
        /// The interrupted task.
        task: Option<TaskIndex>,
        /// Whether another task runs now, or none. Where not, the interrupt was unnecessary
        /// (SPR §III-A).
        switched: bool,
    },
    /// The scheduler was invoked.
    Decided {
        /// Its timestamp.
        at: Nanos,
        /// Reservations that it processed.
        processed: u32,
        /// Reservations that it touched, where that [is counted](crate::Decision::touched).
        touched: Option<u32>,
        /// Entries of replenishment queues that it processed.
        replenishments: u32,
        /// Timeouts that it processed.
        timeouts: u32,
    },
    /// A task ceased to run although it could have gone on.
    Preempted {
        /// Which.
        task: TaskIndex,
        /// When.
        at: Nanos,
    },
    /// A task executes for the first time after an activation.
    Activated {
        /// Which.
        task: TaskIndex,
        /// When it was to be activated.
        planned: Nanos,
        /// When it executed.
        at: Nanos,
    },
    /// A task has done what it was activated for.
    Completed {
        /// Which.
        task: TaskIndex,
        /// When it was to be activated.
        planned: Nanos,
        /// When it had done it.
        at: Nanos,
    },
    /// Jobs were or will be completed after they were due.
    Missed {
        /// The task.
        task: TaskIndex,
        /// When the first was due.
        due: Nanos,
        /// When it was completed, or when the simulation stopped before that.
        at: Nanos,
        /// How many, one due after the other: more than one only when the simulation stops.
        jobs: u64,
    },
    /// The rest of a server's budget, after a decision and only if the sink asks for budgets.
    Budget {
        /// The server.
        server: ServerIndex,
        /// When.
        at: Nanos,
        /// How much.
        left: Nanos,
        /// Whether it is more than before: budget was replenished.
        replenished: bool,
    },
    /// No further events follow until the simulation continues.
    Stopped {
        /// Virtual time has come this far.
        at: Nanos,
    },
    /// A server used up its budget.
    Depleted {
        /// Which.
        server: ServerIndex,
        /// When.
        at: Nanos,
    },
}

/// A receiver of events.
pub trait Sink {
    /// Whether [`Event::Budget`] is wanted, which visits every server at every decision.
    fn wants_budgets(&self) -> bool {
        false
    }

    /// Receives every server when it is added; one without a reservation has no contract.
    fn server(&mut self, _server: ServerIndex, _contract: Option<&Contract>) {}

    /// Receives every task when it is added.
    fn task(&mut self, _task: TaskIndex, _server: ServerIndex) {}

    /// Receives every event.
    fn record(&mut self, event: &Event);
}

/// Discards all events.
impl Sink for () {
    fn record(&mut self, _event: &Event) {}
}

/// Passes events to both.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn wants_budgets(&self) -> bool {
        self.0.wants_budgets() || self.1.wants_budgets()
    }

    fn server(&mut self, server: ServerIndex, contract: Option<&Contract>) {
        self.0.server(server, contract);
        self.1.server(server, contract);
    }

    fn task(&mut self, task: TaskIndex, server: ServerIndex) {
        self.0.task(task, server);
        self.1.task(task, server);
    }

    fn record(&mut self, event: &Event) {
        self.0.record(event);
        self.1.record(event);
    }
}
