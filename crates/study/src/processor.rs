//! Studies of processor reservations (SPR), and what they share.
//!
//! | question | file |
//! |---|---|
//! | the promises of admission; their probe without a cell | `jobs`, `bare_job` |
//! | the three attacks: coordinated interference, Thundering Herd, preemption storm | `interference`, `herd`, `storm` |
//! | the cost of a decision, and of a batch of replenishments | `decide`, `batching` |
//! | the cost of being preemptible, and its delay | `preempt` |
//! | shared: the compared alternatives, the sweep over attackers | `reservation`, `sweep` |
//! | shared: the time-stamp counter, and a clock made of it | `cycles`, `clocks` |

pub(crate) mod bare_job;
pub(crate) mod batching;
pub(crate) mod clocks;
pub(crate) mod cycles;
pub(crate) mod decide;
pub(crate) mod herd;
pub(crate) mod interference;
pub(crate) mod jobs;
pub(crate) mod preempt;
pub(crate) mod reservation;
pub(crate) mod storm;
pub(crate) mod sweep;
