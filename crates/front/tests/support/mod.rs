//! A front with tenants that these tests answer for, through the cell's half of each exchange.

#![allow(dead_code, reason = "each test program uses a part of it")]

use leasehold_exchange::{Failure, Fields, GuestHalf, Lane, Read, ResponseHead};
use leasehold_front::{Front, Options, Outcome, Record, Sampling, Site, Sockets};
use leasehold_lease::LeaseFile;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// What the tenants of a test have seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) taken: AtomicUsize,
    pub(crate) abandoned: AtomicUsize,
}

pub(crate) struct Node {
    pub(crate) front: Option<Front>,
    pub(crate) sites: Vec<Arc<Site>>,
    pub(crate) lanes: Vec<Arc<Lane>>,
    pub(crate) records: Arc<Mutex<Vec<Record>>>,
    pub(crate) seen: Arc<Seen>,
}

impl Node {
    /// A front of this lease file whose tenants all run.
    pub(crate) fn start(text: &str) -> Self {
        Self::start_at(text, Path::new("lease.toml"))
    }

    pub(crate) fn start_traced(text: &str, sampling: Sampling) -> Self {
        Self::start_with(text, Path::new("lease.toml"), Some(sampling))
    }

    pub(crate) fn start_at(text: &str, origin: &Path) -> Self {
        Self::start_with(text, origin, None)
    }

