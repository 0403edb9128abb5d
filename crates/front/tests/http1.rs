//! HTTP/1.1 over real sockets: what clients get, and what hostile ones do not.

mod support;

use leasehold_front::{Outcome, Sampling};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use support::{Client, Node, SOON, lease, wait_for};

#[test]
fn a_request_is_answered_by_the_tenant_of_its_route_and_logged() {
    let node = Node::start(&lease("", "server_timing = true"));
    let mut client = node.connect();
    for _ in 0..3 {
        let response = client.get("/hello?a=b");
        assert_eq!((response.status, response.text()), (200, "hello"));
        assert!(response.head.contains("x-tenant: guest"));
        assert!(
            response.head.contains("server-timing: queue;dur="),
            "{}",
            response.head
        );
        assert!(
            response.head.contains("guest;dur=1.500"),
            "{}",
            response.head
        );
        assert!(
            !response.head.contains("connection: close"),
            "it is the front's to say"
        );
    }
    let record = node.ended(Outcome::Answered);
    assert_eq!(
        (record.tenant.as_deref(), record.status, record.bytes),
        (Some("shop"), Some(200), 5)
    );
    assert_eq!(
        (record.method.as_str(), record.path.as_str()),
        ("GET", "/hello?a=b")
    );
    assert!(
        record.elapsed > Duration::ZERO && record.timing.and_then(|timing| timing.queued).is_some()
    );
    wait_for(
        || node.sites[0].counts().of(Outcome::Answered) == 3,
        "the count",
    );
    assert!(
        node.lanes[0].take_charged() > 0,
        "the tenant pays for the thread's time"
    );
}

#[test]
fn the_front_answers_for_a_tenant_that_cannot() {
    let node = Node::start(&lease("", "timeout = \"200ms\""));
    let rows = [
        ("/trap", 502, Outcome::Failed),
        ("/none", 502, Outcome::Failed),
        ("/drop", 502, Outcome::Failed),
        ("/bad", 502, Outcome::Failed),
        ("/refused", 503, Outcome::Refused),
        ("/hang", 504, Outcome::Timeout),
    ];
    let mut client = node.connect();
    for (path, status, outcome) in rows {
        let response = client.get(path);
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.head.contains("retry-after: 1"), status == 503);
        node.ended(outcome);
    }
    wait_for(
        || node.seen.abandoned.load(Ordering::SeqCst) == 1,
        "the exchange is abandoned",
    );
    client.send("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n");
    assert_eq!(client.response().expect("a response").status, 404);
    node.sites[0].set_lane(None);
    assert_eq!(client.get("/hello").status, 503);
    node.ended(Outcome::NotRunning);
    assert_eq!(
        node.seen.taken.load(Ordering::SeqCst),
        6,
        "the rest cost the tenant nothing"
    );
}

