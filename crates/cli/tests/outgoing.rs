//! Tests of requests that guests send: a confined server, in which each denied system call is fatal, a guest
//! that relays, and hosts of the tests' own.

mod calibrated;
#[path = "served/listening.rs"]
mod listening;

use listening::Listening;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);

/// What a host of the tests has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    ended: AtomicU64,
    /// Bytes of `/big` that the connection took.
    written: AtomicU64,
    requests: AtomicU64,
}

/// A host that guests ask.
struct Host {
    address: SocketAddr,
    seen: Arc<Seen>,
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Host {
    fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::<Seen>::default();
        let of_host = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, tls) = (of_host.clone(), tls.clone());
                seen.connections.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_nodelay(true);
                thread::spawn(move || {
                    let stream: Box<dyn Stream> = match tls {
                        None => Box::new(stream),
                        Some(config) => {
                            let session = rustls::ServerConnection::new(config).expect("a session");
                            Box::new(rustls::StreamOwned::new(session, stream))
                        }
                    };
                    let _ = converse(BufReader::new(stream), &seen);
                    seen.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, seen }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn of(&self, counter: fn(&Seen) -> &AtomicU64) -> u64 {
        counter(&self.seen).load(Ordering::SeqCst)
    }
}

/// Answers the requests of one connection.
fn converse(mut stream: BufReader<Box<dyn Stream>>, seen: &Seen) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_ascii_lowercase());
        }
        seen.requests.fetch_add(1, Ordering::SeqCst);
        let mut body = Vec::new();
        let stated = head
            .iter()
            .find_map(|line| line.strip_prefix("content-length: "));
        if let Some(length) = stated.and_then(|text| text.parse().ok()) {
            body = vec![0; length];
            stream.read_exact(&mut body)?;
        } else if head.iter().any(|line| line == "transfer-encoding: chunked") {
            loop {
                let mut line = String::new();
                stream.read_line(&mut line)?;
                let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
                let mut chunk = vec![0; length + 2];
                stream.read_exact(&mut chunk)?;
                chunk.truncate(length);
                body.extend(chunk);
                if length == 0 {
                    break;
                }
            }
        }
        let path = head[0].split(' ').nth(1).unwrap_or_default().to_owned();
        let (path, number) = path.split_once('?').unwrap_or((&path, "0"));
        let number: u64 = number.parse().unwrap_or(0);
        let out = stream.get_mut();
        match path {
            "/echo" => {
                write!(out, "HTTP/1.1 200 OK\r\nx-line: {}\r\n", head[0])?;
                write!(out, "content-length: {}\r\n\r\n", body.len())?;
                out.write_all(&body)?;
            }
            "/big" => {
                write!(out, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
                let mut left = number;
                while left > 0 {
                    let part = left.min(16 << 10);
                    write!(out, "{part:x}\r\n")?;
                    out.write_all(&vec![b'.'; part as usize])?;
                    out.write_all(b"\r\n")?;
                    seen.written.fetch_add(part, Ordering::SeqCst);
                    left -= part;
                }
                out.write_all(b"0\r\n\r\n")?;
            }
            "/stall" => {
                write!(out, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")?;
                out.flush()?;
                // Until the other side closes.
                let _ = stream.read(&mut [0]);
                return Ok(());
            }
            "/never" => {
                let _ = stream.read(&mut [0]);
                return Ok(());
            }
            "/once" => {
                write!(out, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
                return out.flush();
            }
            "/away" => {
                write!(
                    out,
                    "HTTP/1.1 302 Found\r\nx-to: a\r\nlocation: http://127.0.0.1:1/\r\n"
                )?;
                write!(out, "content-length: 0\r\n\r\n")?;
            }
            "/noise" => write!(out, "what?\r\n\r\n")?,
            _ => write!(out, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?,
        }
        out.flush()?;
    }
}

fn guests() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests"))
}

/// A node with tenants that relay: each is `(name, outgoing)` and gets the requests to its name.
struct Node {
    directory: TempDir,
    child: Child,
    _errors: BufReader<ChildStderr>,
    address: SocketAddr,
}

fn directory(tenants: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("directory");
    let component = guests().join("courier.wasm");
    let mut text = "[listener.main]\naddress = \"127.0.0.1:0\"\n".to_owned();
    for (name, outgoing) in tenants {
        text += &format!(
            "[tenant.{name}]\ncomponent = {component:?}\nreclaim = {{ budget = \"200ms\" }}\n\
             http = {{ routes = [\"{name}/*\"] }}\n"
        );
        if !outgoing.is_empty() {
            text += &format!("outgoing = {{ {outgoing} }}\n");
        }
    }
    fs::write(directory.path().join("leases.toml"), text).expect("written");
    fs::write(directory.path().join("profile.json"), calibrated::profile()).expect("written");
    directory
}

fn serve(directory: &TempDir, options: &[&str]) -> Command {
    let path = |name: &str| directory.path().join(name);
    let mut program = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    program
        .arg("--profile")
        .arg(path("profile.json"))
        .arg("serve")
        .arg(path("leases.toml"))
        // Other cells may have all cores.
        .args(["--confinement", "trap", "--unadmitted", "--socket"])
        .arg(path("node.sock"))
        .args(options)
        .env("XDG_STATE_HOME", path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    program
}

impl Node {
    fn start(tenants: &[(&str, &str)], options: &[&str]) -> Self {
        Self::at(directory(tenants), options)
    }

    fn at(directory: TempDir, options: &[&str]) -> Self {
        let mut child = serve(&directory, options).spawn().expect("runs");
        let listening = Listening::wait(&mut child);
        Self {
            directory,
            child,
            _errors: listening.errors,
            address: listening.address,
        }
    }

    /// Sends a request to a tenant and returns the connection.
    fn send(&self, tenant: &str, path: &str, fields: &str, body: &[u8]) -> TcpStream {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let mut stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        let length = match body.len() {
            0 => String::new(),
            length => format!("Content-Length: {length}\r\n"),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {tenant}\r\nConnection: close\r\n{length}{fields}\r\n"
        );
        stream.write_all(head.as_bytes()).expect("written");
        let (mut sending, body) = (stream.try_clone().expect("a copy"), body.to_vec());
        thread::spawn(move || sending.write_all(&body));
        stream
    }

    fn ask(&self, tenant: &str, path: &str, fields: &str, body: &[u8]) -> (u16, String) {
        let mut answer = Vec::new();
        let mut stream = self.send(tenant, path, fields, body);
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no answer: {answer:?}")),
            answer,
        )
    }

    fn relay(&self, tenant: &str, url: &str) -> (u16, String) {
        self.ask(tenant, "/relay", &format!("x-url: {url}\r\n"), b"")
    }

    /// Asks, and expects this error of the interface.
    fn is_refused(&self, tenant: &str, url: &str, error: &str) {
        let (status, answer) = self.relay(tenant, url);
        assert!(
            status == 502 && answer.contains(error),
            "{url}: no {error} in {answer}"
        );
    }

    /// The page that Prometheus scrapes.
    fn metrics(&self) -> String {
        let socket = self.directory.path().join("node.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("connected");
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("written");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        page
    }

    fn kill(&self, tenant: &str) {
        let killed = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["kill", tenant, "--socket"])
            .arg(self.directory.path().join("node.sock"))
            .output()
            .expect("runs");
        assert!(killed.status.success(), "{killed:?}");
    }

    /// Descriptors that the process has.
    fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.expect("a directory").count()
    }

    /// Memory that is resident, bytes.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).expect("text");
        let pages = status
            .split(' ')
            .nth(1)
            .and_then(|text| text.parse::<u64>().ok());
        pages.expect("a number") * 4096
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !thread::panicking() {
            assert_eq!(ended, None, "it ended by itself");
        }
    }
}