    fn start_with(text: &str, origin: &Path, sampling: Option<Sampling>) -> Self {
        let file = LeaseFile::parse(text, origin).expect("a lease file");
        let sockets = Sockets::open(&file.listeners).expect("sockets");
        let records = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::new(Seen::default());
        let mut sites = Vec::new();
        let mut lanes = Vec::new();
        for tenant in &file.tenants {
            let http = tenant.http.clone().expect("it answers");
            let site = Site::new(&tenant.name, &http, tenant.lease.cpu.as_ref());
            let lane = Arc::new(Lane::new(http.queue as usize));
            site.set_lane(Some(lane.clone()));
            let (theirs, counts) = (lane.clone(), seen.clone());
            thread::spawn(move || tenant_of(&theirs, http.concurrency as usize, &counts));
            sites.push((site, http));
            lanes.push(lane);
        }
        let log = records.clone();
        let options = Options {
            log: Some(Arc::new(move |record: &Record| {
                log.lock().expect("log").push(record.clone())
            })),
            sampling,
            ..Options::default()
        };
        let front = Front::start(sockets, &sites, options).expect("a front");
        front.serve();
        Self {
            front: Some(front),
            sites: sites.into_iter().map(|(site, _)| site).collect(),
            lanes,
            records,
            seen,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.front.as_ref().expect("a front").listening()[0].address
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Waits for the record of a request that ended so.
    pub(crate) fn ended(&self, outcome: Outcome) -> Record {
        let found = || {
            let records = self.records.lock().expect("log");
            records
                .iter()
                .find(|record| record.outcome == outcome)
                .cloned()
        };
        wait_for(|| found().is_some(), &format!("{outcome:?}"));
        found().expect("it is there")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.front = None;
        self.lanes.iter().for_each(|lane| lane.close());
    }
}

pub(crate) fn wait_for(mut ready: impl FnMut() -> bool, what: &str) {
    let until = Instant::now() + SOON;
    while !ready() {
        assert!(Instant::now() < until, "{what}: not in time");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A tenant with so many requests at a time.
fn tenant_of(lane: &Arc<Lane>, concurrency: usize, seen: &Arc<Seen>) {
    let running = Arc::new(AtomicUsize::new(0));
    lane.set_waker(&waker());
    while !lane.is_closed() {
        if running.load(Ordering::SeqCst) < concurrency
            && let Some(guest) = lane.take()
        {
            running.fetch_add(1, Ordering::SeqCst);
            seen.taken.fetch_add(1, Ordering::SeqCst);
            let (running, seen) = (running.clone(), seen.clone());
            thread::spawn(move || {
                answer(guest, &seen);
                running.fetch_sub(1, Ordering::SeqCst);
            });
        } else {
            thread::park_timeout(Duration::from_millis(2));
        }
    }
}

fn head(guest: &GuestHalf, status: u16, fields: &[(&str, &str)]) -> ResponseHead {
    let mut all = Fields::new(guest.limits().head_bytes);
    for (name, value) in fields {
        all.push(name, value.as_bytes()).expect("room");
    }
    ResponseHead {
        status,
        fields: all,
    }
}

fn write_all(guest: &mut GuestHalf, mut bytes: &[u8]) -> bool {
    let waker = waker();
    while !bytes.is_empty() {
        if !guest.poll_room(&waker) {
            thread::park_timeout(SOON);
            continue;
        }
        if guest.room().is_none() {
            return false;
        }
        let written = guest.write(bytes);
        bytes = &bytes[written..];
    }
    true
}

/// What a guest does is in the path.
fn answer(mut guest: GuestHalf, seen: &Seen) {
    let path = guest.request().path_with_query.clone();
    let ok = head(
        &guest,
        200,
        &[("x-tenant", "guest"), ("connection", "close")],
    );
    match path.split('?').next().unwrap_or_default() {
        "/hello" => {
            guest.add_guest_time(1_500_000);
            guest.respond(ok).expect("the first");
            guest.write(b"hello");
            guest.finish(None);
        }
        "/echo" => {
            guest.respond(ok).expect("the first");
            let mut buffer = vec![0; 5000];
            let waker = waker();
            loop {
                match guest.read(&mut buffer) {
                    Read::Bytes(n) => {
                        if !write_all(&mut guest, &buffer[..n]) {
                            return;
                        }
                    }
                    Read::Nothing => {
                        if !guest.poll_readable(&waker) {
                            thread::park_timeout(SOON);
                        }
                    }
                    Read::End => break,
                    Read::Failed => {
                        seen.abandoned.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
            }
            let trailers = guest.request_trailers().cloned();
            guest.finish(trailers);
        }
        "/hang" => {
            let until = Instant::now() + SOON;
            guest.set_abandon_waker(&waker());
            while !guest.is_abandoned() && Instant::now() < until {
                thread::park_timeout(SOON);
            }
            seen.abandoned.fetch_add(1, Ordering::SeqCst);
        }
        "/late" => {
            thread::sleep(Duration::from_millis(300));
            guest.respond(ok).expect("the first");
            guest.write(b"late");
            guest.finish(None);
        }
        "/trap" => guest.fail(Failure::Trap),
        "/refused" => guest.fail(Failure::Refused),
        "/none" => guest.finish(None),
        "/drop" => drop(guest),
        "/bad" => {
            let bad = head(&guest, 42, &[]);
            guest.respond(bad).expect("the first");
            guest.finish(None);
        }
        "/half" => {
            guest.respond(ok).expect("the first");
            guest.write(b"half");
            let waker = waker();
            while !guest.is_flushed() {
                guest.poll_room(&waker);
                thread::park_timeout(Duration::from_millis(1));
            }
            guest.fail(Failure::Trap);
        }
        "/endless" => {
            guest.respond(ok).expect("the first");
            while write_all(&mut guest, &[b'x'; 4096]) {}
            seen.abandoned.fetch_add(1, Ordering::SeqCst);
        }
        "/count" => {
            let (mut count, mut buffer) = (0, [0; 64]);
            let waker = waker();
            loop {
                match guest.read(&mut buffer) {
                    Read::Bytes(n) => count += n,
                    Read::Nothing if guest.poll_readable(&waker) => {}
                    Read::Nothing => thread::park_timeout(SOON),
                    Read::End => break,
                    Read::Failed => return guest.fail(Failure::Incomplete),
                }
            }
            guest.respond(ok).expect("the first");
            write_all(&mut guest, count.to_string().as_bytes());
            guest.finish(None);
        }
        "/empty" => {
            guest.respond(ok).expect("the first");
            guest.finish(None);
        }
        "/whole-and-late" | "/empty-and-late" => {
            let text = if path == "/whole-and-late" {
                "text"
            } else {
                ""
            };
            let length = text.len().to_string();
            let found = head(&guest, 200, &[("content-length", &length)]);
            guest.respond(found).expect("the first");
            write_all(&mut guest, text.as_bytes());
            thread::sleep(Duration::from_millis(100));
            if guest.is_abandoned() {
                seen.abandoned.fetch_add(1, Ordering::SeqCst);
            }
            guest.finish(None);
        }
        "/longer" | "/shorter" => {
            let length = if path == "/longer" { "2" } else { "9" };
            let found = head(&guest, 200, &[("content-length", length)]);
            write_all(&mut guest, b"text");
            guest.finish(None);
            guest.respond(found).expect("the first");
        }
        "/shorter-after-its-head" => {
            let found = head(&guest, 200, &[("content-length", "9")]);
            guest.respond(found).expect("the first");
            write_all(&mut guest, b"text");
            guest.finish(None);
        }
        "/late-and-longer" => {
            let found = head(&guest, 200, &[("content-length", "2")]);
            guest.respond(found).expect("the first");
            thread::sleep(Duration::from_millis(50));
            write_all(&mut guest, b"text");
            guest.finish(None);
        }
        "/trailers" => {
            guest.respond(ok).expect("the first");
            write_all(&mut guest, b"text");
            let mut trailers = Fields::new(guest.limits().head_bytes);
            for name in ["content-length", "Set-Cookie", "host", "trailer", "digest"] {
                trailers.push(name, b"0").expect("room");
            }
            guest.finish(Some(trailers));
        }
        "/bare" | "/unchanged" => {
            let status = if path == "/bare" { 204 } else { 304 };
            let found = head(&guest, status, &[("content-length", "4")]);
            guest.respond(found).expect("the first");
            write_all(&mut guest, b"text");
            guest.finish(None);
        }
        "/fields" => {
            let request = guest.request();
            let fields = request
                .fields
                .iter()
                .map(|(name, value)| format!("{name}={}\n", String::from_utf8_lossy(value)));
            let text = format!(
                "{} {:?} {}\n{}",
                request.method,
                request.scheme,
                request.authority,
                fields.collect::<String>()
            );
            guest.respond(ok).expect("the first");
            write_all(&mut guest, text.as_bytes());
            guest.finish(None);
        }
        _ => {
            let found = head(&guest, 204, &[]);
            guest.respond(found).expect("the first");
            guest.finish(None);
        }
    }
}

/// A client that writes what it is told.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        Self(stream)
    }

    /// From another address of the loopback network.
    pub(crate) fn from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        );
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &SocketAddr::from((source, 0))).expect("an address");
        rustix::net::connect(&socket, &address).expect("connected");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        Self(stream)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("written");
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n"
        ));
        self.response().expect("a response")
    }

    /// The next response; `None` if the connection ended before or in it.
    pub(crate) fn response(&mut self) -> Option<Response> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match self.0.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return None,
            }
        }
        let head = String::from_utf8(head).expect("text");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|text| text.parse().ok())
            .expect("a status");
        let lower = head.to_ascii_lowercase();
        let field = |name: &str| {
            let found = lower
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name}: ")));
            found.map(str::to_owned)
        };
        let mut body = Vec::new();
        if let Some(length) = field("content-length") {
            body = vec![0; length.parse().expect("a length")];
            self.0.read_exact(&mut body).ok()?;
        } else if field("transfer-encoding").is_some() {
            loop {
                let length = usize::from_str_radix(self.line()?.trim(), 16).ok()?;
                let mut chunk = vec![0; length];
                self.0.read_exact(&mut chunk).ok()?;
                if length == 0 {
                    // Trailers, and the end.
                    while !self.line()?.is_empty() {}
                    break;
                }
                self.line()?;
                body.extend(chunk);
            }
        } else if status != 204 {
            // Its end is that of the connection.
            self.0.read_to_end(&mut body).ok()?;
        }
        Some(Response {
            status,
            head: lower,
            body,
        })
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            match self.0.read(&mut byte) {
                Ok(1) => line.push(byte[0]),
                _ => return None,
            }
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).ok()
    }

    /// Whether the front closes the connection, and sends nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(0)) || {
            let kind = self.0.take_error().ok().flatten();
            kind.is_some()
        }
    }
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("text")
    }
}

/// A lease file with one listener and one tenant.
pub(crate) fn lease(listener: &str, http: &str) -> String {
    format!(
        "[listener.main]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [tenant.shop]\ncomponent = \"shop.wasm\"\nreclaim.budget = \"1ms\"\n\
         [tenant.shop.http]\nroutes = [\"shop.example/*\"]\n{http}\n"
    )
}
