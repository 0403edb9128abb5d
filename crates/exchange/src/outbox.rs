//! The calls of one tenant: requests, sockets and look-ups.

use crate::call::Call;
use crate::call_outcome::{CallCounts, CallOutcome};
use crate::lane::NotTaken;
use crate::limits::ExchangeLimits;
use leasehold_crossing::{Queue, Rejected, WakerSlot};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

/// The most idle connections that are kept for the calls of a tenant.
pub const IDLE_CONNECTIONS: u32 = 8;

/// The calls of one tenant to other hosts, which the cell and the I/O thread share.
///
/// The cell's thread puts calls in and never waits; the I/O thread takes as many at a time as the
/// lease allows. So there are at most twice as many exchanges: those that the tenant has under way, and
/// those that it gave up before the I/O thread saw it.
pub struct Outbox {
    limits: ExchangeLimits,
    concurrency: u32,
    /// Where the tenant may listen.
    listen: Vec<SocketAddr>,
    waiting: Queue<Call>,
    /// The I/O thread waits for a call, or for the end.
    waker: WakerSlot,
    under_way: AtomicU32,
    calls: AtomicU64,
    ended: CallCounts,
    /// Processor time of the I/O thread on the tenant's behalf, ns.
    used: AtomicU64,
    /// Processor time of the I/O thread on the tenant's behalf that was not taken yet, ns.
    charged: AtomicU64,
}

/// The place of a call among those that a tenant may have under way.
#[derive(Debug)]
pub struct CallPlace(Arc<Outbox>);

impl Drop for CallPlace {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("Outbox");
        fields
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

impl Outbox {
    /// An outbox for `concurrency` calls at a time, at least 1, each within `limits`.
    pub fn new(limits: ExchangeLimits, concurrency: u32) -> Self {
        let concurrency = concurrency.max(1);
        Self {
            limits,
            concurrency,
            listen: Vec::new(),
            waiting: Queue::new(concurrency as usize),
            waker: WakerSlot::new(),
            under_way: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            ended: CallCounts::default(),
            used: AtomicU64::new(0),
            charged: AtomicU64::new(0),
        }
    }

    /// The same for a tenant that may listen at these addresses.
    #[must_use]
    pub fn listening(mut self, at: Vec<SocketAddr>) -> Self {
        self.listen = at;
        self
    }

    /// Whether the tenant may listen at an address. O(n) in its addresses.
    pub fn may_listen(&self, at: SocketAddr) -> bool {
        self.listen.contains(&at)
    }

    /// At how many addresses the tenant may listen.
    pub const fn addresses(&self) -> usize {
        self.listen.len()
    }

    /// What each call may hold.
    pub const fn limits(&self) -> ExchangeLimits {
        self.limits
    }

    /// How many calls are under way at a time.
    pub const fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// Descriptors that the calls of a tenant with so many at a time take at the most: a call asks for the addresses of
    /// its host by two sockets, of IPv4 and IPv6, and has one connection then.
    pub const fn descriptors_of(concurrency: u32) -> u32 {
        concurrency
            .saturating_mul(2)
            .saturating_add(IDLE_CONNECTIONS)
    }

    /// Takes a place for a call; `None` if as many are under way as may. O(1).
    pub fn enter(self: &Arc<Self>) -> Option<CallPlace> {
        let room = |under_way: u32| (under_way < self.concurrency).then_some(under_way + 1);
        let entered = self
            .under_way
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, room);
        entered.ok().map(|_| CallPlace(self.clone()))
    }

    /// Calls that have a place.
    pub fn under_way(&self) -> u32 {
        self.under_way.load(Ordering::Acquire)
    }

    /// Calls that were sent so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a call that is over, for the I/O thread.
    pub fn ended(&self, outcome: CallOutcome) {
        self.ended.count(outcome);
    }

    /// Calls that ended in this way so far.
    pub fn ended_by(&self, outcome: CallOutcome) -> u64 {
        self.ended.of(outcome)
    }

