//! Linear memories and stacks that outlive their tenants.
//!
//! The pools of a cell are reserved when it starts. A tenant that ends detaches what it used, at a cost that does not
//! depend on what is in it; pages are cleaned afterwards, under whichever reservation should pay.
//!
//! Principles:
//!
//! 1. **Detaching is constant.** A dropped memory or stack is put at the end of a queue of dirty ranges
//!    ([`range_pool`]); no page is touched, nothing is allocated.
//! 2. **Cleaning is stepped.** A step visits a bounded number of pages that have memory or show a file, and of others at
//!    most those of four page tables. Each page that was accessible is visited once.
//! 3. **A clean range reads as zero**, whatever its last user left there. A *warm* one, which only another memory of the
//!    same keeper with the same contents can be, reads as when it was made.
//! 4. **Any system call may fail.** A range on which one fails has another user only after a retry has cleaned it.
//!
//! A range is accessed by its user alone: `taken` is the proof of it, which `cleaning` consumes. So `unsafe`
//! stands where raw calls are made ([`address_range`]), where pages are overwritten (`cleaning`), and where the
//! engine is promised something (`engine`).
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | a reserved mapping, of which parts are accessible | [`address_range`] |
//! | making a part of it read as zero | `cleaning` |
//! | making it hold again what was shown in it | `restoring` |
//! | what may stay resident of what keepers have warm | [`warm_room`] |
//! | which of its pages are there, and which show a file | `present` |
//! | what memories hold from the beginning | [`contents`] |
//! | equal ranges: taken, detached, cleaned later | [`range_pool`]; one in use: `taken` |
//! | linear memories | [`slot`] |
//! | stacks of fibers, in several sizes | [`stack`], [`stack_class`] |
//! | both, as the engine asks for them | [`engine`] |

pub mod address_range;
mod cleaning;
pub mod contents;
pub mod engine;
mod present;
pub mod range_pool;
mod restoring;
pub mod slot;
pub mod stack;
pub mod stack_class;
mod taken;
pub mod warm_room;
