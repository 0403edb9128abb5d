//! The configuration of a scheduler, fixed at its construction.

/// How timeouts are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Shielding {
    /// Every pending replenishment and activation is a timer of its own, and all that have
    /// expired are processed at every invocation: the baseline (SPR §III-A), open to attacks A1
    /// to A3 (SPR §I). Non-preemptive regions are not honoured.
    Eager,
    /// A timer fires only to switch at once, and an invocation touches at most two
    /// reservations (SPR §III-B to §III-F).
    #[default]
    Shielded,
}

/// Which of the ready reservations runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The one of the highest priority; among equals first in, first out.
    #[default]
    FixedPriority,
    /// The one of the earliest deadline. Servers are hard constant-bandwidth servers, whatever
    /// policy and priority their contracts name (SPR §V-D).
    EarliestDeadline,
}

/// What a [`Scheduler`](crate::Scheduler) is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Which of the ready reservations runs.
    pub order: Order,
    /// How timeouts are handled.
    pub shielding: Shielding,
    /// Most servers at a time, background servers included. Each takes about 1.4 KiB.
    pub servers: u32,
    /// Most tasks at a time.
    pub tasks: u32,
    /// The seed of the shape of the queues by deadlines. Decisions do not depend on it, only their
    /// durations. With a seed unknown to tenants, no tenant can cause a bad shape.
    pub seed: u64,
}
