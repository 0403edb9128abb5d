//! Sockets of a guest that listen, and the connections that clients of this machine make to them.

mod support;

use leasehold_exchange::{
    ADDRESS, CallError, CallKind, CallOutcome, ClientHalf, ConnectionOptions, Failure, Outlet, PEER,
};
use leasehold_lease::Outgoing as Lease;
use leasehold_outgoing::{Bound, Options, Outgoing, OutgoingError, Resolver, Trust};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use support::{call, ended_by, lease, status, wait};

const OPTIONS: ConnectionOptions = ConnectionOptions {
    keep_alive: None,
    hop_limit: 9,
};

/// An address of this machine that is free.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    listener.local_addr().expect("an address")
}

/// The thread, with the sockets of these leases.
fn begin(leases: &[Lease]) -> Outgoing {
    let options = Options {
        resolver: Some(Resolver::of("", "")),
        bound: Bound::open(leases).expect("bound"),
        ..Options::default()
    };
    let trust = Trust::load(leases).expect("no certificates");
    Outgoing::start(trust, options).expect("started")
}

fn listen(outlet: &Outlet, at: SocketAddr) -> ClientHalf {
    listen_with(outlet, at, 4)
}

fn listen_with(outlet: &Outlet, at: SocketAddr, backlog: u32) -> ClientHalf {
    let kind = CallKind::Listen {
        at,
        backlog,
        hop_limit: 9,
    };
    call(outlet, kind)
}

fn accept(outlet: &Outlet, at: SocketAddr) -> ClientHalf {
    let options = OPTIONS;
    call(outlet, CallKind::Accept { at, options })
}

/// What a head says of an address.
fn told(client: &ClientHalf, name: &str) -> Option<SocketAddr> {
    let fields = &client.head().expect("there").fields;
    let (_, address) = fields.iter().find(|(field, _)| *field == name)?;
    std::str::from_utf8(address).ok()?.parse().ok()
}

/// All that comes.
fn read(client: &mut ClientHalf) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    while let Some(bytes) = wait(|context| client.poll_read(context, 5000))? {
        all.extend(bytes);
    }
    Ok(all)
}

fn refused(at: SocketAddr) -> bool {
    let connected = TcpStream::connect(at).map_err(|error| error.kind());
    matches!(connected, Err(io::ErrorKind::ConnectionRefused))
}

#[test]
fn each_connection_to_a_socket_that_listens_is_that_of_one_call_in_the_order_in_which_they_came() {
    let at = free();
    let lease = lease(&format!("listen = [\"{at}\"]"));
    let outgoing = begin(std::slice::from_ref(&lease));
    let outlet = outgoing.open("a", None, &lease).expect("opened");
    assert!(refused(at), "it does not listen yet");
    let mut socket = listen(&outlet, at);
    assert_eq!(status(&mut socket), Ok(200));
    assert_eq!(told(&socket, ADDRESS), Some(at));
    for number in 0..20_u8 {
        let mut peer = TcpStream::connect(at).expect("connected");
        peer.write_all(&[number; 1000]).expect("written");
        let mut connection = accept(&outlet, at);
        assert_eq!(status(&mut connection), Ok(200));
        assert_eq!(told(&connection, ADDRESS), Some(at));
        assert_eq!(told(&connection, PEER), peer.local_addr().ok());
        let written = wait(|context| connection.poll_write(context, b"hello"));
        assert_eq!(written, Ok(5));
        connection.finish_body(None);
        let mut got = Vec::new();
        peer.read_to_end(&mut got).expect("read");
        assert_eq!(got, b"hello");
        drop(peer);
        assert_eq!(read(&mut connection), Ok(vec![number; 1000]));
    }
    drop(socket);
    ended_by(&outlet, CallOutcome::Answered);
}

