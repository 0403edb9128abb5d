//! What can be reached over TCP, and what the token opens.

use axum::Router;
use axum::routing::get;
use leasehold_node::PageListener;
use std::io::{Read, Write};
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// Serves one route beside the page; returns where, and the token.
async fn served() -> (SocketAddr, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let listener =
        PageListener::open(any_port(), &directory.path().join("token")).expect("listens");
    let link = listener.link();
    let (address, token) = link
        .strip_prefix("http://")
        .and_then(|link| link.split_once("/#token="))
        .expect("both");
    let interface = Router::new().route("/v1/node", get(|| async { "the node" }));
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