    /// Hands a call to the I/O thread; gives it back if that has too many that were given up, or the
    /// outbox is closed. O(1).
    pub fn send(&self, call: Call) -> Result<(), (Box<Call>, NotTaken)> {
        self.waiting.put(call).map_err(|(call, rejected)| {
            let why = match rejected {
                Rejected::Full => NotTaken::Full,
                Rejected::Closed => NotTaken::Closed,
            };
            (Box::new(call), why)
        })?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
        Ok(())
    }

    /// The next call, in order; `None` once the outbox is closed. One waker: the last that polled this
    /// or [`Outbox::poll_closed`].
    pub fn poll_take(&self, context: &mut Context<'_>) -> Poll<Option<Call>> {
        self.waker.register(context.waker());
        if self.waiting.is_closed() {
            return Poll::Ready(None);
        }
        match self.waiting.take() {
            Some(call) => Poll::Ready(Some(call)),
            None => Poll::Pending,
        }
    }

    /// Ready once the outbox is closed.
    pub fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        match self.waiting.is_closed() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// The tenant is over: what waits is dropped, and the I/O thread gives up what is under way. O(n)
    /// in what waits.
    pub fn close(&self) {
        self.waiting.close();
        self.waker.wake();
    }

    /// Adds processor time that the I/O thread used on the tenant's behalf, ns.
    pub fn charge(&self, ns: u64) {
        self.charged.fetch_add(ns, Ordering::Relaxed);
        self.used.fetch_add(ns, Ordering::Relaxed);
    }

    /// Processor time of the I/O thread on the tenant's behalf so far, ns.
    pub fn used_ns(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Processor time of the I/O thread since the last call, ns.
    pub fn take_charged(&self) -> u64 {
        self.charged.swap(0, Ordering::Relaxed)
    }
}

/// A tenant's side of its outbox, which is closed when this is dropped.
#[derive(Debug)]
pub struct Outlet(Arc<Outbox>);

impl Outlet {
    /// The tenant's side of an outbox.
    pub const fn new(outbox: Arc<Outbox>) -> Self {
        Self(outbox)
    }

    /// The outbox.
    pub const fn outbox(&self) -> &Arc<Outbox> {
        &self.0
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::Outbox;
    use crate::{
        Call, CallKind, CallTimeouts, ClientHalf, ExchangeLimits, Fields, NotTaken, RequestHead,
        Scheme, exchange,
    };
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    fn call() -> (ClientHalf, Call) {
        let head = RequestHead {
            method: "GET".into(),
            scheme: Scheme::Http,
            authority: "a.example".into(),
            path_with_query: "/".into(),
            fields: Fields::new(0),
        };
        let (client, half) = exchange(ExchangeLimits::default(), head.clone(), 1);
        let kind = CallKind::Request {
            head,
            has_body: false,
            timeouts: CallTimeouts::default(),
            answers: None,
        };
        (client, Call { half, kind })
    }

    #[test]
    fn no_more_calls_than_allowed_have_a_place_and_what_is_given_up_is_bounded() {
        let outbox = Arc::new(Outbox::new(ExchangeLimits::default(), 2));
        let places = [outbox.enter(), outbox.enter()];
        assert!(places.iter().all(Option::is_some) && outbox.enter().is_none());
        drop(places);
        assert!(outbox.enter().is_some());
        for _ in 0..2 {
            outbox.send(call().1).expect("room");
        }
        let (_, why) = outbox.send(call().1).expect_err("full");
        assert_eq!(why, NotTaken::Full);
    }

    #[test]
    fn what_waits_when_an_outbox_is_closed_is_dropped() {
        let outbox = Outbox::new(ExchangeLimits::default(), 1);
        let mut context = Context::from_waker(Waker::noop());
        assert!(outbox.poll_closed(&mut context).is_pending());
        let (mut client, call) = call();
        outbox.send(call).expect("room");
        outbox.close();
        assert!(matches!(
            client.poll_response(&mut context),
            Poll::Ready(Err(_))
        ));
        assert!(matches!(outbox.poll_take(&mut context), Poll::Ready(None)));
        assert!(outbox.poll_closed(&mut context).is_ready());
    }
}
