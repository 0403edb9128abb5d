//! A tenant's standard streams.
//!
//! Output goes through a bounded [`Pipe`] of the tenant's own to a thread that may block, so that neither a
//! slow reader nor what other tenants write delays a tenant that writes little.

use super::capture::Capture;
use crate::clock::thread_cpu_ns;
use bytes::Bytes;
use leasehold_crossing::{Bell, CAPACITY, Funnel, OutputTime, Pipe, Tag, Until};
use leasehold_door::{Call, pass};
use std::io::{ErrorKind, Write};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
/// delayed: each until at most one turn of each other tenant was written. Clones share it. Its thread stays
/// until the process ends, or the writer fails.
#[derive(Clone)]
pub struct Destination(Funnel);

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination").finish_non_exhaustive()
    }
}

impl Destination {
    /// Creates a destination that passes all output to `writer`, on its own thread called `name`.
    pub fn new(name: &'static str, writer: impl Write + Send + 'static) -> Self {
        let funnel = drained(name, |funnel| funnel.drain(writer, thread_cpu_ns));
        Self(funnel.unwrap_or_else(|error| undrained(name, &error)))
    }

    fn stream(&self) -> Stream {
        Stream {
            funnel: self.0.clone(),
            terminal: false,
        }
    }

    /// Creates a destination without a thread of its own: what is written rings the bell, for a thread that
    /// calls [`take`](Self::take) on all of its destinations.
    pub fn rung_by(bell: &Bell) -> Self {
        Self(Funnel::rung_by(bell))
    }

    /// Calls `with` with what was written and the request that it belongs to, in turns, and charges the tenants
    /// that wrote it with the processor time that this took. For destinations of [`rung_by`](Self::rung_by),
    /// and one thread at a time. Never blocks.
    pub fn take(&self, with: impl FnMut(Option<NonZeroU64>, &[u8])) {
        self.0.take_now(with, thread_cpu_ns);
    }

    /// Whether everything that was written so far is out, or the writer has failed.
    pub fn is_written(&self) -> bool {
        self.0.unwritten() == 0
    }

    /// Returns why the writer failed, if it did. What was not written then is lost.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.0.failure()
    }

    /// Waits until everything that was written so far is out.
    pub fn flush(&self) {
        self.0.flush_blocking();
    }

    /// Writes all of `bytes`, or nothing if there is no room for them now, and returns whether it
    /// did. Never blocks.
    pub fn put(&self, bytes: &[u8]) -> bool {
        self.put_for("", bytes)
    }

    /// The same with what the host writes for a tenant of this name. It has room of its own, and its turns.
    pub fn put_for(&self, tenant: &str, bytes: &[u8]) -> bool {
        self.0.put(tenant, bytes)
    }
}

/// Waits for at most `patience` until everything that tenants wrote to this process' own standard
/// output and standard error, and to these destinations, is out; whether it is.
pub fn flush_within(destinations: &[&Destination], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let own = [&STDOUT, &STDERR].into_iter().filter_map(OnceLock::get);
    let funnels: Vec<&Funnel> = own
        .map(|process| &process.funnel)
        .chain(destinations.iter().map(|destination| &destination.0))
        .collect();
    loop {
        if funnels.iter().all(|funnel| funnel.unwritten() == 0) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns why this process' own standard output has failed, if it failed while tenants wrote to
/// it. The contents of its pipes are then lost, and no tenant was told.
pub fn stdout_failure() -> Option<ErrorKind> {
    STDOUT.get().and_then(|stdout| stdout.funnel.failure())
}

static STDOUT: OnceLock<Stream> = OnceLock::new();
static STDERR: OnceLock<Stream> = OnceLock::new();

/// A stream of this process that tenants write to.
#[derive(Clone)]
struct Stream {
    funnel: Funnel,
    terminal: bool,
}

/// A funnel with a thread that drains it.
///
/// # Errors
/// When the host refuses a thread.
fn drained(
    name: &'static str,
    drain: impl FnOnce(Funnel) + Send + 'static,
) -> std::io::Result<Funnel> {
    let funnel = Funnel::new();
    let theirs = funnel.clone();
    pass(Call::StartThread)?;
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || drain(theirs))?;
    Ok(funnel)
}

/// A funnel that takes nothing because it could not be drained: an error keeps tenants from waiting for ever.
fn undrained(name: &'static str, error: &std::io::Error) -> Funnel {
    tracing::error!(%error, "no thread for {name}; output is lost");
    let funnel = Funnel::new();
    funnel.fail(error.kind());
    funnel
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

    /// Writes all of `bytes`, or nothing if there is no room for them now; whether it did.
    pub(crate) fn write_whole(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Discard => true,
            Self::Piped(piped) => piped.pipe.write_whole(bytes),
            Self::Capture(capture) => {
                capture.room() >= bytes.len() && capture.put(bytes) == bytes.len()
            }
        }
    }

    /// Ready when something fits, or nothing ever will.
    pub(crate) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        match self {
            Self::Discard | Self::Capture(_) => Poll::Ready(()),
            Self::Piped(piped) => piped.poll(context, Until::Room),
        }
    }
}

