//! A page that a guest needs and cannot have.
//!
//! This happens when the swap file fails: frames and swap places were admitted before. The guest
//! must not continue, since its data is lost, and no other tenant must be affected. Guest code
//! traps at the access. Host code that works for the guest (a bulk instruction, a host call) cannot
//! trap: it gets a page of zeros, and the guest yields before its next instruction. In both cases
//! the executor learns of it ([`take_denied`](super::take_denied)), and ends the guest.

use leasehold_pager_linux::{Answer, Denied};
use leasehold_preempt as preempt;

/// Decides for the signal handler of the fault: neither allocates nor locks.
pub(super) fn on_denied(denied: &Denied) -> Answer {
    if preempt::is_guest_code(denied.instruction) {
        Answer::Segv
    } else {
        preempt::request();
        Answer::Substitute
    }
}
