//! A guest's part in these tests: its lease, what it sends, and how it waits.

use leasehold_exchange::{
    Call, CallTimeouts, ClientHalf, Failure, Fields, Outlet, RequestHead, Scheme, exchange,
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
        method: "GET".into(),
        scheme: Scheme::Http,
        authority: authority.into(),
        path_with_query: "/".into(),
        fields: Fields::new(0),
    };
    let (mut client, half) = exchange(outlet.outbox().limits(), head.clone(), 1);
    if !has_body {
        client.finish_body(None);
    }
    let call = Call {
        half,
        head,
        has_body,
        timeouts: CallTimeouts::default(),
    };
    outlet.outbox().send(call).expect("taken");
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
