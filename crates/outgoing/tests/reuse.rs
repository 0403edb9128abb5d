//! Many requests of a tenant, one after the other.

mod support;

use leasehold_exchange::{ClientHalf, Failure};
use leasehold_outgoing::{Options, Outgoing, Trust};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use support::{lease, send, status, wait};

/// A host that answers requests with chunked bodies on connections that stay.
fn host() -> (u16, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let connections = Arc::new(AtomicU32::new(0));
    let count = connections.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_nodelay(true);
            thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                // A request whose body is empty has none.
                while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                    if line.ends_with("\r\n\r\n") {
                        line.clear();
                        let out = stream.get_mut();
                        let _ = out.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n");
                        let _ = out.write_all(&[b'.'; 5000]);
                    }
                }
            });
        }
    });
    (port, connections)
}

/// A host that answers the first request of each connection, and resets the connection at the second.
fn resetting_host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut head = [0; 1024];
                let _ = stream.read(&mut head);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n");
                let _ = stream.write_all(&[b'.'; 5000]);
                // A request that was not read when a socket is closed makes the kernel reset it.
                while stream.peek(&mut head).is_ok_and(|waits| waits == 0) {}
            });
        }
    });
    port
}

fn read(client: &mut ClientHalf) -> Result<usize, Failure> {
    status(client)?;
    let mut bytes = 0;
    while let Some(part) = wait(|context| client.poll_read(context, 4096))? {
        bytes += part.len();
    }
    Ok(bytes)
}

#[test]
fn requests_one_after_the_other_are_sent_on_one_connection() {
    let (port, connections) = host();
    let lease = lease(&format!(
        "allow = [\"http://127.0.0.1:{port}\"], concurrency = 1"
    ));
    let trust = Trust::load([&lease]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let outlet = outgoing.open("a", None, &lease).expect("open");
    for number in 0..1000 {
        let mut client = send(&outlet, &format!("127.0.0.1:{port}"), true);
        // The body ends before the request is taken, or after.
        if number % 2 == 0 {
            thread::yield_now();
        }
        client.finish_body(None);
        assert_eq!(read(&mut client), Ok(5000), "request {number}");
    }
    let made = connections.load(Ordering::SeqCst);
    assert!(made < 50, "{made} connections");
}

#[test]
fn a_request_that_may_be_sent_twice_is_when_an_idle_connection_is_reset() {
    let port = resetting_host();
    let lease = lease(&format!(
        "allow = [\"http://127.0.0.1:{port}\"], concurrency = 1"
    ));
    let trust = Trust::load([&lease]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let outlet = outgoing.open("a", None, &lease).expect("open");
    for number in 0..50 {
        let mut client = send(&outlet, &format!("127.0.0.1:{port}"), true);
        client.finish_body(None);
        assert_eq!(read(&mut client), Ok(5000), "request {number}");
    }
}