impl Output {
    /// Makes the writing thread, if it is needed and missing. Called on the controller's thread,
    /// because a thread that is made on a cell's thread stays on that cell's core.
    pub(crate) fn prepare(&self) {
        match self {
            Self::Stdout => drop(Stream::stdout()),
            Self::Stderr => drop(Stream::stderr()),
            Self::Discard | Self::Capture(_) | Self::To(_) => {}
        }
    }

    /// The destination, for an execution of a tenant with this `time`.
    pub(crate) fn sink(&self, time: &OutputTime, author: &Author) -> Sink {
        match self {
            Self::Discard => Sink::Discard,
            Self::Capture(capture) => Sink::Capture(capture.clone()),
            Self::Stdout => Sink::Piped(Stream::prepared(&STDOUT).of(time, author)),
            Self::Stderr => Sink::Piped(Stream::prepared(&STDERR).of(time, author)),
            Self::To(destination) => Sink::Piped(destination.stream().of(time, author)),
        }
    }

    pub(crate) fn give_stdout(
        &self,
        wasi: &mut WasiCtxBuilder,
        time: &OutputTime,
        author: &Author,
    ) {
        match self.sink(time, author) {
            Sink::Discard => wasi.stdout(SinkOutputStream),
            Sink::Capture(capture) => wasi.stdout(capture),
            Sink::Piped(piped) => wasi.stdout(piped),
        };
    }

