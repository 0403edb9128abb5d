//! Where two threads meet.
//!
//! A cell is single-threaded and shares no mutable memory with other cells; what remains are the
//! few places where its thread meets a controller, an I/O thread or a destination that may
//! block. They are all here, small enough for a model checker.
//!
//! Principles:
//!
//! 1. **A cell's thread never waits for another thread**, except in [`Inbox::wait`], when it has
//!    nothing to do.
//! 2. **What a guest can multiply is bounded here**: a wake-up is a flag, not a message; a pipe
//!    has a capacity.
//! 3. **Every interleaving is explored**: `RUSTFLAGS="--cfg loom" cargo test -p
//!    leasehold-crossing --release` swaps the standard library's primitives for loom's.
//!
//! ```
//! use leasehold_crossing::{Inbox, Message};
//! use std::sync::Arc;
//!
//! let inbox: Arc<Inbox<&str>> = Arc::new(Inbox::new());
//! let theirs = inbox.clone();
//! let sender = std::thread::spawn(move || theirs.put(Message::Command("start")));
//! let mut messages = Vec::new();
//! while messages.is_empty() {
//!     inbox.wait(None);
//!     inbox.take(&mut messages);
//! }
//! assert!(matches!(messages[..], [Message::Command("start")]));
//! # sender.join().unwrap();
//! ```

#![forbid(unsafe_code)]

mod inbox;
mod pipe;
mod sync;

pub use inbox::{Inbox, Message, WakeFlag};
pub use pipe::{CAPACITY, Pipe, Progress};
