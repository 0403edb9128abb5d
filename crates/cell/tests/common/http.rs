//! The client's side of an exchange, on the test's thread.

use leasehold_cell::exchange::{
    ClientHalf, ExchangeLimits, Failure, Fields, Intake, Lane, RequestHead, Scheme, exchange,
};
use leasehold_cell::{Cell, Lease, Program, Serving, StartRequest, Surroundings, TenantHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until there is a result.
pub(crate) fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let began = Instant::now();
    loop {
        if let Poll::Ready(result) = poll(&mut context) {
            return result;
        }
        assert!(began.elapsed() < PATIENCE, "no answer in {PATIENCE:?}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// A tenant that answers requests.
pub(crate) struct Server {
    pub(crate) tenant: TenantHandle,
    pub(crate) lane: Arc<Lane>,
    pub(crate) limits: ExchangeLimits,
    requests: AtomicU64,
}

/// A response as a whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Fields>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Server {
    /// Starts a tenant that answers with a guest that `guests/build` made.
    pub(crate) fn start(cell: &Cell, guest: &str, lease: Lease, serving: Serving) -> Self {
        let program = cell
            .load_handler(&super::guest(guest), &lease)
            .expect("loads");
        Self::start_program(cell, program, lease, serving)
    }

    /// The same with a program that was loaded.
    pub(crate) fn start_program(
        cell: &Cell,
        program: Arc<Program>,
        lease: Lease,
        serving: Serving,
    ) -> Self {
        let surroundings = Surroundings {
            args: vec!["guest".to_owned()],
            env: vec![("SHOP".to_owned(), "open".to_owned())],
            ..Surroundings::default()
        };
        let request = StartRequest {
            program,
            lease,
            surroundings,
        };
        let intake = Intake::new(256);
        let lane = intake.lane().clone();
        let tenant = cell
            .start_serving(request, intake, serving)
            .expect("starts");
        Self {
            tenant,
            lane,
            limits: ExchangeLimits::default(),
            requests: AtomicU64::new(1),
        }
    }

    /// Sends the head of a request, whose body is still to come.
    pub(crate) fn begin(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> ClientHalf {
        let mut head = head(path);
        method.clone_into(&mut head.method);
        for (name, value) in fields {
            head.fields.push(name, value.as_bytes()).expect("fits");
        }
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let (client, guest) = exchange(self.limits, head, id);
        assert!(self.lane.offer(guest).is_ok(), "the lane has room");
        client
    }

    /// Sends a request without a body.
    pub(crate) fn send(&self, path: &str) -> ClientHalf {
        let mut client = self.begin("GET", path, &[]);
        client.finish_body(None);
        client
    }

    /// Sends a request without a body, and waits for the response.
    pub(crate) fn get(&self, path: &str) -> Result<Answer, Failure> {
        receive(&mut self.send(path))
    }
}

/// The head of a GET without fields.
pub(crate) fn head(path: &str) -> RequestHead {
    RequestHead {
        method: "GET".to_owned(),
        scheme: Scheme::Http,
        authority: "shop.example:8080".to_owned(),
        path_with_query: path.to_owned(),
        fields: Fields::new(ExchangeLimits::default().head_bytes),
    }
}

/// Waits for a response.
pub(crate) fn receive(client: &mut ClientHalf) -> Result<Answer, Failure> {
    let head = wait(|context| client.poll_response(context).map(|head| head.cloned()))?;
    let mut body = Vec::new();
    while let Some(bytes) = wait(|context| client.poll_read(context, 16 << 10))? {
        body.extend(bytes);
    }
    Ok(Answer {
        status: head.status,
        fields: head.fields,
        body,
        trailers: client.trailers().cloned(),
    })
}
