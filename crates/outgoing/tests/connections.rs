//! Connections over TCP that a guest makes, to hosts on this machine.

mod support;

use leasehold_exchange::{
    ADDRESS, CallError, CallKind, CallOutcome, ClientHalf, ConnectionOptions, Failure, KeepAlive,
    Outlet,
};
use leasehold_outgoing::{LocalPorts, Options, Outgoing, Resolver, Trust};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::{call, ended_by, lease, status, wait};

const PLAIN: ConnectionOptions = ConnectionOptions {
    keep_alive: None,
    hop_limit: 64,
};

/// A host that does `work` with its first connection.
fn host<T: Send + 'static>(
    work: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let served = move || work(listener.accept().expect("a connection").0);
    (address, thread::spawn(served))
}

/// The thread, and the outlet of a tenant with this `outgoing` table.
fn begin(table: &str) -> (Outgoing, Outlet) {
    begin_with(table, LocalPorts::default())
}

/// The same on a host with these local ports.
fn begin_with(table: &str, ports: LocalPorts) -> (Outgoing, Outlet) {
    let lease = lease(table);
    let options = Options {
        resolver: Some(Resolver::of("127.0.0.1 db.example\n", "")),
        ports,
        ..Options::default()
    };
    let trust = Trust::load([&lease]).expect("no certificates");
    let outgoing = Outgoing::start(trust, options).expect("started");
    let outlet = outgoing.open("a", None, &lease).expect("opened");
    (outgoing, outlet)
}

fn connect(outlet: &Outlet, to: SocketAddr) -> ClientHalf {
    let options = PLAIN;
    call(outlet, CallKind::Connect { to, options })
}

fn write(client: &mut ClientHalf, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = wait(|context| client.poll_write(context, bytes)).expect("taken");
        bytes = &bytes[written..];
    }
}

/// All that comes.
fn read(client: &mut ClientHalf) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    while let Some(bytes) = wait(|context| client.poll_read(context, 5000))? {
        all.extend(bytes);
    }
    Ok(all)
}

#[test]
fn what_each_side_writes_is_what_the_other_reads_however_much_it_is() {
    let (address, host) = host(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        all.reverse();
        stream.write_all(&all).expect("written");
        stream.peer_addr().expect("an address")
    });
    let table = format!("allow = [\"tcp://{address}\"], window = \"4KiB\"");
    let (_outgoing, outlet) = begin(&table);
    let keep_alive = KeepAlive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(5),
        count: 3,
    };
    let options = ConnectionOptions {
        keep_alive: Some(keep_alive),
        hop_limit: 3,
    };
    let mut client = call(
        &outlet,
        CallKind::Connect {
            to: address,
            options,
        },
    );
    assert_eq!(status(&mut client), Ok(200));
    let sent: Vec<u8> = (0..300_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    write(&mut client, &sent);
    client.finish_body(None);
    let mut got = read(&mut client).expect("whole");
    got.reverse();
    assert!(got == sent);
    let seen = host.join().expect("served").to_string();
    let head = client.head().expect("there");
    let told: Vec<_> = head.fields.iter().collect();
    assert_eq!(told, [(ADDRESS, seen.as_bytes())]);
    ended_by(&outlet, CallOutcome::Answered);
}

#[test]
fn a_tenant_connects_to_what_its_lease_allows_and_to_nothing_else() {
    let (address, _host) = host(drop);
    let (_outgoing, outlet) = begin(&format!(
        "allow = [\"tcp://db.example:{0}\", \"http://127.0.0.1:{0}\"]",
        address.port()
    ));
    let denied = |to: SocketAddr| status(&mut connect(&outlet, to));
    assert_eq!(denied(address), Err(Failure::Call(CallError::Denied)));
    // The name stands for this machine, which is not allowed here.
    let look_up = |name: &str| {
        let name = name.to_owned();
        status(&mut call(&outlet, CallKind::LookUp { name }))
    };
    assert_eq!(
        look_up("db.example"),
        Err(Failure::Call(CallError::Prohibited))
    );
    assert_eq!(look_up("b.example"), Err(Failure::Call(CallError::Denied)));
    assert_eq!(denied(address), Err(Failure::Call(CallError::Denied)));
    ended_by(&outlet, CallOutcome::Denied);
}

