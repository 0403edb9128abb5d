//! The requests that a guest sends: what a request, its response and their bodies share.
//!
//! A call is an exchange of which the cell has the client's half. The other half waits here until the
//! request is sent, because the guest may write its body before; then it goes to the I/O thread through
//! the tenant's outbox. A place among the calls of the tenant, and the memory of the exchange, are charged
//! before it is made. One handle of the guest owns a call: its request, then the future, the response, the
//! body, and the trailers. When that is dropped, the call is over, and the I/O thread gives it up.
//!
//! Only the cell's thread locks one, as with [`Exchange`](super::exchange::Exchange).

use super::bindings::types::{DnsErrorPayload, ErrorCode};
use super::exchange::{Closed, sendable};
use super::object::Packed;
use crate::discarded::Discarded;
use crate::host::fs::pages::Lent;
use crate::steps::caps::TRANSFER;
use crate::wasi::imports::Outbound;
use leasehold_exchange::{
    Call, CallError, CallPlace, CallTimeouts, ClientHalf, Failure, Fields, GuestHalf, NotTaken,
    RequestHead, Scheme, exchange,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Bytes that are thrown away in one step on the way to a body's trailers.
const SKIPPED: usize = 16 << 10;

/// A request that a guest sends, until its last handle is dropped.
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
    /// Whether the response's body is over: and why it is not whole.
    end: Option<Result<(), Failure>>,
}

impl State {
    fn half(&mut self) -> Option<&mut ClientHalf> {
        self.half.as_mut().and_then(Discarded::value_mut)
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

impl OutgoingCall {
    /// A call with this number that was not sent, if there is a place for it and the lease pays.
    ///
    /// # Errors
    /// The error of the interface for what is missing.
    pub(super) fn open(number: u64, outbound: &Outbound) -> Result<Arc<Self>, ErrorCode> {
        let outbox = outbound.outlet.outbox();
        let place = outbox.enter().ok_or(ErrorCode::ConnectionLimitReached)?;
        let limits = outbox.limits();
        // A window is at most 16 MiB.
        let lent = outbound.pages.lend(limits.held_bytes() as usize);
        let unpaid = |_| {
            let reason = "the lease does not pay for the memory of the request";
            ErrorCode::InternalError(Some(reason.to_owned()))
        };
        let lent = lent.map_err(unpaid)?;
        let (client, guest) = exchange(limits, empty(), number);
        Ok(Arc::new(Self {
            number,
            head_limit: limits.head_bytes,
            state: Mutex::new(State {
                half: Some(Discarded::new(client)),
                unsent: Some(Discarded::new(guest)),
                charged: Some((place, lent)),
                is_written: false,
                end: None,
            }),
        }))
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request.
    ///
    /// # Errors
    /// When it is over, or the I/O thread takes no more.
    pub(super) fn send(
        &self,
        outbound: &Outbound,
        head: RequestHead,
        has_body: bool,
        timeouts: CallTimeouts,
    ) -> Result<(), ErrorCode> {
        let unsent = self.state().unsent.take().and_then(Discarded::into_inner);
        let half = *unsent.ok_or(ErrorCode::ConnectionTerminated)?;
        let call = Call {
            half,
            head,
            has_body,
            timeouts,
        };
        outbound.outlet.outbox().send(call).map_err(|(call, why)| {
            drop(Discarded::of(call));
            match why {
                NotTaken::Full => ErrorCode::ConnectionLimitReached,
                NotTaken::Closed => ErrorCode::ConnectionTerminated,
            }
        })
    }

    /// It is over: the I/O thread gives up what is left of it.
    pub(super) fn end(&self) {
        let mut state = self.state();
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

    /// Trailers as they are sent; `None` if they are larger than may be.
    pub(super) fn sendable(&self, fields: &Packed) -> Option<Fields> {
        sendable(fields, self.head_limit)
    }

    /// The most bytes of a head.
    pub(super) fn head_bytes(outbound: &Outbound) -> u32 {
        outbound.outlet.outbox().limits().head_bytes
    }

    /// Ends the request's body.
    pub(super) fn finish_body(&self, trailers: Option<Fields>) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_written, true)
            && let Some(half) = state.half()
        {
            half.finish_body(trailers);
        }
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
    pub(crate) fn poll_response(&self, context: &mut Context<'_>) -> Poll<()> {
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
    ) -> Result<Option<T>, ErrorCode> {
        let mut state = self.state();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let Some(half) = state.half() else {
            return Err(error_of(Failure::Ended));
        };
        // A failure behind the head is one of the body.
        if let Some(head) = half.head() {
            return Ok(Some(f(head.status, &head.fields)));
        }
        match half.poll_response(&mut context) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(head)) => Ok(Some(f(head.status, &head.fields))),
            Poll::Ready(Err(failure)) => Err(error_of(failure)),
        }
    }

    /// The next bytes of the response's body, at most `size`: none if there are none yet, `Err` at its
    /// end, with the error if it is not whole.
    pub(super) fn read(&self, size: usize) -> Result<Vec<u8>, Result<(), ErrorCode>> {
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
            Err(failure) => Err(Err(error_of(failure))),
        }
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
    pub(crate) fn poll_end(&self, context: &mut Context<'_>) -> Poll<Result<(), ErrorCode>> {
        let mut state = self.state();
        let mut skipped = [0; SKIPPED];
        match state.read(&mut skipped) {
            Ok(Some(0)) => Poll::Ready(Ok(())),
            Err(failure) => Poll::Ready(Err(error_of(failure))),
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

/// The head of an exchange whose request comes with the call.
fn empty() -> RequestHead {
    RequestHead {
        method: String::new(),
        scheme: Scheme::Http,
        authority: String::new(),
        path_with_query: String::new(),
        fields: Fields::new(0),
    }
}

/// The interface's error of a failure.
fn error_of(failure: Failure) -> ErrorCode {
    let Failure::Call(error) = failure else {
        return ErrorCode::ConnectionTerminated;
    };
    match error {
        CallError::Denied => ErrorCode::HttpRequestDenied,
        CallError::Prohibited => ErrorCode::DestinationIpProhibited,
        CallError::Malformed => ErrorCode::HttpRequestUriInvalid,
        CallError::LookupTimeout => ErrorCode::DnsTimeout,
        CallError::Lookup => ErrorCode::DnsError(DnsErrorPayload {
            rcode: None,
            info_code: None,
        }),
        CallError::Refused => ErrorCode::ConnectionRefused,
        CallError::Unreachable => ErrorCode::DestinationUnavailable,
        CallError::ConnectTimeout => ErrorCode::ConnectionTimeout,
        CallError::Terminated => ErrorCode::ConnectionTerminated,
        CallError::Certificate => ErrorCode::TlsCertificateError,
        CallError::Tls => ErrorCode::TlsProtocolError,
        CallError::ResponseTimeout => ErrorCode::HttpResponseTimeout,
        CallError::ReadTimeout => ErrorCode::ConnectionReadTimeout,
        CallError::Protocol => ErrorCode::HttpProtocolError,
        CallError::HeadSize => ErrorCode::HttpResponseHeaderSectionSize(None),
        CallError::Coding => ErrorCode::HttpResponseTransferCoding(None),
        CallError::Incomplete => ErrorCode::HttpResponseIncomplete,
        CallError::Abandoned => ErrorCode::HttpRequestBodySize(None),
    }
}
