//! Connections that a guest makes and accepts, and datagrams that it exchanges, with the standard library of its language: a confined program, in which each denied
//! system call is fatal, and hosts of the tests' own.

mod calibrated;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// A host that sends back, in reverse, all that each connection sent, and what each sent.
fn host() -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let (sent, heard) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sent = sent.clone();
            thread::spawn(move || {
                let all = answer(stream).expect("answered");
                // The test may be over.
                let _ = sent.send(all);
            });
        }
    });
    (address, heard)
}

fn answer(mut stream: TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    all.reverse();
    // A guest that only sends does not wait for it.
    let _ = stream.write_all(&all);
    all.reverse();
    Ok(all)
}

/// The profile, and what programs of all tests keep.
static STATE: LazyLock<TempDir> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let profile = directory.path().join("profile.json");
    fs::write(profile, calibrated::profile()).expect("written");
    directory
});

/// Runs `dialer` under a lease with this `outgoing` table, if any.
fn dial(outgoing: &str, arguments: &[&str], input: &[u8]) -> Output {
    run("dialer", outgoing, arguments, input)
}

/// Runs a guest likewise.
fn run(guest: &str, outgoing: &str, arguments: &[&str], input: &[u8]) -> Output {
    let (mut child, _lease) = start(guest, outgoing, arguments);
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    // A guest that reads none of it may have ended.
    let feeding = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("ends");
    feeding.join().expect("fed");
    output
}

/// Starts a guest likewise; its lease is in the directory.
fn start(guest: &str, outgoing: &str, arguments: &[&str]) -> (Child, TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let lease = directory.path().join("lease.toml");
    let profile = STATE.path().join("profile.json");
    let guests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests");
    let component = format!("{guests}/{guest}.wasm");
    let outgoing = match outgoing {
        "" => String::new(),
        table => format!("outgoing = {{ {table} }}\n"),
    };
    let text = format!(
        "[tenant.guest]\ncomponent = {component:?}\nargs = {arguments:?}\n\
         reclaim = {{ budget = \"50ms\" }}\n{outgoing}"
    );
    fs::write(&lease, text).expect("written");
    let child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("--profile")
        .arg(profile)
        .args(["run", "--confinement", "trap", "--lease"])
        .arg(lease)
        .env("XDG_STATE_HOME", STATE.path().join("state"))
        .env("XDG_CACHE_HOME", STATE.path().join("cache"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    (child, directory)
}

/// An address of this machine that is free.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    listener.local_addr().expect("an address")
}

/// Starts `dialer`, which listens at the address, and waits until it does.
fn listening(at: SocketAddr, outgoing: &str, arguments: &[&str]) -> (Child, TempDir) {
    let at = at.to_string();
    let arguments: Vec<&str> = arguments.iter().copied().chain([&*at]).collect();
    let listen = format!("listen = [\"{at}\"]{outgoing}");
    let (mut child, lease) = start("dialer", &listen, &arguments);
    let output = child.stdout.as_mut().expect("piped");
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("a line");
        line.push(byte[0]);
    }
    assert_eq!(line, format!("listens at {at}\n").as_bytes());
    (child, lease)
}

/// What it printed, if it succeeded.
fn printed(output: &Output) -> &[u8] {
    assert!(output.status.success(), "{output:?}");
    &output.stdout
}

/// Whether it failed with this kind of error.
fn failed(output: &Output, kind: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains(kind),
        "{kind}: {output:?}"
    );
}

