//! Hosts that send without end, and the requests of another tenant beside them.

mod support;

use leasehold_exchange::{CallError, Failure};
use leasehold_outgoing::{Options, Outgoing, Trust};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use support::{lease, send, status, wait};

/// A host that does this with each connection, after the head of a request.
fn host(answer: impl Fn(&mut TcpStream) + Copy + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
                    answer(&mut stream);
                }
            });
        }
    });
    port
}

#[test]
fn hosts_that_send_informational_heads_without_end_delay_no_other_tenant() {
    const CALLS: usize = 64;
    let flooding = host(|stream| {
        let heads = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(2000);
        while stream.write_all(&heads).is_ok() {}
    });
    let modest = host(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let hostile = lease(&format!(
        "allow = [\"http://127.0.0.1:{flooding}\"], concurrency = {CALLS}, timeout = \"20s\""
    ));
    // What takes longer fails.
    let other = lease(&format!(
        "allow = [\"http://127.0.0.1:{modest}\"], timeout = \"1s\""
    ));
    let trust = Trust::load([&hostile, &other]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let (flooded, quiet) = (
        outgoing.open("a", None, &hostile).expect("open"),
        outgoing.open("a", None, &other).expect("open"),
    );
    let to_flood = format!("127.0.0.1:{flooding}");
    let mut calls: Vec<_> = (0..CALLS)
        .map(|_| send(&flooded, &to_flood, false))
        .collect();
    let to_modest = format!("127.0.0.1:{modest}");
    for number in 0..100 {
        let answer = status(&mut send(&quiet, &to_modest, false));
        assert_eq!(answer, Ok(200), "request {number}");
    }
    for call in &mut calls {
        let ended = status(call);
        assert_eq!(ended, Err(Failure::Call(CallError::Protocol)));
    }
    let charged = |outlet: &leasehold_exchange::Outlet| outlet.outbox().take_charged();
    let (theirs, own) = (charged(&flooded), charged(&quiet));
    assert!(theirs > own, "the flood is charged: {theirs} and {own} ns");
}

#[test]
fn the_end_of_a_tenant_closes_connections_that_are_flooded() {
    static OPEN: AtomicU64 = AtomicU64::new(0);
    let flooding = host(|stream| {
        OPEN.fetch_add(1, Ordering::SeqCst);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'a'; 4096]).is_ok() {}
        OPEN.fetch_sub(1, Ordering::SeqCst);
    });
    let hostile = lease(&format!(
        "allow = [\"http://127.0.0.1:{flooding}\"], concurrency = 8, timeout = \"20s\""
    ));
    let trust = Trust::load([&hostile]).expect("nothing is read");
    let outgoing = Arc::new(Outgoing::start(trust, Options::default()).expect("started"));
    let outlet = outgoing.open("a", None, &hostile).expect("open");
    let authority = format!("127.0.0.1:{flooding}");
    let mut calls: Vec<_> = (0..8).map(|_| send(&outlet, &authority, false)).collect();
    while OPEN.load(Ordering::SeqCst) < 8 {
        thread::yield_now();
    }
    assert_eq!(status(&mut calls[0]), Ok(200));
    outlet.outbox().close();
    let ended = loop {
        match wait(|context| calls[0].poll_read(context, 4096)) {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    assert!(
        matches!(
            ended,
            Err(Failure::Call(CallError::Abandoned) | Failure::Ended)
        ),
        "{ended:?}"
    );
    let began = std::time::Instant::now();
    while OPEN.load(Ordering::SeqCst) > 0 {
        assert!(began.elapsed().as_secs() < 5, "they stay open");
        thread::yield_now();
    }
}
