//! What a guest asks of other hosts: HTTP requests with heads at their caps, and responses with as much; names,
//! connections and datagrams.

use super::served::{COUNT, wait};
use crate::component::wrap;
use crate::offer::World;
use anyhow::{Context, Result, ensure};
use leasehold_cell::calibrate::Effort;
use leasehold_cell::exchange::{
    ADDRESS, CallKind, ExchangeLimits, Fields, Frame, GuestHalf, Outbox, Outlet, PEER,
    ResponseHead, datagram_bytes,
};
use leasehold_cell::steps::StepSamples;
use leasehold_cell::steps::caps::{DATAGRAMS, RECEIVED};
use leasehold_cell::{Cell, Exit, Lease, StartRequest, Surroundings};
use leasehold_lease::Nanoseconds;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a program may take: one that never ends is a defect of its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// As many addresses as a look-up finds at the most.
const ADDRESSES: u32 = 16;

/// The most calls at a time: a socket that listens, a connection that came to it, and the one that is waited for.
const CALLS: u32 = 3;

/// Where the programs listen.
const LISTENED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)), 5432);

/// Programs that ask.
pub(super) const PROGRAMS: [&str; 3] = [
    include_str!("asked.wat"),
    include_str!("connected.wat"),
    include_str!("datagrams.wat"),
];

/// What its exchanges may hold: more than the largest datagrams that one call gets.
const LIMITS: ExchangeLimits = ExchangeLimits {
    head_bytes: 16 << 10,
    window_bytes: 256 << 10,
};

/// Asks for what is answered at once; returns the steps that it took.
///
/// # Errors
/// When the program cannot be started, or does not get its answers.
pub(super) fn samples(cell: &Cell, effort: Effort, program: &str) -> Result<Vec<StepSamples>> {
    let rounds = match effort {
        Effort::Quick => 10,
        Effort::Full => 200,
    };
    let text = program
        .replace("COUNT", &COUNT.to_string())
        .replace("ROUNDS", &rounds.to_string());
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(1_000_000_000).context("a budget")?;
    let program = cell.compile(&wrap(wat::parse_str(&text)?, World::Attack)?)?;
    let outbox = Outbox::new(LIMITS, CALLS).listening(vec![LISTENED]);
    let outbox = Arc::new(outbox);
    let tenant = cell.start_tenant(StartRequest {
        program,
        lease,
        surroundings: Surroundings {
            outgoing: Some(Arc::new(Outlet::new(outbox.clone()))),
            ..Surroundings::default()
        },
    })?;
    // The end of the tenant closes the outbox.
    let answering = thread::spawn(move || answer(&outbox));
    let ended = match tenant.wait_for(PATIENCE)? {
        Some(ended) => ended,
        None => {
            tenant.kill();
            tenant.wait()?
        }
    };
    ensure!(
        ended.exit == Exit::Code(0),
        "what is asked of other hosts: {:?}",
        ended.exit
    );
    answering
        .join()
        .map_err(|_| anyhow::anyhow!("the answers failed"))??;
    Ok(cell.take_step_samples())
}

/// Answers every call, until the outbox is closed.
fn answer(outbox: &Outbox) -> Result<()> {
    let mut _last = None;
    while let Some(mut call) = wait(|context| outbox.poll_take(context))? {
        let mut fields = Fields::new(LIMITS.head_bytes);
        match call.kind {
            CallKind::Request { .. } => while fields.push("x", b"1234567").is_ok() {},
            CallKind::Bind { .. } => {
                fields.push(ADDRESS, b"10.1.2.3:4")?;
                send_datagrams(&mut call.half);
            }
            CallKind::Connect { .. } | CallKind::Listen { .. } => {
                fields.push(ADDRESS, b"10.1.2.3:4")?;
            }
            CallKind::Accept { .. } => {
                fields.push(ADDRESS, b"10.1.2.3:4")?;
                fields.push(PEER, b"10.1.2.3:5")?;
            }
            CallKind::LookUp { .. } => {
                for number in 0..ADDRESSES {
                    fields.push(ADDRESS, format!("2001:db8::{number:x}").as_bytes())?;
                }
            }
        }
        let head = ResponseHead {
            status: 200,
            fields,
        };
        // A guest that has given the call up waits for no answer.
        if call.half.respond(head).is_ok() {
            call.half.finish(None);
        }
        // What a guest sends goes somewhere until it asks for the next.
        _last = Some(call.half);
    }
    Ok(())
}

/// As many datagrams as one call gets, and as many bytes: the last is the largest that there is.
fn send_datagrams(half: &mut GuestHalf) {
    let largest = datagram_bytes(LIMITS.window_bytes as usize);
    let others = DATAGRAMS.size() - 1;
    let from = Frame::Datagram(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 53));
    for _ in 0..others {
        half.write_frame(from, &vec![1; (RECEIVED.size() - largest) / others]);
    }
    half.write_frame(from, &vec![1; largest]);
}
