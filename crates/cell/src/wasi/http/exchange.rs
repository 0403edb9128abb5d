//! The exchange that a guest answers: what its request, response and bodies share.
//!
//! Only the cell's thread locks one; the lock is there because the engine wants streams that could
//! be sent to other threads. When an exchange is over, another thread frees its half: the front may
//! have gone, and this half would be the last to hold what both had.

use super::object::{OutgoingResponse, Packed};
use crate::clock::monotonic_ns;
use crate::discarded::Discarded;
use crate::steps::caps::TRANSFER;
use crate::wasi::outgoing::Closed;
use leasehold_exchange::{Failure, Fields, GuestHalf, Read, ResponseHead, has_body};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes that are thrown away in one step on the way to a body's trailers.
const SKIPPED: usize = 16 << 10;

/// Status codes that a response may have: informational ones are none.
const STATUS: std::ops::RangeInclusive<u16> = 200..=599;

/// An exchange, while a guest answers it and afterwards.
pub(crate) struct Exchange {
    /// Its number among those of its execution.
    number: u64,
    state: Mutex<State>,
}

struct State {
    /// `None` once it is over for the guest.
    half: Option<Discarded<GuestHalf>>,
    /// The response that the bytes in the window are of.
    claim: Option<u64>,
    /// Responses up to this number write no more unless they are sent: one of them wrote, and was given up.
    given_up: u64,
    /// The response whose head was sent.
    sent: Option<u64>,
    /// It has no body for the client, however the guest ends the one that it took.
    is_bodiless: bool,
    /// The bytes that the response states, and those that were written.
    expected: Option<u64>,
    written: u64,
    /// The end of the body of a response that was not sent yet.
    end: Option<(u64, BodyEnd)>,
    /// Nothing more can be sent.
    is_over: bool,
    /// Since when, ns of the monotonic clock.
    over_at: u64,
    /// Woken then, if the guest goes on.
    when_over: Option<Waker>,
    /// Whether the request's body is over: and whether all of it came.
    request_end: Option<Result<(), ()>>,
    /// Since when the guest's time for it is not counted yet, ns of the monotonic clock.
    uncounted_from: u64,
}

/// How a guest ends the body of a response.
pub(crate) enum BodyEnd {
    /// It is complete.
    Finished(Option<Fields>),
    /// It is not.
    Incomplete,
}

impl State {
    fn half(&mut self) -> Option<&mut GuestHalf> {
        self.half.as_mut().and_then(Discarded::value_mut)
    }

    /// Whether this response may write: it is the one that was sent, or the first to write.
    fn is_writer(&self, response: u64) -> bool {
        let own = self.sent.or(self.claim);
        !self.is_over && own.map_or(response > self.given_up, |own| own == response)
    }

    /// Forgets what was written for a response that is not sent.
    fn forget(&mut self) {
        self.claim = None;
        self.written = 0;
        if let Some(half) = self.half() {
            half.forget_body();
        }
    }

    /// Counts the guest's time until now.
    fn count_time(&mut self) {
        let now = monotonic_ns();
        let ns = now.saturating_sub(self.uncounted_from);
        self.uncounted_from = now;
        if let Some(half) = self.half() {
            half.add_guest_time(ns);
        }
    }

    /// Nothing more can be sent from here on.
    fn close(&mut self) {
        self.is_over = true;
        self.over_at = monotonic_ns();
        if let Some(waker) = self.when_over.take() {
            waker.wake();
        }
    }

    fn fail(&mut self, failure: Failure) {
        if !self.is_over {
            self.close();
            if let Some(half) = self.half() {
                half.fail(failure);
            }
        }
    }

    fn finish(&mut self, end: BodyEnd) {
        match end {
            BodyEnd::Incomplete if self.is_bodiless => self.finish(BodyEnd::Finished(None)),
            BodyEnd::Incomplete => self.fail(Failure::Incomplete),
            BodyEnd::Finished(trailers) if !self.is_over => {
                self.close();
                if let Some(half) = self.half() {
                    half.finish(trailers);
                }
            }
            BodyEnd::Finished(_) => {}
        }
    }

