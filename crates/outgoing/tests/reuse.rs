//! Many requests of a tenant, one after the other.

use leasehold_exchange::{
    Call, CallTimeouts, ClientHalf, Failure, Fields, Outlet, RequestHead, Scheme, exchange,
};
use leasehold_lease::LeaseFile;
use leasehold_outgoing::{Options, Outgoing, Trust};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Poll::Ready(result) = poll(&mut context) {
            return result;
        }
        assert!(Instant::now() < until, "no answer");
        thread::park_timeout(Duration::from_secs(1));
    }
}

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

fn begin(outlet: &Outlet, authority: &str) -> ClientHalf {
    let head = RequestHead {
        method: "GET".into(),
        scheme: Scheme::Http,
        authority: authority.into(),
        path_with_query: "/".into(),
        fields: Fields::new(0),
    };
    let (client, half) = exchange(outlet.outbox().limits(), head.clone(), 1);
    let call = Call {
        half,
        head,
        has_body: true,
        timeouts: CallTimeouts::default(),
    };
    outlet.outbox().send(call).expect("taken");
    client
}

fn read(client: &mut ClientHalf) -> Result<usize, Failure> {
    wait(|context| client.poll_response(context).map(|head| head.map(drop)))?;
    let mut bytes = 0;
    while let Some(part) = wait(|context| client.poll_read(context, 4096))? {
        bytes += part.len();
    }
    Ok(bytes)
}

#[test]
fn requests_one_after_the_other_are_sent_on_one_connection() {
    let (port, connections) = host();
    let text = format!(
        "[tenant.a]\ncomponent = \"a\"\nreclaim = {{ budget = \"1ms\" }}\n\
         outgoing = {{ allow = [\"http://127.0.0.1:{port}\"], concurrency = 1 }}\n"
    );
    let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect(&text);
    let lease = file.tenants[0].outgoing.clone().expect("outgoing");
    let trust = Trust::load([&lease]).expect("nothing is read");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let outlet = outgoing.open(&lease).expect("open");
    for number in 0..1000 {
        let mut client = begin(&outlet, &format!("127.0.0.1:{port}"));
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
