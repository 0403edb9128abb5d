//! A page that a guest needs and cannot have.
//!
//! This happens when the swap file fails (frames and swap places were admitted before), and when a guest
//! writes to read-only data. The guest must not continue, since its data is lost, and no other tenant must
//! be affected. It gets a page of zeros instead, and yields before its next instruction; the executor
//! learns of it ([`take_denied`](super::take_denied)), and ends the guest. The access never becomes a
//! trap: host code that works for the guest cannot trap, and the engine compiles short copies to
//! instructions that it takes to be certain.

use leasehold_pager_linux::{Answer, Denied};
use leasehold_preempt as preempt;

/// Decides for the signal handler of the fault: neither allocates nor locks.
pub(super) fn on_denied(_: &Denied) -> Answer {
    preempt::request();
    Answer::Substitute
}
