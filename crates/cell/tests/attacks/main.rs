//! Attacks on the border: what the host does for a guest, asked for in the worst way.
//!
//! Each file is a topic, each test an attack of `guests/attacks/` and the promise that it must not break. None
//! measures time: how late a victim is in each of them is a matter of the studies `rogue` and `kill`.

#[path = "../common/mod.rs"]
mod common;

mod atomics;
mod canonical;
mod composed;
mod exceptions;
mod files;
mod instantiation;
mod paging;
mod realloc;
mod smoke;
mod stacks;
mod timers;
mod traps;