#[test]
fn a_full_lane_costs_the_tenant_nothing_and_says_when_to_ask_again() {
    let node = Node::start(&lease("", "concurrency = 1\nqueue = 1\ntimeout = \"5s\""));
    let mut waiting: Vec<Client> = Vec::new();
    for n in 0..2 {
        let mut client = node.connect();
        client.send("GET /hang HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        waiting.push(client);
        if n == 0 {
            wait_for(
                || node.seen.taken.load(Ordering::SeqCst) == 1,
                "the first is taken",
            );
        }
    }
    wait_for(|| node.lanes[0].len() == 1, "the second waits");
    let began = Instant::now();
    let response = node.connect().get("/hello");
    assert_eq!(response.status, 503);
    assert!(response.head.contains("retry-after: 1"));
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(node.seen.taken.load(Ordering::SeqCst), 1);
    // Nor do clients that ask again at once, of which one had an answer before, use up its processor time.
    assert!(node.lanes[0].take_charged() > 0, "for those that wait");
    let mut client = node.connect();
    assert!((0..200).all(|_| client.get("/hello").status == 503));
    assert_eq!(node.lanes[0].take_charged(), 0);
}

#[test]
fn a_body_of_many_windows_is_streamed_both_ways() {
    let node = Node::start(&lease("", "window = \"4KiB\""));
    let body: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut client = node.connect();
    let mut writing = Client(client.0.try_clone().expect("two ends"));
    let sent = body.clone();
    let writer = thread::spawn(move || {
        writing.send("POST /echo HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n\r\n");
        for chunk in sent.chunks(30_011) {
            writing.send(&format!("{:x}\r\n", chunk.len()));
            writing.0.write_all(chunk).expect("written");
            writing.send("\r\n");
        }
        writing.send("0\r\n\r\n");
    });
    let response = client.response().expect("a response");
    assert!(response.body == body);
    writer.join().expect("writer");
    assert_eq!(
        client.get("/hello").text(),
        "hello",
        "the connection goes on"
    );
}

#[test]
fn requests_that_follow_each_other_unasked_are_answered_in_order() {
    let node = Node::start(&lease("", ""));
    let mut client = node.connect();
    let host = "Host: shop.example\r\n";
    client.send(&format!(
        "GET /late HTTP/1.1\r\n{host}\r\nGET /hello HTTP/1.1\r\n{host}\r\nPOST /echo HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabcGET /hello HTTP/1.0\r\n{host}\r\n"
    ));
    let mut got = Vec::new();
    for _ in 0..4 {
        let response = client.response().expect("a response");
        got.push(String::from_utf8(response.body).expect("text"));
    }
    assert_eq!(got, ["late", "hello", "abc", "hello"]);
    assert!(client.is_closed(), "HTTP/1.0 keeps no connection");
}

#[test]
fn a_malformed_request_gets_an_error_and_disturbs_no_other() {
    let node = Node::start(&lease("", "head = \"1KiB\""));
    let mut other = node.connect();
    let long = "x".repeat(2000);
    let longer = "x".repeat(100_000);
    let many = "A: b\r\n".repeat(200);
    let rows = [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), Some(400)),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), Some(400)),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(), Some(400)),
        ("NONSENSE\r\n\r\n".to_owned(), Some(400)),
        ("GET shop.example HTTP/1.1\r\nHost: other.example\r\n\r\n".to_owned(), Some(400)),
        ("GET / HTTP/1.1\r\nHost shop.example\r\n\r\n".to_owned(), Some(400)),
        ("GET / HTTP/9.9\r\nHost: shop.example\r\n\r\n".to_owned(), Some(400)),
        (format!("GET /hello HTTP/1.1\r\nHost: shop.example\r\nX: {long}\r\n\r\n"), Some(431)),
        (format!("GET /hello HTTP/1.1\r\nHost: shop.example\r\nX: {longer}\r\n\r\n"), Some(431)),
        (format!("GET /hello HTTP/1.1\r\nHost: shop.example\r\n{many}\r\n"), Some(431)),
        (format!("GET /{longer} HTTP/1.1\r\nHost: shop.example\r\n\r\n"), None),
        ("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: x\r\n\r\n".to_owned(), Some(400)),
        ("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(), Some(400)),
        // The HTTP library has the two largest numbers for itself.
        (format!("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: {}\r\n\r\n", u64::MAX), Some(431)),
        (format!("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: {}\r\n\r\n", u64::MAX - 1), Some(431)),
        (format!("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: {}0\r\n\r\n", u64::MAX), Some(400)),
        ("POST /echo HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned(), Some(501)),
        ("GET /hello HTTP/1.1\r\nHost: shop.example:+80\r\n\r\n".to_owned(), Some(400)),
        ("GET /hello HTTP/1.1\r\nHost: shop.example,other\r\n\r\n".to_owned(), Some(400)),
        ("CONNECT shop.example:80 HTTP/1.1\r\nHost: shop.example:80\r\n\r\n".to_owned(), Some(501)),
    ];
    for (text, status) in rows {
        let mut client = node.connect();
        // The front may have closed the connection before it has read all of it.
        let _ = client.0.write_all(text.as_bytes());
        let response = client.response().map(|response| response.status);
        let shown = &text[..text.len().min(60)];
        match status {
            Some(status) => assert_eq!(response, Some(status), "{shown:?}"),
            None => assert!(
                response.is_none_or(|status| status == 414 || status == 431),
                "{shown:?} {response:?}"
            ),
        }
        assert_eq!(other.get("/hello").status, 200);
    }
}

