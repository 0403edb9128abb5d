//! WASI preview 1: `wasmtime-wasi`'s own functions, except `fd_readdir` ([`super::readdir`]) and
//! `poll_oneoff`.
//!
//! `wasmtime-wasi` makes a table entry and a runtime timer for every subscription of a
//! `poll_oneoff`, so one call with a million subscriptions would allocate a million of each.
//! Ours reads the subscriptions where they are, in guest memory, and allocates nothing: a set
//! of clocks is the earliest of them; regular files are always ready; standard input is the one
//! descriptor that can make a guest wait.

use super::poll::sleep_until;
use super::readdir::fd_readdir;
use crate::clock;
use crate::guest::Guest;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use wasmtime::{Caller, Linker, Memory, Result, bail};
use wasmtime_wasi::cli::StdinStream as _;

const MODULE: &str = "wasi_snapshot_preview1";

/// Links preview 1.
///
/// # Errors
/// When a function is linked twice, which is a defect.
pub(crate) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    wasmtime_wasi::p1::add_to_linker_async(linker, Guest::charged_wasi)?;
    linker.allow_shadowing(true);
    linker.func_wrap_async(
        MODULE,
        "poll_oneoff",
        |mut caller: Caller<'_, Guest>, (subscriptions, events, count, n): (u32, u32, u32, u32)| {
            Box::new(async move { poll_oneoff(&mut caller, subscriptions, events, count, n).await })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "fd_readdir",
        |mut caller: Caller<'_, Guest>,
         (fd, buffer, length, cookie, result): (u32, u32, u32, u64, u32)| {
            Box::new(
                async move { fd_readdir(&mut caller, fd, buffer, length, cookie, result).await },
            )
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

pub(super) const SUCCESS: i32 = 0;
const INVALID: i32 = 28;
pub(super) const FAULT: i32 = 21;

/// Most subscriptions of one call: they are read in one step that nothing interrupts.
const MOST_SUBSCRIPTIONS: u32 = crate::steps::caps::SUBSCRIPTIONS.most as u32;

const SUBSCRIPTION_BYTES: u64 = 48;
const EVENT_BYTES: u64 = 32;

const CLOCK: u8 = 0;
const FD_READ: u8 = 1;
const FD_WRITE: u8 = 2;

const CLOCK_REALTIME: u32 = 0;
const CLOCK_MONOTONIC: u32 = 1;
const ABSOLUTE: u16 = 1;

/// One subscription, as the guest wrote it.
struct Subscription {
    user_data: u64,
    kind: u8,
    /// The descriptor, or the identifier of the clock.
    id: u32,
    timeout: u64,
    flags: u16,
}

/// `N` bytes at `offset`, which the caller has checked to be inside the memory.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

impl Subscription {
    fn parse(bytes: &[u8]) -> Self {
        Self {
            user_data: u64::from_le_bytes(field(bytes, 0)),
            kind: bytes[8],
            id: u32::from_le_bytes(field(bytes, 16)),
            timeout: u64::from_le_bytes(field(bytes, 24)),
            flags: u16::from_le_bytes(field(bytes, 40)),
        }
    }

    /// When this subscription is due on the monotonic clock, if it is for a clock.
    fn deadline(&self, now: u64) -> Result<u64, i32> {
        match (self.id, self.flags & ABSOLUTE != 0) {
            (CLOCK_REALTIME | CLOCK_MONOTONIC, false) => Ok(now.saturating_add(self.timeout)),
            (CLOCK_MONOTONIC, true) => Ok(self.timeout),
            (CLOCK_REALTIME, true) => {
                let realtime = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                let realtime = realtime.tv_sec as u64 * 1_000_000_000 + realtime.tv_nsec as u64;
                Ok(now.saturating_add(self.timeout.saturating_sub(realtime)))
            }
            _ => Err(INVALID),
        }
    }

    fn waits_for_stdin(&self, guest: &Guest) -> bool {
        self.kind == FD_READ && self.id == 0 && guest.stdin.may_block()
    }

    fn event(&self) -> [u8; EVENT_BYTES as usize] {
        let mut event = [0; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&self.user_data.to_le_bytes());
        event[10] = self.kind;
        event[16..24].copy_from_slice(&1u64.to_le_bytes());
        event
    }
}

async fn poll_oneoff(
    caller: &mut Caller<'_, Guest>,
    subscriptions: u32,
    events: u32,
    count: u32,
    result: u32,
) -> Result<i32> {
    let Some(memory) = Guest::memory(caller) else {
        bail!("the module exports no memory")
    };
    if count == 0 || count > MOST_SUBSCRIPTIONS {
        return Ok(INVALID);
    }
    let (subscriptions, events) = (u64::from(subscriptions), u64::from(events));
    let size = memory.data_size(&*caller) as u64;
    if subscriptions + u64::from(count) * SUBSCRIPTION_BYTES > size
        || events + u64::from(count) * EVENT_BYTES > size
        || u64::from(result) + 4 > size
    {
        return Ok(FAULT);
    }

    let now = clock::monotonic_ns();
    let mut earliest: Option<u64> = None;
    let (mut ready_now, mut stdin) = (false, false);
    for index in 0..count {
        let subscription = read(memory, caller, subscriptions, index);
        match subscription.kind {
            CLOCK => match subscription.deadline(now) {
                Ok(when) => earliest = Some(earliest.map_or(when, |other| other.min(when))),
                Err(errno) => return Ok(errno),
            },
            FD_READ if subscription.waits_for_stdin(caller.data()) => stdin = true,
            FD_READ | FD_WRITE => ready_now = true,
            _ => return Ok(INVALID),
        }
    }

    let mut stdin_ready = false;
    if !ready_now {
        stdin_ready = wait(caller.data_mut(), earliest, stdin).await;
    }

    let now_after = clock::monotonic_ns();
    let mut written = 0;
    for index in 0..count {
        let subscription = read(memory, caller, subscriptions, index);
        let ready = match subscription.kind {
            CLOCK => subscription
                .deadline(now)
                .is_ok_and(|when| when <= now_after),
            FD_READ if subscription.waits_for_stdin(caller.data()) => stdin_ready,
            _ => true,
        };
        if ready {
            let at = (events + written * EVENT_BYTES) as usize;
            memory.data_mut(&mut *caller)[at..at + EVENT_BYTES as usize]
                .copy_from_slice(&subscription.event());
            written += 1;
        }
    }
    let at = result as usize;
    memory.data_mut(&mut *caller)[at..at + 4].copy_from_slice(&(written as u32).to_le_bytes());
    Ok(SUCCESS)
}

fn read(memory: Memory, caller: &Caller<'_, Guest>, base: u64, index: u32) -> Subscription {
    let at = (base + u64::from(index) * SUBSCRIPTION_BYTES) as usize;
    Subscription::parse(&memory.data(caller)[at..at + SUBSCRIPTION_BYTES as usize])
}

/// Waits for the deadline or for standard input; true if it was standard input.
async fn wait(guest: &mut Guest, deadline: Option<u64>, stdin: bool) -> bool {
    let mut sleep = pin!(sleep_until(guest.execution, deadline.unwrap_or(u64::MAX)));
    if !stdin {
        sleep.await;
        return false;
    }
    // Streams of the same standard input share its readiness, so a fresh one will do.
    let mut stream = tokio::io::stdin().p2_stream();
    let mut ready = pin!(stream.ready());
    poll_fn(|context| {
        if ready.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        sleep.as_mut().poll(context).map(|()| false)
    })
    .await
}
