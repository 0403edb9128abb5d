//! The processor time of the I/O thread, charged to the tenants that it is for.
//!
//! The clock of the thread is read once for each poll, at its end: a poll is charged what the thread
//! used since the poll before it, its own waking included.

use crate::site::Site;
use leasehold_exchange::Lane;
use pin_project_lite::pin_project;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

thread_local! {
    /// The thread's clock at the end of the last poll, ns.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The payer of the poll that is under way.
    static CURRENT: RefCell<Option<Rc<Payer>>> = const { RefCell::new(None) };
}

/// The tenant that pays for a connection, or for a stream of it; none before its first request.
#[derive(Default)]
pub(crate) struct Payer {
    tenant: RefCell<Option<(Arc<Site>, Arc<Lane>)>>,
    /// What was used before a tenant was known, ns.
    owed: Cell<u64>,
}

impl Payer {
    fn charge(&self, ns: u64) {
        let ns = ns + self.owed.take();
        match &*self.tenant.borrow() {
            Some((site, lane)) => {
                lane.charge(ns);
                site.usage().used(ns);
            }
            None => self.owed.set(ns),
        }
    }
}

/// From now on this tenant pays for the poll that is under way, and for later ones of its task.
pub(crate) fn pays(site: &Arc<Site>, lane: &Arc<Lane>) {
    CURRENT.with_borrow(|current| {
        if let Some(payer) = current {
            *payer.tenant.borrow_mut() = Some((site.clone(), lane.clone()));
        }
    });
}

/// The processor time of this thread, ns.
fn used() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pin_project! {
    /// A task whose polls are charged to a payer of its own.
    pub(crate) struct Metered<F> {
        payer: Rc<Payer>,
        #[pin]
        task: F,
    }
}

impl<F> Metered<F> {
    pub(crate) fn new(task: F) -> Self {
        Self {
            payer: Rc::default(),
            task,
        }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        CURRENT.set(Some(this.payer.clone()));
        let result = this.task.poll(context);
        CURRENT.set(None);
        let now = used();
        let before = LAST.replace(now);
        this.payer.charge(now.saturating_sub(before));
        result
    }
}

/// Runs tasks on this thread, each with a payer of its own.
#[derive(Clone, Copy)]
pub(crate) struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(Metered::new(async move {
            task.await;
        }));
    }
}
