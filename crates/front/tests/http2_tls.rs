//! HTTP/2 and TLS, with clients of other hands and certificates of the test's own.

mod support;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold_front::{Outcome, Sockets};
use leasehold_lease::LeaseFile;
use rustls::pki_types::ServerName;
use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Node, SOON, lease, wait_for};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let within = async { tokio::time::timeout(SOON, task).await.expect("in time") };
    runtime.expect("a runtime").block_on(within)
}

async fn connected<S, B>(stream: S) -> http2::SendRequest<B>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<Full<Bytes>> {
    let uri = format!("http://shop.example{path}");
    Request::get(uri).body(Full::default()).expect("a request")
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

#[test]
fn many_requests_share_a_connection_of_http2() {
    let node = Node::start(&lease("", "concurrency = 64"));
    block_on(async {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let sender = connected(stream).await;
        let late: Vec<_> = (0..40)
            .map(|_| sender.clone().send_request(get("/late")))
            .collect();
        let mut sender = sender;
        for response in futures(late).await {
            assert_eq!(text(response.expect("a response")).await, "late");
        }
        let response = sender.send_request(get("/trap")).await.expect("a response");
        assert_eq!(response.status(), 502);
        let response = sender.send_request(get("/half")).await.expect("a head");
        assert!(
            response.into_body().collect().await.is_err(),
            "the stream is reset"
        );
        assert_eq!(
            text(
                sender
                    .send_request(get("/hello"))
                    .await
                    .expect("a response")
            )
            .await,
            "hello"
        );
    });
}

#[test]
fn a_response_without_a_body_has_none_whatever_the_guest_writes() {
    let node = Node::start(&lease("", ""));
    block_on(async {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let mut sender = connected(stream).await;
        let head = |path: &str| {
            let uri = format!("http://shop.example{path}");
            let request = Request::head(uri).body(Full::default());
            request.expect("a request")
        };
        let rows = [
            (head("/hello"), 200),
            (head("/no/such/tenant"), 204),
            (get("/bare"), 204),
            (get("/unchanged"), 304),
        ];
        for (request, status) in rows {
            let path = request.uri().path().to_owned();
            let response = sender.send_request(request).await.expect("a response");
            assert_eq!(response.status(), status, "{path}");
            let has_length = response.headers().contains_key("content-length");
            assert_eq!(has_length, status == 304, "{path}");
            assert_eq!(text(response).await, "", "{path}");
        }
        let response = sender.send_request(get("/hello")).await;
        assert_eq!(text(response.expect("a response")).await, "hello");
    });
    // The guest of each was heard to its end.
    let all = || node.sites[0].counts().of(Outcome::Answered) == 5;
    wait_for(all, "five requests are answered");
}

/// A connection whose client opens a window of so many bytes for each response.
async fn with_window(node: &Node, bytes: u32) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(node.address()).await.expect("connected");
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(bytes)
        .handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

#[test]
fn what_clients_do_not_take_has_the_places_of_its_tenant_until_another_client_needs_one() {
    // With a window, the library is given the body, and the request is over.
    for window in [0, 1] {
        let node = Node::start(&lease("", "concurrency = 2\nqueue = 2\ntimeout = \"2s\""));
        block_on(async {
            let mut slow = with_window(&node, window).await;
            let mut untaken = Vec::new();
            for _ in 0..4 {
                let response = slow.send_request(get("/hello")).await.expect("a head");
                assert_eq!(response.status(), 200);
                untaken.push(response);
            }
            let mut other = with_window(&node, 65_535).await;
            let mut status = async || {
                let response = other.send_request(get("/hello")).await.expect("a response");
                response.status()
            };
            assert_eq!(status().await, 503, "there is no place");
            while status().await != 200 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let gone = slow.send_request(get("/hello")).await;
            gone.expect_err("the connection is closed");
        });
    }
}

#[test]
fn a_client_that_takes_what_it_is_given_has_no_place_afterwards() {
    let node = Node::start(&lease(
        "",
        "concurrency = 1\nqueue = 1\nserver_timing = true",
    ));
    block_on(async {
        // Fields of each response are new: the library keeps them, to compress later ones.
        for _ in 0..3 {
            let mut sender = with_window(&node, 65_535).await;
            for _ in 0..20 {
                let response = sender.send_request(get("/hello")).await;
                let response = response.expect("a response");
                assert!(response.headers().contains_key("server-timing"));
                assert_eq!(text(response).await, "hello");
            }
        }
    });
}

#[test]
fn a_client_that_reads_steadily_keeps_its_place() {
    let node = Node::start(&lease("", "concurrency = 1\nqueue = 1\nwindow = \"4KiB\""));
    block_on(async {
        let mut slow = with_window(&node, 1024).await;
        let body = Full::from(vec![b'x'; 12 * 1024]);
        let request = Request::post("http://shop.example/echo").body(body);
        let response = slow.send_request(request.expect("a request")).await;
        let mut body = response.expect("a head").into_body();
        let mut other = with_window(&node, 65_535).await;
        let (mut taken, mut hung) = (0, Vec::new());
        while let Some(frame) = body.frame().await {
            taken += frame
                .expect("a piece")
                .into_data()
                .map_or(0, |data| data.len());
            tokio::time::sleep(Duration::from_millis(200)).await;
            // These need more places than there are.
            for _ in 0..2 {
                hung.push(tokio::spawn(other.send_request(get("/hang"))));
            }
        }
        assert_eq!(taken, 12 * 1024);
        hung.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

#[test]
fn uploads_that_are_not_read_stop_no_other_request_of_their_connection() {
    let node = Node::start(&lease("", "concurrency = 64\nwindow = \"4KiB\""));
    block_on(async {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let sender = connected(stream).await;
        let post = |path: &str, bytes: usize| {
            let body = Full::from(vec![b'x'; bytes]);
            let uri = format!("http://shop.example{path}");
            Request::post(uri).body(body).expect("a request")
        };
        let stuck: Vec<_> = (0..40)
            .map(|_| tokio::spawn(sender.clone().send_request(post("/hang", 256 * 1024))))
            .collect();
        while node.seen.taken.load(Ordering::SeqCst) < 40 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut sender = sender;
        let response = sender.send_request(post("/echo", 20_000)).await;
        assert_eq!(text(response.expect("a response")).await.len(), 20_000);
        stuck.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// All of these, at the same time.
async fn futures<T: 'static>(tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
    let local = tokio::task::LocalSet::new();
    let handles: Vec<_> = tasks
        .into_iter()
        .map(|task| local.spawn_local(task))
        .collect();
    local.await;
    let mut all = Vec::new();
    for handle in handles {
        all.push(handle.await.expect("a result"));
    }
    all
}

#[test]
fn bodies_and_trailers_cross_in_http2() {
    let node = Node::start(&lease("", "window = \"4KiB\""));
    block_on(async {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let mut sender =
            connected::<_, http_body_util::combinators::BoxBody<Bytes, Infallible>>(stream).await;
        let mut frames: Vec<Result<Frame<Bytes>, Infallible>> = (0..100u8)
            .map(|n| Ok(Frame::data(vec![n; 3000].into())))
            .collect();
        let mut trailers = HeaderMap::new();
        trailers.insert("digest", "7".parse().expect("a value"));
        frames.push(Ok(Frame::trailers(trailers)));
        let body = Listed(frames.into_iter()).boxed();
        let request = Request::post("http://shop.example/echo")
            .body(body)
            .expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        let body = response.into_body().collect().await.expect("a body");
        assert_eq!(
            body.trailers()
                .and_then(|trailers| trailers.get("digest"))
                .map(|value| value.as_bytes()),
            Some(&b"7"[..])
        );
        let bytes = body.to_bytes();
        assert_eq!(bytes.len(), 300_000);
        assert!(
            bytes
                .chunks(3000)
                .zip(0..100u8)
                .all(|(chunk, n)| chunk.iter().all(|byte| *byte == n))
        );
    });
}

#[test]
fn a_response_has_no_trailers_that_are_needed_before_its_body() {
    let node = Node::start(&lease("", ""));
    block_on(async {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let mut sender = connected(stream).await;
        let response = sender.send_request(get("/trailers")).await;
        let body = response.expect("a response").into_body().collect().await;
        let body = body.expect("a body");
        let trailers = body.trailers().expect("trailers");
        let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["digest"]);
    });
}

/// A body of these frames.
struct Listed(std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>);

impl http_body::Body for Listed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[test]
fn a_stream_that_is_reset_abandons_its_exchange_and_no_other() {
    let node = Node::start(&lease("", ""));
    block_on(async {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let mut sender = connected(stream).await;
        let hanging = tokio::spawn(sender.send_request(get("/hang")));
        while node.seen.taken.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        hanging.abort();
        let _ = hanging.await;
        assert_eq!(
            text(
                sender
                    .send_request(get("/hello"))
                    .await
                    .expect("a response")
            )
            .await,
            "hello"
        );
        let gone = || node.seen.abandoned.load(Ordering::SeqCst) == 1;
        while !gone() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

/// A certificate of its own for a host, as files in `directory`.
fn certificate(directory: &Path, name: &str, host: &str) -> rcgen::Certificate {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a certificate");
    fs::write(directory.join(format!("{name}.pem")), made.cert.pem()).expect("written");
    fs::write(
        directory.join(format!("{name}.key")),
        made.signing_key.serialize_pem(),
    )
    .expect("written");
    made.cert
}

fn connector(roots: &[&rcgen::Certificate], protocols: &[&[u8]]) -> TlsConnector {
    let mut store = rustls::RootCertStore::empty();
    for root in roots {
        store.add(root.der().clone()).expect("a root");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

#[test]
fn each_host_has_its_certificate_and_clients_choose_the_protocol() {
    let directory = tempfile::tempdir().expect("a directory");
    let shop = certificate(directory.path(), "shop", "shop.example");
    let other = certificate(directory.path(), "other", "other.example");
    let tls = "tls = [{ host = \"shop.example\", certificate = \"shop.pem\", key = \"shop.key\" }, { certificate = \"other.pem\", key = \"other.key\" }]";
    let node = Node::start_at(&lease(tls, ""), &directory.path().join("lease.toml"));
    block_on(async {
        let connect =
            async |host: &'static str, roots: &[&rcgen::Certificate], protocols: &[&[u8]]| {
                let stream = TcpStream::connect(node.address()).await.expect("connected");
                let host = ServerName::try_from(host).expect("a name");
                connector(roots, protocols).connect(host, stream).await
            };
        let stream = connect("shop.example", &[&shop], &[b"h2"])
            .await
            .expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut sender = connected(stream).await;
        let fields = text(
            sender
                .send_request(get("/fields"))
                .await
                .expect("a response"),
        )
        .await;
        assert!(fields.starts_with("GET Https shop.example\n"), "{fields}");

        let stream = connect("other.example", &[&other], &[b"http/1.1"])
            .await
            .expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/1.1");
        tokio::spawn(connection);
        let request = Request::get("/hello")
            .header("Host", "shop.example")
            .body(Full::<Bytes>::default());
        assert_eq!(
            text(
                sender
                    .send_request(request.expect("a request"))
                    .await
                    .expect("a response")
            )
            .await,
            "hello"
        );
        assert!(
            connect("shop.example", &[&other], &[]).await.is_err(),
            "not the other's"
        );
    });
    // Plain text, and a handshake that stops, disturb nothing.
    let mut plain = node.connect();
    plain.send("GET /hello HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    assert!(plain.response().is_none());
    let mut cut = node.connect();
    cut.send("\u{16}\u{3}\u{1}");
    drop(cut);
    block_on(async {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let host = ServerName::try_from("shop.example").expect("a name");
        assert!(connector(&[&shop], &[]).connect(host, stream).await.is_ok());
    });
}

#[test]
fn a_client_is_held_to_the_protocol_that_it_agreed_on() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let directory = tempfile::tempdir().expect("a directory");
    let shop = certificate(directory.path(), "shop", "shop.example");
    let tls = "tls = { certificate = \"shop.pem\", key = \"shop.key\" }";
    let node = Node::start_at(&lease(tls, ""), &directory.path().join("lease.toml"));
    let answered = async |protocol: &[u8], sent: &[u8]| {
        let stream = TcpStream::connect(node.address()).await.expect("connected");
        let host = ServerName::try_from("shop.example").expect("a name");
        let connecting = connector(&[&shop], &[protocol]).connect(host, stream);
        let mut stream = connecting.await.expect("a handshake");
        stream.write_all(sent).await.expect("sent");
        let mut got = Vec::new();
        // It may be closed without a farewell.
        let _ = stream.read_to_end(&mut got).await;
        got
    };
    block_on(async {
        let got = answered(b"h2", b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
        assert!(!got.starts_with(b"HTTP/1"), "{got:?}");
        let got = answered(b"http/1.1", PREFACE).await;
        assert!(got.is_empty() || got.starts_with(b"HTTP/1.1 4"), "{got:?}");
    });
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    certificate(path, "shop", "shop.example");
    certificate(path, "other", "other.example");
    fs::write(path.join("empty.pem"), "").expect("written");
    let message = |tls: &str| {
        let text = lease(&format!("tls = {{ {tls} }}"), "");
        let file = LeaseFile::parse(&text, &path.join("lease.toml")).expect("a lease file");
        let error = Sockets::open(&file.listeners)
            .err()
            .expect("it cannot be used");
        error
            .to_string()
            .replace(&format!("{}/", path.display()), "")
    };
    assert_eq!(
        message("certificate = \"shop.pem\", key = \"other.key\""),
        "listener.main.tls: the key other.key does not fit the certificate shop.pem"
    );
    assert_eq!(
        message("certificate = \"empty.pem\", key = \"shop.key\""),
        "listener.main.tls: empty.pem: found no certificate; allowed: certificates as PEM, that of the host first"
    );
    assert_eq!(
        message("certificate = \"shop.pem\", key = \"shop.pem\""),
        "listener.main.tls: shop.pem: found no private key; allowed: a private key as PEM"
    );
    assert!(
        message("certificate = \"none.pem\", key = \"shop.key\"")
            .starts_with("listener.main.tls: cannot read none.pem: ")
    );
    assert!(
        message("host = \"shop.example\", certificate = \"other.pem\", key = \"other.key\"")
            .starts_with("listener.main.tls: the certificate other.pem is not for shop.example: ")
    );
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = taken.local_addr().expect("an address");
    let text = lease("", "").replace("127.0.0.1:0", &address.to_string());
    let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect("a lease file");
    let error = Sockets::open(&file.listeners)
        .err()
        .expect("it is taken")
        .to_string();
    assert!(
        error.starts_with(&format!(
            "listener.main.address: cannot listen on {address}: "
        )),
        "{error}"
    );
}
