//! A page that a guest needs and cannot have.
//!
//! It happens when the swap file fails: room in it and frames were admitted before. The guest must
//! not go on, since what it stored is gone, and nobody else must notice. Guest code traps where it
//! is. Host code that works for the guest (a bulk instruction, a host call) cannot trap: it is given
//! a page of zeros, and the guest yields before its next instruction. Either way the executor finds
//! out what happened ([`take_denied`](super::take_denied)), and ends the guest for it.

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