#[test]
fn fields_of_the_connection_do_not_reach_the_guest() {
    let node = Node::start(&lease("", ""));
    let mut client = node.connect();
    client.send("GET /fields HTTP/1.1\r\nHost: Shop.example:80\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nAccept: *\r\n\r\n");
    let response = client.response().expect("a response");
    assert_eq!(response.text(), "GET Http Shop.example:80\naccept=*\n");
}

#[test]
fn a_guest_that_fails_in_its_body_cuts_the_connection() {
    let node = Node::start(&lease("", ""));
    let mut client = node.connect();
    client.send("GET /half HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    assert!(client.response().is_none(), "it does not look whole");
    let record = node.ended(Outcome::Failed);
    assert_eq!((record.status, record.bytes), (Some(200), 4));
}

#[test]
fn a_body_that_ends_with_its_connection_does_not_look_whole_when_it_is_cut_off() {
    let node = Node::start(&lease("", ""));
    for (path, is_whole) in [
        ("/half", false),
        ("/hello", true),
        ("/late-and-longer", false),
        ("/whole-and-late", true),
    ] {
        let mut client = node.connect();
        client.send(&format!(
            "GET {path} HTTP/1.0\r\nHost: shop.example\r\n\r\n"
        ));
        let mut answer = Vec::new();
        let read = client.0.read_to_end(&mut answer);
        assert_eq!(read.is_ok(), is_whole, "{path}: {read:?}");
    }
}

#[test]
fn a_client_that_goes_is_seen_by_the_guest_at_once() {
    let node = Node::start(&lease("", ""));
    let mut client = node.connect();
    client.send("GET /hang HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    wait_for(
        || node.seen.taken.load(Ordering::SeqCst) == 1,
        "it is taken",
    );
    drop(client);
    wait_for(
        || node.seen.abandoned.load(Ordering::SeqCst) == 1,
        "the exchange is abandoned",
    );
    node.ended(Outcome::ClientGone);

    let mut client = node.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100\r\n\r\nhalf");
    wait_for(
        || node.seen.taken.load(Ordering::SeqCst) == 2,
        "it is taken",
    );
    drop(client);
    wait_for(
        || node.seen.abandoned.load(Ordering::SeqCst) == 2,
        "the body was given up",
    );
}

#[test]
fn a_client_that_goes_while_nothing_reads_its_body_has_gone() {
    let node = Node::start(&lease("", "timeout = \"60s\""));
    let head = "POST /hang HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 200000\r\n\r\n";
    let body = vec![b'x'; 200_000];
    // With the end of its half behind the body, with a reset, and with requests behind it that nothing reads.
    for (turn, behind) in [(1, ""), (2, ""), (3, "GET /hello HTTP/1.1\r\n")] {
        let mut client = node.connect();
        client.send(head);
        client.0.write_all(&body).expect("sent");
        client.0.write_all(behind.as_bytes()).expect("sent");
        wait_for(
            || node.seen.taken.load(Ordering::SeqCst) == turn,
            "it is taken",
        );
        if turn == 2 {
            rustix::net::sockopt::set_socket_linger(&client.0, Some(Duration::ZERO)).expect("set");
        }
        drop(client);
        wait_for(
            || node.seen.abandoned.load(Ordering::SeqCst) == turn,
            "the exchange is abandoned",
        );
    }
    wait_for(
        || node.sites[0].counts().of(Outcome::ClientGone) == 3,
        "the count",
    );
}

#[test]
fn a_request_whose_client_goes_at_once_is_logged() {
    let node = Node::start(&lease("", ""));
    for _ in 0..32 {
        let mut client = node.connect();
        client.send("GET /hello HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    }
    let logged = || node.records.lock().expect("log").len() == 32;
    wait_for(logged, "the record of each");
}

#[test]
fn a_malformed_body_is_the_fault_of_its_client() {
    let node = Node::start(&lease("", "concurrency = 4\nhead = \"1KiB\""));
    let long = format!("0\r\nDigest: {}\r\n\r\n", "x".repeat(500));
    let trailers = format!("0\r\nDigest: {}\r\n\r\n", "x".repeat(1500));
    let rows = [
        ("x\r\n", Some(400), Outcome::Malformed),
        ("3\r\nabcd\r\n", Some(400), Outcome::Malformed),
        ("fffffffffffffffff\r\n", Some(400), Outcome::Malformed),
        (&trailers, Some(431), Outcome::TooLarge),
        (&long, Some(200), Outcome::Answered),
    ];
    for (body, status, outcome) in rows {
        let before = node.sites[0].counts().of(outcome);
        let mut client = node.connect();
        // This guest answers when it has the whole body.
        client.send("POST /count HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        client.send(body);
        let found = client.response().map(|response| response.status);
        assert_eq!(found, status, "{:?}", &body[..body.len().min(20)]);
        let counted = || node.sites[0].counts().of(outcome) == before + 1;
        wait_for(counted, &format!("{outcome:?}"));
    }
    // The response of this one has begun.
    let mut client = node.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nx\r\n");
    let mut rest = Vec::new();
    let _ = client.0.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it does not look whole");
    // One that goes.
    let mut client = node.connect();
    client.send("POST /count HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 9\r\n\r\nab");
    drop(client);
    node.ended(Outcome::ClientGone);
    let over = || node.records.lock().expect("log").len() == 7;
    wait_for(over, "all are over");
    assert_eq!(node.sites[0].counts().of(Outcome::Failed), 0);
}

#[test]
fn what_the_client_has_whole_is_answered_whenever_the_guest_finishes() {
    let node = Node::start(&lease("", ""));
    let mut client = node.connect();
    for (path, text) in [("/whole-and-late", "text"), ("/empty-and-late", "")] {
        assert_eq!(client.get(path).text(), text);
        // The client goes as soon as it has the last byte.
        assert_eq!(node.connect().get(path).text(), text);
    }
    let answered = || node.sites[0].counts().of(Outcome::Answered);
    wait_for(|| answered() == 4, "four are answered");
    assert_eq!(
        node.seen.abandoned.load(Ordering::SeqCst),
        0,
        "no guest is told that its client has gone"
    );
}

#[test]
fn an_empty_body_is_answered_however_the_guest_and_the_connection_meet() {
    let node = Node::start(&lease("", ""));
    let mut client = node.connect();
    for _ in 0..5000 {
        assert_eq!(client.get("/empty").text(), "");
    }
    let over = || node.records.lock().expect("log").len() == 5000;
    wait_for(over, "all are over");
    assert_eq!(node.sites[0].counts().of(Outcome::Answered), 5000);
}

#[test]
fn a_client_that_does_not_read_holds_the_guest_no_longer_than_its_time() {
    let node = Node::start(&lease("", "timeout = \"300ms\""));
    let mut client = node.connect();
    client.send("GET /endless HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    let began = Instant::now();
    wait_for(
        || node.seen.abandoned.load(Ordering::SeqCst) == 1,
        "the exchange is abandoned",
    );
    assert!(began.elapsed() < Duration::from_secs(3));
    let mut rest = Vec::new();
    let _ = client.0.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it does not look whole");
    // Its client was there all the time; the window, and what the kernel holds, was all that it got.
    let record = node.ended(Outcome::Timeout);
    assert!(record.bytes <= 1024 * 1024, "{}", record.bytes);
}

#[test]
fn a_body_is_as_long_as_its_head_says_or_no_response() {
    let node = Node::start(&lease("", ""));
    for path in ["/longer", "/shorter"] {
        assert_eq!(node.connect().get(path).status, 502, "{path}");
    }
    let mut client = node.connect();
    client.send("GET /late-and-longer HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    let whole = client
        .response()
        .is_some_and(|response| response.text() == "te");
    assert!(!whole, "a part of a body looks like no whole one");
    assert_eq!(node.connect().get("/hello").text(), "hello");
}

#[test]
fn a_body_that_is_cut_off_takes_no_head_with_it() {
    let node = Node::start(&lease("", ""));
    for _ in 0..300 {
        let mut client = node.connect();
        client.send("GET /shorter-after-its-head HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        let mut answer = vec![0; 12];
        client.0.read_exact(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            ["HTTP/1.1 200", "HTTP/1.1 502"].contains(&&*answer),
            "{answer}"
        );
    }
}

#[test]
fn clients_without_a_request_do_not_delay_a_drain() {
    let mut node = Node::start(&lease("header_timeout = \"60s\"", ""));
    let mut served = node.connect();
    assert_eq!(served.get("/hello").status, 200);
    let silent = node.connect();
    let mut halved = node.connect();
    halved.send("GET / HT");
    let mut http2 = node.connect();
    http2.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // An empty frame of settings; the goodbye is not answered.
    http2
        .0
        .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
        .expect("written");
    thread::sleep(Duration::from_millis(50));
    let front = node.front.take().expect("a front");
    let began = Instant::now();
    front.drain(SOON);
    let drained = front.wait();
    assert_eq!(drained.abandoned, 0);
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    drop((served, silent, halved, http2));
}

#[test]
fn slow_clients_hold_nothing_for_long() {
    let node = Node::start(&lease(
        "header_timeout = \"200ms\"\nidle_timeout = \"400ms\"",
        "timeout = \"300ms\"",
    ));
    // Nothing at all; a byte at a time; a head that stops; and a body that stops.
    let mut silent = node.connect();
    let mut halved = node.connect();
    halved.send("GET /hello HTTP/1.1\r\nHost: shop");
    let mut slow = node.connect();
    let writer = {
        let mut slow = Client(slow.0.try_clone().expect("two ends"));
        thread::spawn(move || {
            for byte in b"GET /hello HTTP/1.1\r\nHost: shop.example\r\n"
                .iter()
                .cycle()
            {
                if slow.0.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let mut body = node.connect();
    body.send("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 9\r\n\r\nhalf");
    let mut idle = node.connect();
    assert_eq!(idle.get("/hello").status, 200);
    let began = Instant::now();
    let mut rest = Vec::new();
    for client in [&mut silent, &mut halved, &mut slow, &mut body, &mut idle] {
        rest.clear();
        let _ = client.0.read_to_end(&mut rest);
        assert!(began.elapsed() < Duration::from_secs(3));
    }
    writer.join().expect("writer");
    // An idle connection lives longer than a head that has begun.
    let mut idle = node.connect();
    assert_eq!(idle.get("/hello").status, 200);
    thread::sleep(Duration::from_millis(250));
    assert_eq!(idle.get("/hello").status, 200);
}

#[test]
fn a_request_that_is_under_way_has_its_own_time() {
    let node = Node::start(&lease(
        "idle_timeout = \"50ms\"",
        "timeout = \"600ms\"\nconcurrency = 2",
    ));
    // A guest that takes longer than the connection may be idle, and a body that stops.
    let mut client = node.connect();
    assert_eq!(client.get("/late").text(), "late");
    let mut body = node.connect();
    body.send("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 9\r\n\r\nhalf");
    let record = node.ended(Outcome::Timeout);
    assert!(record.elapsed >= Duration::from_millis(600));
}

#[test]
fn one_source_has_no_more_connections_than_it_may() {
    let node = Node::start(&lease("per_source = 3\nconnections = 10", ""));
    let mut open: Vec<_> = (0..3)
        .map(|_| {
            let mut client = node.connect();
            assert_eq!(client.get("/hello").status, 200);
            client
        })
        .collect();
    for _ in 0..20 {
        let mut client = node.connect();
        let _ = client
            .0
            .write_all(b"GET /hello HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        assert!(client.response().is_none(), "closed at once");
    }
    for client in &mut open {
        assert_eq!(client.get("/hello").status, 200, "the others go on");
    }
    open.pop();
    wait_for(
        || {
            let mut client = node.connect();
            let _ = client
                .0
                .write_all(b"GET /hello HTTP/1.1\r\nHost: shop.example\r\n\r\n");
            client.response().is_some()
        },
        "the place is free again",
    );
}

#[test]
fn clients_that_hold_all_connections_without_a_request_do_not_keep_others_out() {
    let node = Node::start(&lease(
        "connections = 64\nper_source = 32\nheader_timeout = \"60s\"\nidle_timeout = \"60s\"",
        "",
    ));
    let connections = || node.front.as_ref().expect("a front").connections()[0];
    let hold = |last: u8| {
        let mut client = Client::from(Ipv4Addr::new(127, 0, 0, last), node.address());
        // One has had an answer, and the next one has not begun to ask.
        if last.is_multiple_of(2) {
            client.send("GET /nothing HTTP/1.1\r\nHost: other.example\r\n\r\n");
        }
        client
    };
    let held: Vec<_> = (2..6)
        .flat_map(|last| std::iter::repeat_with(move || last).take(32))
        .map(hold)
        .collect();
    wait_for(
        || {
            let counted = connections();
            counted.admitted + counted.refused_by_listener == held.len() as u64
        },
        "all have come",
    );
    let mut kept = None;
    wait_for(
        || {
            let mut client = node.connect();
            let asked = client
                .0
                .write_all(b"GET /hello HTTP/1.1\r\nHost: shop.example\r\n\r\n");
            let answered = asked.is_ok() && client.response().is_some();
            kept = answered.then_some(client);
            answered
        },
        "a place is free for another source",
    );
    // It has one quiet connection, and they have many: that of others goes first.
    let more: Vec<_> = (2..6).map(hold).collect();
    let mut kept = kept.expect("answered");
    assert_eq!(kept.get("/hello").status, 200);
    drop((held, more));
}

#[test]
fn draining_finishes_what_is_under_way_and_accepts_nothing_more() {
    let mut node = Node::start(&lease("", ""));
    let address = node.address();
    let mut idle = node.connect();
    assert_eq!(idle.get("/hello").status, 200);
    let mut busy = node.connect();
    busy.send("GET /late HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    wait_for(
        || node.seen.taken.load(Ordering::SeqCst) == 2,
        "it is taken",
    );
    let front = node.front.take().expect("a front");
    front.drain(SOON);
    assert!(idle.is_closed(), "an idle connection is closed");
    assert_eq!(busy.response().expect("a response").text(), "late");
    assert!(busy.is_closed());
    assert_eq!(front.wait().abandoned, 0);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn what_does_not_finish_in_time_is_abandoned() {
    let mut node = Node::start(&lease("", ""));
    let mut busy = node.connect();
    busy.send("GET /hang HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    wait_for(
        || node.seen.taken.load(Ordering::SeqCst) == 1,
        "it is taken",
    );
    let front = node.front.take().expect("a front");
    let began = Instant::now();
    front.drain(Duration::from_millis(200));
    assert_eq!(front.wait().abandoned, 1);
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(busy.response().is_none());
    wait_for(
        || node.seen.abandoned.load(Ordering::SeqCst) == 1,
        "the exchange is abandoned",
    );
    // Its client was there to the end.
    node.ended(Outcome::Timeout);
}

#[test]
fn what_requests_use_is_counted_for_their_tenant() {
    let node = Node::start(&lease("", "concurrency = 1\nqueue = 1\ntimeout = \"5s\""));
    let mut client = node.connect();
    for _ in 0..3 {
        client.get("/hello");
    }
    client.send("POST /echo HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000\r\n\r\n");
    client.send(&"x".repeat(1000));
    assert_eq!(client.response().expect("a response").body.len(), 1000);
    wait_for(
        || node.sites[0].snapshot().answered.count() == 4,
        "the count",
    );
    let counted = node.sites[0].snapshot();
    assert_eq!((counted.received_bytes, counted.sent_bytes), (1000, 1015));
    assert_eq!((counted.waiting, counted.active), (0, 0));
    assert!(counted.processor_ns > 0);
    let records = node.records.lock().expect("log").clone();
    let elapsed = records
        .iter()
        .map(|record| record.elapsed.as_nanos() as u64);
    assert_eq!(counted.answered.sum_ns(), elapsed.clone().sum::<u64>());
    assert_eq!(counted.answered.max_ns(), elapsed.max().expect("four"));

    let mut waiting: Vec<Client> = Vec::new();
    for n in 1..=2 {
        let mut client = node.connect();
        client.send("GET /hang HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        waiting.push(client);
        wait_for(
            || node.sites[0].snapshot().active + node.sites[0].snapshot().waiting == n,
            "it is under way",
        );
        wait_for(
            || node.sites[0].snapshot().active == 1,
            "the first is taken",
        );
    }
    assert_eq!(node.sites[0].snapshot().waiting, 1);
    assert_eq!(node.connect().get("/hello").status, 503);
    node.ended(Outcome::Full);
    let counted = node.sites[0].snapshot();
    assert_eq!(counted.outcomes.of(Outcome::Full), 1);
    assert_eq!(
        counted.answered.count(),
        4,
        "it was not given to the tenant"
    );
    drop(waiting);
    wait_for(|| node.sites[0].snapshot().active == 0, "both are over");
}

#[test]
fn connections_that_are_open_and_refused_are_counted_for_their_listener() {
    let node = Node::start(&lease("connections = 3\nper_source = 2", ""));
    let connections = || node.front.as_ref().expect("a front").connections()[0];
    let first = node.connect();
    let second = node.connect();
    wait_for(|| connections().open == 2, "both are open");
    assert!(node.connect().is_closed());
    let counted = connections();
    assert_eq!((counted.admitted, counted.refused_by_source), (2, 1));
    assert_eq!(counted.refused_by_listener, 0);
    drop((first, second));
    wait_for(|| connections().open == 0, "both are closed");
}

#[test]
fn a_guest_gets_the_span_of_its_request_and_so_does_the_record() {
    let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = format!(
        "GET /fields HTTP/1.1\r\nHost: shop.example\r\nTraceparent: {sent}\r\nTracestate: a=b\r\n\r\n"
    );
    let untraced = Node::start(&lease("", ""));
    let mut client = untraced.connect();
    client.send(&request);
    let response = client.response().expect("a response");
    assert!(response.text().contains(&format!("traceparent={sent}\n")));
    assert_eq!(untraced.ended(Outcome::Answered).trace, None);

    let node = Node::start_traced(&lease("", ""), Sampling::of_ratio(0.0));
    let mut client = node.connect();
    client.send(&request);
    let response = client.response().expect("a response");
    let trace = node.ended(Outcome::Answered).trace.expect("it is traced");
    assert_eq!(trace.parent, Some(0x00f0_67aa_0ba9_02b7));
    assert!(trace.is_sampled, "its parent is");
    assert!(
        response.text().contains(&format!("traceparent={trace}\n")),
        "{}",
        response.text()
    );
    assert!(response.text().contains("tracestate=a=b\n"));
    let begun = client.get("/fields");
    assert!(begun.text().contains("traceparent=00-"), "{}", begun.text());
    assert!(begun.text().contains("-00\n"), "it is not recorded");
}
