//! The streams of bodies, over the windows of an exchange.

use super::bindings::types::ErrorCode;
use super::exchange::{BodyEnd, Exchange, sendable};
use super::object::{Child, Object, Origin, Packed, Sink};
use super::outgoing::error_of;
use crate::guest::Guest;
use crate::steps::caps::PERMITTED;
use crate::wasi::outgoing::{Closed, OutgoingCall};
use crate::wasi::rep;
use bytes::Bytes;
use leasehold_exchange::Fields;
use leasehold_reclaim::Handle;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

/// Where the body of a message comes from.
pub(crate) enum Receiving {
    /// The client of a request that the guest answers.
    Client(Arc<Exchange>),
    /// The host that the guest has asked.
    Host(Arc<OutgoingCall>),
}

impl Receiving {
    /// Where a message comes from, unless that is over.
    pub(crate) fn of(guest: &mut Guest, origin: Origin) -> Option<Self> {
        match origin {
            Origin::Exchange(number) => guest.http().exchange(number).map(Self::Client),
            Origin::Call(number) => guest.calls().find(number).map(Self::Host),
        }
    }

    fn read(&self, size: usize) -> Result<Vec<u8>, Result<(), ErrorCode>> {
        match self {
            Self::Client(exchange) => {
                let read = exchange.read(size);
                read.map_err(|end| end.map_err(|()| ErrorCode::HttpProtocolError))
            }
            Self::Host(call) => call.read(size).map_err(|end| end.map_err(error_of)),
        }
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Client(exchange) => exchange.poll_readable(context),
            Self::Host(call) => call.poll_readable(context),
        }
    }

    /// Throws away what is left of the body, a part in each poll, until it is over: whether all of it
    /// came.
    pub(crate) fn poll_end(&self, context: &mut Context<'_>) -> Poll<Result<(), ErrorCode>> {
        match self {
            Self::Client(exchange) => {
                let end = exchange.poll_request_end(context);
                end.map_err(|()| ErrorCode::HttpProtocolError)
            }
            Self::Host(call) => call.poll_end(context).map_err(error_of),
        }
    }

    /// Runs `f` on the trailers behind the body's end, if there are any.
    pub(super) fn with_trailers<T>(&self, f: impl FnOnce(&Fields) -> T) -> Option<T> {
        match self {
            Self::Client(exchange) => exchange
                .with_half(|half| half.request_trailers().map(f))
                .flatten(),
            Self::Host(call) => call.with_trailers(f),
        }
    }
}

/// Where the body of a message goes.
pub(super) enum Sending {
    /// The client, as that of the response with this number.
    Client(Arc<Exchange>, u64),
    /// The host that the guest asks.
    Host(Arc<OutgoingCall>),
}

impl Sending {
    /// Where a message goes, unless that is over.
    pub(super) fn of(guest: &mut Guest, sink: Sink) -> Option<Self> {
        match sink {
            Sink::Response(number, response) => {
                let exchange = guest.http().exchange(number);
                exchange.map(|exchange| Self::Client(exchange, response))
            }
            Sink::Call(number) => guest.calls().find(number).map(Self::Host),
        }
    }

    fn room(&self) -> Result<usize, Closed> {
        match self {
            Self::Client(exchange, response) => exchange.room(*response),
            Self::Host(call) => call.room(),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Closed> {
        match self {
            Self::Client(exchange, response) => exchange.write(*response, bytes),
            Self::Host(call) => call.write(bytes),
        }
    }

    fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Client(exchange, response) => exchange.poll_room(*response, context),
            Self::Host(call) => call.poll_room(context),
        }
    }

    /// The fields as they are sent; `None` if they are larger than may be.
    pub(super) fn sendable(&self, fields: &Packed) -> Option<Fields> {
        match self {
            Self::Client(exchange, _) => exchange.sendable(fields),
            Self::Host(call) => sendable(fields, call.head_limit()),
        }
    }

