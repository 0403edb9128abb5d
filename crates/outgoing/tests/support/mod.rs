//! A guest's part in these tests: its lease, what it sends, and how it waits.

#![allow(dead_code, reason = "no test uses all of it")]

use leasehold_exchange::{
    Call, CallKind, CallOutcome, CallTimeouts, ClientHalf, Failure, Outlet, RequestHead, exchange,
};
use leasehold_lease::LeaseFile;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until there is an answer.
pub(crate) fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
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

/// The `outgoing` table of a lease.
pub(crate) fn lease(outgoing: &str) -> leasehold_lease::Outgoing {
    let text = format!(
        "[tenant.a]\ncomponent = \"a\"\nreclaim = {{ budget = \"1ms\" }}\noutgoing = {{ {outgoing} }}\n"
    );
    let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect(&text);
    file.tenants[0].outgoing.clone().expect("outgoing")
}

/// Sends the head of a GET, whose body is still to come if it has one.
pub(crate) fn send(outlet: &Outlet, authority: &str, has_body: bool) -> ClientHalf {
    let head = RequestHead {
        authority: authority.into(),
        path_with_query: "/".into(),
        method: "GET".into(),
        ..RequestHead::empty()
    };
    let kind = CallKind::Request {
        head,
        has_body,
        timeouts: CallTimeouts::default(),
        answers: None,
    };
    let mut client = call(outlet, kind);
    if !has_body {
        client.finish_body(None);
    }
    client
}

/// Sends a call.
pub(crate) fn call(outlet: &Outlet, kind: CallKind) -> ClientHalf {
    let (client, half) = exchange(outlet.outbox().limits(), RequestHead::empty(), 1);
    outlet.outbox().send(Call { half, kind }).expect("taken");
    client
}

/// Waits for the status of a response.
pub(crate) fn status(client: &mut ClientHalf) -> Result<u16, Failure> {
    wait(|context| {
        client
            .poll_response(context)
            .map(|head| head.map(|head| head.status))
    })
}

/// Waits until a call has ended in this way.
pub(crate) fn ended_by(outlet: &Outlet, outcome: CallOutcome) {
    let until = Instant::now() + Duration::from_secs(10);
    while outlet.outbox().ended_by(outcome) == 0 {
        assert!(Instant::now() < until, "not counted");
        thread::sleep(Duration::from_millis(1));
    }
}
