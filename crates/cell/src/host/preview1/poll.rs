//! `poll_oneoff`: reads the subscriptions in guest memory, and stores nothing of them.
//!
//! A set of clocks is the earliest of them; files are always ready; standard input is the one descriptor
//! that can make a guest wait.

use super::call::Call;
use super::descriptors::size_of;
use super::memory::{fetch, parts};
use crate::clock;
use crate::guest::Guest;
use crate::host::answer::{Answer, Fail, to_guest};
use crate::host::fs::descriptor::Descriptor;
use crate::host::yield_point::yield_point;
use crate::steps::caps;
use crate::wasi::poll::sleep_until;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use wasmtime::Caller;
use wasmtime_wasi::p1::types::Errno;

/// Most subscriptions of one call.
const MOST_SUBSCRIPTIONS: u32 = caps::SUBSCRIPTIONS.most as u32;

/// Subscriptions that are read in one step: each may query the size of a file.
const STEP: u32 = 128;

const SUBSCRIPTION_BYTES: u64 = 48;
const EVENT_BYTES: u64 = 32;

const CLOCK: u8 = 0;
const FD_READ: u8 = 1;
const FD_WRITE: u8 = 2;

const CLOCK_REALTIME: u32 = 0;
const CLOCK_MONOTONIC: u32 = 1;
const ABSOLUTE: u16 = 1;

const HANGUP: u16 = 1;

/// One subscription, as the guest wrote it.
struct Subscription {
    user_data: u64,
    kind: u8,
    /// The descriptor, or the identifier of the clock.
    id: u32,
    timeout: u64,
    flags: u16,
}

/// Returns `N` bytes at `offset`, which the caller has checked to be there.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

/// The event of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The monotonic clock, until this time.
    Time(u64),
    Stdin,
    /// The descriptor is ready: so many bytes can be moved, and whether these are the last.
    Ready {
        bytes: u64,
        hangs_up: bool,
    },
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

    /// Returns the instant on the monotonic clock at which this subscription is due, if it is for a clock.
    fn deadline(&self, now: u64) -> Result<u64, Errno> {
        if self.flags & !ABSOLUTE != 0 {
            return Err(Errno::Inval);
        }
        match (self.id, self.flags & ABSOLUTE != 0) {
            (CLOCK_REALTIME | CLOCK_MONOTONIC, false) => Ok(now.saturating_add(self.timeout)),
            (CLOCK_MONOTONIC, true) => Ok(self.timeout),
            (CLOCK_REALTIME, true) => {
                let realtime = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                let realtime = realtime.tv_sec as u64 * 1_000_000_000 + realtime.tv_nsec as u64;
                Ok(now.saturating_add(self.timeout.saturating_sub(realtime)))
            }
            _ => Err(Errno::Inval),
        }
    }

    fn awaited(&self, guest: &mut Guest, now: u64) -> Answer<Awaited> {
        const STREAM: Awaited = Awaited::Ready {
            bytes: 1,
            hangs_up: false,
        };
        if self.kind == CLOCK {
            return Ok(Awaited::Time(self.deadline(now)?));
        }
        if !matches!(self.kind, FD_READ | FD_WRITE) {
            return Err(Errno::Inval.into());
        }
        let state = guest.preview1()?;
        match (state.table.get(self.id)?, self.kind) {
            (Descriptor::Stdin, FD_READ) if state.input.may_block() => Ok(Awaited::Stdin),
            (Descriptor::Stdin, FD_READ) => Ok(STREAM),
            (Descriptor::Stdout | Descriptor::Stderr, FD_WRITE) => Ok(STREAM),
            (Descriptor::Open(open), FD_READ) if !open.node.is_directory() => {
                let size = size_of(open);
                Ok(Awaited::Ready {
                    bytes: size.map_or(1, |size| size.saturating_sub(open.position)),
                    hangs_up: size.is_some_and(|size| size <= open.position),
                })
            }
            (Descriptor::Open(open), FD_WRITE) if !open.node.is_directory() => Ok(STREAM),
            _ => Err(Errno::Badf.into()),
        }
    }

    fn event(&self, bytes: u64, hangs_up: bool) -> [u8; EVENT_BYTES as usize] {
        let mut event = [0; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&self.user_data.to_le_bytes());
        event[10] = self.kind;
        event[16..24].copy_from_slice(&bytes.to_le_bytes());
        event[24..26].copy_from_slice(&(u16::from(hangs_up) * HANGUP).to_le_bytes());
        event
    }
}

pub(super) fn oneoff(
    mut caller: Caller<'_, Guest>,
    subscriptions: u32,
    events: u32,
    count: u32,
    result: u32,
) -> Call<'_> {
    Box::new(async move {
        let lists = Lists {
            subscriptions: subscriptions.into(),
            events: events.into(),
            count,
            result: result as usize,
        };
        to_guest(poll(&mut caller, &lists).await)
    })
}

