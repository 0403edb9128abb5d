//! Spans of requests, sent to a collector in the protocol of OpenTelemetry.
//!
//! The I/O threads put the spans of a recorded request into a bounded queue and never wait: what
//! finds no room is dropped and counted. A thread of its own, kept off the cell's core, sends what is
//! there, at most once a second unless there is much.

mod client;
mod endpoint;
mod span;

pub use endpoint::{Endpoint, EndpointError};

use client::Client;
use leasehold_front::Record;
use leasehold_io_thread::{self as io_thread, Urgency, runtime};
use leasehold_outgoing::Sent;
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// Requests whose spans wait.
const QUEUE: usize = 1024;
/// Requests whose spans are sent at once.
const BATCH: usize = 128;
/// How long spans wait for others.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the thread of an exporter begins.
#[derive(Default)]
pub struct Begin {
    /// The cell's core, which the thread keeps off where it may run on another.
    pub core: Option<usize>,
    /// What the thread does first: confine itself, for instance.
    pub confine: Option<io_thread::Begin>,
}

/// What became of the spans of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exports {
    /// A collector took them.
    pub exported: u64,
    /// There was no room in the queue.
    pub dropped: u64,
    /// A collector did not take them.
    pub failed: u64,
}

#[derive(Default)]
struct Counters {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Sends spans to a collector. Dropping it sends what waits, for at most six seconds.
pub struct Exporter {
    queue: Option<mpsc::Sender<Vec<SpanData>>>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts the thread that sends spans. Nothing is sent before there is one.
    ///
    /// # Errors
    /// When the thread cannot be started, or not begin as it should.
    pub fn start(endpoint: &Endpoint, begin: Begin) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let exporter = exporter(endpoint)?;
        let (started, starting) = std::sync::mpsc::channel();
        let counts = counters.clone();
        let run = move || {
            let begun = runtime(begin.core, Urgency::Operators, begin.confine);
            let failed = begun.as_ref().err().map(|error| error.kind());
            let _ = started.send(failed);
            if let Ok(runtime) = begun {
                runtime.block_on(export(receiver, &exporter, &counts));
            }
        };
        let builder = std::thread::Builder::new().name("leasehold-spans".to_owned());
        let thread = builder.spawn(run)?;
        if let Some(kind) = starting.recv().unwrap_or(Some(io::ErrorKind::Other)) {
            return Err(kind.into());
        }
        Ok(Self {
            queue: Some(sender),
            counters,
            thread: Some(thread),
        })
    }

    /// Sends the spans of a request that is over, if it is recorded. Does not wait: for the I/O
    /// thread. Costs nothing for a request that is not recorded.
    pub fn put(&self, record: &Record) {
        self.put_all(span::spans(record, SystemTime::now()));
    }

    /// Sends the span of a request that a guest sent, likewise.
    pub fn put_sent(&self, sent: &Sent) {
        self.put_all(vec![span::sent(sent, SystemTime::now())]);
    }

    fn put_all(&self, spans: Vec<SpanData>) {
        let Some(queue) = self.queue.as_ref().filter(|_| !spans.is_empty()) else {
            return;
        };
        if queue.try_send(spans).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns what became of spans so far.
    pub fn exports(&self) -> Exports {
        Exports {
            exported: self.counters.exported.load(Ordering::Relaxed),
            dropped: self.counters.dropped.load(Ordering::Relaxed),
            failed: self.counters.failed.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn exporter(endpoint: &Endpoint) -> io::Result<opentelemetry_otlp::SpanExporter> {
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(Client(endpoint.clone()))
        .with_endpoint(endpoint.url())
        .with_timeout(PATIENCE)
        .build()
        .map_err(io::Error::other)?;
    let resource = Resource::builder_empty().with_service_name("leasehold");
    exporter.set_resource(&resource.build());
    Ok(exporter)
}

/// Sends batches until the queue is closed, and what waits then.
async fn export(
    mut queue: mpsc::Receiver<Vec<SpanData>>,
    exporter: &opentelemetry_otlp::SpanExporter,
    counters: &Counters,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut last = None;
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let until = Instant::now() + PAUSE;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            match timeout_at(until, queue.recv_many(&mut batch, room)).await {
                Ok(more) if more > 0 => {}
                _ => break,
            }
        }
        // At the end of the node, each wait for a collector that does not answer would delay the end.
        if queue.is_closed() {
            let last = *last.get_or_insert(Instant::now() + PATIENCE);
            if last <= Instant::now() {
                counters
                    .failed
                    .fetch_add(batch.len() as u64, Ordering::Relaxed);
                batch.clear();
                continue;
            }
        }
        let requests = batch.len() as u64;
        let spans = batch.drain(..).flatten().collect();
        let counter = match timeout(PATIENCE, exporter.export(spans)).await {
            Ok(Ok(())) => &counters.exported,
            _ => &counters.failed,
        };
        counter.fetch_add(requests, Ordering::Relaxed);
    }
}