    pub(crate) fn give_stderr(
        &self,
        wasi: &mut WasiCtxBuilder,
        time: &OutputTime,
        author: &Author,
    ) {
        match self.sink(time, author) {
            Sink::Discard => wasi.stderr(SinkOutputStream),
            Sink::Capture(capture) => wasi.stderr(capture),
            Sink::Piped(piped) => wasi.stderr(piped),
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

impl Stream {
    /// Asks the host once, not for each execution, whether that is a terminal.
    fn stdout() -> Self {
        Self::of_process(&STDOUT, "leasehold-out", || {
            let funnel = drained("leasehold-out", |funnel| {
                funnel.drain(std::io::stdout(), thread_cpu_ns)
            })?;
            let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
            Ok(Self { funnel, terminal })
        })
    }

    /// As [`stdout`](Self::stdout).
    fn stderr() -> Self {
        if STDERR.get().is_none() && is_one_file() {
            // A tenant's output to one file arrives in the order in which it was written.
            let stdout = Self::stdout();
            if STDOUT.get().is_some() {
                return STDERR.get_or_init(|| stdout).clone();
            }
            return stdout;
        }
        Self::of_process(&STDERR, "leasehold-err", || {
            let funnel = drained("leasehold-err", |funnel| {
                funnel.drain(std::io::stderr(), thread_cpu_ns)
            })?;
            let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            Ok(Self { funnel, terminal })
        })
    }

    /// The stream of this process in `stream`, which is made by the first call that succeeds: what the host
    /// refuses is the loss of the tenant that it was to be made for.
    fn of_process(
        stream: &OnceLock<Self>,
        name: &'static str,
        make: impl FnOnce() -> std::io::Result<Self>,
    ) -> Self {
        static MAKING: Mutex<()> = Mutex::new(());
        if let Some(made) = stream.get() {
            return made.clone();
        }
        // Taken by controllers only.
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = stream.get() {
            return made.clone();
        }
        match make() {
            Ok(made) => stream.get_or_init(|| made).clone(),
            Err(error) => Self::undrained(name, &error),
        }
    }

    /// The stream of this process that a controller has prepared; one that takes nothing if it could not.
    fn prepared(stream: &OnceLock<Self>) -> Self {
        let refused = || Self::undrained("output", &ErrorKind::BrokenPipe.into());
        stream.get().cloned().unwrap_or_else(refused)
    }

    fn undrained(name: &'static str, error: &std::io::Error) -> Self {
        Self {
            funnel: undrained(name, error),
            terminal: false,
        }
    }

    /// Its end for an execution of a tenant with this `time`.
    fn of(&self, time: &OutputTime, author: &Author) -> Piped {
        let pipe = self.funnel.tagged_pipe(time, &author.tag);
        author.pipes().push(pipe.clone());
        Piped {
            pipe,
            terminal: self.terminal,
        }
    }
}

/// An execution as the author of what it writes: lines have the number of the request that it answers. Clones
/// are the same author.
#[derive(Clone, Default)]
pub(crate) struct Author {
    tag: Tag,
    /// What it writes to.
    pipes: Arc<Mutex<Vec<Pipe>>>,
}

impl Author {
    /// It begins to answer a request.
    pub(crate) fn begin(&self, request: u64) {
        self.tag.set(NonZeroU64::new(request));
    }

    /// The request is over, and so is a line that was begun for it.
    pub(crate) fn finish(&self) {
        self.pipes().iter().for_each(Pipe::finish_line);
        self.tag.set(None);
    }

    fn pipes(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a stream that a tenant writes to.
#[derive(Clone)]
pub(crate) struct Piped {
    pipe: Pipe,
    terminal: bool,
}

impl Piped {
    fn poll(&self, context: &Context<'_>, until: Until) -> Poll<()> {
        match self.pipe.poll(context.waker(), until) {
            true => Poll::Ready(()),
            false => Poll::Pending,
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
        std::future::poll_fn(|context| self.poll(context, Until::Room)).await;
    }
}

impl OutputStream for Piped {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        match self.pipe.write_promised(&bytes) {
            None => Err(StreamError::Closed),
            Some(true) => Ok(()),
            Some(false) => Err(StreamError::trap("wrote more than check-write permitted")),
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        // The end of a tenant does not discard the contents of the pipe.
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.pipe.promise().ok_or(StreamError::Closed)
    }
}

impl AsyncWrite for Piped {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        std::task::ready!(self.poll(context, Until::Room));
        let written = self.pipe.write(bytes);
        Poll::Ready(written.ok_or(ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll(context, Until::Out).map(Ok)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use super::{Author, Destination, Output};
    use crate::clock::thread_cpu_ns;
    use crate::host::fs::account::Account;
    use crate::host::io::Io;
    use leasehold_lease::Lease;
    use std::io::Write;
    use std::sync::Arc;

    /// What writing takes of the processor, ns.
    const WORK_NS: u64 = 2_000_000;

    struct Laborious;

    impl Write for Laborious {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let began = thread_cpu_ns();
            while thread_cpu_ns() - began < WORK_NS {}
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_processor_time_of_writing_output_out_is_that_of_the_tenant_that_wrote_it() {
        let io = Arc::new(Io::start(None).expect("threads"));
        let account = || Account::new(&Lease::default(), None, None, io.clone());
        let (one, other) = (account(), account());
        let destination = Destination::new("laborious", Laborious);
        let output = Output::To(destination.clone());
        let mut sinks =
            [&one, &other].map(|account| output.sink(account.output_time(), &Author::default()));
        assert_eq!(sinks[0].write(b"text"), Ok(4));
        destination.flush();
        assert!(one.take_cpu_ns() >= WORK_NS);
        assert_eq!(other.take_cpu_ns(), 0);
        assert!(destination.put(b"a line of the host's"));
        destination.flush();
        assert_eq!(one.take_cpu_ns() + other.take_cpu_ns(), 0);
        io.stop();
    }
}
