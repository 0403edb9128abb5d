//! Names whose owner points them at this machine: through a name server of the test's own.

mod support;

use leasehold_exchange::{CallError, Failure};
use leasehold_outgoing::{Options, Outgoing, Resolver, Trust};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use support::{lease, send, status};

/// A name server that says that each name is this machine, and how many questions it got.
fn name_server() -> (SocketAddr, Arc<AtomicU32>) {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = server.local_addr().expect("an address");
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((length, client)) = server.recv_from(&mut message) {
            count.fetch_add(1, Ordering::SeqCst);
            let mut answer = message[..length].to_vec();
            answer[2] = 0x81;
            if answer[length - 3] == 1 {
                answer[7] = 1;
                answer.extend([192, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
            }
            server.send_to(&answer, client).expect("sent");
        }
    });
    (address, asked)
}

/// A host that answers each connection once, and how many there were.
fn host() -> (u16, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let connections = Arc::new(AtomicU32::new(0));
    let count = connections.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    (port, connections)
}

#[test]
fn a_name_that_its_owner_points_at_this_machine_is_not_connected_to() {
    let (server, asked) = name_server();
    let (port, connections) = host();
    let public = lease(&format!("allow = [\"http://*.example:{port}\"]"));
    let private = lease(&format!("allow_private = [\"http://*.example:{port}\"]"));
    let options = Options {
        resolver: Some(Resolver::default().with_servers(&[server])),
        ..Options::default()
    };
    let trust = Trust::load([&public, &private]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, options).expect("started");
    let authority = format!("rebound.example:{port}");

    let outlet = outgoing.open("a", None, &public).expect("open");
    let refused = status(&mut send(&outlet, &authority, false));
    assert_eq!(refused, Err(Failure::Call(CallError::Prohibited)));
    assert_eq!(connections.load(Ordering::SeqCst), 0);
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    // The address of the one look-up is that of the connection.
    let outlet = outgoing.open("a", None, &private).expect("open");
    assert_eq!(status(&mut send(&outlet, &authority, false)), Ok(200));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    assert!(outlet.outbox().take_charged() > 0);

    // Certificates that were not read at the start are not read later.
    assert!(
        outgoing
            .open("a", None, &lease("allow = [\"https://a.example\"]"))
            .is_err()
    );
}
