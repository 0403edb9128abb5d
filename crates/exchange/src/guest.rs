//! The cell's half of an exchange.

use crate::datagram::{self, Frame};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::head::{RequestHead, ResponseHead};
use crate::lane::{Lane, Passage, UnderWay};
use crate::limits::ExchangeLimits;
use crate::shared::Shared;
use leasehold_crossing::{Received, RingReader, RingWriter};
use std::any::Any;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// What a read of the request's body got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes, more than none.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The body is over; [`GuestHalf::request_trailers`] has what came after it.
    End,
    /// The client gave the body up, or has gone. What was not read is lost.
    Failed,
}

/// The guest's side has given a head before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an exchange has one response")]
pub struct Responded;

/// The cell's half of an exchange: it gets the request, and gives the response. No call waits.
///
/// Dropping it before [`GuestHalf::finish`] or [`GuestHalf::fail`] is [`Failure::Ended`].
pub struct GuestHalf {
    shared: Arc<Shared>,
    request: RingReader,
    response: RingWriter,
    /// What is kept for it by the other side.
    kept: Option<Arc<dyn Any + Send + Sync>>,
    /// The lane in which it is counted, if it is.
    passage: Weak<Passage>,
}

impl GuestHalf {
    pub(crate) const fn new(
        shared: Arc<Shared>,
        request: RingReader,
        response: RingWriter,
    ) -> Self {
        Self {
            shared,
            request,
            response,
            kept: None,
            passage: Weak::new(),
        }
    }

    /// It is this one that is under way.
    pub fn is_counted_as(&mut self, under_way: &UnderWay) {
        self.passage = under_way.passage();
    }

    /// It is counted in another lane, unless the client's side is over.
    pub(crate) fn goes_through(&self, lane: &Arc<Lane>) {
        if let Some(passage) = self.passage.upgrade() {
            passage.turn_to(lane);
        }
    }

    /// Keeps something until this half is dropped, by the cell as a rule: what is dropped with it must not wait.
    pub fn keep(&mut self, what: Arc<dyn Any + Send + Sync>) {
        self.kept = Some(what);
    }

    /// The request's number.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// What the exchange may hold.
    pub fn limits(&self) -> ExchangeLimits {
        self.shared.limits
    }

    /// The head of the request.
    pub fn request(&self) -> &RequestHead {
        &self.shared.request
    }

    /// Whether the client has gone, or its deadline has passed: no response can reach it.
    pub fn is_abandoned(&self) -> bool {
        self.shared.is_abandoned()
    }

    /// Wakes `waker` when the exchange is abandoned: at once if it is already. One waker: the last.
    pub fn set_abandon_waker(&self, waker: &Waker) {
        self.shared.abandonment.register(waker);
        if self.is_abandoned() {
            self.shared.abandonment.wake();
        }
    }

    /// Reads from the request's body. The cost grows with the bytes.
    pub fn read(&mut self, into: &mut [u8]) -> Read {
        match self.request.read(into) {
            Received::Bytes(read) => Read::Bytes(read),
            Received::Nothing => Read::Nothing,
            Received::Finished => Read::End,
            Received::Failed(_) => Read::Failed,
        }
    }

    /// Bytes of the request's body that can be read now.
    pub fn readable(&self) -> usize {
        self.request.waiting()
    }

    /// Whether a read would return anything but [`Read::Nothing`]. Otherwise `waker` is woken when
    /// it would. One waker: the last.
    pub fn poll_readable(&self, waker: &Waker) -> bool {
        self.request.poll_readable(waker)
    }

    /// The next frame of a socket for datagrams. Allocates for its bytes.
    ///
    /// # Errors
    /// Why there is none; never with [`Read::Bytes`].
    pub fn read_frame(&mut self) -> Result<(Frame, Vec<u8>), Read> {
        datagram::read(&mut self.request).map_err(|received| match received {
            Received::Nothing => Read::Nothing,
            Received::Finished | Received::Bytes(_) => Read::End,
            Received::Failed(_) => Read::Failed,
        })
    }

