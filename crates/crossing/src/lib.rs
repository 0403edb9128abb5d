//! Communication between a cell's thread and other threads.
//!
//! A cell is single-threaded and shares no mutable memory with other cells. Its thread communicates
//! with a controller, I/O threads and destinations that may block. All of that communication is in
//! this crate, small enough for a model checker.
//!
//! Principles:
//!
//! 1. **A cell's thread never waits for another thread**, except in [`Inbox::wait`], when it has
//!    nothing to do, and for the length of a critical section, such as a sender's push into a queue. The other
//!    thread then runs with the cell's priority ([`Mutex`]). A [`Queue`], a [`ring()`] and a [`WakerSlot`]
//!    do not even let it wait for that length.
//! 2. **What a guest can multiply is bounded here**: a wake-up is a flag, not a message; a pipe, a
//!    queue and a ring have a capacity.
//! 3. **Every interleaving is explored**: `RUSTFLAGS="--cfg loom" cargo test -p
//!    leasehold-crossing --release` swaps the standard library's primitives for loom's.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | commands and wake-ups for a cell's thread | `inbox` |
//! | output of tenants to a destination that may block | `funnel`; what waits in it, and which tenant is next: `backlog` |
//! | whose output a thread writes, and the time that it takes | `tag`, `output_time` |
//! | a body of a request or a response | `ring` |
//! | items between threads whose ends are locked apart | `queue` |
//! | the waker of one waiting side; a bell for a thread that drains several pipes | `waker_slot`, `bell` |
//! | a mutex with priority inheritance, and its condition | `mutex`, `condvar` |
//! | a thread's priority, donated to another one | `donation` |
//! | the primitives that the model checker replaces | `sync` |
//!
//! ```
//! use leasehold_crossing::{Inbox, Message, Urgency};
//! use std::sync::Arc;
//!
//! let inbox: Arc<Inbox<&str>> = Arc::new(Inbox::new());
//! let theirs = inbox.clone();
//! let sender = std::thread::spawn(move || {
//!     theirs.put(Message::Command("start"), Urgency::CONTROL);
//! });
//! let message = loop {
//!     match inbox.take(Urgency::BACKGROUND) {
//!         Some(message) => break message,
//!         None => inbox.wait(None),
//!     }
//! };
//! assert!(matches!(message, Message::Command("start")));
//! # sender.join().unwrap();
//! ```

#![forbid(unsafe_code)]

mod backlog;
mod bell;
#[cfg(not(loom))]
mod condvar;
#[cfg(not(loom))]
mod donation;
mod funnel;
mod inbox;
#[cfg(not(loom))]
mod mutex;
mod output_time;
mod queue;
mod ring;
mod sync;
mod tag;
mod waker_slot;

pub use backlog::{CAPACITY, PROMISE, TURN, Until};
pub use bell::Bell;
#[cfg(not(loom))]
pub use condvar::Condvar;
#[cfg(not(loom))]
pub use donation::{Asked, Donation, Recipient};
pub use funnel::{Funnel, Pipe};
pub use inbox::{Attention, Inbox, Message, Owner, Urgency, Urgent, WakeFlag};
#[cfg(not(loom))]
pub use mutex::{Mutex, MutexGuard};
pub use output_time::OutputTime;
pub use queue::{Queue, Rejected};
pub use ring::{DROPPED, Received, RingReader, RingWriter, ring, ring_bytes};
pub use tag::Tag;
pub use waker_slot::WakerSlot;
