//! Output streams of files.
//!
//! A write that does not wait is made in the guest's call. A write that would wait is made by
//! another thread, and its bytes are charged until it is done.

use super::files::Streamed;
use super::input::failed;
use crate::host::fs::growth::Growth;
use crate::host::fs::pages::Lent;
use crate::host::fs::transfer::{self, Tried};
use crate::host::io::{self, Pending};
use crate::steps::caps::PERMITTED;
use bytes::{Buf as _, Bytes};
use rustix::io::{Errno, Result};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// A stream to a file.
pub(super) struct FileOutput {
    file: Streamed,
    place: WritePosition,
    /// Whether the file was opened to be written.
    is_writable: bool,
    state: State,
}

/// Where the next bytes are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum WritePosition {
    At(u64),
    End,
}

impl WritePosition {
    fn offset(self) -> u64 {
        match self {
            Self::At(offset) => offset,
            Self::End => 0,
        }
    }

    fn advance(&mut self, bytes: usize) {
        if let Self::At(offset) = self {
            *offset = offset.saturating_add(bytes as u64);
        }
    }

    fn is_end(self) -> bool {
        matches!(self, Self::End)
    }
}

enum State {
    /// Nothing is kept.
    Ready,
    /// Another thread writes so many bytes.
    Writing(Pending<(Result<()>, Lent)>, usize),
    Failed(Errno),
    Closed,
}

impl FileOutput {
    pub(super) fn new(file: Streamed, place: WritePosition, is_writable: bool) -> Self {
        Self {
            file,
            place,
            is_writable,
            state: State::Ready,
        }
    }

    /// Waits until another thread has written, if it does.
    async fn settle(&mut self) {
        if let State::Writing(pending, bytes) = &mut self.state {
            let (written, _) = pending.await;
            self.state = match written {
                Ok(()) => {
                    self.place.advance(*bytes);
                    State::Ready
                }
                Err(errno) => State::Failed(errno),
            };
        }
    }

    /// Writes as much as does not wait; the rest is left.
    fn write_now(&mut self, bytes: &mut Bytes) -> Result<()> {
        let Some(node) = &self.file.node else {
            return Err(Errno::BADF);
        };
        // The kernel says so of any bytes, and is asked about none.
        if !self.is_writable {
            return Err(Errno::BADF);
        }
        while !bytes.is_empty() {
            let (offset, end) = (self.place.offset(), self.place.is_end());
            match transfer::write_now(node, bytes, offset, end)? {
                Tried::Blocks => return Ok(()),
                Tried::Moved(0) => return Err(Errno::IO),
                Tried::Moved(written) => {
                    self.place.advance(written);
                    bytes.advance(written);
                }
            }
        }
        Ok(())
    }

    /// A job that writes `bytes`.
    fn job(&self, bytes: Bytes) -> Result<impl FnOnce() -> Result<()> + Send + use<>> {
        let node = self.file.node.clone().ok_or(Errno::BADF)?;
        let (offset, end) = (self.place.offset(), self.place.is_end());
        let growth = Growth::take(&node, bytes.len())?;
        let elsewhere = node.elsewhere();
        Ok(elsewhere.during(move || transfer::write_all(&node, &bytes, offset, end, growth)))
    }

    /// Begins to write `bytes` elsewhere.
    fn write_later(&mut self, bytes: Bytes) -> Result<()> {
        let lent = self.file.files.pages().lend(bytes.len())?;
        let length = bytes.len();
        let job = self.job(bytes)?;
        let pending = io::run(self.file.account(), move || (job(), lent));
        self.state = State::Writing(pending, length);
        Ok(())
    }

    /// Says what came of the writes before, once.
    fn check(&mut self) -> StreamResult<()> {
        match self.state {
            State::Ready | State::Writing(..) => Ok(()),
            State::Closed => Err(StreamError::Closed),
            State::Failed(errno) => {
                self.state = State::Closed;
                Err(failed(errno))
            }
        }
    }
}

#[async_trait]
impl Pollable for FileOutput {
    async fn ready(&mut self) {
        self.settle().await;
    }
}

#[async_trait]
impl OutputStream for FileOutput {
    fn write(&mut self, mut bytes: Bytes) -> StreamResult<()> {
        match self.state {
            State::Ready => {}
            State::Closed => return Err(StreamError::Closed),
            State::Writing(..) | State::Failed(_) => {
                return Err(StreamError::trap(
                    "write not permitted: check_write not called first",
                ));
            }
        }
        let written = match self.write_now(&mut bytes) {
            Ok(()) if bytes.is_empty() => return Ok(()),
            Ok(()) => self.write_later(bytes),
            Err(errno) => Err(errno),
        };
        // The next call is told.
        if let Err(errno) = written {
            self.state = State::Failed(errno);
        }
        Ok(())
    }

    async fn blocking_write_and_flush(&mut self, mut bytes: Bytes) -> StreamResult<()> {
        self.settle().await;
        self.check()?;
        let first = self.write_now(&mut bytes);
        let rest = bytes.len();
        let written = match first {
            Ok(()) if rest == 0 => return Ok(()),
            // The bytes are the call's, which pays for them.
            Ok(()) => match self.job(bytes) {
                Ok(job) => io::run(self.file.account(), job).await,
                Err(errno) => Err(errno),
            },
            Err(errno) => Err(errno),
        };
        match written {
            Ok(()) => {
                self.place.advance(rest);
                Ok(())
            }
            Err(errno) => {
                self.state = State::Closed;
                Err(failed(errno))
            }
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        // Nothing is kept that is not on its way.
        self.check()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.check()?;
        match self.state {
            State::Writing(..) => Ok(0),
            _ => Ok(PERMITTED.size()),
        }
    }

    async fn cancel(&mut self) {
        // Bytes that the host has accepted from the guest are written.
        self.settle().await;
    }
}
