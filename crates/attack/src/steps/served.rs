//! HTTP requests whose heads and bodies are at their caps, and what is done to answer them.

use crate::component::wrap;
use crate::offer::World;
use anyhow::{Context, Result, ensure};
use leasehold_cell::calibrate::Effort;
use leasehold_cell::exchange::{
    ClientHalf, ExchangeLimits, FIELD_BYTES, Fields, Intake, Lane, RequestHead, Scheme, exchange,
};
use leasehold_cell::steps::StepSamples;
use leasehold_cell::steps::caps::{FIELDS, WORKERS};
use leasehold_cell::{Cell, Lease, Program, Serving, StartRequest, Surroundings};
use leasehold_lease::Nanoseconds;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A field: a name of one byte, and a value of seven.
const ENTRY: u64 = 1 + 7 + FIELD_BYTES as u64;

/// As many entries as fields can have of these.
pub(super) const COUNT: u64 = FIELDS.most / ENTRY;

/// The requests to each tenant.
const REQUESTS: u64 = 8;

/// How long the answer to a request may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers requests; returns the steps that it took.
///
/// # Errors
/// When the program cannot be started, or does not answer as it should.
pub(super) fn samples(cell: &Cell, effort: Effort) -> Result<Vec<StepSamples>> {
    let tenants = match effort {
        Effort::Quick => 6,
        Effort::Full => 40,
    };
    let text = include_str!("served.wat").replace("COUNT", &COUNT.to_string());
    let program = wrap(wat::parse_str(&text)?, World::Served)?;
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(1_000_000_000).context("a budget")?;
    let program = cell.compile_handler(&program, &lease)?;
    for _ in 0..tenants {
        serve(cell, program.clone(), lease)?;
    }
    Ok(cell.take_step_samples())
}

/// Starts a tenant, has it answer some requests, and ends it.
fn serve(cell: &Cell, program: Arc<Program>, lease: Lease) -> Result<()> {
    let intake = Intake::new(4);
    let lane = intake.lane().clone();
    // An instance is used several times, so that making one and answering are both measured often.
    let serving = Serving {
        concurrency: WORKERS.most as u32,
        reuse: 4,
        ..Serving::default()
    };
    let request = StartRequest {
        program,
        lease,
        surroundings: Surroundings::default(),
    };
    let tenant = cell.start_serving(request, intake, serving)?;
    for id in 0..REQUESTS {
        let (mut client, guest) = exchange(ExchangeLimits::default(), head(id)?, id);
        ensure!(lane.offer(guest).is_ok(), "the lane of a tenant is full");
        send_body(&mut client)?;
        let is_post = id % 2 == 0;
        let is_answered = is_answered(&mut client).context("a request")?;
        ensure!(
            is_answered == is_post,
            "request {id} was answered: {is_answered}"
        );
    }
    abandon(&lane)?;
    tenant.kill();
    tenant.wait()?;
    Ok(())
}

/// Begins a request, and leaves it when it is being answered.
fn abandon(lane: &Arc<Lane>) -> Result<()> {
    let (client, guest) = exchange(ExchangeLimits::default(), head(0)?, REQUESTS);
    ensure!(lane.offer(guest).is_ok(), "the lane of a tenant is full");
    let deadline = Instant::now() + PATIENCE;
    while client.timing().guest.is_zero() {
        ensure!(Instant::now() < deadline, "a request was not begun");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(client);
    // The cell stops what answers it when it is told, before it ends the tenant.
    std::thread::sleep(Duration::from_millis(2));
    Ok(())
}

/// The longest head, of a POST or of a PUT in turns.
fn head(id: u64) -> Result<RequestHead> {
    let mut fields = Fields::new(ExchangeLimits::default().head_bytes);
    // The path and the rest of the head count with them.
    while fields.push("x", b"1234567").is_ok() {}
    Ok(RequestHead {
        method: ["POST", "PUT"][id as usize % 2].to_owned(),
        scheme: Scheme::Http,
        authority: "localhost".to_owned(),
        path_with_query: format!("/{}", "x".repeat(8_000)),
        fields,
    })
}

fn send_body(client: &mut ClientHalf) -> Result<()> {
    let body = vec![b'x'; ExchangeLimits::default().window_bytes as usize];
    let mut context = TaskContext::from_waker(Waker::noop());
    match client.poll_write(&mut context, &body) {
        Poll::Ready(Ok(_)) => {}
        // The guest may have dropped it by now.
        Poll::Ready(Err(_)) => return Ok(()),
        Poll::Pending => anyhow::bail!("a window without room"),
    }
    let mut trailers = Fields::new(ExchangeLimits::default().head_bytes);
    while trailers.push("x", b"1234567").is_ok() {}
    client.finish_body(Some(trailers));
    Ok(())
}

/// Whether there is a response; waits for its end.
fn is_answered(client: &mut ClientHalf) -> Result<bool> {
    let is_there = wait(|context| client.poll_response(context).map(|head| head.is_ok()))?;
    while is_there
        && wait(|context| {
            client
                .poll_read(context, 64 << 10)
                .map(|part| matches!(part, Ok(Some(_))))
        })?
    {}
    Ok(is_there)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until there is a result.
pub(super) fn wait<T>(mut poll: impl FnMut(&mut TaskContext<'_>) -> Poll<T>) -> Result<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = TaskContext::from_waker(&waker);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(result) = poll(&mut context) {
            return Ok(result);
        }
        ensure!(Instant::now() < deadline, "no answer in {PATIENCE:?}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
