//! Spans of requests, as a collector gets them.

use leasehold_exchange::{CallError, Fields, Lane, Read as Part, ResponseHead, TraceParent};
use leasehold_front::{Front, Options, Outcome, Record, Sampling, Site, Sockets, Trace};
use leasehold_lease::LeaseFile;
use leasehold_node::trace::{Begin, Endpoint, Exporter, Exports};
use leasehold_outgoing::Sent;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A collector that keeps what it gets.
struct Collector {
    address: SocketAddr,
    got: mpsc::Receiver<ExportTraceServiceRequest>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let (sender, got) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = sender.send(take(stream));
            }
        });
        Self { address, got }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&format!("http://{}", self.address)).expect("an endpoint")
    }

    /// The spans of the next batch.
    fn spans(&self) -> Vec<Span> {
        let batch = self
            .got
            .recv_timeout(Duration::from_secs(20))
            .expect("a batch");
        let resource = batch.resource_spans[0]
            .resource
            .as_ref()
            .expect("a resource");
        assert_eq!(resource.attributes[0].key, "service.name");
        let scopes = batch
            .resource_spans
            .into_iter()
            .flat_map(|it| it.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

/// Takes one export, as OTLP over HTTP says.
fn take(mut stream: TcpStream) -> ExportTraceServiceRequest {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .and_then(|text| text.parse().ok())
        .expect("a length");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        answer.len()
    );
    let _ = stream.write_all(&answer);
    ExportTraceServiceRequest::decode(&*body).expect("spans")
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == name)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{name}: {other:?}"),
    })
}

