//! The overhead of scheduling, in virtual time.

use crate::{Decision, Nanos};

/// Nanoseconds that the processor spends on scheduling rather than on a task.
///
/// A timer interrupt costs `interrupt + handler` before the scheduler takes its timestamp, a call
/// by the running task `call`. After the timestamp follows the invocation itself: `decision`, then
/// `reservation` for each reservation processed, `timeout` for each timeout and `replenishment` for
/// each entry of a replenishment queue processed, `arm`, and `switch` if another task runs next.
/// Together they are SPR's `O_pre` (§III-G).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
    /// From the expiry of the timer, or an event from outside, to the first instruction of its
    /// handler.
    pub interrupt: Nanos,
    /// From there to the scheduler's timestamp.
    pub handler: Nanos,
    /// From a running task's call to the scheduler's timestamp.
    pub call: Nanos,
    /// An invocation of the scheduler that touches nothing.
    pub decision: Nanos,
    /// Each reservation processed.
    pub reservation: Nanos,
    /// Each timeout processed.
    pub timeout: Nanos,
    /// Each entry of a replenishment queue processed.
    pub replenishment: Nanos,
    /// Programming the timer.
    pub arm: Nanos,
    /// A context switch.
    pub switch: Nanos,
}

impl CostModel {
    /// A machine without overhead, as in theory.
    pub const FREE: Self = Self {
        interrupt: 0,
        handler: 0,
        call: 0,
        decision: 0,
        reservation: 0,
        timeout: 0,
        replenishment: 0,
        arm: 0,
        switch: 0,
    };

    /// A cell in a virtual machine: timers are signals of the host's kernel, whose interrupts are
    /// delivered by a hypervisor.
    ///
    /// Measured: expiry to handler 19 µs, all of it taken from the running task (a loop that reads
    /// the time-stamp counter sees the gap); handler to scheduler 1 µs; fiber switch 0.2 µs; arming
    /// 0.3 µs, unless the instant precedes all others of the kernel (then the hypervisor is called,
    /// 7 µs or more). The scheduler's own parts are those of `benches/simulate.rs`.
    pub const VIRTUAL_MACHINE: Self = Self {
        interrupt: 19_000,
        handler: 1_000,
        call: 100,
        arm: 300,
        switch: 200,
        ..Self::BARE_METAL
    };

    /// A kernel that owns its timer, on the scale of SPR's test machine: an interrupt takes a
    /// microsecond.
    pub const BARE_METAL: Self = Self {
        interrupt: 1_000,
        handler: 100,
        call: 100,
        decision: 40,
        reservation: 20,
        timeout: 80,
        replenishment: 2,
        arm: 100,
        switch: 200,
    };

    /// Returns the time of an invocation of the scheduler after its timestamp.
    pub fn of(&self, decision: &Decision) -> Nanos {
        let switch = if decision.switched { self.switch } else { 0 };
        self.deciding(decision) + self.arm + switch
    }

    /// Returns the time of the scheduler's own code: without arming and switching.
    pub fn deciding(&self, decision: &Decision) -> Nanos {
        self.decision
            + u64::from(decision.processed) * self.reservation
            + u64::from(decision.timeouts) * self.timeout
            + u64::from(decision.replenishments) * self.replenishment
    }

    /// Returns the shortest time between the timestamp and the first instruction of another task.
    pub const fn redispatch(&self) -> Nanos {
        self.decision + self.arm + self.switch
    }

    /// One preemption of a task by another with at most two reservations, one timeout and
    /// `replenishments` replenishments processed: SPR's `O_pre` (§III-G).
    pub fn preemption(&self, replenishments: u32) -> Nanos {
        self.interrupt
            + self.handler
            + self.of(&Decision {
                switched: true,
                processed: 2,
                replenishments,
                timeouts: 1,
                ..Decision::default()
            })
    }
}

impl Default for CostModel {
    /// [`CostModel::VIRTUAL_MACHINE`].
    fn default() -> Self {
        Self::VIRTUAL_MACHINE
    }
}
