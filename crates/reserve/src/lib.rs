//! Processor reservations that untrusted tasks cannot turn against each other.
//!
//! *Shielded Processor Reservations* (SPR) is the paper behind it. The crate is `no_std`, without
//! a clock, a thread or an allocation after construction: a state machine that is told what
//! happens and says who runs and when the one-shot timer must fire ([`Decision`]).
//!
//! # Example
//! ```
//! use leasehold_reserve::{Config, Contract, Order, Priority, Scheduler, Shielding};
//!
//! let config = Config {
//!     order: Order::FixedPriority,
//!     shielding: Shielding::Shielded,
//!     servers: 2,
//!     tasks: 2,
//! };
//! let mut scheduler = Scheduler::new(config);
//! let contract = Contract::new(2_000_000, 10_000_000)?.with_priority(Priority(10));
//! let tenant = scheduler.add_server(&contract, 0)?;
//! let task = scheduler.add_task(tenant)?;
//!
//! // Something for it to do: it runs, until its budget ends at two milliseconds …
//! scheduler.wake(task, 0)?;
//! let decision = scheduler.schedule(0);
//! assert_eq!((decision.run, decision.timer), (Some(task), Some(2_000_000)));
//!
//! // … and has to wait for the next period.
//! let decision = scheduler.schedule(2_000_000);
//! assert_eq!((decision.run, decision.timer), (None, Some(10_000_000)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;

mod account;
mod background;
mod bandwidth;
mod budget;
mod change;
mod config;
mod contract;
mod deadlines;
mod decision;
mod deferrable;
mod dispatch;
mod eager;
mod heaps;
mod id;
mod lists;
mod ready;
mod ring;
mod runqueue;
mod scheduler;
mod server;
mod shielded;
pub mod simulate;
mod slack;
mod sporadic;
mod supply;
mod tasks;
mod timeouts;
mod timers;
mod turns;
mod urgency;

pub use account::SporadicAccount;
pub use config::{Config, Order, Shielding};
pub use contract::{
    Contract, ContractError, Nanos, PERIOD_MAX, Policy, Priority, REPLENISHMENTS_MAX,
};
pub use decision::Decision;
pub use id::{Refused, ServerId, TaskId};
pub use ring::Replenishment;
pub use scheduler::Scheduler;
pub use server::State;
pub use slack::Slack;
pub use supply::Supply;
