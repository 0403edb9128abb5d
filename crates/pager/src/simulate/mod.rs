//! Periodic tasks under memory reservations, in virtual time: the experiment of SPC §VI-B.
//!
//! Tasks share one processor by fixed priorities and one disk, first come, first served; they read
//! a shared region and pages of their own. Every page that they touch goes through a real
//! [`Pager`](crate::Pager), so the faults are the policy's and not a model's. A task that must wait
//! for the disk suspends itself, so that another task's eviction of a page can make it miss its
//! deadlines (SPC §III-B, fig. 3). Deterministic: the same experiment gives the same [`History`].
//!
//! ```
//! use leasehold_pager::simulate::{Experiment, MS, REGION, Scheme, TAU1, TAU2};
//!
//! let run = |scheme| Experiment::new(vec![TAU1, TAU2], REGION, scheme).run(2_000 * MS);
//! // What τ2 does costs τ1 deadlines, unless shared pages are managed.
//! assert!(run(Scheme::Plain)?.missed(0) > 0);
//! assert_eq!(run(Scheme::Spc)?.missed(0), 0);
//! # Ok::<(), leasehold_pager::Refused>(())
//! ```

mod disk;
mod engine;
mod history;
mod task;

pub use disk::Disk;
pub use engine::{Experiment, Scheme};
pub use history::{History, Job};
pub use task::{MB, MS, Nanos, REGION, TAU1, TAU2, Task};
