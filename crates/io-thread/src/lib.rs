//! A thread that does I/O for tenants: in bounded turns, in fair rounds, and each turn charged.
//!
//! Principles:
//!
//! 1. **A turn is bounded.** A task that reads as long as its socket has bytes ends its turn after a
//!    [slice](Sliced) of them, by their number or by the time.
//! 2. **Turns are shared out by processor time.** In a round each [share](Share) has an equal part: a tenant with
//!    a hundred tasks has no larger one than a tenant with one. A thread with nothing else to do
//!    refuses no work.
//!    What a [reservation](Share::reserving) pays for goes first.
//! 3. **Each turn has a payer**, which is told what it took, the waking of the thread included.
//! 4. **The thread keeps off the core of the cell** that it works for, where it may run on another.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | starting the thread: its core, its urgency | `start` |
//! | how long others may keep it waiting for a processor | `wait` |
//! | what a poll takes from its socket before others have their turn | `slice` |
//! | equal shares of the thread's time | `rounds` |
//! | shares that have one part together | `crowd` |
//! | which tasks go before others | `urgent` |
//! | which tenant is charged for a poll | `meter` |
//!
//! ```
//! use leasehold_io_thread::{Metered, Payer, Share, Urgency, keep_rounds, runtime};
//! use std::cell::Cell;
//! use std::rc::Rc;
//!
//! #[derive(Default)]
//! struct Tenant {
//!     share: Share,
//!     used_ns: Cell<u64>,
//! }
//!
//! impl Payer for Tenant {
//!     fn with_share<R>(&self, look: impl FnOnce(&Share) -> R) -> R {
//!         look(&self.share)
//!     }
//!
//!     fn charge(&self, ns: u64) {
//!         self.used_ns.set(self.used_ns.get() + ns);
//!     }
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let runtime = runtime(None, Urgency::Operators, None)?;
//! let tenant = Rc::new(Tenant::default());
//! tokio::task::LocalSet::new().block_on(&runtime, async {
//!     tokio::task::spawn_local(keep_rounds());
//!     let work = async { tokio::task::yield_now().await };
//!     tokio::task::spawn_local(Metered::new(tenant.clone(), work)).await
//! })?;
//! assert!(tenant.used_ns.get() > 0);
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod crowd;
mod meter;
mod rounds;
mod slice;
mod start;
mod urgent;
mod wait;

pub use meter::{Metered, Payer, keep_rounds};
pub use rounds::Share;
pub use slice::Sliced;
pub use start::{Begin, Urgency, runtime};
pub use wait::shorten_waits;