#[test]
fn a_socket_that_was_dropped_listens_no_more_and_its_address_is_free() {
    let at = free();
    let lease = lease(&format!("listen = [\"{at}\"], concurrency = 3"));
    let outgoing = begin(std::slice::from_ref(&lease));
    let outlet = outgoing.open("a", None, &lease).expect("opened");
    for _ in 0..20 {
        let mut socket = listen(&outlet, at);
        assert_eq!(status(&mut socket), Ok(200));
        let mut connection = accept(&outlet, at);
        let mut peer = TcpStream::connect(at).expect("connected");
        assert_eq!(status(&mut connection), Ok(200));
        // It waits when the socket is dropped.
        let mut waiting = accept(&outlet, at);
        drop(socket);
        assert_eq!(
            status(&mut waiting),
            Err(Failure::Call(CallError::Terminated))
        );
        assert!(refused(at));
        // What was accepted goes on.
        peer.write_all(b"x").expect("written");
        drop(peer);
        assert_eq!(read(&mut connection), Ok(b"x".to_vec()));
    }
}

#[test]
fn a_tenant_listens_where_its_lease_says_and_only_one_socket_does_at_a_time() {
    let (at, other) = (free(), free());
    let (a, b) = (
        lease(&format!("listen = [\"{at}\"]")),
        lease(&format!("listen = [\"{other}\"]")),
    );
    let outgoing = begin(&[a.clone(), b.clone()]);
    let outlet = outgoing.open("a", None, &a).expect("opened");
    let outlet_b = outgoing.open("b", None, &b).expect("opened");
    let denied = Err(Failure::Call(CallError::Denied));
    assert_eq!(status(&mut listen(&outlet, other)), denied);
    assert_eq!(status(&mut listen(&outlet_b, at)), denied);
    assert_eq!(status(&mut listen(&outlet, free())), denied);
    // Nor does it get what comes to another's.
    let mut socket = listen(&outlet_b, other);
    assert_eq!(status(&mut socket), Ok(200));
    let not_there = Err(Failure::Call(CallError::Terminated));
    assert_eq!(status(&mut accept(&outlet, other)), not_there);
    let mut socket = listen(&outlet, at);
    assert_eq!(status(&mut socket), Ok(200));
    let in_use = Err(Failure::Call(CallError::NoPort));
    assert_eq!(status(&mut listen(&outlet, at)), in_use);
}

#[test]
fn the_successor_of_a_tenant_waits_for_its_address_and_what_the_tenant_had_is_closed() {
    let at = free();
    let lease = lease(&format!("listen = [\"{at}\"]"));
    let outgoing = begin(std::slice::from_ref(&lease));
    for _ in 0..10 {
        let outlet = outgoing.open("a", None, &lease).expect("opened");
        let successor = outgoing.open("a", None, &lease).expect("opened");
        let mut socket = listen(&outlet, at);
        assert_eq!(status(&mut socket), Ok(200));
        let mut first = accept(&outlet, at);
        let mut peer = TcpStream::connect(at).expect("connected");
        assert_eq!(status(&mut first), Ok(200));
        let mut next = listen(&successor, at);
        thread::sleep(Duration::from_millis(20));
        drop(outlet);
        assert_eq!(status(&mut next), Ok(200));
        assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)));
        let mut second = accept(&successor, at);
        let _peer = TcpStream::connect(at).expect("connected");
        assert_eq!(status(&mut second), Ok(200));
    }
}

#[test]
fn clients_beyond_the_places_of_a_lease_wait_and_no_more_than_those_are_held() {
    let at = free();
    let lease = lease(&format!("listen = [\"{at}\"], concurrency = 2"));
    let outgoing = begin(std::slice::from_ref(&lease));
    let outlet = outgoing.open("a", None, &lease).expect("opened");
    let mut socket = listen_with(&outlet, at, 1000);
    assert_eq!(status(&mut socket), Ok(200));
    // The kernel holds the two of the lease and one more.
    let connect = || TcpStream::connect_timeout(&at, Duration::from_millis(300));
    let peers: Vec<_> = (0..6).map(|_| connect()).collect();
    let held = peers.iter().filter(|peer| peer.is_ok()).count();
    assert_eq!(held, 3);
    let mut first = accept(&outlet, at);
    assert_eq!(status(&mut first), Ok(200));
    let mut next = TcpStream::connect(at).expect("there is room again");
    next.write_all(b"x").expect("written");
}