#[test]
fn a_guest_exchanges_a_megabyte_with_a_host_that_its_lease_names_by_address_or_by_name() {
    let (address, _) = host();
    let input: Vec<u8> = (0..1_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let expected: Vec<u8> = input.iter().rev().copied().collect();
    let by_address = format!("allow = [\"tcp://{address}\"]");
    let output = dial(&by_address, &["ask", &address.to_string()], &input);
    assert!(printed(&output) == expected);
    let port = address.port();
    let by_name = format!("allow_private = [\"tcp://localhost:{port}\"]");
    let output = dial(&by_name, &["ask", &format!("localhost:{port}")], &input);
    assert!(printed(&output) == expected);
}

#[test]
fn a_guest_sees_the_addresses_of_both_sides_and_the_end_of_what_it_shut_down() {
    let (address, _) = host();
    let allow = format!("allow = [\"tcp://{address}\"]");
    let output = dial(&allow, &["addresses", &address.to_string()], b"");
    let text = String::from_utf8_lossy(printed(&output)).into_owned();
    let (own, peer) = text.trim_end().split_once(' ').expect("two addresses");
    assert!(own.starts_with("127.0.0.1:"), "{text}");
    assert_eq!(peer, address.to_string());
}

#[test]
fn what_is_not_allowed_or_not_there_is_the_error_that_it_is_elsewhere() {
    let (address, heard) = host();
    let port = address.port();
    let to = address.to_string();
    failed(&dial("", &["ask", &to], b""), "PermissionDenied");
    let other = "allow = [\"tcp://127.0.0.2:9\", \"http://127.0.0.1\"]";
    failed(&dial(other, &["ask", &to], b""), "PermissionDenied");
    // A name that is not named, and one that stands for this machine although that is not allowed.
    failed(
        &dial(other, &["ask", &format!("localhost:{port}")], b""),
        "lookup address",
    );
    let public = format!("allow = [\"tcp://localhost:{port}\"]");
    failed(
        &dial(&public, &["ask", &format!("localhost:{port}")], b""),
        "lookup address",
    );
    failed(
        &dial(&public, &["listen", "127.0.0.1:0"], b""),
        "PermissionDenied",
    );
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let gone = nobody.local_addr().expect("an address").to_string();
    drop(nobody);
    let allow = format!("allow = [\"tcp://{gone}\"]");
    failed(&dial(&allow, &["ask", &gone], b""), "ConnectionRefused");
    assert!(heard.try_recv().is_err(), "nobody connected");
}

#[test]
fn a_tenant_has_as_many_connections_as_its_lease_says() {
    let (address, _) = host();
    let to = address.to_string();
    let allow = format!("allow = [\"tcp://{address}\"], concurrency = 3");
    let output = dial(&allow, &["many", "3", &to], b"");
    assert_eq!(printed(&output), b"3\n");
    let output = dial(&allow, &["many", "4", &to], b"");
    assert!(printed(&output).starts_with(b"3 and no more"), "{output:?}");
    // More than the program's table has had places for so far.
    let allow = format!("allow = [\"tcp://{address}\"], concurrency = 64");
    let output = dial(&allow, &["many", "64", &to], b"");
    assert_eq!(printed(&output), b"64\n");
}

#[test]
fn what_a_guest_sent_before_it_exited_arrives() {
    let (address, heard) = host();
    let allow = format!("allow = [\"tcp://{address}\"]");
    for _ in 0..5 {
        let output = dial(&allow, &["shout", "last words", &address.to_string()], b"");
        printed(&output);
        let sent = heard.recv_timeout(Duration::from_secs(20));
        assert_eq!(sent.expect("heard"), b"last words");
    }
}

/// A host that sends back each datagram, and what each had.
fn echo() -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    let (sent, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok((size, from)) = socket.recv_from(&mut bytes) {
            // A guest that only sends may have gone, and the test may be over.
            let _ = socket.send_to(&bytes[..size], from);
            let _ = sent.send(bytes[..size].to_vec());
        }
    });
    (address, heard)
}