fn wait_for(mut ready: impl FnMut() -> bool, what: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while !ready() {
        assert!(Instant::now() < until, "{what}: not in time");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Answers one request with the `traceparent` that it has.
fn tenant(lane: &Lane) {
    let mut guest = loop {
        match lane.take() {
            Some(guest) => break guest,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    while !matches!(guest.read(&mut [0; 64]), Part::End | Part::Failed) {}
    guest.add_guest_time(1_500_000);
    let given = guest
        .request()
        .fields
        .get("traceparent")
        .unwrap_or_default();
    let given = given.to_vec();
    let head = ResponseHead {
        status: 200,
        fields: Fields::new(1024),
    };
    guest.respond(head).expect("the first");
    guest.write(&given);
    guest.finish(None);
}

#[test]
fn a_request_is_one_trace_from_its_client_over_the_front_to_the_guest() {
    let collector = Collector::start();
    let exporter = Exporter::start(&collector.endpoint(), Begin::default()).expect("an exporter");
    let exporter = Arc::new(exporter);
    let text = "[listener.main]\naddress = \"127.0.0.1:0\"\n[tenant.shop]\ncomponent = \"a\"\n\
                reclaim.budget = \"1ms\"\nhttp.routes = [\"/*\"]\n";
    let file = LeaseFile::parse(text, Path::new("lease.toml")).expect("a lease file");
    let http = file.tenants[0].http.clone().expect("it answers");
    let site = Site::new("shop", &http, None);
    let lane = Arc::new(Lane::new(4));
    site.set_lane(Some(lane.clone()));
    let guest = thread::spawn(move || tenant(&lane));
    let spans = exporter.clone();
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = records.clone();
    let options = Options {
        log: Some(Arc::new(move |record: &Record| {
            spans.put(record);
            kept.lock().expect("records").push(record.clone());
        })),
        sampling: Some(Sampling::of_ratio(0.0)),
        ..Options::default()
    };
    let sockets = Sockets::open(&file.listeners).expect("sockets");
    let front = Front::start(sockets, &[(site, http)], options).expect("a front");
    front.serve();

    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut client = TcpStream::connect(front.listening()[0].address).expect("connected");
    write!(
        client,
        "GET /cart?item=1 HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\
         Traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n\r\n"
    )
    .expect("written");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    guest.join().expect("the tenant");

    let spans = collector.spans();
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["GET", "queue", "run"]);
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let [own, queue, run] = &spans[..] else {
        panic!("three spans")
    };
    for span in &spans {
        assert_eq!(hex(&span.trace_id), trace);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
    }
    assert_eq!(hex(&own.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(
        (own.kind(), queue.kind()),
        (SpanKind::Server, SpanKind::Internal)
    );
    assert_eq!(
        (&queue.parent_span_id, &run.parent_span_id),
        (&own.span_id, &own.span_id)
    );
    assert_eq!(queue.start_time_unix_nano, own.start_time_unix_nano);
    assert_eq!(queue.end_time_unix_nano, run.start_time_unix_nano);
    assert_eq!(run.end_time_unix_nano, own.end_time_unix_nano);
    let given = format!("00-{trace}-{}-01", hex(&own.span_id));
    assert!(response.contains(&given), "the guest got it: {response}");
    let rows = [
        ("http.request.method", "GET"),
        ("url.path", "/cart"),
        ("url.query", "item=1"),
        ("server.address", "shop.example"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", "55"),
        ("leasehold.tenant", "shop"),
        ("leasehold.outcome", "answered"),
    ];
    for (name, value) in rows {
        assert_eq!(attribute(own, name).as_deref(), Some(value), "{name}");
    }
    let guest_time = attribute(run, "leasehold.guest.time_ns");
    assert_eq!(guest_time.as_deref(), Some("1500000"));
    wait_for(|| exporter.exports().exported == 1, "the count");

    // A trace that begins here is not recorded: the part that was asked for is none.
    let mut client = TcpStream::connect(front.listening()[0].address).expect("connected");
    write!(client, "GET / HTTP/1.0\r\n\r\n").expect("written");
    drop(client);
    wait_for(|| records.lock().expect("records").len() == 2, "its record");
    drop(front);
    let last = exporter.exports();
    assert_eq!((last.exported, last.dropped, last.failed), (1, 0, 0));
}

/// The record of a request that failed, in a trace of its own.
fn record(id: u64) -> Record {
    Record {
        id,
        remote: "127.0.0.1:1".parse().expect("an address"),
        listener: "main".into(),
        tenant: Some("shop".to_owned()),
        method: "BREW".to_owned(),
        authority: String::new(),
        path: "/".to_owned(),
        status: Some(502),
        bytes: 0,
        elapsed: Duration::from_millis(2),
        timing: None,
        trace: Some(Trace {
            trace_id: u128::from(id),
            span_id: id,
            parent: None,
            is_sampled: true,
        }),
        outcome: Outcome::Failed,
        failure: None,
    }
}

#[test]
fn an_end_of_an_exporter_sends_what_waits() {
    let collector = Collector::start();
    let exporter = Exporter::start(&collector.endpoint(), Begin::default()).expect("an exporter");
    (1..=3).for_each(|id| exporter.put(&record(id)));
    let mut unsampled = record(4);
    unsampled.trace = None;
    exporter.put(&unsampled);
    drop(exporter);
    let spans: Vec<Span> = collector.spans();
    assert_eq!(spans.len(), 3);
    // A client's own word for a method does not name a span, and a failure is one.
    assert_eq!(spans[0].name, "HTTP");
    let status = spans[0].status.as_ref().expect("a status");
    assert_eq!(status.code, 2);
    assert!(spans[0].parent_span_id.is_empty());
    assert_eq!(
        attribute(&spans[0], "error.type").as_deref(),
        Some("failed")
    );
}

#[test]
fn a_request_that_a_guest_sent_is_a_span_of_a_client() {
    let collector = Collector::start();
    let exporter = Exporter::start(&collector.endpoint(), Begin::default()).expect("an exporter");
    let answered = Sent {
        tenant: "shop".to_owned(),
        span: TraceParent {
            trace_id: 7,
            span_id: 8,
            is_sampled: true,
        },
        parent: 9,
        method: "GET".to_owned(),
        url: "http://a.example:81/b?c".to_owned(),
        host: "a.example".to_owned(),
        port: Some(81),
        status: Some(200),
        elapsed: Duration::from_millis(2),
        failure: None,
    };
    let failed = Sent {
        status: None,
        failure: Some(CallError::Refused),
        ..answered.clone()
    };
    exporter.put_sent(&answered);
    exporter.put_sent(&failed);
    drop(exporter);
    let spans = collector.spans();
    let [answered, failed] = &spans[..] else {
        panic!("{} spans", spans.len())
    };
    assert_eq!(
        (answered.kind(), &*answered.name),
        (SpanKind::Client, "GET")
    );
    assert_eq!(answered.trace_id, 7_u128.to_be_bytes());
    assert_eq!(answered.span_id, 8_u64.to_be_bytes());
    assert_eq!(answered.parent_span_id, 9_u64.to_be_bytes());
    let took = answered.end_time_unix_nano - answered.start_time_unix_nano;
    assert_eq!(took, 2_000_000);
    let rows = [
        ("http.request.method", "GET"),
        ("url.full", "http://a.example:81/b?c"),
        ("server.address", "a.example"),
        ("server.port", "81"),
        ("http.response.status_code", "200"),
        ("leasehold.tenant", "shop"),
    ];
    for (name, value) in rows {
        assert_eq!(attribute(answered, name).as_deref(), Some(value), "{name}");
    }
    let code = |span: &Span| span.status.as_ref().map(|status| status.code);
    assert_eq!(code(failed), Some(2));
    assert_ne!(code(answered), Some(2));
    let error = attribute(failed, "error.type");
    assert_eq!(error.as_deref(), Some("the connection was refused"));
}

#[test]
fn what_a_collector_does_not_take_is_dropped_and_counted_and_holds_nothing_up() {
    // A collector that accepts and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let endpoint = Endpoint::parse(&format!("http://{address}")).expect("an endpoint");
    let exporter = Exporter::start(&endpoint, Begin::default()).expect("an exporter");
    (1..=5000).for_each(|id| exporter.put(&record(id)));
    let Exports { dropped, .. } = exporter.exports();
    // The queue, and the batch that is being sent.
    assert!(
        (5000 - 1024 - 128..=5000 - 1024).contains(&dropped),
        "{dropped}"
    );
    drop(listener);
    let counters = || exporter.exports();
    wait_for(
        || counters().failed + counters().dropped == 5000,
        "the rest fails",
    );
    assert_eq!(counters().exported, 0);
}
