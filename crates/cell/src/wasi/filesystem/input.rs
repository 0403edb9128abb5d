//! Input streams of files.
//!
//! Cached data is read when the guest requests it. Other data is read ahead by another thread, a
//! page at a time, or, when the guest waits for it, as much as it requested.

use super::files::Streamed;
use crate::host::fs::class::Class;
use crate::host::fs::descriptor::Node;
use crate::host::fs::pages::Lent;
use crate::host::fs::transfer::{self, Tried};
use crate::host::io::{self, Pending};
use crate::host::yield_point::yield_point;
use bytes::Bytes;
use leasehold_slots::address_range::PAGE;
use rustix::io::{Errno, Result};
use std::sync::Arc;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, Pollable, StreamError, StreamResult};

/// A stream of what is in a file from some place on.
pub(super) struct FileInput {
    file: Streamed,
    position: u64,
    state: State,
}

/// The data that was read ahead, and its charge.
type Ahead = (Result<Vec<u8>>, Lent);

enum State {
    /// Nothing is kept.
    Idle,
    /// Another thread reads.
    Reading(Pending<Ahead>),
    /// It has read this, which the guest has not got yet.
    Read {
        ahead: Bytes,
        #[expect(dead_code, reason = "held until the bytes are gone")]
        lent: Lent,
    },
    Failed(Errno),
    Closed,
}

/// The error of a stream.
pub(super) fn failed(errno: Errno) -> StreamError {
    StreamError::LastOperationFailed(std::io::Error::from(errno).into())
}

impl FileInput {
    pub(super) fn new(file: Streamed, position: u64) -> Self {
        Self {
            file,
            position,
            state: State::Idle,
        }
    }

    fn node(&self) -> StreamResult<&Arc<Node>> {
        self.file.node.as_ref().ok_or(StreamError::Closed)
    }

    /// Begins to read the next page elsewhere.
    fn read_ahead(&mut self, size: usize) -> StreamResult<()> {
        let (node, position) = (self.node()?.clone(), self.position);
        let size = size.clamp(1, PAGE);
        self.state = match self.file.files.pages().lend(size) {
            Err(errno) => State::Failed(errno),
            Ok(lent) => {
                let read = node
                    .elsewhere()
                    .during(move || (transfer::read(&node, size, position), lent));
                State::Reading(io::run(self.file.account(), read))
            }
        };
        Ok(())
    }

    /// Waits for what another thread reads, if it does.
    async fn settle(&mut self) {
        if let State::Reading(pending) = &mut self.state {
            let (read, lent) = pending.await;
            self.state = match read {
                Ok(bytes) if bytes.is_empty() => State::Closed,
                Ok(bytes) => State::Read {
                    ahead: bytes.into(),
                    lent,
                },
                Err(errno) => State::Failed(errno),
            };
        }
    }

    /// The next bytes; `None` if reading them would wait.
    fn read_now(&mut self, size: usize) -> StreamResult<Option<Bytes>> {
        let mut bytes = vec![0; size.min(self.file.most)];
        match transfer::read_now(self.node()?, &mut bytes, self.position) {
            Ok(Tried::Blocks) => Ok(None),
            Ok(Tried::Moved(read)) => {
                bytes.truncate(read);
                self.arrived(Ok(bytes)).map(Some)
            }
            Err(errno) => self.arrived(Err(errno)).map(Some),
        }
    }

    /// The part of the bytes read that the guest gets.
    fn arrived(&mut self, read: Result<Vec<u8>>) -> StreamResult<Bytes> {
        match read {
            Ok(bytes) if bytes.is_empty() => {
                self.state = State::Closed;
                Err(StreamError::Closed)
            }
            Ok(bytes) => {
                self.position = self.position.saturating_add(bytes.len() as u64);
                Ok(bytes.into())
            }
            Err(errno) => {
                self.state = State::Closed;
                Err(failed(errno))
            }
        }
    }
}

#[async_trait]
impl Pollable for FileInput {
    async fn ready(&mut self) {
        if matches!(self.state, State::Idle) {
            // A guest may wait for a thousand streams.
            yield_point().await;
            let tried = match self.node() {
                Ok(node) if node.class == Class::Memory && node.is_prompt() => return,
                Ok(node) => transfer::read_now(node, &mut [0], self.position),
                Err(_) => return,
            };
            // Otherwise reading says what there is.
            if tried == Ok(Tried::Blocks) && self.read_ahead(PAGE).is_err() {
                return;
            }
        }
        self.settle().await;
    }
}

#[async_trait]
impl InputStream for FileInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match &mut self.state {
            State::Idle if size == 0 => Ok(Bytes::new()),
            State::Idle => {
                if let Some(bytes) = self.read_now(size)? {
                    return Ok(bytes);
                }
                self.read_ahead(size)?;
                Ok(Bytes::new())
            }
            State::Reading(_) => Ok(Bytes::new()),
            State::Read { ahead, .. } => {
                let bytes = ahead.split_to(ahead.len().min(size));
                // A copy, so that what is kept is not what the guest got.
                let bytes = Bytes::copy_from_slice(&bytes);
                if ahead.is_empty() {
                    self.state = State::Idle;
                }
                self.position = self.position.saturating_add(bytes.len() as u64);
                Ok(bytes)
            }
            State::Failed(errno) => {
                let error = failed(*errno);
                self.state = State::Closed;
                Err(error)
            }
            State::Closed => Err(StreamError::Closed),
        }
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.settle().await;
        if !matches!(self.state, State::Idle) || size == 0 {
            return self.read(size);
        }
        if let Some(bytes) = self.read_now(size)? {
            return Ok(bytes);
        }
        // The bytes are the call's, which pays for them.
        let (node, position) = (self.node()?.clone(), self.position);
        let size = size.min(self.file.most);
        let read = node
            .elsewhere()
            .during(move || transfer::read(&node, size, position));
        let read = io::run(self.file.account(), read).await;
        self.arrived(read)
    }
}
