//! Requests of guests in traces: what the host that gets one sees, and the record of it.

mod support;

use leasehold_exchange::{
    CallError, CallKind, CallTimeouts, ClientHalf, Failure, Fields, Outlet, RequestHead,
    TRACEPARENT, TraceParent,
};
use leasehold_outgoing::{Options, Outgoing, Sent, Trust};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use support::{call, lease, status};

/// The field of each request that a host gets.
fn host() -> (u16, mpsc::Receiver<Option<TraceParent>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let (sender, got) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n")
                && stream.read(&mut byte).is_ok_and(|read| read > 0)
            {
                request.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&request).into_owned();
            let named = head
                .lines()
                .find_map(|line| line.strip_prefix("traceparent: "));
            let _ = sender.send(named.and_then(|named| TraceParent::parse(named.as_bytes())));
            let _ = stream.write_all(
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
    });
    (port, got)
}

/// Sends a request that names a span, perhaps, within what it answers.
fn send(
    outlet: &Outlet,
    authority: &str,
    named: Option<TraceParent>,
    answers: Option<TraceParent>,
) -> ClientHalf {
    let mut fields = Fields::new(1024);
    if let Some(named) = named {
        let named = named.to_string();
        fields.push(TRACEPARENT, named.as_bytes()).expect("room");
    }
    let head = RequestHead {
        method: "GET".into(),
        authority: authority.into(),
        path_with_query: "/a?b".into(),
        fields,
        ..RequestHead::empty()
    };
    let kind = CallKind::Request {
        head,
        has_body: false,
        timeouts: CallTimeouts::default(),
        answers,
    };
    let mut client = call(outlet, kind);
    client.finish_body(None);
    client
}

#[test]
fn a_request_is_a_span_within_what_it_answers_or_what_the_guest_names_and_its_host_is_told() {
    let (port, got) = host();
    let lease = lease(&format!(
        "allow = [\"http://127.0.0.1:{port}\", \"http://127.0.0.1:1\"]"
    ));
    let trust = Trust::load([&lease]).expect("nothing is read");
    let (sender, observed) = mpsc::channel::<Sent>();
    let options = Options {
        observer: Some(Arc::new(move |sent| drop(sender.send(sent.clone())))),
        ..Options::default()
    };
    let outgoing = Outgoing::start(trust, options).expect("started");
    let outlet = outgoing.open("shop", None, &lease).expect("open");
    let authority = format!("127.0.0.1:{port}");
    let answered = TraceParent {
        trace_id: 7,
        span_id: 8,
        is_sampled: true,
    };
    let named = TraceParent {
        span_id: 9,
        ..answered
    };
    let unsampled = TraceParent {
        is_sampled: false,
        ..answered
    };
    let patience = Duration::from_secs(20);
    for (named, answers, parent) in [
        (None, Some(answered), 8),
        (Some(named), Some(answered), 9),
        (Some(named), None, 9),
    ] {
        let mut client = send(&outlet, &authority, named, answers);
        assert_eq!(status(&mut client), Ok(404));
        let seen = got.recv_timeout(patience).expect("a request");
        let sent = observed.recv_timeout(patience).expect("a record");
        assert_eq!((sent.parent, Some(sent.span)), (parent, seen));
        assert!(sent.span.trace_id == 7 && sent.span.span_id != parent);
        assert_eq!(sent.url, format!("http://{authority}/a?b"));
        assert_eq!(
            (&*sent.tenant, &*sent.host, sent.port),
            ("shop", "127.0.0.1", Some(port))
        );
        assert_eq!((sent.status, sent.failure), (Some(404), None));
    }
    // What is not recorded is told on as it is, and what is not traced says nothing.
    for (answers, told) in [(Some(unsampled), Some(unsampled)), (None, None)] {
        let mut client = send(&outlet, &authority, None, answers);
        assert_eq!(status(&mut client), Ok(404));
        assert_eq!(got.recv_timeout(patience).expect("a request"), told);
    }
    // One that fails has a span, too.
    let mut client = send(&outlet, "127.0.0.1:1", None, Some(answered));
    let refused = CallError::Refused;
    assert_eq!(status(&mut client), Err(Failure::Call(refused)));
    let sent = observed.recv_timeout(patience).expect("a record");
    assert_eq!((sent.status, sent.failure), (None, Some(refused)));
    assert!(observed.try_recv().is_err(), "there is no other record");
}

#[test]
fn without_an_observer_a_host_is_told_what_the_guest_says_and_no_more() {
    let (port, got) = host();
    let lease = lease(&format!("allow = [\"http://127.0.0.1:{port}\"]"));
    let trust = Trust::load([&lease]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let outlet = outgoing.open("shop", None, &lease).expect("open");
    let parent = TraceParent {
        trace_id: 7,
        span_id: 8,
        is_sampled: true,
    };
    for (named, told) in [(None, None), (Some(parent), Some(parent))] {
        let mut client = send(&outlet, &format!("127.0.0.1:{port}"), named, Some(parent));
        assert_eq!(status(&mut client), Ok(404));
        let seen = got.recv_timeout(Duration::from_secs(20));
        assert_eq!(seen.expect("a request"), told);
    }
}
