//! The processor time of the thread, charged to the tenants that it is for.
//!
//! The clock of the thread is read once for each poll, at its end: a poll is charged what the thread
//! used since the poll before it, its own waking included.

use leasehold_exchange::Outbox;
use pin_project_lite::pin_project;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

thread_local! {
    /// The thread's clock at the end of the last poll, ns.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

fn used() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pin_project! {
    /// A task whose polls are charged to a tenant.
    pub(crate) struct Metered<F> {
        outbox: Arc<Outbox>,
        #[pin]
        task: F,
    }
}

impl<F> Metered<F> {
    pub(crate) const fn new(outbox: Arc<Outbox>, task: F) -> Self {
        Self { outbox, task }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let result = this.task.poll(context);
        let now = used();
        let before = LAST.replace(now);
        this.outbox.charge(now.saturating_sub(before));
        result
    }
}