    /// Ends the body.
    pub(super) fn end(&self, end: BodyEnd) {
        match (self, end) {
            (Self::Client(exchange, response), end) => exchange.end_body(*response, end),
            (Self::Host(call), BodyEnd::Finished(trailers)) => call.finish_body(trailers),
            (Self::Host(call), BodyEnd::Incomplete) => call.fail_body(),
        }
    }
}

/// The body of a message that the guest receives.
pub(super) struct BodyInput {
    /// `None` if that was over before the guest took the stream.
    pub(super) from: Option<Receiving>,
    pub(super) body: Handle<Object>,
    /// The guest was told of the body's failure.
    pub(super) has_failed: bool,
}

/// The body of a message that the guest sends; that of a request which will not be sent is thrown away.
pub(super) struct BodyOutput {
    pub(super) to: Option<Sending>,
    /// What it is of was over before the guest took the stream.
    pub(super) is_closed: bool,
    pub(super) body: Handle<Object>,
}

impl Drop for BodyInput {
    fn drop(&mut self) {
        if let Some(Object::IncomingBody(mut body)) = rep::get(self.body) {
            body.stream = Child::Dropped;
            rep::put(self.body, Object::IncomingBody(body));
        }
    }
}

impl Drop for BodyOutput {
    fn drop(&mut self) {
        if let Some(Object::OutgoingBody(mut body)) = rep::get(self.body) {
            body.stream = Child::Dropped;
            rep::put(self.body, Object::OutgoingBody(body));
        }
    }
}

#[async_trait]
impl Pollable for BodyInput {
    async fn ready(&mut self) {
        if let Some(from) = &self.from {
            poll_fn(|context| from.poll_readable(context)).await;
        }
    }
}

#[async_trait]
impl InputStream for BodyInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let Some(from) = &self.from else {
            return Err(StreamError::Closed);
        };
        match from.read(size) {
            Ok(bytes) => Ok(bytes.into()),
            Err(Err(error)) if !self.has_failed => {
                self.has_failed = true;
                let error = wasmtime::Error::new(error);
                Err(StreamError::LastOperationFailed(error))
            }
            Err(_) => Err(StreamError::Closed),
        }
    }
}

impl BodyOutput {
    /// Counts bytes; fails if they are more than the body states.
    fn count(&self, bytes: usize) -> StreamResult<()> {
        let Some(Object::OutgoingBody(mut body)) = rep::get(self.body) else {
            return Err(StreamError::Closed);
        };
        body.written = body.written.saturating_add(bytes as u64);
        rep::put(self.body, Object::OutgoingBody(body));
        match body.expected {
            Some(expected) if body.written > expected => {
                let error = size_error(body.of, body.written);
                Err(StreamError::LastOperationFailed(wasmtime::Error::new(
                    error,
                )))
            }
            _ => Ok(()),
        }
    }

    fn room(&self) -> StreamResult<usize> {
        if self.is_closed {
            return Err(StreamError::Closed);
        }
        let room = match &self.to {
            None => PERMITTED.size(),
            Some(to) => to.room().map_err(|_| StreamError::Closed)?,
        };
        Ok(room.min(PERMITTED.size()))
    }
}

/// The error of a body that has another size than it states.
pub(super) fn size_error(of: Option<Sink>, written: u64) -> ErrorCode {
    match of {
        Some(Sink::Response(..)) => ErrorCode::HttpResponseBodySize(Some(written)),
        Some(Sink::Call(_)) | None => ErrorCode::HttpRequestBodySize(Some(written)),
    }
}

#[async_trait]
impl Pollable for BodyOutput {
    async fn ready(&mut self) {
        if let Some(to) = self.to.as_ref().filter(|_| !self.is_closed) {
            poll_fn(|context| to.poll_room(context)).await;
        }
    }
}

#[async_trait]
impl OutputStream for BodyOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > self.room()? {
            return Err(StreamError::trap("write exceeded budget"));
        }
        self.count(bytes.len())?;
        if let Some(to) = &self.to {
            let written = to.write(&bytes).map_err(|_| StreamError::Closed)?;
            if written < bytes.len() {
                return Err(StreamError::Closed);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.room().map(|_| ())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.room()
    }
}