#[test]
fn an_address_at_which_another_program_listens_is_refused_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let at = taken.local_addr().expect("an address");
    let absent: SocketAddr = "192.0.2.1:7000".parse().expect("an address");
    for (address, kind) in [
        (at, io::ErrorKind::AddrInUse),
        (absent, io::ErrorKind::AddrNotAvailable),
    ] {
        let lease = lease(&format!("listen = [\"{address}\"]"));
        match Bound::open([&lease]) {
            Err(OutgoingError::Address { source, .. }) => assert_eq!(source.kind(), kind),
            other => panic!("{other:?}"),
        }
    }
    // One whose connections have just ended is not in the way.
    drop(TcpStream::connect(at).expect("connected"));
    drop(taken.accept().expect("accepted"));
    drop(taken);
    let lease = lease(&format!("listen = [\"{at}\"]"));
    drop(Bound::open([&lease]).expect("free"));
}

#[test]
fn a_call_that_waits_for_a_connection_is_over_when_the_guest_gives_it_up() {
    let at = free();
    let lease = lease(&format!("listen = [\"{at}\"], concurrency = 2"));
    let outgoing = begin(std::slice::from_ref(&lease));
    let outlet = outgoing.open("a", None, &lease).expect("opened");
    let mut socket = listen(&outlet, at);
    assert_eq!(status(&mut socket), Ok(200));
    for number in 1..=10 {
        drop(accept(&outlet, at));
        let until = Instant::now() + Duration::from_secs(10);
        while outlet.outbox().ended_by(CallOutcome::Abandoned) < number {
            assert!(Instant::now() < until, "not over");
            thread::sleep(Duration::from_millis(1));
        }
    }
    let mut peer = TcpStream::connect(at).expect("connected");
    peer.write_all(b"x").expect("written");
    let mut connection = accept(&outlet, at);
    assert_eq!(status(&mut connection), Ok(200));
    drop(peer);
    let began = Instant::now();
    assert_eq!(read(&mut connection), Ok(b"x".to_vec()));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_connection_that_the_guest_never_had_is_reset_and_one_that_it_dropped_has_ended() {
    let at = free();
    let lease = lease(&format!("listen = [\"{at}\"]"));
    let outgoing = begin(std::slice::from_ref(&lease));
    let outlet = outgoing.open("a", None, &lease).expect("opened");
    let mut socket = listen(&outlet, at);
    assert_eq!(status(&mut socket), Ok(200));
    let came = || {
        let peer = TcpStream::connect(at).expect("connected");
        let mut connection = accept(&outlet, at);
        assert_eq!(status(&mut connection), Ok(200));
        (peer, connection)
    };
    let end = |mut peer: TcpStream| peer.read(&mut [0]).map_err(|error| error.kind());
    let (peer, connection) = came();
    // As the cell does with one that nothing accepted.
    drop(connection);
    assert_eq!(end(peer), Err(io::ErrorKind::ConnectionReset));
    let (peer, mut connection) = came();
    connection.finish_body(None);
    drop(connection);
    assert_eq!(end(peer), Ok(0));
}

#[test]
fn the_kernels_buffers_of_a_connection_that_comes_are_as_large_as_the_window() {
    for (window, bytes) in [("4KiB", 4 << 10), ("128KiB", 128 << 10)] {
        let at = free();
        let lease = lease(&format!("listen = [\"{at}\"], window = \"{window}\""));
        let outgoing = begin(std::slice::from_ref(&lease));
        let outlet = outgoing.open("a", None, &lease).expect("opened");
        let mut socket = listen(&outlet, at);
        assert_eq!(status(&mut socket), Ok(200));
        let mut peer = TcpStream::connect(at).expect("connected");
        peer.set_nonblocking(true).expect("set");
        // Nothing takes the connection, so that what the kernel takes is what it holds, on both sides.
        let mut sent = 0;
        let mut quiet = 0;
        while quiet < 20 {
            match peer.write(&[0; 4096]) {
                Ok(written) => (sent, quiet) = (sent + written, 0),
                Err(_) => {
                    quiet += 1;
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
        let own = rustix::net::sockopt::socket_send_buffer_size(&peer).expect("a size");
        assert!(
            sent < own + 3 * bytes,
            "{sent} with {own} of the client's own"
        );
    }
}