#[test]
fn a_name_is_looked_up_and_its_addresses_can_be_connected_to() {
    let (address, _host) = host(|mut stream| stream.write_all(b"hello"));
    let (_outgoing, outlet) = begin(&format!(
        "allow_private = [\"tcp://db.example:{}\"]",
        address.port()
    ));
    assert_eq!(
        status(&mut connect(&outlet, address)),
        Err(Failure::Call(CallError::Denied)),
        "the name was not asked for"
    );
    let name = "db.example".to_owned();
    let mut asked = call(&outlet, CallKind::LookUp { name });
    assert_eq!(status(&mut asked), Ok(200));
    let told: Vec<_> = asked.head().expect("there").fields.iter().collect();
    assert_eq!(told, [(ADDRESS, &b"127.0.0.1"[..])]);
    assert_eq!(read(&mut asked), Ok(Vec::new()));
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    assert_eq!(read(&mut client), Ok(b"hello".to_vec()));
}

#[test]
fn what_was_written_before_the_connection_was_dropped_arrives_but_the_peer_is_not_waited_for_for_long()
 {
    let (address, host) = host(|mut stream| {
        thread::sleep(Duration::from_millis(100));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        all
    });
    let (_outgoing, outlet) = begin(&format!("allow = [\"tcp://{address}\"], concurrency = 1"));
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    write(&mut client, b"last words");
    client.finish_body(None);
    drop(client);
    assert_eq!(host.join().expect("served"), b"last words");

    let (address, _deaf) = self::host(|stream| {
        thread::sleep(Duration::from_secs(30));
        drop(stream);
    });
    let (_outgoing, outlet) = begin(&format!(
        "allow = [\"tcp://{address}\"], concurrency = 1, window = \"16MiB\""
    ));
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    // More than the kernel takes for a peer that does not read.
    write(&mut client, &vec![0; 16 << 20]);
    client.finish_body(None);
    drop(client);
    let began = Instant::now();
    // The place of the one connection is free again.
    assert_eq!(status(&mut connect(&outlet, address)), Ok(200));
    assert!(began.elapsed() < Duration::from_secs(10));
    ended_by(&outlet, CallOutcome::Abandoned);
}

#[test]
fn a_connection_that_is_refused_or_cut_off_is_a_failure_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let gone = listener.local_addr().expect("an address");
    drop(listener);
    let (address, host) = host(|stream| {
        // What was not read makes the end a reset.
        thread::sleep(Duration::from_millis(50));
        drop(stream);
    });
    let (_outgoing, outlet) = begin(&format!("allow = [\"tcp://{gone}\", \"tcp://{address}\"]"));
    assert_eq!(
        status(&mut connect(&outlet, gone)),
        Err(Failure::Call(CallError::Refused))
    );
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    write(&mut client, b"not read");
    host.join().expect("served");
    assert_eq!(read(&mut client), Err(Failure::Call(CallError::Terminated)));
}

#[test]
fn what_a_tenant_wrote_last_arrives_although_the_tenant_is_over() {
    for _ in 0..20 {
        let (address, host) = host(|mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("read");
            all
        });
        let (outgoing, outlet) = begin(&format!("allow = [\"tcp://{address}\"]"));
        let mut client = connect(&outlet, address);
        assert_eq!(status(&mut client), Ok(200));
        write(&mut client, b"last words");
        client.finish_body(None);
        drop(client);
        drop(outlet);
        // As the end of a program is that of the process.
        drop(outgoing);
        assert_eq!(host.join().expect("served"), b"last words");
    }
}

#[test]
fn the_end_of_a_tenant_ends_its_connections() {
    let (address, host) = host(|mut stream| stream.read(&mut [0]).map_err(|error| error.kind()));
    let (_outgoing, outlet) = begin(&format!("allow = [\"tcp://{address}\"]"));
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    drop(outlet);
    assert_eq!(host.join().expect("served"), Ok(0));
    assert!(read(&mut client).is_err());
}

