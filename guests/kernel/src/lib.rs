//! Leasehold's kernel objects for guest programs: safe, allocation-free wrappers over the core
//! module imports of `leasehold_kernel` (`docs/guest-abi.md`).
//!
//! 1. **An object is named, not owned.** Every type here is a copyable [`Selector`] with its class
//!    in the type. Nothing is released when a value goes out of scope; the tenant's end takes
//!    everything, and [`release`](Selector::release) gives one up earlier.
//! 2. **Refusal is a value.** Every call that the lease does not cover returns an [`Errno`] and
//!    changed nothing. No call panics.
//! 3. **The errors, rights and limits are the kernel's own types**, those of `leasehold-abi`.
//! 4. **No allocator, no `std`.** The crate works in a program of a few hundred bytes.
//!
//! ```no_run
//! use leasehold_guest::{Channel, Errno, Semaphore};
//!
//! fn announce(channel: Channel) -> Result<(), Errno> {
//!     let done = Semaphore::create(0)?;
//!     channel.send(b"tell me when", &[done.selector()])?;
//!     done.down()
//! }
//! ```
#![no_std]

mod abi;
mod answer;
mod capability;
mod channel;
mod region;
mod semaphore;
mod start;
mod task;
mod tenant;
mod timer;

pub use capability::Selector;
pub use channel::Channel;
pub use leasehold_abi::{ARGUMENT_BYTES, Errno, Received, Rights};
pub use region::Region;
pub use semaphore::Semaphore;
pub use task::Task;
pub use tenant::{Statement, Tenant};
pub use timer::Timer;
