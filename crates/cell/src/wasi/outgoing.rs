//! The calls of a guest to other hosts: requests and datagrams that it sends, connections that it makes and accepts, names that
//! it asks for.
//!
//! A call is an exchange of which the cell has the client's half. The other half waits here until the
//! call is sent, because the guest may write the body of a request before; then it goes to the I/O thread through
//! the tenant's outbox. A place among the calls of the tenant, and the memory of the exchange, are charged
//! before it is made. One handle of the guest owns a call: that of a request, then the future, the response, the
//! body, and the trailers; that of a socket; that of a look-up. When that is dropped, the call is over, and the I/O thread
//! gives it up.
//!
//! Only the cell's thread locks one, as with [`Exchange`](super::http::exchange::Exchange).

use super::imports::Outbound;
use crate::discarded::Discarded;
use crate::host::fs::pages::Lent;
use crate::steps::caps::{REQUESTS, TRANSFER};
use leasehold_exchange::{
    Call, CallKind, CallPlace, ClientHalf, Failure, Fields, Frame, GuestHalf, NotTaken,
    RequestHead, datagram_bytes, exchange,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Bytes that are thrown away in one step on the way to a body's trailers.
const SKIPPED: usize = 16 << 10;

/// Why a call was not made or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// As many are under way as may be.
    Places,
    /// The lease does not pay for the memory of another.
    Memory,
    /// It is over, or the tenant is.
    Over,
}

/// Nothing is taken any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// The calls of an execution.
#[derive(Default)]
pub(crate) struct Calls {
    /// Those under way, at most as many as the lease allows.
    under_way: Vec<Arc<OutgoingCall>>,
    opened: u64,
}

impl Calls {
    /// The number of a call that was not sent yet.
    ///
    /// # Errors
    /// When there is no place for it, or the lease does not pay for it.
    pub(super) fn open(&mut self, outbound: &Outbound) -> Result<u64, Refused> {
        if self.under_way.len() >= REQUESTS.size() {
            return Err(Refused::Places);
        }
        let call = OutgoingCall::open(self.opened + 1, outbound)?;
        self.opened += 1;
        self.under_way.push(call);
        Ok(self.opened)
    }

    /// The call with this number, unless it is over.
    pub(super) fn find(&self, number: u64) -> Option<Arc<OutgoingCall>> {
        let mut calls = self.under_way.iter();
        calls.find(|call| call.number == number).cloned()
    }

    /// The call with this number is over.
    pub(super) fn end(&mut self, number: u64) {
        let mut calls = self.under_way.iter();
        if let Some(at) = calls.position(|call| call.number == number) {
            self.under_way.swap_remove(at).end();
        }
    }
}

/// A call of a guest, until its last handle is dropped.
pub(crate) struct OutgoingCall {
    /// Its number among those of its execution.
    number: u64,
    /// The most bytes of a head, and of trailers.
    head_limit: u32,
    state: Mutex<State>,
}

struct State {
    /// `None` once it is over.
    half: Option<Discarded<ClientHalf>>,
    /// The other half, until the request is sent.
    unsent: Option<Discarded<GuestHalf>>,
    /// Its place among the calls of the tenant, and the memory that it may hold.
    charged: Option<(CallPlace, Lent)>,
    /// The guest has ended the request's body.
    is_written: bool,
    /// It is a socket: what was written is sent, however it ends.
    is_socket: bool,
    /// Whether the response's body is over: and why it is not whole.
    end: Option<Result<(), Failure>>,
}

impl State {
    fn half(&mut self) -> Option<&mut ClientHalf> {
        self.half.as_mut().and_then(Discarded::value_mut)
    }

    /// Ends the request's body.
    fn finish_body(&mut self, trailers: Option<Fields>) {
        if !std::mem::replace(&mut self.is_written, true)
            && let Some(half) = self.half()
        {
            half.finish_body(trailers);
        }
    }

    /// The next bytes of the response's body: `None` if there are none yet, 0 at its end.
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, Failure> {
        if let Some(end) = self.end {
            return end.map(|()| Some(0));
        }
        let read = match self.half() {
            Some(half) => half.read(into),
            None => Err(Failure::Ended),
        };
        match read {
            Ok(Some(0)) if !into.is_empty() => self.end = Some(Ok(())),
            Err(failure) => self.end = Some(Err(failure)),
            Ok(_) => {}
        }
        read
    }
}

