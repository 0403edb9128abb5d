//! A tenant's standard streams.
//!
//! Output goes through a bounded [`Pipe`] to a thread that may block, so that a slow reader delays
//! only the tenant that writes.

use super::capture::Capture;
use bytes::Bytes;
use leasehold_crossing::{Bell, CAPACITY, Pipe};
use std::io::{ErrorKind, Write};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdinStream as _, StdoutStream};
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, SinkOutputStream};
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::{WasiCtxBuilder, async_trait};

/// Where a tenant's standard input comes from.
#[derive(Debug, Clone, Default)]
pub enum Input {
    /// Nothing: end of file at once.
    #[default]
    Empty,
    /// The standard input of this process.
    Inherit,
    /// These bytes, which are not copied: clones share them, and the last is never dropped by a cell's thread.
    Bytes(Bytes),
}

/// Where a tenant's standard output or standard error goes.
#[derive(Debug, Clone, Default)]
pub enum Output {
    /// Nowhere.
    #[default]
    Discard,
    /// The standard output of this process.
    Stdout,
    /// The standard error of this process.
    Stderr,
    /// Memory, up to this buffer's capacity; writing more is an error to the tenant.
    Capture(Capture),
    /// The writer of this destination.
    To(Destination),
}

/// A destination of tenants' output. If its writer blocks, only tenants that write to it are
/// delayed. Clones share it. Its thread stays until the process ends.
#[derive(Clone)]
pub struct Destination(Pipe);

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination").finish_non_exhaustive()
    }
}

impl Destination {
    /// Creates a destination that passes all output to `writer`, on its own thread called `name`.
    pub fn new(name: &'static str, writer: impl Write + Send + 'static) -> Self {
        Self(drained_pipe(name, |pipe| pipe.drain(writer)))
    }

    /// Creates a destination without a thread of its own: what is written rings the bell, for a thread that
    /// calls [`take`](Self::take) on all of its destinations.
    pub fn rung_by(bell: &Bell) -> Self {
        Self(Pipe::rung_by(bell))
    }

    /// Takes what was written out, to the end of `into`; whether there was anything. For destinations of
    /// [`rung_by`](Self::rung_by). Never blocks.
    pub fn take(&self, into: &mut Vec<u8>) -> bool {
        self.0.take_now(into)
    }

    /// Waits until everything that was written so far is out.
    pub fn flush(&self) {
        self.0.flush_blocking();
    }

    /// Writes all of `bytes`, or nothing if there is no room for them now, and returns whether it
    /// did. Never blocks.
    pub fn put(&self, bytes: &[u8]) -> bool {
        self.0.write_whole(bytes)
    }
}

/// Waits until everything that tenants wrote to this process' own standard output and standard
/// error is out.
pub fn flush() {
    for process in [&STDOUT, &STDERR] {
        if let Some(process) = process.get() {
            process.pipe.flush_blocking();
        }
    }
}

/// Waits for at most `patience` until everything that tenants wrote to this process' own standard
/// output and standard error, and to these destinations, is out; whether it is.
pub fn flush_within(destinations: &[&Destination], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let own = [&STDOUT, &STDERR].into_iter().filter_map(OnceLock::get);
    let pipes: Vec<&Pipe> = own
        .map(|process| &process.pipe)
        .chain(destinations.iter().map(|destination| &destination.0))
        .collect();
    loop {
        if pipes.iter().all(|pipe| pipe.unwritten() == 0) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns why this process' own standard output has failed, if it failed while tenants wrote to
/// it. The contents of the pipe are then lost, and no tenant was told.
pub fn stdout_failure() -> Option<ErrorKind> {
    STDOUT.get().and_then(|stdout| stdout.pipe.failure())
}

static STDOUT: OnceLock<Piped> = OnceLock::new();
static STDERR: OnceLock<Piped> = OnceLock::new();

/// A pipe with a thread that drains it.
fn drained_pipe(name: &'static str, drain: impl FnOnce(Pipe) + Send + 'static) -> Pipe {
    let pipe = Pipe::new();
    let theirs = pipe.clone();
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(move || drain(theirs));
    if let Err(error) = thread {
        // The pipe would never be drained: closing it keeps tenants from waiting for ever.
        tracing::error!(%error, "no thread for {name}; output is discarded");
        pipe.close();
        pipe.drain(std::io::sink());
    }
    pipe
}

impl Input {
    pub(crate) fn give(&self, wasi: &mut WasiCtxBuilder) {
        match self {
            Self::Empty => wasi.stdin(tokio::io::empty()),
            Self::Inherit => wasi.stdin(tokio::io::stdin()),
            Self::Bytes(bytes) => wasi.stdin(MemoryInputPipe::new(bytes.clone())),
        };
    }

    /// Whether reading can ever wait.
    pub(crate) fn may_block(&self) -> bool {
        matches!(self, Self::Inherit)
    }

    /// Returns the stream to read from; `None` if there is no input.
    pub(crate) fn stream(&self) -> Option<Box<dyn InputStream>> {
        match self {
            Self::Empty => None,
            // Streams of the same standard input share what there is to read.
            Self::Inherit => Some(tokio::io::stdin().p2_stream()),
            Self::Bytes(bytes) => Some(Box::new(MemoryInputPipe::new(bytes.clone()))),
        }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.may_block() && std::io::IsTerminal::is_terminal(&std::io::stdin())
    }
}

/// The end of an output that a tenant writes to, whatever it is.
pub(crate) enum Sink {
    Discard,
    Capture(Capture),
    Piped(Piped),
}

/// The error of a destination that takes no more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

impl Sink {
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Piped(piped) if piped.terminal)
    }

    /// Writes as much as fits, and returns how much that was; at most [`leasehold_crossing::CAPACITY`].
    ///
    /// # Errors
    /// When the destination has failed or is full for good.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Closed> {
        match self {
            Self::Discard => Ok(bytes.len()),
            Self::Piped(piped) => piped.pipe.write(bytes).ok_or(Closed),
            Self::Capture(capture) => {
                let bytes = &bytes[..bytes.len().min(CAPACITY)];
                match capture.put(bytes) {
                    0 if capture.room() == 0 => Err(Closed),
                    taken => Ok(taken),
                }
            }
        }
    }

    /// Ready when something fits, or nothing ever will.
    pub(crate) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        match self {
            Self::Discard | Self::Capture(_) => Poll::Ready(()),
            Self::Piped(piped) => {
                match piped
                    .pipe
                    .poll(context.waker(), |progress| progress.room > 0)
                {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }
        }
    }
}

