//! The scheduler in virtual time: the same [`Scheduler`](crate::Scheduler) that runs a cell,
//! driven by a model of a processor, a one-shot timer and tasks.
//!
//! 1. **Nothing is modelled twice.** Budgets, replenishments and decisions are the scheduler's own.
//!    The simulation supplies the machine: time passes, timers fire, tasks run, suspend themselves
//!    and are woken.
//! 2. **Overhead takes time.** The [`CostModel`] states the costs of an interrupt, an invocation of
//!    the scheduler and a context switch. The server that occupies the processor between two
//!    timestamps of the scheduler is charged for them (SPR §III-G, §IV-B). A shielded scheduler
//!    charges interrupts to the servers that they are for
//!    ([`Scheduler::with_interrupt`](crate::Scheduler::with_interrupt)), and with them the dispatch
//!    of the preempted servers ([`Scheduler::with_redispatch`](crate::Scheduler::with_redispatch)).
//! 3. **Deterministic.** The same servers, tasks, seeds and costs give the same events, in the
//!    same order.
//! 4. **Events are reported, not stored.** Every event goes to a [`Sink`] as it happens: [`Trace`]
//!    stores events, [`Tally`] counts them, and a study filters them.
//!
//! # Example
//! ```
//! use leasehold_reserve::simulate::{Behaviour, CostModel, Simulation, Tally};
//! use leasehold_reserve::{Config, Contract, Order, Shielding};
//!
//! let config = Config {
//!     order: Order::FixedPriority,
//!     shielding: Shielding::Shielded,
//!     servers: 2,
//!     tasks: 2,
//!     seed: 0,
//! };
//! let mut simulation = Simulation::new(config, CostModel::FREE, Tally::new());
//! let contract = Contract::new(2_000_000, 10_000_000)?; // 2 ms every 10 ms
//! let tenant = simulation.server(&contract)?;
//! simulation.task(tenant, Behaviour::Busy)?;
//! simulation.run_until(100_000_000)?;
//! assert_eq!(simulation.supply(tenant).used, 20_000_000);
//! assert_eq!(simulation.sink().server(tenant).windows(), 10);
//! assert_eq!(simulation.sink().server(tenant).least_used(), Some(2_000_000));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod behaviour;
mod cost;
mod engine;
mod event;
mod perfetto;
mod tally;
mod trace;

pub use crate::random::SplitMix;
pub use behaviour::{Behaviour, Step};
pub use cost::CostModel;
pub use engine::{ServerIndex, SetUpError, Simulation, Stalled, TaskIndex};
pub use event::{Cause, Event, Sink};
pub use perfetto::write_chrome_trace;
pub use tally::{ServerTally, Tally};
pub use trace::Trace;