impl Drop for OutgoingCall {
    fn drop(&mut self) {
        self.end();
    }
}

impl OutgoingCall {
    /// A call with this number that was not sent, if there is a place for it and the lease pays.
    ///
    /// # Errors
    /// What is missing.
    fn open(number: u64, outbound: &Outbound) -> Result<Arc<Self>, Refused> {
        let outbox = outbound.outlet.outbox();
        let place = outbox.enter().ok_or(Refused::Places)?;
        let limits = outbox.limits();
        // A window is at most 16 MiB.
        let lent = outbound.pages.lend(limits.held_bytes() as usize);
        let lent = lent.map_err(|_| Refused::Memory)?;
        let (client, guest) = exchange(limits, RequestHead::empty(), number);
        Ok(Arc::new(Self {
            number,
            head_limit: limits.head_bytes,
            state: Mutex::new(State {
                half: Some(Discarded::new(client)),
                unsent: Some(Discarded::new(guest)),
                charged: Some((place, lent)),
                is_written: false,
                is_socket: false,
                end: None,
            }),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends it.
    ///
    /// # Errors
    /// When it is over, or the I/O thread takes no more.
    pub(super) fn send(&self, outbound: &Outbound, kind: CallKind) -> Result<(), Refused> {
        let mut state = self.state();
        let unsent = state.unsent.take().and_then(Discarded::into_inner);
        let half = *unsent.ok_or(Refused::Over)?;
        state.is_socket = matches!(kind, CallKind::Connect { .. } | CallKind::Bind { .. });
        drop(state);
        let sent = outbound.outlet.outbox().send(Call { half, kind });
        sent.map_err(|(call, why)| {
            drop(Discarded::of(call));
            match why {
                NotTaken::Full => Refused::Places,
                NotTaken::Closed => Refused::Over,
            }
        })
    }

    /// It is a connection that came, and the guest has it from now on.
    pub(super) fn accepted(&self) {
        self.state().is_socket = true;
    }

    /// It is over: the I/O thread gives up what is left of it. What a guest wrote to a socket is sent still.
    fn end(&self) {
        let mut state = self.state();
        if state.is_socket {
            state.finish_body(None);
        }
        state.half = None;
        state.unsent = None;
        state.charged = None;
    }

    /// Bytes of the request's body that may be written now.
    pub(super) fn room(&self) -> Result<usize, Closed> {
        let mut state = self.state();
        if state.is_written {
            return Err(Closed);
        }
        let mut context = Context::from_waker(std::task::Waker::noop());
        match state.half().map(|half| half.poll_room(&mut context)) {
            Some(Poll::Ready(Ok(room))) => Ok(room),
            Some(Poll::Pending) => Ok(0),
            Some(Poll::Ready(Err(_))) | None => Err(Closed),
        }
    }

    /// Writes bytes of the request's body for which there was room; returns how many were taken.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize, Closed> {
        let mut state = self.state();
        if state.is_written {
            return Err(Closed);
        }
        let mut context = Context::from_waker(std::task::Waker::noop());
        match state
            .half()
            .map(|half| half.poll_write(&mut context, bytes))
        {
            Some(Poll::Ready(Ok(written))) => Ok(written),
            Some(Poll::Pending) => Ok(0),
            Some(Poll::Ready(Err(_))) | None => Err(Closed),
        }
    }

    /// Whether the request's body can be written to, or never will be.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_written {
            return Poll::Ready(());
        }
        match state.half() {
            Some(half) => half.poll_room(context).map(drop),
            None => Poll::Ready(()),
        }
    }

    /// Writes frames of a socket for datagrams in their order, as far as there is room; returns how many.
    pub(super) fn write_frames(&self, frames: &[(Frame, &[u8])]) -> Result<usize, Closed> {
        let mut state = self.state();
        let half = state.half().ok_or(Closed)?;
        half.write_frames(frames).map_err(|_| Closed)
    }

    /// Whether there is room for any frame of a socket for datagrams, or never will be.
    pub(super) fn poll_frame_room(&self, context: &Context<'_>) -> Poll<()> {
        match self.state().half() {
            Some(half) => half.poll_frame_room(context),
            None => Poll::Ready(()),
        }
    }

    /// The next frame of a socket for datagrams, if there is one.
    ///
    /// # Errors
    /// Why there will be no more.
    pub(super) fn read_frame(&self) -> Result<Option<(Frame, Vec<u8>)>, Failure> {
        let mut state = self.state();
        state.half().ok_or(Failure::Ended)?.read_frame()
    }

    /// The most bytes of a datagram.
    pub(super) fn datagram_bytes(outbound: &Outbound) -> usize {
        datagram_bytes(outbound.outlet.outbox().limits().window_bytes as usize)
    }

    /// The most bytes of a head, and of trailers.
    pub(super) const fn head_limit(&self) -> u32 {
        self.head_limit
    }

    /// The most bytes of a head.
    pub(super) fn head_bytes(outbound: &Outbound) -> u32 {
        outbound.outlet.outbox().limits().head_bytes
    }

    /// Ends the request's body.
    pub(super) fn finish_body(&self, trailers: Option<Fields>) {
        self.state().finish_body(trailers);
    }

    /// The guest gives up the request's body.
    pub(super) fn fail_body(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_written, true)
            && let Some(half) = state.half()
        {
            half.fail_body();
        }
    }