#[test]
fn a_guest_exchanges_datagrams_with_a_host_that_its_lease_names_by_address_or_by_name() {
    let (address, _) = echo();
    let by_address = format!("allow = [\"udp://{address}\"]");
    let lines = b"a question\n\nanother\n";
    let output = dial(&by_address, &["query", &address.to_string()], lines);
    assert_eq!(printed(&output), lines);
    let port = address.port();
    let by_name = format!("allow_private = [\"udp://localhost:{port}\"]");
    let output = dial(&by_name, &["query", &format!("localhost:{port}")], lines);
    assert_eq!(printed(&output), lines);
    let largest = ((64 << 10) / 2 - 32).to_string();
    for (number, size) in [("2000", "0"), ("2000", "1400"), ("20", &largest)] {
        let arguments = ["burst", number, size, &address.to_string()];
        let output = dial(&by_address, &arguments, b"");
        assert_eq!(printed(&output), format!("{number}\n").as_bytes());
    }
}

#[test]
fn datagrams_that_are_not_allowed_or_not_heard_are_the_errors_that_they_are_elsewhere() {
    let (address, heard) = echo();
    let to = address.to_string();
    failed(&dial("", &["query", &to], b"?\n"), "PermissionDenied");
    let over_tcp = format!("allow = [\"tcp://{address}\"]");
    failed(
        &dial(&over_tcp, &["query", &to], b"?\n"),
        "PermissionDenied",
    );
    let other = "allow = [\"udp://127.0.0.1:9\"]";
    failed(&dial(other, &["query", &to], b"?\n"), "PermissionDenied");
    let output = dial(other, &["cast", "text", &to], b"");
    printed(&output);
    failed(
        &dial(other, &["bind", "127.0.0.1:4000"], b""),
        "PermissionDenied",
    );
    let bound = dial(other, &["bind", "127.0.0.1:0"], b"");
    assert!(printed(&bound).starts_with(b"127.0.0.1:"), "{bound:?}");
    let gone = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let nowhere = gone.local_addr().expect("an address").to_string();
    drop(gone);
    let allow = format!("allow = [\"udp://{nowhere}\"]");
    failed(
        &dial(&allow, &["query", &nowhere], b"?\n"),
        "ConnectionRefused",
    );
    let allow = format!("allow = [\"udp://{address}\"]");
    let too_large = dial(&allow, &["burst", "1", "40000", &to], b"");
    assert_eq!(too_large.status.code(), Some(1), "{too_large:?}");
    assert!(heard.try_recv().is_err(), "nobody sent anything");
}

#[test]
fn a_datagram_of_a_guest_that_exited_at_once_arrives() {
    let (address, heard) = echo();
    let allow = format!("allow = [\"udp://{address}\"]");
    for _ in 0..5 {
        let output = dial(&allow, &["cast", "last words", &address.to_string()], b"");
        printed(&output);
        let sent = heard.recv_timeout(Duration::from_secs(20));
        assert_eq!(sent.expect("heard"), b"last words");
    }
}

