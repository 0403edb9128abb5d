//! Datagrams that a guest exchanges with hosts on this machine.

mod support;

use leasehold_exchange::{
    ADDRESS, CallError, CallKind, CallOutcome, ClientHalf, Failure, Frame, Outlet, datagram_bytes,
};
use leasehold_outgoing::{LocalPorts, Options, Outgoing, Resolver, Trust};
use std::net::{SocketAddr, UdpSocket};
use std::task::Poll;
use std::time::{Duration, Instant};
use support::{call, ended_by, lease, status, wait};

/// The thread, and the outlet of a tenant with this `outgoing` table.
fn begin(table: &str) -> (Outgoing, Outlet) {
    let lease = lease(table);
    let options = Options {
        resolver: Some(Resolver::of("127.0.0.1 dns.example\n", "")),
        ..Options::default()
    };
    let trust = Trust::load([&lease]).expect("no certificates");
    let outgoing = Outgoing::start(trust, options).expect("started");
    let outlet = outgoing.open("a", None, &lease).expect("opened");
    (outgoing, outlet)
}

/// A host, and its address.
fn host() -> (UdpSocket, SocketAddr) {
    let host = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let patience = Some(Duration::from_secs(20));
    host.set_read_timeout(patience).expect("a limit");
    let address = host.local_addr().expect("an address");
    (host, address)
}

fn bind(outlet: &Outlet, to: &str) -> ClientHalf {
    let to = to.parse().expect("an address");
    call(outlet, CallKind::Bind { to, hop_limit: 64 })
}

/// A guest's socket that is bound, and its address.
fn bound(outlet: &Outlet) -> (ClientHalf, SocketAddr) {
    let mut client = bind(outlet, "127.0.0.1:0");
    assert_eq!(status(&mut client), Ok(200));
    let head = client.head().expect("there");
    let (name, address) = head.fields.iter().next().expect("one");
    assert_eq!(name, ADDRESS);
    let address = String::from_utf8_lossy(address).parse();
    (client, address.expect("an address"))
}

fn write(client: &mut ClientHalf, frame: Frame, bytes: &[u8]) {
    wait(|context| client.poll_frame_room(context));
    assert_eq!(client.write_frames(&[(frame, bytes)]), Ok(1));
}

/// The next frame for the guest.
fn read(client: &mut ClientHalf) -> Result<(Frame, Vec<u8>), Failure> {
    wait(|context| match client.read_frame() {
        Ok(Some(frame)) => Poll::Ready(Ok(frame)),
        Ok(None) if client.poll_readable(context).is_ready() => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Ok(None) => Poll::Pending,
        Err(failure) => Poll::Ready(Err(failure)),
    })
}

#[test]
fn datagrams_arrive_as_they_were_sent_in_both_directions() {
    let (host, address) = host();
    let (_outgoing, outlet) = begin(&format!("allow = [\"udp://{address}\"]"));
    let (mut client, own) = bound(&outlet);
    let largest = vec![7; datagram_bytes(64 << 10)];
    for bytes in [&b"a question"[..], b"", &largest] {
        write(&mut client, Frame::Datagram(address), bytes);
        let mut got = vec![0; 100_000];
        let (size, from) = host.recv_from(&mut got).expect("arrived");
        assert!(got[..size] == *bytes && from == own);
        host.send_to(bytes, own).expect("answered");
        let (frame, answer) = read(&mut client).expect("an answer");
        assert!(frame == Frame::Datagram(address) && answer == bytes);
    }
}

#[test]
fn what_the_lease_does_not_name_is_sent_nothing_and_heard_from_by_nobody() {
    let (host, address) = host();
    let (other, elsewhere) = self::host();
    let (_outgoing, outlet) = begin(&format!(
        "allow = [\"udp://{address}\", \"tcp://{elsewhere}\"]"
    ));
    let (mut client, own) = bound(&outlet);
    for frame in [Frame::Datagram(elsewhere), Frame::Peer(Some(elsewhere))] {
        write(&mut client, frame, b"");
        let denied = Frame::Failed(CallError::Denied);
        assert_eq!(read(&mut client), Ok((denied, Vec::new())));
    }
    other.send_to(b"unasked", own).expect("sent");
    host.send_to(b"asked", own).expect("sent");
    let (frame, bytes) = read(&mut client).expect("one");
    assert_eq!(
        (frame, &bytes[..]),
        (Frame::Datagram(address), &b"asked"[..])
    );
    other.set_nonblocking(true).expect("set");
    assert!(other.recv_from(&mut [0]).is_err(), "nothing came");
}

