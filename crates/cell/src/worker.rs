//! An execution that answers requests: what it shares with the maintenance task of its tenant.

use crate::clock::monotonic_ns;
use crate::discarded::Discarded;
use crate::exit::Exit;
use crate::local;
use crate::meter::Held;
use crate::serving::{Fresh, Service};
use crate::wasi::http::exchange::Exchange;
use crate::wasi::stdio::Author;
use leasehold_exchange::{Failure, GuestHalf};
use leasehold_kernel::TenantId;
use leasehold_pager::PAGE;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Exchanges without a client that an execution throws away in one step.
const THROWN: usize = 16;

/// How long an execution may work on after its response while requests wait for its place, ns.
const LINGER_NS: u64 = 1_000_000_000;

/// The same for a tenant of one request, whether requests wait or not: long enough to return.
const TENANT_LINGER_NS: u64 = 10_000_000;

/// One execution that answers requests. Only the cell's thread uses it.
pub(crate) struct Worker {
    service: Service,
    /// The execution that it is.
    identity: (TenantId, u64),
    author: Author,
    state: Mutex<State>,
}

struct State {
    /// Requests that it took so far.
    taken: u32,
    current: Option<Arc<Exchange>>,
    /// When the time of that is over, ns of the monotonic clock.
    until: u64,
    /// It waits for a request and was not woken for one.
    is_idle: bool,
    /// It was made or woken for a request, and has not looked for one yet.
    is_called: bool,
    /// Pages of the host's memory that were charged for an exchange.
    held_pages: u64,
    /// Woken when a client goes.
    watcher: Waker,
}

impl Worker {
    /// An execution that has not taken a request; `watcher` is woken when the client of one goes.
    pub(crate) fn new(service: Service, identity: (TenantId, u64), watcher: Waker) -> Arc<Self> {
        Arc::new(Self {
            service,
            identity,
            author: Author::default(),
            state: Mutex::new(State {
                taken: 0,
                current: None,
                until: 0,
                is_idle: false,
                is_called: true,
                held_pages: 0,
                watcher,
            }),
        })
    }

    /// Charges for what an exchange holds, before the execution is built: one that was built and cannot pay for a request
    /// would hold what others need for theirs.
    ///
    /// # Errors
    /// When the lease does not pay for it.
    pub(crate) fn charge(&self) -> Result<(), ()> {
        self.hold(&mut self.state(), self.service.lane().most_held())
    }

    /// Charges for so many bytes that an exchange holds, as far as that was not done for one before.
    fn hold(&self, state: &mut State, bytes: u64) -> Result<(), ()> {
        let (tenant, execution) = self.identity;
        let pages = bytes.div_ceil(PAGE);
        let more = pages.saturating_sub(state.held_pages);
        local::with(|local| local.hold(tenant, execution, Held::HostPage, more)).map_err(drop)?;
        state.held_pages += more;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its output has as its author.
    pub(crate) fn author(&self) -> &Author {
        &self.author
    }

    /// The next request; `None` if it has answered as many as it may, or there will be none.
    pub(crate) async fn next(&self) -> Option<Arc<Exchange>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Arc<Exchange>>> {
        let mut state = self.state();
        state.is_idle = false;
        state.is_called = false;
        if state.taken == self.service.serving.reuse {
            return Poll::Ready(None);
        }
        for _ in 0..THROWN {
            let Some(half) = self.service.lane().take() else {
                if self.service.lane().is_closed() {
                    return Poll::Ready(None);
                }
                state.is_idle = true;
                return Poll::Pending;
            };
            if half.is_abandoned() {
                drop(Discarded::new(half));
                continue;
            }
            if let Some(exchange) = self.begin(&mut state, half) {
                return Poll::Ready(Some(exchange));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Charges for what an exchange holds, and begins it; it fails if the lease does not pay.
    fn begin(&self, state: &mut State, mut half: GuestHalf) -> Option<Arc<Exchange>> {
        if self.hold(state, half.limits().held_bytes()).is_err() {
            half.fail(Failure::Refused);
            drop(Discarded::new(half));
            return None;
        }
        state.taken += 1;
        self.author.begin(half.id());
        let queued = half.queued().unwrap_or_default();
        let left = self.service.serving.timeout.saturating_sub(queued);
        state.until =
            monotonic_ns().saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        let exchange = Exchange::new(u64::from(state.taken), half);
        exchange.watch(&state.watcher);
        if self.service.serving.fresh == Fresh::Tenant {
            exchange.watch_end(&state.watcher);
        }
        state.current = Some(exchange.clone());
        Some(exchange)
    }

    /// The guest has returned: the current exchange is over.
    pub(crate) fn answered(&self) {
        if let Some(current) = self.state().current.take() {
            self.author.finish();
            current.count_time();
            current.end();
        }
    }

    /// Whether its client has gone before the response was complete.
    pub(crate) fn is_abandoned(&self) -> bool {
        let state = self.state();
        state
            .current
            .as_ref()
            .is_some_and(|current| current.is_abandoned())
    }

    /// When the time of its request is over, ns of the monotonic clock, and whether the request is; `None` if it has none.
    pub(crate) fn time_ends(&self) -> Option<(u64, bool)> {
        let state = self.state();
        let is_over = state.current.as_ref()?.over_since().is_some();
        Some((state.until, is_over))
    }

    /// Until when it may work on after its response while requests wait, ns of the monotonic clock; `None` if it has
    /// something to send, or nothing to do.
    pub(crate) fn lingers_until(&self) -> Option<u64> {
        let state = self.state();
        let since = state.current.as_ref()?.over_since()?;
        let linger_ns = match self.service.serving.fresh {
            Fresh::Instance => LINGER_NS,
            Fresh::Tenant => TENANT_LINGER_NS,
        };
        Some(since.saturating_add(linger_ns))
    }

    /// Its execution begins to be polled.
    pub(crate) fn begin_poll(&self) {
        if let Some(current) = &self.state().current {
            current.resume();
        }
    }

    /// Its execution has been polled: its time is that of its request.
    pub(crate) fn end_poll(&self) {
        if let Some(current) = &self.state().current {
            current.count_time();
        }
    }

    /// Whether it waits for a request. The caller wakes it: it is not idle from here on.
    pub(crate) fn take_idle(&self) -> bool {
        let mut state = self.state();
        state.is_called |= state.is_idle;
        std::mem::take(&mut state.is_idle)
    }

    /// Whether it is on its way to a request that waits.
    pub(crate) fn is_called(&self) -> bool {
        self.state().is_called
    }

    /// Its execution has ended by itself: what it was answering fails, and the reason is kept for the
    /// lines of the host.
    pub(crate) fn ended(&self, exit: &Exit) {
        if let (Some((what, message)), true) = (exit.reason(), self.state().current.is_some()) {
            self.service.lane().record_failure(what, message);
        }
        self.fail(failure_of(exit));
    }

    /// Its execution ends: what it was answering fails.
    pub(crate) fn fail(&self, failure: Failure) {
        let current = self.state().current.take();
        if let Some(current) = current {
            current.fail(failure);
        }
    }
}

/// How the request of an execution fails that ended in this way.
const fn failure_of(exit: &Exit) -> Failure {
    match exit {
        Exit::Code(_) => Failure::NoResponse,
        Exit::Trap(_) | Exit::Memory(_) => Failure::Trap,
        Exit::Lease(_) => Failure::Refused,
        Exit::Killed => Failure::Ended,
    }
}
