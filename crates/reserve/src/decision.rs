//! The decision of one invocation of the scheduler.

use crate::contract::Nanos;
use crate::id::TaskId;

/// The task that runs, until when at the latest, and the work of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// The task that runs; `None`: the processor is idle.
    pub run: Option<TaskId>,
    /// When the one-shot timer must fire, an instant; `None`: it need not.
    pub timer: Option<Nanos>,
    /// Another task runs than before.
    pub switched: bool,
    /// The end of the task's non-preemptive region, an instant; zero if it has none or is in the background. Until then
    /// only its own depletion, blocking or end of time slice take the processor from it (SPR §III-F): what becomes ready
    /// meanwhile need not be told to the scheduler before.
    pub region_end: Nanos,
    /// Reservations that were accounted for or dispatched, and in the eager scheduler those whose timers
    /// were processed, each as often as it was.
    pub processed: u32,
    /// Reservations whose records were accessed at all: counted at each access, with the feature
    /// `touched` only, which costs time. At most two when shielded.
    pub touched: Option<u32>,
    /// Entries of replenishment queues that were processed.
    pub replenishments: u32,
    /// Expired timeouts that were processed; at most one when shielded.
    pub timeouts: u32,
}