impl Output {
    /// Makes the writing thread, if it is needed and missing. Called on the controller's thread,
    /// because a thread that is made on a cell's thread stays on that cell's core.
    pub(crate) fn prepare(&self) {
        match self {
            Self::Stdout => drop(Piped::stdout()),
            Self::Stderr => drop(Piped::stderr()),
            Self::Discard | Self::Capture(_) | Self::To(_) => {}
        }
    }

    /// The destination.
    pub(crate) fn sink(&self) -> Sink {
        match self {
            Self::Discard => Sink::Discard,
            Self::Capture(capture) => Sink::Capture(capture.clone()),
            Self::Stdout => Sink::Piped(Piped::stdout()),
            Self::Stderr => Sink::Piped(Piped::stderr()),
            Self::To(destination) => Sink::Piped(Piped::to(destination)),
        }
    }

    pub(crate) fn give_stdout(&self, wasi: &mut WasiCtxBuilder) {
        match self {
            Self::Discard => wasi.stdout(SinkOutputStream),
            Self::Capture(capture) => wasi.stdout(capture.clone()),
            Self::Stdout => wasi.stdout(Piped::stdout()),
            Self::Stderr => wasi.stdout(Piped::stderr()),
            Self::To(destination) => wasi.stdout(Piped::to(destination)),
        };
    }

    pub(crate) fn give_stderr(&self, wasi: &mut WasiCtxBuilder) {
        match self {
            Self::Discard => wasi.stderr(SinkOutputStream),
            Self::Capture(capture) => wasi.stderr(capture.clone()),
            Self::Stdout => wasi.stderr(Piped::stdout()),
            Self::Stderr => wasi.stderr(Piped::stderr()),
            Self::To(destination) => wasi.stderr(Piped::to(destination)),
        };
    }
}

/// Whether this process' standard output and standard error are one file, pipe or terminal.
fn is_one_file() -> bool {
    let file = |status: rustix::fs::Stat| (status.st_dev, status.st_ino, status.st_rdev);
    let output = rustix::fs::fstat(std::io::stdout()).map(file);
    let error = rustix::fs::fstat(std::io::stderr()).map(file);
    output.is_ok() && output == error
}

/// The end of a pipe that a tenant writes to.
#[derive(Clone)]
pub(crate) struct Piped {
    pipe: Pipe,
    terminal: bool,
}

impl Piped {
    /// Asks the host once, not for each execution, whether that is a terminal.
    fn stdout() -> Self {
        let stdout = STDOUT.get_or_init(|| Self {
            pipe: drained_pipe("leasehold-out", |pipe| pipe.drain(std::io::stdout())),
            terminal: std::io::IsTerminal::is_terminal(&std::io::stdout()),
        });
        stdout.clone()
    }

    /// As [`stdout`](Self::stdout).
    fn stderr() -> Self {
        // Output to one file arrives in the order in which it was written.
        let stderr = STDERR.get_or_init(|| Self {
            pipe: match is_one_file() {
                true => Self::stdout().pipe,
                false => drained_pipe("leasehold-err", |pipe| pipe.drain(std::io::stderr())),
            },
            terminal: std::io::IsTerminal::is_terminal(&std::io::stderr()),
        });
        stderr.clone()
    }

    fn to(destination: &Destination) -> Self {
        Self {
            pipe: destination.0.clone(),
            terminal: false,
        }
    }
}

impl IsTerminal for Piped {
    fn is_terminal(&self) -> bool {
        self.terminal
    }
}

impl StdoutStream for Piped {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Piped {
    async fn ready(&mut self) {
        std::future::poll_fn(|context| {
            match self
                .pipe
                .poll(context.waker(), |progress| progress.room > 0)
            {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

impl OutputStream for Piped {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        match self.pipe.write(&bytes) {
            None => Err(StreamError::Closed),
            Some(n) if n == bytes.len() => Ok(()),
            Some(_) => Err(StreamError::trap("wrote more than check-write permitted")),
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        // The end of a tenant does not discard the contents of the pipe.
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.pipe.room().ok_or(StreamError::Closed)
    }
}

impl AsyncWrite for Piped {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if !self
            .pipe
            .poll(context.waker(), |progress| progress.room > 0)
        {
            return Poll::Pending;
        }
        Poll::Ready(
            self.pipe
                .write(bytes)
                .ok_or(std::io::ErrorKind::BrokenPipe.into()),
        )
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self
            .pipe
            .poll(context.waker(), |progress| progress.unwritten == 0)
        {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}
