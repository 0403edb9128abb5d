//! The streams of a connection, over the windows of its exchange.

use super::failure::of_connection;
use super::object::Object;
use crate::steps::caps::PERMITTED;
use crate::wasi::outgoing::OutgoingCall;
use crate::wasi::rep;
use bytes::Bytes;
use leasehold_reclaim::Handle;
use std::future::poll_fn;
use std::sync::Arc;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

/// Counts a stream of a socket that the guest has, until it is dropped.
struct Counted(Handle<Object>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(Object::Tcp(mut socket)) = rep::get(self.0) {
            socket.streams = socket.streams.saturating_sub(1);
            rep::put(self.0, Object::Tcp(socket));
        }
    }
}

/// What the peer sends.
pub(super) struct ConnectionInput {
    call: Arc<OutgoingCall>,
    /// The guest was told that the connection was cut off.
    has_failed: bool,
    _counted: Counted,
}

/// What the guest sends.
pub(super) struct ConnectionOutput {
    call: Arc<OutgoingCall>,
    /// Bytes that `check-write` permitted and that were not written since.
    permitted: usize,
    _counted: Counted,
}

/// The streams of a connection, which its socket counts already.
pub(super) fn of(
    call: &Arc<OutgoingCall>,
    socket: Handle<Object>,
) -> (ConnectionInput, ConnectionOutput) {
    let input = ConnectionInput {
        call: call.clone(),
        has_failed: false,
        _counted: Counted(socket),
    };
    let output = ConnectionOutput {
        call: call.clone(),
        permitted: 0,
        _counted: Counted(socket),
    };
    (input, output)
}

#[async_trait]
impl Pollable for ConnectionInput {
    async fn ready(&mut self) {
        poll_fn(|context| self.call.poll_readable(context)).await;
    }
}

#[async_trait]
impl InputStream for ConnectionInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match self.call.read(size) {
            Ok(bytes) => Ok(bytes.into()),
            Err(Err(failure)) if !self.has_failed => {
                self.has_failed = true;
                let error = wasmtime::Error::new(of_connection(failure));
                Err(StreamError::LastOperationFailed(error))
            }
            Err(_) => Err(StreamError::Closed),
        }
    }
}

impl ConnectionOutput {
    fn room(&self) -> StreamResult<usize> {
        let room = self.call.room().map_err(|_| StreamError::Closed)?;
        Ok(room.min(PERMITTED.size()))
    }
}

#[async_trait]
impl Pollable for ConnectionOutput {
    async fn ready(&mut self) {
        poll_fn(|context| self.call.poll_room(context)).await;
    }
}

#[async_trait]
impl OutputStream for ConnectionOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let Some(left) = self.permitted.checked_sub(bytes.len()) else {
            return Err(StreamError::trap("wrote more than check-write permitted"));
        };
        self.permitted = left;
        let written = self.call.write(&bytes).map_err(|_| StreamError::Closed)?;
        match written < bytes.len() {
            true => Err(StreamError::Closed),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.room().map(drop)
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.permitted = self.room()?;
        Ok(self.permitted)
    }
}
