//! Preemption between the steps of a host call.

use crate::steps::watch;
use std::future::poll_fn;
use std::task::Poll;

/// Yields to the scheduler if the running guest is to be preempted. The caller then continues with
/// another step.
pub(crate) async fn yield_point() {
    watch::next();
    if !leasehold_preempt::fired() {
        return;
    }
    suspended().await;
}

/// Ends the present poll. It is ready with the next one, for which it is woken.
pub(crate) async fn suspended() {
    let mut made = false;
    poll_fn(|context| {
        if std::mem::replace(&mut made, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
