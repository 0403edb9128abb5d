//! Certificates of hosts: chains that are accepted, and those that cost more than a handshake may.

mod support;

use leasehold_exchange::{
    CallError, CallKind, CallTimeouts, ClientHalf, Failure, Outlet, RequestHead, Scheme,
};
use leasehold_outgoing::{Options, Outgoing, Trust};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use support::{call, lease, send, status};

/// A chain, its end first, and the key of that.
type Chain = (Vec<CertificateDer<'static>>, KeyPair);

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

/// The parameters of an authority's certificate with this name.
fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// The parameters of the certificate of the host of these tests.
fn end() -> CertificateParams {
    CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address")
}

/// A root as PEM, and a chain to it with so many intermediate certificates.
fn valid(intermediates: usize) -> (String, Chain) {
    named("intermediate", intermediates)
}

fn named(name: &str, intermediates: usize) -> (String, Chain) {
    let mut issuer = CertifiedIssuer::self_signed(authority("root"), key()).expect("a root");
    let root = issuer.pem();
    let mut chain = Vec::new();
    for number in 0..intermediates {
        let params = authority(&format!("{name} {number}"));
        issuer = CertifiedIssuer::signed_by(params, key(), &issuer).expect("signed");
        chain.insert(0, issuer.der().clone());
    }
    let key = key();
    let end = end().signed_by(&key, &issuer).expect("signed");
    chain.insert(0, end.der().clone());
    (root, (chain, key))
}

/// A chain that reaches no root: layers of certificates, each of which fits each of the layer above.
fn layered(layers: usize, width: usize) -> Chain {
    let layer = |number: usize| authority(&format!("layer {number}"));
    let own = key();
    let first = Issuer::new(layer(0), key());
    let end = end().signed_by(&own, &first).expect("signed");
    let mut chain = vec![end.der().clone()];
    for number in 0..layers {
        let above = Issuer::new(layer(number + 1), key());
        for _ in 0..width {
            let one = layer(number).signed_by(&key(), &above).expect("signed");
            chain.push(one.der().clone());
        }
    }
    (chain, own)
}

/// A host that shows this chain, and answers each request.
fn tls_host(chain: Chain) -> u16 {
    tls_host_with_tickets(chain, 2)
}

/// One that sends so many session tickets.
fn tls_host_with_tickets((chain, key): Chain, tickets: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a configuration");
    config.send_tls13_tickets = tickets;
    let config = Arc::new(config);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(config.clone()).expect("a session");
            thread::spawn(move || answer(StreamOwned::new(session, stream)));
        }
    });
    port
}

fn plain_host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    port
}

fn answer(mut stream: impl Read + Write) {
    if stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

/// Sends a GET over TLS.
fn send_over_tls(outlet: &Outlet, port: u16) -> ClientHalf {
    let head = RequestHead {
        scheme: Scheme::Https,
        authority: format!("127.0.0.1:{port}"),
        path_with_query: "/".into(),
        method: "GET".into(),
        ..RequestHead::empty()
    };
    let kind = CallKind::Request {
        head,
        has_body: false,
        timeouts: CallTimeouts::default(),
        answers: None,
    };
    let mut client = call(outlet, kind);
    client.finish_body(None);
    client
}

/// A lease with a destination over TLS, whose certificate a root in this directory is for.
fn trusting(directory: &Path, root: &str, port: u16) -> leasehold_lease::Outgoing {
    let file = directory.join("root.pem");
    std::fs::write(&file, root).expect("written");
    let ca = file.display();
    lease(&format!(
        "allow = [\"https://127.0.0.1:{port}\"], ca = \"{ca}\", timeout = \"60s\""
    ))
}

/// What becomes of a request to a host that shows this chain.
fn ask(root: &str, chain: Chain) -> Result<u16, Failure> {
    ask_of(root, tls_host(chain))
}

/// The status that a host gives whose chain should lead to this root.
fn ask_of(root: &str, port: u16) -> Result<u16, Failure> {
    let directory = tempfile::tempdir().expect("a directory");
    let lease = trusting(directory.path(), root, port);
    let trust = Trust::load([&lease]).expect("a root");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let outlet = outgoing.open("a", None, &lease).expect("open");
    status(&mut send_over_tls(&outlet, port))
}

const REFUSED: Result<u16, Failure> = Err(Failure::Call(CallError::Certificate));

#[test]
fn a_host_that_shows_too_many_certificates_is_refused_at_once_and_delays_no_other_tenant() {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, _) = valid(0);
    let (hostile, modest) = (tls_host(layered(5, 11)), plain_host());
    let attacking = trusting(directory.path(), &root, hostile);
    let other = lease(&format!("allow = [\"http://127.0.0.1:{modest}\"]"));
    let trust = Trust::load([&attacking, &other]).expect("a root");
    let outgoing = Outgoing::start(trust, Options::default()).expect("started");
    let attacker = outgoing.open("a", None, &attacking).expect("open");
    let victim = outgoing.open("b", None, &other).expect("open");
    let began = Instant::now();
    let mut attack = send_over_tls(&attacker, hostile);
    let mut longest = Duration::ZERO;
    while began.elapsed() < Duration::from_millis(300) {
        let sent = Instant::now();
        let authority = format!("127.0.0.1:{modest}");
        assert_eq!(status(&mut send(&victim, &authority, false)), Ok(200));
        longest = longest.max(sent.elapsed());
    }
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert_eq!(status(&mut attack), REFUSED);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_chain_with_as_many_intermediate_certificates_as_there_may_be_is_accepted() {
    for intermediates in [0, 1, 4] {
        let (root, chain) = valid(intermediates);
        assert_eq!(ask(&root, chain), Ok(200), "{intermediates} intermediates");
    }
    let (root, chain) = valid(5);
    assert_eq!(ask(&root, chain), REFUSED);
}

#[test]
fn certificates_that_are_not_needed_do_not_keep_a_chain_from_being_accepted() {
    // Its own once more, and those of another host.
    for own in [true, false] {
        let (root, (mut chain, key)) = valid(2);
        match own {
            true => chain.extend_from_within(1..),
            false => chain.extend(named("other", 1).1.0),
        }
        assert_eq!(ask(&root, (chain, key)), Ok(200));
    }
}

#[test]
fn a_host_that_sends_session_tickets_without_end_is_refused() {
    let (root, chain) = valid(1);
    assert_eq!(ask_of(&root, tls_host_with_tickets(chain, 8)), Ok(200));
    let (root, chain) = valid(1);
    let port = tls_host_with_tickets(chain, 400);
    assert_eq!(ask_of(&root, port), Err(Failure::Call(CallError::Tls)));
}