    /// Writes a frame of a socket for datagrams; `false` if there is no room for it, or nothing is taken any more.
    pub fn write_frame(&mut self, frame: Frame, bytes: &[u8]) -> bool {
        datagram::write(&mut self.response, &[(frame, bytes)]) == Some(1)
    }

    /// Whether there is room for any frame, or never will be. Otherwise `waker` is woken then. One waker: the last of this
    /// and [`GuestHalf::poll_room`].
    pub fn poll_frame_room(&self, waker: &Waker) -> bool {
        self.response.poll_half(waker)
    }

    /// The trailers of the request, after [`Read::End`].
    pub fn request_trailers(&self) -> Option<&Fields> {
        self.shared.request_trailers.get()
    }

    /// The guest takes no more of the request's body: the I/O thread reads no more of it.
    pub fn close_request(&mut self) {
        self.request.close();
    }

    /// Gives the head of the response, once. Its body follows.
    pub fn respond(&mut self, head: ResponseHead) -> Result<(), Responded> {
        self.shared.response.set(head).map_err(|_| Responded)?;
        self.shared.head.wake();
        Ok(())
    }

    /// Whether the head of the response was given.
    pub fn has_responded(&self) -> bool {
        self.shared.response.get().is_some()
    }

    /// Writes as much of `bytes` into the response's body as fits, and returns how much that was: 0
    /// once the exchange is abandoned or over, which [`GuestHalf::room`] tells apart from a full
    /// window. The cost grows with the bytes, and with a segment of 4 KiB that is allocated when
    /// the window is used that far for the first time.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.response.write(bytes).unwrap_or(0)
    }

    /// Takes back what was written of the response's body, if its head was not given yet: the client's side reads nothing
    /// before that.
    pub fn forget_body(&mut self) {
        if !self.has_responded() {
            self.response.take_back();
        }
    }

    /// How many bytes [`GuestHalf::write`] would take now; `None` once nothing is taken any more.
    pub fn room(&self) -> Option<usize> {
        self.response.room()
    }

    /// Whether there is room, or never will be. Otherwise `waker` is woken when half of the window
    /// is free, or nothing is taken any more. One waker: the last.
    pub fn poll_room(&self, waker: &Waker) -> bool {
        self.response.poll_room(waker)
    }

    /// Whether the I/O thread has taken all that was written: a flush is then over.
    pub fn is_flushed(&self) -> bool {
        self.room()
            .is_none_or(|room| room == self.shared.limits.window_bytes.max(1) as usize)
    }

    /// Ends the response's body, with the trailers if there are any. Without a head before it, the
    /// exchange has failed with [`Failure::NoResponse`].
    pub fn finish(&mut self, trailers: Option<Fields>) {
        if let Some(trailers) = trailers {
            let _ = self.shared.response_trailers.set(trailers);
        }
        self.response.finish();
        self.shared.head.wake();
    }

    /// Ends the exchange with a failure: an error if no head has gone out, and otherwise the
    /// connection or stream is reset. The first failure counts.
    pub fn fail(&mut self, failure: Failure) {
        self.response.fail(failure.reason());
        self.shared.head.wake();
    }

    /// Ends the exchange with a failure behind what was written: the client's side gets the body so far, and then
    /// the failure.
    pub fn cut(&mut self, failure: Failure) {
        self.response.cut(failure.reason());
        self.shared.head.wake();
    }

    /// Adds processor time that the guest used for this exchange, ns, for the client's side to
    /// report.
    pub fn add_guest_time(&self, ns: u64) {
        self.shared.clock.add_guest(ns);
    }

    /// How long it waited in its queue, once it has left that.
    pub fn queued(&self) -> Option<Duration> {
        self.shared.clock.read().queued
    }

    /// The exchange has left its queue.
    pub(crate) fn taken(&self) {
        self.shared.clock.taken();
    }
}

impl std::fmt::Debug for GuestHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("GuestHalf");
        fields.field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Drop for GuestHalf {
    fn drop(&mut self) {
        if self.response.room().is_some() {
            self.fail(Failure::Ended);
        }
    }
}
