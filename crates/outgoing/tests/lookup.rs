//! Names whose owner points them at this machine: through a name server of the test's own.

mod support;

use leasehold_exchange::{CallError, CallKind, Failure};
use leasehold_outgoing::{LocalPorts, Options, Outgoing, Resolver, Trust};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use support::{call, lease, send, status};

/// A name server that says that each name is this machine, but for those of `silent`, and how many questions it got.
fn name_server() -> (SocketAddr, Arc<AtomicU32>) {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = server.local_addr().expect("an address");
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((length, client)) = server.recv_from(&mut message) {
            count.fetch_add(1, Ordering::SeqCst);
            if message[..length].windows(6).any(|part| part == b"silent") {
                continue;
            }
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

#[test]
fn look_ups_that_are_not_answered_leave_local_ports_to_those_of_other_tenants() {
    let (server, _) = name_server();
    let lease = lease("allow_private = [\"tcp://*.example:5\"], concurrency = 64");
    let options = Options {
        resolver: Some(Resolver::default().with_servers(&[server])),
        // 24 are shared out.
        ports: LocalPorts::of("1 64").expect("ports"),
        ..Options::default()
    };
    let trust = Trust::load([&lease]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, options).expect("started");
    let look_up = |outlet, name: &str| {
        let name = format!("{name}.example");
        call(outlet, CallKind::LookUp { name })
    };
    let open = |name: &str| outgoing.open(name, None, &lease).expect("open");
    let (greedy, other) = (open("a"), open("b"));
    let mut asked: Vec<_> = (0..64).map(|_| look_up(&greedy, "silent")).collect();
    let last = asked.last_mut().expect("one");
    assert_eq!(status(last), Err(Failure::Call(CallError::NoPort)));
    assert_eq!(status(&mut look_up(&other, "a")), Ok(200));
}

/// The name of the test below that runs in a network of its own, and what tells it that it does.
const IN_NETWORK: &str = "no_name_leads_to_a_public_address_that_this_machine_has_itself";
const MARK: &str = "LEASEHOLD_TEST_NETWORK";

/// Gives a network three addresses that are public anywhere else: one, a second of the same network, and one of IPv6.
const SETUP: &str = "ip link set lo up && ip link add own type veth peer name far && ip link set own up \
     && ip link set far up && ip addr add 34.5.6.10/24 dev own && ip addr add 34.5.6.11/24 dev own \
     && ip addr add 2a00:1::1/64 dev own nodad";

#[test]
fn no_name_leads_to_a_public_address_that_this_machine_has_itself() {
    if std::env::var_os(MARK).is_some() {
        return no_name_leads_to_own_addresses();
    }
    let in_network = |then: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--", "sh", "-c"]);
        command.arg(format!("{SETUP} {then}")).env(MARK, "1");
        command
    };
    if !in_network("")
        .output()
        .is_ok_and(|made| made.status.success())
    {
        eprintln!("skipped: this host makes no network for a test");
        return;
    }
    let this = std::env::current_exe().expect("a program");
    let mut own = in_network("&& exec \"$0\" --exact \"$1\"");
    let own = own.arg(this).arg(IN_NETWORK).output().expect("run");
    let said = String::from_utf8_lossy(&own.stdout);
    assert!(own.status.success() && said.contains("1 passed"), "{said}");
}

/// Tries all kinds of calls to each address of such a network.
fn no_name_leads_to_own_addresses() {
    let listener = TcpListener::bind("[::]:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let hosts = "34.5.6.10 first.example\n34.5.6.11 second.example\n2a00:1::1 third.example\n34.5.6.12 other.example\n\
                 ::ffff:34.5.6.11 mapped.example\n";
    let protocols = |kind: &str| {
        let all = ["http", "tcp", "udp"].map(|own| format!("\"{own}://*.example:{port}\""));
        lease(&format!("{kind} = [{}]", all.join(", ")))
    };
    let (public, private) = (protocols("allow"), protocols("allow_private"));
    let options = Options {
        resolver: Some(Resolver::of(hosts, "")),
        ..Options::default()
    };
    let trust = Trust::load([&public, &private]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, options).expect("started");
    let [public, private] =
        [public, private].map(|lease| outgoing.open("a", None, &lease).expect("open"));
    let prohibited = Err(Failure::Call(CallError::Prohibited));
    for name in ["first", "second", "third", "mapped"] {
        let authority = format!("{name}.example:{port}");
        let asked = status(&mut send(&public, &authority, false));
        assert_eq!(asked, prohibited, "{name}");
        assert_eq!(status(&mut send(&private, &authority, false)), Ok(200));
        let name = format!("{name}.example");
        let look_up = CallKind::LookUp { name: name.clone() };
        assert_eq!(status(&mut call(&public, look_up)), prohibited, "{name}");
        let look_up = CallKind::LookUp { name };
        assert_eq!(status(&mut call(&private, look_up)), Ok(200));
    }
    // Another host of the same network, which is not there.
    let name = "other.example".to_owned();
    let look_up = call(&public, CallKind::LookUp { name });
    assert_eq!(status(&mut { look_up }), Ok(200));
}