    /// Whether there is a response, or will be none.
    pub(super) fn poll_response(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.state().half() {
            Some(half) => half.poll_response(context).map(drop),
            None => Poll::Ready(()),
        }
    }

    /// Runs `f` on the status and the fields of the response, if it is there.
    ///
    /// # Errors
    /// Why there will be none.
    pub(super) fn with_response<T>(
        &self,
        f: impl FnOnce(u16, &Fields) -> T,
    ) -> Result<Option<T>, Failure> {
        let mut state = self.state();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let Some(half) = state.half() else {
            return Err(Failure::Ended);
        };
        // A failure behind the head is one of the body.
        if let Some(head) = half.head() {
            return Ok(Some(f(head.status, &head.fields)));
        }
        match half.poll_response(&mut context) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(head)) => Ok(Some(f(head.status, &head.fields))),
            Poll::Ready(Err(failure)) => Err(failure),
        }
    }

    /// The next bytes of the response's body, at most `size`: none if there are none yet, `Err` at its
    /// end, with why it is not whole if it is not.
    pub(super) fn read(&self, size: usize) -> Result<Vec<u8>, Result<(), Failure>> {
        let mut state = self.state();
        let waiting = state.half().map_or(0, |half| half.readable());
        // With nothing there, one byte tells the end from what is to come.
        let mut bytes = vec![
            0;
            waiting
                .min(size)
                .min(TRANSFER.size())
                .max(usize::from(size > 0))
        ];
        match state.read(&mut bytes) {
            Ok(Some(0)) if !bytes.is_empty() => Err(Ok(())),
            Ok(read) => {
                bytes.truncate(read.unwrap_or(0));
                Ok(bytes)
            }
            Err(failure) => Err(Err(failure)),
        }
    }

    /// The guest reads no more.
    pub(super) fn close_read(&self) {
        self.state().end.get_or_insert(Ok(()));
    }

    /// Whether a read has an answer.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.end.is_some() {
            return Poll::Ready(());
        }
        match state.half() {
            Some(half) => half.poll_readable(context),
            None => Poll::Ready(()),
        }
    }

    /// Throws away what is left of the response's body, a part in each poll, until it is over: whether it
    /// was whole.
    pub(super) fn poll_end(&self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut state = self.state();
        let mut skipped = [0; SKIPPED];
        match state.read(&mut skipped) {
            Ok(Some(0)) => Poll::Ready(Ok(())),
            Err(failure) => Poll::Ready(Err(failure)),
            Ok(Some(_)) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(None) => {
                if let Some(half) = state.half()
                    && half.poll_readable(context).is_ready()
                {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// Runs `f` on the trailers of the response, after its end, if there are any.
    pub(super) fn with_trailers<T>(&self, f: impl FnOnce(&Fields) -> T) -> Option<T> {
        self.state().half().and_then(|half| half.trailers()).map(f)
    }
}
