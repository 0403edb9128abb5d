//! Common parts of the hostile guests: each is a WASI preview 1 program without `std`, of a few
//! kilobytes and three pages of memory, so that a measurement contains nothing but the attack.
//!
//! 1. **One attack per program**, in `src/bin`, named for what it multiplies.
//! 2. **As much as it is told, or until refused** ([`tally`]): the count comes as an argument, 0
//!    means no end. A refusal is not a failure: a lease is meant to refuse.
//! 3. **`ready`, then the aftermath.** Every program prints what it got, then `ready` on a line of
//!    its own, then performs its [`Aftermath`]: it spins, sleeps or exits. Its tasks and children
//!    have finished by then ([`gather`]).
//!
//! ```no_run
//! #![no_std]
//! #![no_main]
//! use leasehold_guest::Semaphore;
//! use leasehold_hostile::{Arguments, program, tally};
//!
//! program!(main);
//!
//! fn main(arguments: &Arguments) {
//!     tally(arguments.number(0, 0), |_| Semaphore::create(0)).print();
//!     arguments.aftermath(1).enter();
//! }
//! ```
#![no_std]

mod aftermath;
mod arguments;
mod decimal;
mod entry;
mod eviction;
mod gather;
mod memory;
mod output;
mod secret;
mod tally;
mod time;
mod wasi;

pub use aftermath::Aftermath;
pub use arguments::Arguments;
pub use decimal::decimal;
pub use entry::run;
pub use eviction::Eviction;
pub use gather::gather;
pub use memory::{PAGE_BYTES, Page, Pages, grow, own, untouched};
pub use output::Line;
pub use secret::Secret;
pub use tally::{Tally, tally};
pub use time::{next_multiple, work_for};
pub use wasi::{Descriptor, exit, nap, nap_until, now};