    /// Reads from the request's body.
    fn read(&mut self, into: &mut [u8]) -> Read {
        match self.request_end {
            Some(Ok(())) => return Read::End,
            Some(Err(())) => return Read::Failed,
            None => {}
        }
        let Some(half) = self.half() else {
            return Read::Failed;
        };
        let read = half.read(into);
        match read {
            Read::End => self.request_end = Some(Ok(())),
            Read::Failed => self.request_end = Some(Err(())),
            Read::Bytes(_) | Read::Nothing => {}
        }
        read
    }
}

impl Exchange {
    /// An exchange with this number, which a guest begins to answer.
    pub(crate) fn new(number: u64, half: GuestHalf) -> Arc<Self> {
        Arc::new(Self {
            number,
            state: Mutex::new(State {
                half: Some(Discarded::new(half)),
                claim: None,
                given_up: 0,
                sent: None,
                is_bodiless: false,
                expected: None,
                written: 0,
                end: None,
                is_over: false,
                over_at: 0,
                when_over: None,
                request_end: None,
                uncounted_from: monotonic_ns(),
            }),
        })
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the guest's half, while there is one.
    pub(super) fn with_half<T>(&self, f: impl FnOnce(&GuestHalf) -> T) -> Option<T> {
        self.state().half().map(|half| f(half))
    }

    /// Whether nothing waits for what the guest still does: the client has gone before the response
    /// was complete.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut state = self.state();
        let is_over = state.is_over;
        state
            .half()
            .is_some_and(|half| !is_over && half.is_abandoned())
    }

    /// Since when there is nothing more to send, ns of the monotonic clock; `None` if there is.
    pub(crate) fn over_since(&self) -> Option<u64> {
        let state = self.state();
        state.is_over.then_some(state.over_at)
    }

    /// Wakes `waker` when there is nothing more to send and the guest has not returned.
    pub(crate) fn watch_end(&self, waker: &Waker) {
        self.state().when_over = Some(waker.clone());
    }

    /// The guest goes on with it.
    pub(crate) fn resume(&self) {
        self.state().uncounted_from = monotonic_ns();
    }

    /// Adds the guest's time since then, or since it was counted last, to the time of the request.
    pub(crate) fn count_time(&self) {
        self.state().count_time();
    }

    /// Wakes `waker` when the client has gone.
    pub(crate) fn watch(&self, waker: &Waker) {
        if let Some(half) = self.state().half() {
            half.set_abandon_waker(waker);
        }
    }

