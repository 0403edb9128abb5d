//! Attacks on the host's work for guests, with worst-case requests.
//!
//! Each file is a topic, each test an attack of `guests/attacks/` and the promise that it must not
//! break. None measures time: the studies `rogue` and `kill` measure how late a victim is under
//! each of them.

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
