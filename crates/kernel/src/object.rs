//! Kernel objects: one file of calls per class, and its state below it in `state.rs`.
//!
//! The states import no calls, so that queues, tables and the kernel itself can hold them.
//!
//! Every object lives in the group of the tenant that created it, exactly as long as the capability
//! that the creator got: the original. None holds a pointer to anything outside its group, so all
//! of them are freed with the group without being visited.

pub(crate) mod channel;
mod end;
pub(crate) mod region;
pub(crate) mod semaphore;
pub(crate) mod task;
pub(crate) mod tenant;
pub(crate) mod timer;
