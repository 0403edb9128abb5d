//! What pays for the I/O thread: a tenant, or the source of a connection that has none yet.

use crate::site::Site;
use leasehold_exchange::Lane;
use leasehold_io_thread::{Metered, Payer as Pays, Share};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    /// The payer of the poll that is under way.
    static CURRENT: RefCell<Option<Rc<Payer>>> = const { RefCell::new(None) };
}

/// The tenant that pays for a connection, or for a stream of it; none before its first request.
pub(crate) struct Payer {
    /// What pays with its share while there is no tenant.
    source: Rc<Share>,
    tenant: RefCell<Option<(Arc<Site>, Arc<Lane>)>>,
    /// What was used before a tenant was known, ns.
    owed: Cell<u64>,
    /// A request has begun in the poll that is under way, and no tenant has taken it.
    is_refused: Cell<bool>,
}

impl Payer {
    fn new(source: Rc<Share>) -> Self {
        Self {
            source,
            tenant: RefCell::default(),
            owed: Cell::new(0),
            is_refused: Cell::new(false),
        }
    }
}

impl Pays for Payer {
    fn with_share<R>(&self, look: impl FnOnce(&Share) -> R) -> R {
        let tenant = self.tenant.borrow();
        let share = tenant.as_ref().map(|(site, _)| site.share());
        look(share.unwrap_or(&self.source))
    }

    fn charge(&self, ns: u64) {
        let ns = ns + self.owed.take();
        if self.is_refused.take() {
            return;
        }
        match &*self.tenant.borrow() {
            Some((site, lane)) => {
                lane.charge(ns);
                site.usage().used(ns);
            }
            None => self.owed.set(ns),
        }
    }

    fn begin(self: &Rc<Self>) {
        CURRENT.set(Some(self.clone()));
    }

    fn end(&self) {
        CURRENT.set(None);
    }
}

/// A task with a payer of its own, which is this source at first.
pub(crate) fn metered<F>(source: Rc<Share>, task: F) -> Metered<Payer, F> {
    Metered::new(Rc::new(Payer::new(source)), task)
}

/// What pays for the poll that is under way with its share while there is no tenant.
pub(crate) fn source() -> Rc<Share> {
    CURRENT.with_borrow(|current| {
        let payer = current.as_ref().map(|payer| payer.source.clone());
        payer.unwrap_or_default()
    })
}

/// A request begins in the poll that is under way. It costs no tenant anything unless one takes it: clients could use up
/// the time of a tenant's reservation with requests that it never sees. Until then the source of the connection has its
/// share of the thread for what comes on it.
pub(crate) fn begins() {
    CURRENT.with_borrow(|current| {
        if let Some(payer) = current {
            payer.tenant.take();
            payer.is_refused.set(true);
        }
    });
}

/// From now on this tenant pays for the poll that is under way, and for later ones of its task.
pub(crate) fn pays(site: &Arc<Site>, lane: &Arc<Lane>) {
    CURRENT.with_borrow(|current| {
        if let Some(payer) = current {
            *payer.tenant.borrow_mut() = Some((site.clone(), lane.clone()));
            payer.is_refused.set(false);
        }
    });
}

/// Runs tasks on this thread, each with a payer of its own.
#[derive(Clone, Copy)]
pub(crate) struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(metered(source(), async move {
            task.await;
        }));
    }
}