#[test]
fn a_tenant_without_a_destination_of_datagrams_has_no_socket_and_no_address_of_others_is_bound() {
    let (_outgoing, outlet) = begin("allow = [\"tcp://127.0.0.1:53\"]");
    let mut client = bind(&outlet, "0.0.0.0:0");
    assert_eq!(status(&mut client), Err(Failure::Call(CallError::Denied)));
    let (_outgoing, outlet) = begin("allow = [\"udp://127.0.0.1:53\"]");
    let mut client = bind(&outlet, "192.0.2.1:0");
    let unreachable = Err(Failure::Call(CallError::Unreachable));
    assert_eq!(status(&mut client), unreachable);
}

#[test]
fn a_name_that_was_looked_up_can_be_sent_to() {
    let (host, address) = host();
    let table = format!("allow_private = [\"udp://dns.example:{}\"]", address.port());
    let (_outgoing, outlet) = begin(&table);
    let (mut client, _) = bound(&outlet);
    write(&mut client, Frame::Datagram(address), b"too early");
    let denied = Frame::Failed(CallError::Denied);
    assert_eq!(read(&mut client), Ok((denied, Vec::new())));
    let name = "dns.example".into();
    let mut look_up = call(&outlet, CallKind::LookUp { name });
    assert_eq!(status(&mut look_up), Ok(200));
    write(&mut client, Frame::Datagram(address), b"now");
    let mut got = [0; 16];
    let (size, _) = host.recv_from(&mut got).expect("arrived");
    assert_eq!(got[..size], *b"now");
}

#[test]
fn a_socket_with_a_peer_hears_that_there_is_nobody_and_without_one_it_goes_on() {
    let (gone, nowhere) = host();
    drop(gone);
    let (host, address) = host();
    let (_outgoing, outlet) = begin(&format!(
        "allow = [\"udp://{address}\", \"udp://{nowhere}\"]"
    ));
    let (mut client, own) = bound(&outlet);
    write(&mut client, Frame::Peer(Some(nowhere)), b"");
    write(&mut client, Frame::Datagram(nowhere), b"hello?");
    let refused = Frame::Failed(CallError::Refused);
    assert_eq!(read(&mut client), Ok((refused, Vec::new())));
    write(&mut client, Frame::Peer(None), b"");
    write(&mut client, Frame::HopLimit(3), b"");
    write(&mut client, Frame::Datagram(address), b"hello");
    let (_, from) = host.recv_from(&mut [0; 16]).expect("arrived");
    assert_eq!(from, own);
}

#[test]
fn what_was_sent_before_the_socket_was_dropped_arrives_and_a_flood_of_others_is_dropped() {
    let (host, address) = host();
    let table = format!("allow = [\"udp://{address}\"], concurrency = 1, window = \"4KiB\"");
    let (_outgoing, outlet) = begin(&table);
    let (mut client, own) = bound(&outlet);
    // The guest reads nothing.
    for _ in 0..1000 {
        host.send_to(&[1; 1000], own).expect("sent");
    }
    for number in 0..10 {
        write(&mut client, Frame::Datagram(address), &[number]);
    }
    client.finish_body(None);
    drop(client);
    for number in 0..10 {
        let mut got = [0; 16];
        host.recv_from(&mut got).expect("arrived");
        assert_eq!(got[0], number);
    }
    // Its place is free again.
    let (client, _) = bound(&outlet);
    drop(client);
    ended_by(&outlet, CallOutcome::Answered);
}

#[test]
fn a_tenant_has_no_more_local_ports_of_datagrams_than_it_leaves_to_others() {
    let (host, address) = host();
    let lease = lease(&format!("allow = [\"udp://{address}\"], concurrency = 64"));
    // 24 are shared out, half of them to those that come first.
    let options = Options {
        ports: LocalPorts::of("1 64").expect("ports"),
        ..Options::default()
    };
    let trust = Trust::load([&lease]).expect("no certificates");
    let outgoing = Outgoing::start(trust, options).expect("started");
    let open = |name: &str| outgoing.open(name, None, &lease).expect("opened");
    let (greedy, other) = (open("a"), open("b"));
    let mut sockets: Vec<_> = (0..64).map(|_| bind(&greedy, "127.0.0.1:0")).collect();
    let (made, refused): (Vec<_>, Vec<_>) = sockets
        .iter_mut()
        .map(status)
        .partition(|status| status.is_ok());
    assert_eq!(made.len(), 6);
    let no_port = Err(Failure::Call(CallError::NoPort));
    assert!(refused.iter().all(|refused| *refused == no_port));
    let mut others: Vec<_> = (0..4).map(|_| bound(&other)).collect();
    let (client, own) = &mut others[0];
    write(client, Frame::Datagram(address), b"hello");
    let (_, from) = host.recv_from(&mut [0; 16]).expect("arrived");
    assert_eq!(from, *own);
    // What is given up is there again, soon after.
    drop(sockets);
    ended_by(&greedy, CallOutcome::Abandoned);
    let began = Instant::now();
    while status(&mut bind(&greedy, "127.0.0.1:0")) != Ok(200) {
        assert!(began.elapsed() < Duration::from_secs(20), "it is not");
        std::thread::yield_now();
    }
}