#[test]
fn a_guest_answers_clients_that_come_to_where_its_lease_lets_it_listen() {
    let at = free();
    let (child, _lease) = listening(at, "", &["serve", "20"]);
    let mut own = Vec::new();
    let sent: Vec<u8> = (0..300_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    // All are there before the first is answered to its end.
    let clients: Vec<TcpStream> = (0..4)
        .map(|_| TcpStream::connect(at).expect("connected"))
        .collect();
    let more = (4..20).map(|_| TcpStream::connect(at).expect("connected"));
    for mut client in clients.into_iter().chain(more) {
        let mut writer = client.try_clone().expect("a descriptor");
        let bytes = sent.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&bytes).expect("written");
            writer.shutdown(Shutdown::Write).expect("shut down");
        });
        let mut got = Vec::new();
        client.read_to_end(&mut got).expect("read");
        writing.join().expect("written");
        got.reverse();
        assert!(got == sent);
        own.push(client.local_addr().expect("an address"));
    }
    let output = child.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(printed(&output)).into_owned();
    let expected: String = own
        .iter()
        .map(|own| format!("{own} sent 300000 bytes\n"))
        .collect();
    assert_eq!(text, expected);
    let gone = TcpStream::connect(at).expect_err("nobody listens any more");
    assert_eq!(gone.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// The processor time of a process, ticks of 10 ms.
fn ticks(child: &Child) -> u64 {
    let path = format!("/proc/{}/stat", child.id());
    let text = fs::read_to_string(path).expect("there");
    let (_, fields) = text.rsplit_once(')').expect("a name");
    let fields = fields.split_whitespace().skip(11).take(2);
    fields
        .map(|field| field.parse::<u64>().expect("a number"))
        .sum()
}

#[test]
fn a_guest_that_has_all_connections_of_its_lease_waits_for_the_end_of_one_and_does_not_run_meanwhile()
 {
    let at = free();
    // One for the socket, and one for each connection.
    let (mut child, _lease) = listening(at, ", concurrency = 4", &["hold", "3"]);
    let connect = || TcpStream::connect(at).expect("connected");
    let mut clients = vec![connect(), connect(), connect()];
    let output = child.stdout.as_mut().expect("piped");
    let mut text = [0; 2];
    output.read_exact(&mut text).expect("read");
    assert_eq!(&text, b"3\n");
    let _fourth = connect();
    clients.pop();
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.stdout, b"and another one\n");
    assert!(output.status.success(), "{output:?}");

    // More than it can have.
    let (mut child, _lease) = listening(at, ", concurrency = 4", &["hold", "4"]);
    let _clients = [connect(), connect(), connect(), connect()];
    thread::sleep(Duration::from_millis(300));
    let before = ticks(&child);
    thread::sleep(Duration::from_secs(1));
    let took = ticks(&child) - before;
    let has_ended = child.try_wait().expect("asked").is_some();
    child.kill().expect("there");
    child.wait().expect("ends");
    assert!(!has_ended && took < 50, "{took} of 100");
}

#[test]
fn an_address_at_which_another_program_listens_is_named_with_its_key() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let at = taken.local_addr().expect("an address");
    let output = dial(&format!("listen = [\"{at}\"]"), &["listen", "x"], b"");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(70), "{text}");
    let found = format!("lease.toml: outgoing.listen: {at}: Address already in use");
    assert!(text.contains(&found), "{text}");
}

/// The file has what the interface's text says of each case. wasmtime 49 answers the same but for the addresses of a
/// connection that was refused, and for names that no lease has.
#[test]
fn each_function_answers_in_each_state_of_a_socket_what_the_interface_says() {
    let ((tcp, _), (udp, _)) = (host(), echo());
    let (listener, socket) = (
        TcpListener::bind("127.0.0.1:0"),
        UdpSocket::bind("127.0.0.1:0"),
    );
    let gone = listener.and_then(|it| it.local_addr()).expect("an address");
    let unheard = socket.and_then(|it| it.local_addr()).expect("an address");
    let own = free();
    let allow = format!(
        "allow = [\"tcp://{tcp}\", \"tcp://{gone}\", \"tcp://{own}\", \"udp://{udp}\", \"udp://{unheard}\"], listen = [\"{own}\"]"
    );
    let ports = [tcp, gone, udp, unheard, own].map(|address| address.port().to_string());
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let output = run("sockets", &allow, &ports, b"");
    let (printed, expected) = (printed(&output), include_str!("sockets.txt"));
    for (line, expected) in String::from_utf8_lossy(printed)
        .lines()
        .zip(expected.lines())
    {
        assert_eq!(line, expected);
    }
    assert_eq!(printed.len(), expected.len());
}

#[test]
fn a_guest_that_writes_more_to_a_connection_than_was_permitted_traps() {
    let (tcp, _heard) = host();
    let allow = format!("allow = [\"tcp://{tcp}\"]");
    let output = run("sockets", &allow, &["beyond", &tcp.port().to_string()], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"wrote what was permitted\n", "{said}");
    assert_eq!(output.status.code(), Some(134), "{said}");
    assert!(said.contains("check-write"), "{said}");
}
