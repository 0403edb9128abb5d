//! The supply of a server: its processor time and the events of its scheduling.

use crate::contract::Nanos;

/// Counters of one server since it was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Supply {
    /// Processor time its tasks ran, overruns included.
    pub used: Nanos,
    /// Times it was chosen after something else had run.
    pub dispatches: u64,
    /// Times something else was chosen while it was ready and had budget.
    pub preemptions: u64,
    /// Times its budget ran out.
    pub depletions: u64,
    /// Times it became active after none of its tasks had been ready.
    pub activations: u64,
    /// Replenishments that came due and were processed.
    pub replenishments: u64,
    /// Budgets that it did not get although it was ready for consecutive periods. An admitted
    /// server misses none, unless something outside the scheduler takes time away.
    pub misses: u64,
    /// The most time that it ever ran beyond its budget before the scheduler was called.
    pub overrun_max: Nanos,
    /// Timers that fired while it ran.
    pub timers: u64,
}
