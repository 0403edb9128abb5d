//! Calls that block: they repeat a kernel call after each wake-up until the kernel no longer
//! answers «blocked».

use crate::host::yield_point::suspended;
use crate::local::{self, CellKernel};
use leasehold_kernel::{Errno, ExecutionId, Outcome};
use std::future::poll_fn;
use std::task::Poll;

/// Makes a blocking kernel call for an execution; the fiber is suspended while it blocks.
///
/// When the execution is stopped meanwhile, the kernel removes it from its queue; no state of the
/// wait is kept here.
///
/// # Errors
/// The kernel's.
pub(crate) async fn blocking<R>(
    execution: u64,
    mut call: impl FnMut(&mut CellKernel, ExecutionId) -> Result<Outcome<R>, Errno>,
) -> Result<R, Errno> {
    loop {
        match local::call(|kernel| call(kernel, ExecutionId(execution)))? {
            Outcome::Done(result) => return Ok(result),
            Outcome::Blocked => woken(execution).await,
        }
    }
}

/// Ready once the kernel has woken the execution.
async fn woken(execution: u64) {
    poll_fn(
        |_| match local::with(|local| local.woken.remove(&execution)) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        },
    )
    .await;
}

/// Lets the executor act on what was asked for in [`crate::programs::Programs::requests`].
pub(crate) async fn let_executor_act() {
    suspended().await;
}

/// Suspends the fiber until the executor polls it again after acting on its request.
pub(crate) async fn until_polled_again() {
    let mut asked = false;
    poll_fn(|_| match std::mem::replace(&mut asked, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
