//! The streams of bodies, over the windows of an exchange.

use super::access;
use super::bindings::types::ErrorCode;
use super::exchange::Exchange;
use super::object::{Child, Object};
use crate::steps::caps::PERMITTED;
use bytes::Bytes;
use leasehold_reclaim::Handle;
use std::future::poll_fn;
use std::sync::Arc;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

/// The body of a request, read.
pub(super) struct BodyInput {
    /// `None` if its exchange was over before the guest took the stream.
    pub(super) exchange: Option<Arc<Exchange>>,
    pub(super) body: Handle<Object>,
    /// The guest was told of the body's failure.
    pub(super) has_failed: bool,
}

/// The body of a response, written; or that of a request that will be denied, which is thrown away.
pub(super) struct BodyOutput {
    /// The exchange and the number of the response.
    pub(super) to: Option<(Arc<Exchange>, u64)>,
    /// The response's exchange was over before the guest took the stream.
    pub(super) is_closed: bool,
    pub(super) body: Handle<Object>,
}

impl Drop for BodyInput {
    fn drop(&mut self) {
        if let Some(Object::IncomingBody(mut body)) = access::get(self.body) {
            body.stream = Child::Dropped;
            access::put(self.body, Object::IncomingBody(body));
        }
    }
}

impl Drop for BodyOutput {
    fn drop(&mut self) {
        if let Some(Object::OutgoingBody(mut body)) = access::get(self.body) {
            body.stream = Child::Dropped;
            access::put(self.body, Object::OutgoingBody(body));
        }
    }
}

#[async_trait]
impl Pollable for BodyInput {
    async fn ready(&mut self) {
        if let Some(exchange) = &self.exchange {
            poll_fn(|context| exchange.poll_readable(context)).await;
        }
    }
}

#[async_trait]
impl InputStream for BodyInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let Some(exchange) = &self.exchange else {
            return Err(StreamError::Closed);
        };
        match exchange.read(size) {
            Ok(bytes) => Ok(bytes.into()),
            Err(Err(())) if !self.has_failed => {
                self.has_failed = true;
                let error = wasmtime::Error::new(ErrorCode::HttpProtocolError);
                Err(StreamError::LastOperationFailed(error))
            }
            Err(_) => Err(StreamError::Closed),
        }
    }
}

impl BodyOutput {
    /// Counts bytes; fails if they are more than the body states.
    fn count(&self, bytes: usize) -> StreamResult<()> {
        let Some(Object::OutgoingBody(mut body)) = access::get(self.body) else {
            return Err(StreamError::Closed);
        };
        body.written = body.written.saturating_add(bytes as u64);
        access::put(self.body, Object::OutgoingBody(body));
        match body.expected {
            Some(expected) if body.written > expected => {
                let error = size_error(body.of.is_some(), body.written);
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
            Some((exchange, response)) => {
                exchange.room(*response).map_err(|_| StreamError::Closed)?
            }
        };
        Ok(room.min(PERMITTED.size()))
    }
}

/// The error of a body that has another size than it states.
pub(super) fn size_error(is_response: bool, written: u64) -> ErrorCode {
    match is_response {
        true => ErrorCode::HttpResponseBodySize(Some(written)),
        false => ErrorCode::HttpRequestBodySize(Some(written)),
    }
}

#[async_trait]
impl Pollable for BodyOutput {
    async fn ready(&mut self) {
        if let Some((exchange, response)) = self.to.as_ref().filter(|_| !self.is_closed) {
            poll_fn(|context| exchange.poll_room(*response, context)).await;
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
        if let Some((exchange, response)) = &self.to {
            let written = exchange
                .write(*response, &bytes)
                .map_err(|_| StreamError::Closed)?;
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
