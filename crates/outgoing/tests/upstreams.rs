//! Hosts that break HTTP, and what a guest sees of them.

mod support;

use leasehold_exchange::{CallError, ClientHalf, Failure};
use leasehold_outgoing::{Options, Outgoing, Trust};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use support::{lease, send, status, wait};

/// A host that answers one request with these bytes, and closes its connection.
fn host(answer: &str) -> u16 {
    let answer = answer.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
            request.push(byte[0]);
        }
        let _ = stream.write_all(answer.as_bytes());
    });
    port
}

/// Sends a request to such a host, and runs `look` on the guest's half.
fn ask<T>(answer: &str, look: impl FnOnce(&mut ClientHalf) -> T) -> T {
    let port = host(answer);
    let lease = lease(&format!("allow = [\"http://127.0.0.1:{port}\"]"));
    let trust = Trust::load([&lease]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let outlet = outgoing.open("a", None, &lease).expect("open");
    look(&mut send(&outlet, &format!("127.0.0.1:{port}"), false))
}

#[test]
fn what_came_before_a_cut_is_read_before_the_error() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc";
    ask(cut, |client| {
        assert_eq!(status(client), Ok(200));
        // The host has gone long ago when the guest reads.
        thread::sleep(std::time::Duration::from_millis(100));
        let first = wait(|context| client.poll_read(context, 100));
        assert_eq!(first, Ok(Some(b"abc".to_vec())));
        let then = wait(|context| client.poll_read(context, 100));
        assert_eq!(then, Err(Failure::Call(CallError::Incomplete)));
    });
}

#[test]
fn a_host_sends_few_informational_responses_before_its_answer_and_none_without_end() {
    for (heads, expected) in [
        (64, Ok(200)),
        (65, Err(Failure::Call(CallError::Protocol))),
        (5_000, Err(Failure::Call(CallError::Protocol))),
    ] {
        let answer = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(heads)
            + "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        ask(&answer, |client| {
            assert_eq!(status(client), expected, "{heads} before the answer");
        });
    }
}

#[test]
fn a_guest_sees_no_length_that_does_not_frame_the_body() {
    let both = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 99\r\n\r\n\
                3\r\nabc\r\n0\r\ncontent-length: 7\r\nhost: x\r\ndigest: 1\r\n\r\n";
    ask(both, |client| {
        assert_eq!(status(client), Ok(200));
        let fields = &client.head().expect("a head").fields;
        assert_eq!(fields.get("content-length"), None);
        let body = wait(|context| client.poll_read(context, 100));
        assert_eq!(body, Ok(Some(b"abc".to_vec())));
        assert_eq!(wait(|context| client.poll_read(context, 100)), Ok(None));
        let trailers = client.trailers().expect("trailers");
        assert_eq!(trailers.iter().collect::<Vec<_>>(), [("digest", &b"1"[..])]);
    });
    let stated = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
    ask(stated, |client| {
        assert_eq!(status(client), Ok(200));
        let fields = &client.head().expect("a head").fields;
        assert_eq!(fields.get("content-length"), Some(&b"3"[..]));
    });
}

#[test]
fn a_guest_does_not_see_what_the_host_says_of_the_connection() {
    let named = "HTTP/1.1 200 OK\r\nconnection: close, X-Y\r\nconnection: z\r\nx-y: 1\r\nZ: 2\r\n\
                 x-z: 3\r\ncontent-length: 0\r\n\r\n";
    ask(named, |client| {
        assert_eq!(status(client), Ok(200));
        let fields = &client.head().expect("a head").fields;
        assert_eq!((fields.get("x-y"), fields.get("z")), (None, None));
        assert_eq!(fields.get("x-z"), Some(&b"3"[..]));
    });
}

#[test]
fn a_guest_does_not_take_a_coding_that_it_does_not_see_for_the_body() {
    for coding in ["gzip, chunked", "gzip"] {
        let answer = format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        );
        ask(answer.leak(), |client| {
            assert_eq!(
                status(client),
                Err(Failure::Call(CallError::Coding)),
                "{coding}"
            );
        });
    }
    ask(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        |client| assert_eq!(status(client), Ok(200)),
    );
}
