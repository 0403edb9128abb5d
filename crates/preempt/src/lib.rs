//! Preemption of guests: one interface for both mechanisms.
//!
//! The executor sets a deadline ([`Preemption::set_timer`]), names the guest that it is about to
//! poll ([`Preemption::enter`]), and polls. At the deadline, or when another thread asks for it
//! ([`Preemption::interrupter`]), the guest yields: its future returns `Pending`, ready to be
//! polled again. Host calls are not interrupted; the guest yields when the one it is in returns.
//!
//! Principles:
//!
//! 1. **One door.** An executor knows [`Preemption`]; whether a signal changes where the guest continues or compiled
//!    code looks at a counter is a [`Mechanism`].
//! 2. **Never lost.** An alarm that is due comes again until the guest yields (`alarm`).
//! 3. **What is known of the engine is verified** when a process begins (`layout`); where it is not as expected,
//!    guests are compiled with checks.
//! 4. **The handler neither allocates nor locks** (`alarm`, `guest_code`, `injected_yield`).
//!
//! Of programs it needs to know where their function bodies are, and no more ([`GuestProgram`]).
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | the door | `preemption` |
//! | the choice of a mechanism | `mechanism` |
//! | checks in guests' code, which look at a counter | `epoch` |
//! | a yield without checks: a signal changes where the guest continues | `injected_yield`; elsewhere `no_injection` |
//! | the signal, and what repeats it | `alarm` |
//! | the timer that raises it, and its clock | `timer`, [`clock`] |
//! | where guests' code is | `guest_code` |
//! | what is known of the engine's stacks and registers | `layout` |
//! | tests: a guest in a guest, all at once, a small engine | `reentry`, `stress`, `testing` |

mod alarm;
pub mod clock;
mod epoch;
mod guest_code;
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    path = "no_injection.rs"
)]
mod injected_yield;
mod layout;
mod mechanism;
mod preemption;
#[cfg(test)]
mod reentry;
#[cfg(test)]
mod stress;
#[cfg(test)]
mod testing;
mod timer;

pub use alarm::{Interrupter, RETRY_NS, can_suspend, fired, no_later_than, request, suspend};
pub use guest_code::{Bodies, GuestProgram};
pub use layout::Compile;
pub use mechanism::{Mechanism, configure};
pub use preemption::{Companion, Entered, GuestContext, HostSteps, INSTANCES, Preemption};
