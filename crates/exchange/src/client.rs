//! The I/O thread's half of an exchange.

use crate::datagram::{self, Frame};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::head::ResponseHead;
use crate::shared::Shared;
use crate::timing::Timing;
use leasehold_crossing::{Received, RingReader, RingWriter};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The guest's side takes no more of the request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest takes no more of the request's body")]
pub struct Closed;

/// The I/O thread's half of an exchange: it gives the request's body, and gets the response.
///
/// Dropping it abandons the exchange: the guest's side sees it, and is woken.
pub struct ClientHalf {
    shared: Arc<Shared>,
    request: RingWriter,
    response: RingReader,
}

impl ClientHalf {
    pub(crate) const fn new(
        shared: Arc<Shared>,
        request: RingWriter,
        response: RingReader,
    ) -> Self {
        Self {
            shared,
            request,
            response,
        }
    }

    /// The request's number.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// What the exchange took so far.
    pub fn timing(&self) -> Timing {
        self.shared.clock.read()
    }

    /// The head of the response, once the guest gave it; a failure if there will be none, or if the
    /// guest failed after it gave one. One waker for this: the last that polled.
    pub fn poll_response(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<&ResponseHead, Failure>> {
        if self.head().is_none() {
            self.shared.head.register(context.waker());
        }
        // The end is read first: a head that came before it is then seen.
        let end = self.response.read(&mut []);
        match (end, self.shared.response.get()) {
            (Received::Failed(reason), _) => Poll::Ready(Err(Failure::of_reason(reason))),
            (_, Some(head)) => Poll::Ready(Ok(head)),
            (Received::Finished, None) => Poll::Ready(Err(Failure::NoResponse)),
            (Received::Bytes(_) | Received::Nothing, None) => Poll::Pending,
        }
    }

    /// The head of the response, if the guest has given it.
    pub fn head(&self) -> Option<&ResponseHead> {
        self.shared.response.get()
    }

    /// Writes as much of `bytes` into the request's body as fits, more than nothing, and returns
    /// how much that was.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Closed>> {
        if !self.request.poll_room(context.waker()) {
            return Poll::Pending;
        }
        match self.request.write(bytes) {
            Some(written) => Poll::Ready(Ok(written)),
            None => Poll::Ready(Err(Closed)),
        }
    }

    /// Ready when the guest's side takes no more of the request's body, or there is room for more.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, Closed>> {
        match self.request.poll_room(context.waker()) {
            true => Poll::Ready(self.request.room().ok_or(Closed)),
            false => Poll::Pending,
        }
    }

    /// Writes frames of a socket for datagrams in their order, as far as there is room, and returns how many.
    ///
    /// # Errors
    /// When the other side takes no more.
    pub fn write_frames(&mut self, frames: &[(Frame, &[u8])]) -> Result<usize, Closed> {
        datagram::write(&mut self.request, frames).ok_or(Closed)
    }

    /// Whether there is room for any frame, or never will be. One waker: the last that polled this or
    /// [`ClientHalf::poll_room`].
    pub fn poll_frame_room(&self, context: &Context<'_>) -> Poll<()> {
        match self.request.poll_half(context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// The next frame of a socket for datagrams, if there is one. Allocates for its bytes.
    ///
    /// # Errors
    /// Why there will be no more.
    pub fn read_frame(&mut self) -> Result<Option<(Frame, Vec<u8>)>, Failure> {
        match datagram::read(&mut self.response) {
            Ok(frame) => Ok(Some(frame)),
            Err(Received::Nothing) => Ok(None),
            Err(Received::Failed(reason)) => Err(Failure::of_reason(reason)),
            Err(Received::Finished | Received::Bytes(_)) => Err(Failure::Ended),
        }
    }

    /// Ends the request's body, with the trailers if there are any.
    pub fn finish_body(&mut self, trailers: Option<Fields>) {
        if let Some(trailers) = trailers {
            let _ = self.shared.request_trailers.set(trailers);
        }
        self.request.finish();
    }

    /// The client gave up the request's body, or it was malformed: the guest sees a failure.
    pub fn fail_body(&mut self) {
        self.request.fail(Failure::Incomplete.reason());
    }

    /// The next bytes of the response's body, at most `max` and more than none; `None` at its end.
    /// Allocates for what it returns.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Vec<u8>>, Failure>> {
        if !self.response.poll_readable(context.waker()) {
            return Poll::Pending;
        }
        let mut bytes = vec![0; self.response.waiting().min(max)];
        match self.response.read(&mut bytes) {
            Received::Bytes(read) => {
                bytes.truncate(read);
                Poll::Ready(Ok(Some(bytes)))
            }
            Received::Finished => Poll::Ready(Ok(None)),
            Received::Failed(reason) => Poll::Ready(Err(Failure::of_reason(reason))),
            // Only if no bytes were asked for, or some came between the two looks.
            Received::Nothing => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Whether a read of the response's body would return something. One waker: the last that polled
    /// this or [`ClientHalf::poll_read`].
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.response.poll_readable(context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Reads from the response's body into `into`, at most as much as fits, without waiting: `None` if
    /// there is nothing yet, and 0 at its end.
    ///
    /// # Errors
    /// Why there will be no more.
    pub fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, Failure> {
        match self.response.read(into) {
            Received::Bytes(read) => Ok(Some(read)),
            Received::Finished => Ok(Some(0)),
            Received::Nothing => Ok(None),
            Received::Failed(reason) => Err(Failure::of_reason(reason)),
        }
    }

    /// Bytes of the response's body that wait to be read.
    pub fn readable(&self) -> usize {
        self.response.waiting()
    }

    /// How many bytes of the response's body are left, once the guest has finished it; `None` before,
    /// and if it failed.
    pub fn remaining(&self) -> Option<usize> {
        self.response.remaining()
    }

    /// The trailers of the response, after the end of its body.
    pub fn trailers(&self) -> Option<&Fields> {
        self.shared.response_trailers.get()
    }
}

impl std::fmt::Debug for ClientHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("ClientHalf");
        fields.field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Drop for ClientHalf {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}
