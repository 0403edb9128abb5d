//! What can be reached over TCP, and what the token opens.

use axum::Router;
use axum::routing::get;
use leasehold_node::PageListener;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// More than the kernel keeps of a connection for a client that does not read.
static LONG: [u8; 32 << 20] = [0; 32 << 20];

/// Serves two routes beside the page; returns where, and the token.
async fn served() -> (SocketAddr, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let listener =
        PageListener::open(any_port(), &directory.path().join("token")).expect("listens");
    let link = listener.link();
    let (address, token) = link
        .strip_prefix("http://")
        .and_then(|link| link.split_once("/#token="))
        .expect("both");
    let interface = Router::new()
        .route("/v1/node", get(|| async { "the node" }))
        .route("/v1/long", get(|| async { &LONG[..] }));
    tokio::spawn(listener.serve(interface, std::future::pending()));
    (address.parse().expect("an address"), token.to_owned())
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// Sends a request as it is, and returns the whole answer.
async fn ask(address: SocketAddr, request: String) -> String {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).expect("connects");
        stream.write_all(request.as_bytes()).expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answers");
        answer
    });
    asked.await.expect("asks")
}

fn request(method: &str, path: &str, field: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n{field}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_the_token_only_the_page_is_answered() {
    let (address, secret) = served().await;
    let secret = secret.as_str();
    let page = ask(address, request("GET", "/", "accept: */*")).await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for field in [
        "content-security-policy: default-src 'none'",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
    ] {
        assert!(page.contains(field), "{field}");
    }
    let refused = [
        request("GET", "/v1/node", "accept: */*"),
        request("GET", "/v1/node", "authorization: Bearer wrong"),
        request("GET", "/v1/node", &format!("authorization: Basic {secret}")),
        request("GET", "/v1/node", &format!("cookie: token={secret}")),
        request("GET", &format!("/v1/node?token={secret}"), "accept: */*"),
        request("GET", "//", "accept: */*"),
        request("POST", "/", "content-length: 0"),
    ];
    for request in refused {
        let answer = ask(address, request.clone()).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{request}{answer}");
        assert!(answer.contains(r#""kind":"unauthorized""#), "{answer}");
        assert!(!answer.contains(secret), "{answer}");
    }
    let field = format!("authorization: Bearer {secret}");
    let answer = ask(address, request("GET", "/v1/node", &field)).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("the node"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_that_send_nothing_hold_no_more_than_their_places() {
    let (address, _) = served().await;
    let mut silent = Vec::new();
    for _ in 0..63 {
        silent.push(TcpStream::connect(address).await.expect("connects"));
    }
    let answer = ask(address, request("GET", "/", "accept: */*")).await;
    assert!(answer.starts_with("HTTP/1.1 200"));
    // Beyond the places a client waits until one is given back.
    silent.push(TcpStream::connect(address).await.expect("connects"));
    let waiting = tokio::spawn(ask(address, request("GET", "/", "accept: */*")));
    silent.clear();
    assert!(waiting.await.expect("asks").starts_with("HTTP/1.1 200"));
}

/// Takes all places with clients that send a request and read nothing.
fn taken(address: SocketAddr, request: &str) -> Vec<std::net::TcpStream> {
    let client = |_| {
        let mut stream = std::net::TcpStream::connect(address).expect("connects");
        stream.write_all(request.as_bytes()).expect("sends");
        stream
    };
    (0..64).map(client).collect()
}

/// How long an operator has waited for an answer.
async fn waited(address: SocketAddr, secret: &str) -> Duration {
    let begun = Instant::now();
    let asked = ask(address, request("GET", "/v1/node", &authorization(secret)));
    let answer = tokio::time::timeout(Duration::from_secs(30), asked).await;
    let answer = answer.expect("an answer");
    assert!(answer.ends_with("the node"), "{answer}");
    begun.elapsed()
}

fn authorization(secret: &str) -> String {
    format!("authorization: Bearer {secret}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_without_the_token_hold_their_places_for_ten_seconds_whatever_they_do() {
    let (address, secret) = served().await;
    // It is served first, and for as long as it asks.
    let mut operator = std::net::TcpStream::connect(address).expect("connects");
    let mut asks = move || {
        let field = authorization(&secret);
        let request = format!("GET /v1/node HTTP/1.1\r\nhost: node\r\n{field}\r\n\r\n");
        operator.write_all(request.as_bytes()).expect("sends");
        let mut answer = [0; 1024];
        let read = operator.read(&mut answer).expect("reads");
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        secret.clone()
    };
    asks();
    let page = "GET / HTTP/1.1\r\nhost: node\r\n\r\n".repeat(1000);
    let clients = taken(address, &page);
    let asking = tokio::task::spawn_blocking(move || {
        for _ in 0..4 {
            std::thread::sleep(Duration::from_secs(3));
            asks();
        }
        asks()
    });
    let secret = asking.await.expect("asked");
    assert!(waited(address, &secret).await < Duration::from_secs(5));
    drop(clients);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_that_read_nothing_hold_their_places_for_ten_seconds() {
    let (address, secret) = served().await;
    let clients = taken(
        address,
        &request("GET", "/v1/long", &authorization(&secret)),
    );
    let waited = waited(address, &secret).await;
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    drop(clients);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    let taken = PageListener::open(any_port(), &token).expect("listens");
    let address = taken.link()["http://".len()..]
        .split('/')
        .next()
        .expect("one")
        .to_owned();
    let error =
        PageListener::open(address.parse().expect("an address"), &token).expect_err("taken");
    assert!(error.to_string().contains(&address), "{error}");
    assert!(taken.is_local());
}
