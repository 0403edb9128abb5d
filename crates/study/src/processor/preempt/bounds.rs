//! What is claimed of the mechanism that a cell uses.

use std::time::Duration;

use leasehold_cell::preempt::Mechanism;

use super::arm::Way;

/// How long a guest runs before it is preempted.
pub(super) const QUANTUM: Duration = Duration::from_millis(1);

/// Most that a guest may lose, and most that the scheduler may wait beyond the host's own path.
pub(super) const SLOWDOWN: f64 = 1.05;
pub(super) const LATENCY_NS: f64 = 5_000.0;

/// The mechanism that a cell uses.
pub(super) const CHOSEN: Way = Way::Cell(Mechanism::Injected);
