//! Processor reservations that untrusted tasks cannot turn against each other.
//!
//! *Shielded Processor Reservations* (SPR) is the paper behind it; it builds the scheduler for
//! sporadic and deferrable servers of one task under fixed priorities. Here servers have many
//! tasks, and deadlines can take the place of priorities. The crate is `no_std`, and a pure state
//! machine: it receives events with their times, and returns the task to run and the time of the
//! one-shot timer ([`Decision`]). It has no clock and no thread, and allocates nothing once it is
//! made, so that the same code runs in a cell and in virtual time ([`simulate`]).
//!
//! # Principles
//! 1. **A timer that does not switch is not set.** Certain replenishments count in advance,
//!    timeouts of tasks that could not run are pruned, and those of lower priority are deferred
//!    (SPR §III-B to §III-D).
//! 2. **At most two reservations are touched.** An invocation accounts for the server that ran
//!    and processes the timeout of the one that runs next, however many have expired (SPR §III-E).
//! 3. **Time comes in useful pieces.** A server is not preempted within its non-preemptive region
//!    (SPR §III-F).
//! 4. **Budget is neither made nor lost.** Used budget is replenished as the policy states; an
//!    overrun is subtracted from the next budget (SPR Alg. 1). No window gets more than the policy
//!    allows, regardless of the tasks' behaviour.
//! 5. **A tenant pays for its own tasks.** Its sleeping tasks wake up one at a time, in its own
//!    time; removing it takes the same time for any number of tasks.
//! 6. **Identifiers are never reused.** They carry generations: that of a removed server is
//!    refused, and never refers to another.
//! 7. **The baseline is built in.** [`Shielding::Eager`] handles timeouts the way that the
//!    attacks exploit, in the same build (SPR §III-A, §V).
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | the contract `(b, p, σ, η)` of a server | `contract` |
//! | server: its record, its states, and its tasks | `server`, `transitions`, `tasks`, `id` |
//! | sporadic, deferrable, constant-bandwidth and background server | `sporadic`, `deferrable`, `bandwidth`, `background` |
//! | budget, whatever the policy | `budget`; of one sporadic server alone: `account` |
//! | overrun: what was used beyond the budget, and who owes it | `sporadic` (`charge`), `transitions` (`settle_budget`); read by `budget` |
//! | what a stall of the host put off, and who pays for giving it back | `put_off`; `transitions` (`forgo`) |
//! | replenishments: the queue, and its batches | `replenishment_queue`; joined when a tenant ends: `join`; early ones: `sporadic` (`depletion`) |
//! | shielded scheduling: pruned and deferred timeouts | `shielded`, `transitions` (`set_blocked_timeout`), `dispatch` |
//! | non-preemptive regions | `server` (`region_end`), used by `shielded` |
//! | eager scheduling, the baseline | `eager`, `eager_timers` |
//! | runqueue and timer queues | `runqueue`, `timeouts`; by deadlines: `deadlines`; both behind `ready`, ordered by `urgency` |
//! | which server pays for interrupt, dispatch and preemption | `billing` |
//! | time slices of tasks and of background servers | `time_slices` |
//! | the scheduler: events in, decisions out | `scheduler`, `decision`, `config`; what a server got: `supply` |
//! | admission test: request bounds, response times, overhead | [`admission`], a file each; begins in `admission::report` (`admit`) |
//! | simulator in virtual time | [`simulate`] |
//! | what these are made of | `heaps`, `lists`, `places`, `random`; the count of touched reservations: `touched` |
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
//!     seed: 0,
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
mod billing;
mod budget;
mod config;
mod contract;
mod deadlines;
mod decision;
mod deferrable;
mod dispatch;
mod eager;
mod eager_timers;
mod heaps;
mod id;
mod join;
mod lists;
mod places;
mod put_off;
mod random;
mod ready;
mod replenishment_queue;
mod runqueue;
mod scheduler;
mod server;
mod shielded;
pub mod simulate;
mod sporadic;
mod supply;
mod tasks;
mod time_slices;
mod timeouts;
#[cfg(feature = "touched")]
mod touched;
mod transitions;
mod urgency;

pub use account::SporadicAccount;
pub use config::{Config, Order, Shielding};
pub use contract::{
    Contract, ContractError, INSTANT_MAX, Nanos, PERIOD_MAX, Policy, Priority, REPLENISHMENTS_MAX,
};
pub use decision::Decision;
pub use id::{Refused, ServerId, TaskId};
pub use replenishment_queue::Replenishment;
pub use scheduler::Scheduler;
pub use server::State;
pub use supply::Supply;