    /// Fails it, unless it is over, and lets it go.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.when_over = None;
        state.fail(failure);
        state.half = None;
    }

    /// The guest has returned: completes the response, or fails without one.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.when_over = None;
        if state.sent.is_none() {
            state.fail(Failure::NoResponse);
        } else if state.expected.is_some_and(|bytes| bytes != state.written) {
            state.fail(Failure::Incomplete);
        } else {
            // As `wasmtime serve` has it, a body that the guest left open is complete.
            state.finish(BodyEnd::Finished(None));
        }
        state.half = None;
    }

    /// The guest answers with an error.
    pub(super) fn refuse(&self) {
        self.state().fail(Failure::GuestError);
    }

    /// Sends the head of a response.
    pub(super) fn respond(&self, response: &OutgoingResponse) {
        let mut state = self.state();
        if state.is_over || state.sent.is_some() {
            return;
        }
        let Some(limit) = state.half().map(|half| half.limits().head_bytes) else {
            return;
        };
        let expected = response.fields.stated_length();
        let (Some(fields), Ok(expected), true) = (
            sendable(&response.fields, limit),
            expected,
            STATUS.contains(&response.status),
        ) else {
            return state.fail(Failure::GuestError);
        };
        if state.claim.is_some_and(|own| own != response.number) {
            state.forget();
        }
        let status = response.status;
        // The head can say what the guest took for it.
        state.count_time();
        if let Some(half) = state.half() {
            let _ = half.respond(ResponseHead { status, fields });
        }
        state.sent = Some(response.number);
        if response.body.is_none() {
            return state.finish(BodyEnd::Finished(None));
        }
        // What has no body states the length of another one's.
        state.is_bodiless = !state
            .half()
            .is_some_and(|half| has_body(&half.request().method, status));
        state.expected = expected.filter(|_| !state.is_bodiless);
        match state.end.take() {
            Some((number, end)) if number == response.number => state.finish(end),
            _ => {}
        }
    }

    /// A response will not be sent.
    pub(super) fn give_up(&self, response: u64) {
        let mut state = self.state();
        if state.sent.is_none() && state.claim == Some(response) {
            state.forget();
            state.given_up = response;
        }
    }

    /// The fields as they are sent; `None` if they are larger than the exchange allows.
    pub(super) fn sendable(&self, fields: &Packed) -> Option<Fields> {
        let limit = self.with_half(|half| half.limits().head_bytes)?;
        sendable(fields, limit)
    }

    /// Whether a response with this status has a body for the client. What a guest writes of another one is read
    /// and forgotten, however long it is.
    pub(super) fn takes_body(&self, status: u16) -> bool {
        let has_body = |half: &GuestHalf| has_body(&half.request().method, status);
        self.with_half(has_body).unwrap_or(true)
    }

    /// Ends the body of a response.
    pub(super) fn end_body(&self, response: u64, end: BodyEnd) {
        let mut state = self.state();
        match state.sent {
            Some(sent) if sent == response => state.finish(end),
            Some(_) => {}
            None => state.end = Some((response, end)),
        }
    }

    /// Bytes that a response may write now.
    pub(super) fn room(&self, response: u64) -> Result<usize, Closed> {
        let mut state = self.state();
        if !state.is_writer(response) {
            return Err(Closed);
        }
        let room = state.half().and_then(|half| half.room());
        room.ok_or(Closed)
    }

    /// Writes bytes of a response for which there was room; returns how many were taken.
    pub(super) fn write(&self, response: u64, bytes: &[u8]) -> Result<usize, Closed> {
        let mut state = self.state();
        if !state.is_writer(response) {
            return Err(Closed);
        }
        state.claim = Some(response);
        let half = state.half().ok_or(Closed)?;
        half.room().ok_or(Closed)?;
        let written = half.write(bytes);
        state.written += written as u64;
        Ok(written)
    }

    /// Whether a response can write, or never will.
    pub(super) fn poll_room(&self, response: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let is_writer = state.is_writer(response);
        let is_ready = state
            .half()
            .is_none_or(|half| !is_writer || half.poll_room(context.waker()));
        match is_ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// The next bytes of the request's body, at most `size`: none if there are none yet, `Err` at
    /// its end, with whether all of it came.
    pub(super) fn read(&self, size: usize) -> Result<Vec<u8>, Result<(), ()>> {
        let mut state = self.state();
        let waiting = state.half().map_or(0, |half| half.readable());
        let mut bytes = vec![0; waiting.min(size).min(TRANSFER.size())];
        match state.read(&mut bytes) {
            Read::Bytes(read) => {
                bytes.truncate(read);
                Ok(bytes)
            }
            Read::Nothing => Ok(Vec::new()),
            Read::End => Err(Ok(())),
            Read::Failed => Err(Err(())),
        }
    }

    /// Whether a read has an answer.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.request_end.is_some() {
            return Poll::Ready(());
        }
        match state
            .half()
            .is_none_or(|half| half.poll_readable(context.waker()))
        {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Throws away what is left of the request's body, a part in each poll, until it is over:
    /// whether all of it came.
    pub(crate) fn poll_request_end(&self, context: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let mut state = self.state();
        let mut skipped = [0; SKIPPED];
        match state.read(&mut skipped) {
            Read::End => Poll::Ready(Ok(())),
            Read::Failed => Poll::Ready(Err(())),
            Read::Bytes(_) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Read::Nothing => {
                if let Some(half) = state.half()
                    && half.poll_readable(context.waker())
                {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// The guest reads no more of the request's body.
    pub(super) fn close_request(&self) {
        if let Some(half) = self.state().half() {
            half.close_request();
        }
    }
}

/// Fields as they are sent; `None` if they count more than `limit` bytes.
pub(super) fn sendable(fields: &Packed, limit: u32) -> Option<Fields> {
    let mut sendable = Fields::new(limit);
    fields
        .read(|mut entries| {
            entries.all(|(name, value)| {
                let name = std::str::from_utf8(name);
                name.is_ok_and(|name| sendable.push(name, value).is_ok())
            })
        })
        .then_some(sendable)
}