#[test]
fn what_a_peer_has_not_taken_a_second_after_the_guest_dropped_the_connection_is_given_up() {
    let (address, host) = host(|mut stream| {
        thread::sleep(Duration::from_millis(2500));
        let mut all = Vec::new();
        let end = stream.read_to_end(&mut all).map_err(|error| error.kind());
        (all.len(), end)
    });
    // Three are shared out.
    let ports = LocalPorts::of("1 8").expect("eight");
    let (_outgoing, outlet) = begin_with(&format!("allow = [\"tcp://{address}\"]"), ports);
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    // As much as the kernel and the window take.
    let mut written = 0;
    let part = [1; 16 << 10];
    let mut quiet = 0;
    while quiet < 20 {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match client.poll_write(&mut context, &part) {
            Poll::Ready(taken) => (written, quiet) = (written + taken.expect("taken"), 0),
            Poll::Pending => {
                quiet += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    assert!(written < 1 << 20, "{written} bytes are on their way");
    client.finish_body(None);
    drop(client);
    ended_by(&outlet, CallOutcome::Abandoned);
    // The kernel keeps nothing of it, its port neither.
    let mut others = [connect(&outlet, address), connect(&outlet, address)];
    assert_eq!(others.each_mut().map(status), [Ok(200), Ok(200)]);
    let (got, end) = host.join().expect("served");
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
    assert!(got < written, "{got} of {written}");
}

#[test]
fn a_connection_over_which_all_was_sent_is_whole_when_its_tenant_ends_while_the_peer_lingers() {
    // It reads the end of what the guest writes, and keeps its own back.
    let (address, host) = host(|mut stream| {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read");
        (got, stream)
    });
    let (_outgoing, outlet) = begin(&format!("allow = [\"tcp://{address}\"]"));
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    write(&mut client, b"x");
    client.finish_body(None);
    drop(client);
    let (got, _open) = host.join().expect("served");
    assert_eq!(got, b"x");
    outlet.outbox().close();
    ended_by(&outlet, CallOutcome::Answered);
}

#[test]
fn a_peer_that_has_everything_sees_its_end_however_late_it_reads() {
    let (address, host) = host(|mut stream| {
        thread::sleep(Duration::from_millis(300));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(|_| all)
    });
    let (_outgoing, outlet) = begin(&format!("allow = [\"tcp://{address}\"]"));
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    write(&mut client, b"last words");
    client.finish_body(None);
    drop(client);
    assert_eq!(
        host.join().expect("served").expect("no error"),
        b"last words"
    );
}

#[test]
fn a_tenant_has_no_more_local_ports_of_a_destination_than_it_leaves_to_others() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    // Three are shared out.
    let ports = LocalPorts::of("1 8").expect("eight");
    let (_outgoing, outlet) = begin_with(&format!("allow = [\"tcp://{address}\"]"), ports);
    let mut first = connect(&outlet, address);
    assert_eq!(status(&mut first), Ok(200));
    first.finish_body(None);
    drop(first);
    // This side ended it, so that the kernel keeps its port, although the peer has gone, too.
    drop(listener.accept().expect("a connection"));
    let mut second = connect(&outlet, address);
    assert_eq!(status(&mut second), Ok(200));
    let mut third = connect(&outlet, address);
    assert_eq!(status(&mut third), Err(Failure::Call(CallError::NoPort)));
}

#[test]
fn a_connection_that_was_reset_takes_nothing_any_more() {
    let (address, host) = host(|mut stream| {
        stream.read_exact(&mut [0]).expect("read");
        let now = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&stream, now).expect("set");
    });
    let (_outgoing, outlet) = begin(&format!("allow = [\"tcp://{address}\"]"));
    let mut client = connect(&outlet, address);
    assert_eq!(status(&mut client), Ok(200));
    write(&mut client, b"a");
    host.join().expect("reset");
    let cut = Err(Failure::Call(CallError::Terminated));
    assert_eq!(read(&mut client), cut);
    let written = wait(|context| client.poll_write(context, b"more"));
    assert_eq!(written, Err(leasehold_exchange::Closed));
}