fn becomes_true(what: &str, is_true: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !is_true() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_guest_asks_the_hosts_of_its_lease_and_bodies_stream_both_ways() {
    let host = Host::start(None);
    let allow = format!("allow = [\"http://{}\"]", host.address);
    let node = Node::start(&[("a", &allow)], &[]);
    let (status, answer) = node.relay("a", &host.url("/echo"));
    assert!(
        status == 200 && answer.contains("x-line: get /echo http/1.1"),
        "{answer}"
    );
    // More than all windows on the way.
    let body: Vec<u8> = (0..1 << 20).map(|at| b'a' + (at % 23) as u8).collect();
    let fields = format!("x-url: {}\r\n", host.url("/echo"));
    let (status, answer) = node.ask("a", "/relay", &fields, &body);
    assert!(
        status == 200 && answer.as_bytes().ends_with(&body),
        "{status}, {} bytes",
        answer.len()
    );
    assert_eq!(node.relay("a", &host.url("/nothing")).0, 404);
    // A redirect is the guest's business.
    let (status, answer) = node.relay("a", &host.url("/away"));
    assert!(status == 302 && answer.contains("x-to: a"), "{answer}");
}

#[test]
fn what_the_lease_does_not_allow_is_denied() {
    let host = Host::start(None);
    let port = host.address.port();
    let allow = format!(
        "allow = [\"http://{}\", \"http://*.example:{port}\"]",
        host.address
    );
    let node = Node::start(&[("a", &allow), ("b", "")], &[]);
    for url in [
        format!("https://127.0.0.1:{port}/echo"),
        "http://127.0.0.1:1/echo".to_owned(),
        format!("http://localhost:{port}/echo"),
        format!("http://example:{port}/echo"),
        format!("http://127.0.0.2:{port}/echo"),
    ] {
        node.is_refused("a", &url, "HttpRequestDenied");
    }
    node.is_refused("b", &host.url("/echo"), "HttpRequestDenied");
    assert_eq!(host.of(|seen| &seen.connections), 0);
    assert_eq!(node.relay("a", &host.url("/echo")).0, 200);
    let metrics = node.metrics();
    for (outcome, count) in [("denied", 5), ("answered", 1), ("connect", 0)] {
        let line = format!(
            "leasehold_outgoing_requests_total{{tenant=\"a\",outcome=\"{outcome}\"}} {count}.0"
        );
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    assert!(metrics.contains("http_client_active_requests{tenant=\"a\"} 0.0"));
    assert!(!metrics.contains("leasehold_outgoing_requests_total{tenant=\"b\""));
}

#[test]
fn a_name_that_stands_for_this_machine_is_prohibited_unless_the_lease_says_so() {
    let host = Host::start(None);
    let port = host.address.port();
    let public = format!("allow = [\"http://localhost:{port}\", \"http://*.localhost:{port}\"]");
    let private = format!("allow_private = [\"http://localhost:{port}\"]");
    let node = Node::start(&[("a", &public), ("b", &private)], &[]);
    for name in ["localhost", "LOCALHOST", "metadata.localhost"] {
        let url = format!("http://{name}:{port}/echo");
        node.is_refused("a", &url, "DestinationIpProhibited");
    }
    assert_eq!(host.of(|seen| &seen.connections), 0);
    let (status, answer) = node.relay("b", &format!("http://localhost:{port}/echo"));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn a_response_waits_for_a_guest_whose_client_reads_slowly() {
    const BYTES: u64 = 64 << 20;
    let host = Host::start(None);
    let allow = format!("allow = [\"http://{}\"]", host.address);
    let node = Node::start(&[("a", &allow)], &[]);
    let before = node.resident();
    let fields = format!("x-url: {}\r\n", host.url(&format!("/big?{BYTES}")));
    let mut stream = node.send("a", "/relay", &fields, b"");
    let mut first = [0; 1024];
    stream.read_exact(&mut first).expect("the beginning");
    thread::sleep(Duration::from_millis(500));
    let written = host.of(|seen| &seen.written);
    assert!(written < BYTES / 2, "{written} bytes are on their way");
    let held = node.resident().saturating_sub(before);
    assert!(held < 8 << 20, "{held} bytes are held");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let body = rest.iter().filter(|byte| **byte == b'.').count() as u64;
    assert!(body > BYTES - 1024, "{body} bytes");
}

#[test]
fn a_host_that_does_not_answer_as_it_should_is_an_error_of_its_own() {
    let host = Host::start(None);
    let allow = format!(
        "allow = [\"http://{}\", \"http://127.0.0.1:1\"]",
        host.address
    );
    let short = format!("{allow}, timeout = \"300ms\"");
    let node = Node::start(&[("a", &allow), ("b", &short)], &[]);
    let fields = format!("x-url: {}\r\nx-first-byte-ms: 100\r\n", host.url("/never"));
    let began = Instant::now();
    let (_, answer) = node.ask("a", "/relay", &fields, b"");
    assert!(answer.contains("HttpResponseTimeout"), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(10));
    node.is_refused("b", &host.url("/never"), "HttpResponseTimeout");
    node.is_refused("a", &host.url("/noise"), "HttpProtocolError");
    node.is_refused("a", "http://127.0.0.1:1/", "ConnectionRefused");
    becomes_true("connections are closed", || {
        host.of(|seen| &seen.ended) == host.of(|seen| &seen.connections)
    });
}

#[test]
fn a_tenant_that_is_killed_in_a_stalled_response_leaves_no_connection_and_no_descriptor() {
    let host = Host::start(None);
    let allow = format!("allow = [\"http://{}\"]", host.address);
    let node = Node::start(&[("a", &allow), ("b", &allow)], &[]);
    node.relay("b", &host.url("/once"));
    becomes_true("the connection is closed", || {
        host.of(|seen| &seen.ended) == 1
    });
    let before = node.descriptors();
    let mut clients = Vec::new();
    for path in ["/stall", "/never"] {
        let fields = format!("x-url: {}\r\n", host.url(path));
        clients.push(node.send("a", "/relay", &fields, b""));
    }
    becomes_true("both are asked", || host.of(|seen| &seen.requests) == 3);
    assert!(node.descriptors() > before);
    let began = Instant::now();
    node.kill("a");
    becomes_true("connections are closed", || {
        host.of(|seen| &seen.ended) == 3
    });
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    drop(clients);
    becomes_true("no descriptor is left", || node.descriptors() <= before);
    // Others go on.
    assert_eq!(node.relay("b", &host.url("/echo")).0, 200);
}

#[test]
fn a_thousand_requests_one_after_the_other_hold_no_more_than_one() {
    let host = Host::start(None);
    let allow = format!("allow = [\"http://{}\"], concurrency = 1", host.address);
    let node = Node::start(&[("a", &allow)], &[]);
    let fields = format!("x-url: {}\r\n", host.url("/big?5000"));
    let ask = |count: u32| {
        let (status, answer) = node.ask("a", &format!("/many?{count}"), &fields, b"");
        let expected = format!("{} bytes", count * 5000);
        assert!(status == 200 && answer.contains(&expected), "{answer}");
    };
    ask(100);
    let (descriptors, resident) = (node.descriptors(), node.resident());
    ask(1000);
    // The last connection may be about to be closed.
    becomes_true("no descriptor is left", || {
        node.descriptors() <= descriptors
    });
    let grown = node.resident().saturating_sub(resident);
    assert!(grown < 4 << 20, "{grown} bytes more");
    assert_eq!(host.of(|seen| &seen.requests), 1100);
    // They are sent on connections that stay.
    let connections = host.of(|seen| &seen.connections);
    assert!(connections < 100, "{connections} connections");
}

#[test]
fn requests_that_a_guest_gives_up_make_room_for_others() {
    let host = Host::start(None);
    let allow = format!("allow = [\"http://{}\"], concurrency = 1", host.address);
    let node = Node::start(&[("a", &allow)], &[]);
    let fields = format!("x-url: {}\r\n", host.url("/stall"));
    let (status, answer) = node.ask("a", "/drop?50", &fields, b"");
    assert!(status == 200 && answer.contains("50 begun"), "{answer}");
    becomes_true("connections are closed", || {
        host.of(|seen| &seen.ended) == 50
    });
    assert_eq!(node.relay("a", &host.url("/echo")).0, 200);
}

#[test]
fn a_tenant_has_no_more_requests_under_way_than_its_lease_allows() {
    let host = Host::start(None);
    let allow = format!("allow = [\"http://{}\"]", host.address);
    let one = format!("{allow}, concurrency = 1");
    let node = Node::start(&[("a", &one), ("b", &allow)], &[]);
    let fields = format!("x-url: {}\r\n", host.url("/never"));
    let first = node.send("a", "/relay", &fields, b"");
    becomes_true("the host is asked", || host.of(|seen| &seen.requests) == 1);
    node.is_refused("a", &host.url("/echo"), "ConnectionLimitReached");
    // Others have places of their own.
    assert_eq!(node.relay("b", &host.url("/echo")).0, 200);
    drop(first);
    becomes_true("there is room again", || {
        node.relay("a", &host.url("/echo")).0 == 200
    });
}

/// A certificate for a name and the configuration of a host that has it; the issuer's as PEM.
fn certificate() -> (String, Arc<rustls::ServerConfig>) {
    let mut params = CertificateParams::new(Vec::new()).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let issuer = issuer.expect("an issuer");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    let certificate = params.signed_by(&key, &issuer).expect("signed");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a configuration");
    (issuer.pem(), Arc::new(config))
}

#[test]
fn a_host_is_trusted_by_the_certificates_of_the_lease_alone() {
    let (pem, config) = certificate();
    let (foreign, _) = certificate();
    let host = Host::start(Some(config));
    let port = host.address.port();
    let with = |ca: &str| format!("allow_private = [\"https://localhost:{port}\"], ca = \"{ca}\"");
    let (own, other) = (with("own.pem"), with("other.pem"));
    let named = format!("allow = [\"https://127.0.0.1:{port}\"], ca = \"own.pem\"");
    let directory = directory(&[("a", &own), ("b", &other), ("c", &named)]);
    fs::write(directory.path().join("own.pem"), pem).expect("written");
    fs::write(directory.path().join("other.pem"), foreign).expect("written");
    let node = Node::at(directory, &[]);
    let url = format!("https://localhost:{port}/echo");
    for _ in 0..3 {
        let (status, answer) = node.relay("a", &url);
        assert_eq!(status, 200, "{answer}");
    }
    node.is_refused("b", &url, "TlsCertificateError");
    // The certificate is for another name.
    let url = format!("https://127.0.0.1:{port}/echo");
    node.is_refused("c", &url, "TlsCertificateError");
}

#[test]
fn certificates_that_cannot_be_read_are_refused_at_the_start() {
    let outgoing = "allow = [\"https://a.example\"], ca = \"none.pem\"";
    let directory = directory(&[("a", outgoing)]);
    let refused = |code: i32, words: &str| {
        let output = serve(&directory, &[]).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(words), "{error}");
    };
    refused(66, "none.pem");
    fs::write(directory.path().join("none.pem"), "no certificate").expect("written");
    refused(66, "none.pem: found no certificate");
}

#[test]
fn a_collector_gets_spans_from_a_confined_node() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, got) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut text = Vec::new();
            let mut part = [0; 4096];
            while !String::from_utf8_lossy(&text).contains("url.full") {
                match stream.read(&mut part) {
                    Ok(read @ 1..) => text.extend_from_slice(&part[..read]),
                    _ => break,
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
        }
    });
    let host = Host::start(None);
    let allow = format!("allow = [\"http://{}\"]", host.address);
    let node = Node::start(&[("a", &allow)], &["--otlp", &url]);
    assert_eq!(node.relay("a", &host.url("/echo")).0, 200);
    let spans = got.recv_timeout(SOON).expect("spans");
    assert!(spans.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{spans}");
    assert!(
        spans.contains("leasehold.tenant")
            && spans.contains("url.path")
            && spans.contains(&host.url("/echo")),
        "{spans}"
    );
}