/// The guest's addresses of the subscriptions and events.
struct Lists {
    subscriptions: u64,
    events: u64,
    count: u32,
    result: usize,
}

impl Lists {
    async fn read(&self, caller: &mut Caller<'_, Guest>, index: u32) -> Answer<Subscription> {
        let at = (self.subscriptions + u64::from(index) * SUBSCRIPTION_BYTES) as usize;
        fetch(caller, at as u32, SUBSCRIPTION_BYTES as usize).await;
        let (memory, _) = parts(caller)?;
        let bytes = &memory.0[at..at + SUBSCRIPTION_BYTES as usize];
        Ok(Subscription::parse(bytes))
    }
}

async fn poll(caller: &mut Caller<'_, Guest>, lists: &Lists) -> Answer {
    let size = parts(caller)?.0.0.len() as u64;
    let count = u64::from(lists.count);
    if count == 0 || lists.count > MOST_SUBSCRIPTIONS {
        return Err(Errno::Inval.into());
    }
    for (start, length) in [
        (lists.subscriptions, count * SUBSCRIPTION_BYTES),
        (lists.events, count * EVENT_BYTES),
        (lists.result as u64, 4),
    ] {
        if start + length > size {
            return Err(Fail::pointer(start as u32, length));
        }
    }

    let now = clock::monotonic_ns();
    let mut earliest: Option<u64> = None;
    let (mut ready_now, mut stdin) = (false, false);
    for index in 0..lists.count {
        if index % STEP == STEP - 1 {
            yield_point().await;
        }
        let subscription = lists.read(caller, index).await?;
        match subscription.awaited(caller.data_mut(), now)? {
            Awaited::Time(when) => {
                earliest = Some(earliest.map_or(when, |other| other.min(when)));
            }
            Awaited::Stdin => stdin = true,
            Awaited::Ready { .. } => ready_now = true,
        }
    }

    let waits = !ready_now && earliest.is_none_or(|earliest| earliest > now);
    let stdin_ready = match (waits, stdin) {
        (true, _) => wait(caller.data_mut(), earliest, stdin).await,
        // Another subscription is ready, and standard input may be, too.
        (false, true) => has_input(caller.data_mut()).await,
        (false, false) => false,
    };

    let now_after = clock::monotonic_ns();
    let mut written = 0;
    for index in 0..lists.count {
        if index % STEP == STEP - 1 {
            yield_point().await;
        }
        let subscription = lists.read(caller, index).await?;
        let ready = match subscription.awaited(caller.data_mut(), now)? {
            Awaited::Time(when) => (when <= now_after).then_some((0, false)),
            Awaited::Stdin => stdin_ready.then_some((1, false)),
            Awaited::Ready { bytes, hangs_up } => Some((bytes, hangs_up)),
        };
        if let Some((bytes, hangs_up)) = ready {
            let at = (lists.events + written * EVENT_BYTES) as usize;
            fetch(caller, at as u32, EVENT_BYTES as usize).await;
            let (memory, _) = parts(caller)?;
            memory.0[at..at + EVENT_BYTES as usize]
                .copy_from_slice(&subscription.event(bytes, hangs_up));
            written += 1;
        }
    }
    fetch(caller, lists.result as u32, 4).await;
    let (memory, _) = parts(caller)?;
    memory.0[lists.result..lists.result + 4].copy_from_slice(&(written as u32).to_le_bytes());
    Ok(())
}

/// Whether standard input is ready now. The first call starts reading ahead, so that a program that
/// only polls finds it ready later.
async fn has_input(guest: &mut Guest) -> bool {
    let stream = guest.preview1().ok().and_then(|state| state.input.stream());
    let Some(mut stream) = stream else {
        return false;
    };
    let mut ready = pin!(stream.ready());
    poll_fn(|context| Poll::Ready(ready.as_mut().poll(context).is_ready())).await
}

/// Waits for the deadline or for standard input; returns true if it was standard input.
async fn wait(guest: &mut Guest, deadline: Option<u64>, stdin: bool) -> bool {
    let execution = guest.execution;
    let mut sleep = pin!(sleep_until(execution, deadline.unwrap_or(u64::MAX)));
    if !stdin {
        sleep.await;
        return false;
    }
    // Streams of the same standard input share its readiness, so a fresh one will do.
    let stream = guest.preview1().ok().and_then(|state| state.input.stream());
    let Some(mut stream) = stream else {
        sleep.await;
        return false;
    };
    let mut ready = pin!(stream.ready());
    poll_fn(|context| {
        if ready.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        sleep.as_mut().poll(context).map(|()| false)
    })
    .await
}
