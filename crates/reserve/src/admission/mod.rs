//! Admission: whether a set of contracts can be kept on one processor (SPR §III-G).
//!
//! [`admit`] tests a whole set and reports on each of its servers; [`fits`] only answers yes or no,
//! and is faster. [`headroom`] and [`shortfall`] compute possible changes, [`reclaimed_within`] the
//! wall time of ending a tenant.
//!
//! Principles:
//!
//! 1. **Safe.** A set is refused when in doubt: integers only, rounded to the side of refusal, and
//!    no sum wraps around.
//! 2. **Contracts only.** The test assumes nothing about what tenants do, so no tenant can make it
//!    wrong.
//! 3. **Bounded.** Work is bounded for every set, and some thousand tenants are tested at
//!    interactive speed.
//!
//! ```
//! use leasehold_reserve::admission::{Overhead, admit};
//! use leasehold_reserve::{Contract, Order, Priority};
//!
//! let control = Contract::new(1_000, 4_000)?.with_priority(Priority(9));
//! let batch = Contract::new(5_000, 20_000)?
//!     .with_priority(Priority(1))
//!     .with_nonpreemptive(500)?;
//! let report = admit(&[control, batch], Order::FixedPriority, Overhead { per_preemption: 10 });
//! assert!(report.schedulable());
//! // Its own 1,000, 500 that it waits, and twice what a preemption takes.
//! assert_eq!(report.servers[0].response, Some(1_520));
//! assert_eq!(report.servers[1].response, Some(7_030)); // preempted twice
//! // Nine preemptions, a dispatch and a stop per period at most.
//! assert_eq!(report.servers[1].loss.useful, Some(4_890));
//! # Ok::<(), leasehold_reserve::ContractError>(())
//! ```

mod deadline;
mod interference;
mod overhead;
mod reclamation;
mod report;
mod request_bound;
mod response_time;
mod sensitivity;
mod utilisation;

use alloc::vec::Vec;

pub use deadline::meets_deadlines;
pub use overhead::{Loss, Overhead};
pub use reclamation::{reclaimed_within, while_ending};
pub use report::{Report, Verdict, admit};
pub use request_bound::RequestBound;
pub use response_time::response_times;
pub use sensitivity::{Headroom, Shortfall, headroom, shortfall};
pub use utilisation::Utilisation;

use crate::config::Order;
use crate::contract::{Contract, Nanos};

/// Returns whether all of `contracts` can be kept on one processor, as [`admit`] reports for the
/// whole set.
#[must_use]
pub fn fits(contracts: &[Contract], order: Order) -> bool {
    fits_with(contracts, order, 1)
}

/// The same with a `part` of the effort: a set that needs more does not fit.
fn fits_with(contracts: &[Contract], order: Order, part: u64) -> bool {
    match order {
        Order::FixedPriority => response_time::all_respond(contracts, part),
        Order::EarliestDeadline => meets_deadlines(contracts).into_iter().all(|meets| meets),
    }
}

/// The response time of each of `contracts`, if it is within its period.
fn responses(contracts: &[Contract], order: Order) -> Vec<Option<Nanos>> {
    match order {
        Order::FixedPriority => response_times(contracts),
        Order::EarliestDeadline => {
            let meets = meets_deadlines(contracts);
            let response =
                |(contract, meets): (&Contract, bool)| meets.then_some(contract.period());
            contracts.iter().zip(meets).map(response).collect()
        }
    }
}
