//! `poll_oneoff`: reads the subscriptions in guest memory, and stores nothing of them.
//!
//! A set of clocks is the earliest of them; files are always ready; standard input is the one descriptor
//! that can make a guest wait.

use super::call::{Call, answered};
use super::descriptors::size_of;
use super::memory::{Memory, fetch, parts};
use crate::clock;
use crate::guest::Guest;
use crate::host::answer::{Answer, Fail, to_guest};
use crate::host::fs::descriptor::Descriptor;
use crate::host::yield_point::yield_point;
use crate::steps::caps;
use crate::wasi::poll::sleep_until;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use wasmtime::Caller;
use wasmtime_wasi::p1::types::Errno;

/// Most subscriptions of one call.
const MOST_SUBSCRIPTIONS: u32 = caps::SUBSCRIPTIONS.most as u32;

/// Subscriptions that are read in one step, twice in that of a short list: each may query the size of a file.
const STEP: u32 = 64;

const SUBSCRIPTION_BYTES: usize = 48;
const EVENT_BYTES: usize = 32;

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

    fn event(&self, bytes: u64, hangs_up: bool) -> [u8; EVENT_BYTES] {
        let mut event = [0; EVENT_BYTES];
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
    let lists = Lists {
        subscriptions: subscriptions as usize,
        events: events as usize,
        count,
        result,
    };
    match poll_short(&mut caller, &lists) {
        Ok(true) => answered(Ok(())),
        Ok(false) => Box::new(async move { to_guest(poll(&mut caller, &lists).await) }),
        Err(fail) => answered(Err(fail)),
    }
}

/// The guest's addresses of the subscriptions and events.
struct Lists {
    subscriptions: usize,
    events: usize,
    count: u32,
    result: u32,
}

/// What a list awaits.
#[derive(Default)]
struct Survey {
    /// When the first of its clocks is due.
    earliest: Option<u64>,
    /// A descriptor is ready.
    ready_now: bool,
    stdin: bool,
}

impl Survey {
    /// Whether nothing but standard input may have happened by `now`.
    fn waits(&self, now: u64) -> bool {
        !self.ready_now && self.earliest.is_none_or(|earliest| earliest > now)
    }
}

/// What has happened when events are written.
struct Happened {
    /// When the call began, from which relative timeouts count.
    began: u64,
    now: u64,
    stdin_ready: bool,
    /// Events that were written.
    events: u32,
}

impl Lists {
    fn check(&self, size: usize) -> Answer {
        if self.count == 0 || self.count > MOST_SUBSCRIPTIONS {
            return Err(Errno::Inval.into());
        }
        for (start, length) in [
            self.subscriptions(0..self.count),
            self.events(0..self.count),
            (self.result as usize, 4),
        ] {
            if start + length > size {
                return Err(Fail::pointer(start as u32, length as u64));
            }
        }
        Ok(())
    }

    /// Where some subscriptions are, and how many bytes they have.
    fn subscriptions(&self, part: Range<u32>) -> (usize, usize) {
        let start = self.subscriptions + part.start as usize * SUBSCRIPTION_BYTES;
        (start, part.len() * SUBSCRIPTION_BYTES)
    }

    /// Where some events are, and how many bytes they have.
    fn events(&self, part: Range<u32>) -> (usize, usize) {
        let start = self.events + part.start as usize * EVENT_BYTES;
        (start, part.len() * EVENT_BYTES)
    }

    /// The parts of the list, each of which is read in one step.
    fn steps(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let count = self.count;
        let starts = (0..count).step_by(STEP as usize);
        starts.map(move |start| start..count.min(start + STEP))
    }

    fn read(&self, memory: &Memory<'_>, index: u32) -> Subscription {
        let (start, length) = self.subscriptions(index..index + 1);
        Subscription::parse(&memory.0[start..start + length])
    }

    /// Adds what a part of the list awaits.
    fn survey(
        &self,
        caller: &mut Caller<'_, Guest>,
        part: Range<u32>,
        now: u64,
        survey: &mut Survey,
    ) -> Answer {
        let (memory, guest) = parts(caller)?;
        for index in part {
            match self.read(&memory, index).awaited(guest, now)? {
                Awaited::Time(when) => {
                    let earliest = survey.earliest.map_or(when, |other| other.min(when));
                    survey.earliest = Some(earliest);
                }
                Awaited::Stdin => survey.stdin = true,
                Awaited::Ready { .. } => survey.ready_now = true,
            }
        }
        Ok(())
    }

    /// Writes the events of a part of the list after those that were written.
    fn report(
        &self,
        caller: &mut Caller<'_, Guest>,
        part: Range<u32>,
        happened: &mut Happened,
    ) -> Answer {
        let (memory, guest) = parts(caller)?;
        for index in part {
            let subscription = self.read(&memory, index);
            let ready = match subscription.awaited(guest, happened.began)? {
                Awaited::Time(when) => (when <= happened.now).then_some((0, false)),
                Awaited::Stdin => happened.stdin_ready.then_some((1, false)),
                Awaited::Ready { bytes, hangs_up } => Some((bytes, hangs_up)),
            };
            if let Some((bytes, hangs_up)) = ready {
                let (start, length) = self.events(happened.events..happened.events + 1);
                memory.0[start..start + length]
                    .copy_from_slice(&subscription.event(bytes, hangs_up));
                happened.events += 1;
            }
        }
        Ok(())
    }

    /// Says how many events there are.
    fn conclude(&self, caller: &mut Caller<'_, Guest>, happened: &Happened) -> Answer {
        let (memory, _) = parts(caller)?;
        let result = self.result as usize;
        memory.0[result..result + 4].copy_from_slice(&happened.events.to_le_bytes());
        Ok(())
    }
}

/// Answers a list of one step in which something is ready, if its pages are there. Returns whether it has.
fn poll_short(caller: &mut Caller<'_, Guest>, lists: &Lists) -> Answer<bool> {
    lists.check(parts(caller)?.0.0.len())?;
    if lists.count > STEP || caller.data().limiter.pages() {
        return Ok(false);
    }
    let now = clock::monotonic_ns();
    let mut survey = Survey::default();
    lists.survey(caller, 0..lists.count, now, &mut survey)?;
    if survey.stdin || survey.waits(now) {
        return Ok(false);
    }
    let mut happened = Happened {
        began: now,
        now,
        stdin_ready: false,
        events: 0,
    };
    lists.report(caller, 0..lists.count, &mut happened)?;
    lists.conclude(caller, &happened)?;
    Ok(true)
}

async fn poll(caller: &mut Caller<'_, Guest>, lists: &Lists) -> Answer {
    let began = clock::monotonic_ns();
    let mut survey = Survey::default();
    for part in lists.steps() {
        yield_point().await;
        fetch_part(caller, lists.subscriptions(part.clone())).await;
        lists.survey(caller, part, began, &mut survey)?;
    }

    let stdin_ready = match (survey.waits(began), survey.stdin) {
        (true, stdin) => wait(caller.data_mut(), survey.earliest, stdin).await,
        // Another subscription is ready, and standard input may be, too.
        (false, true) => has_input(caller.data_mut()).await,
        (false, false) => false,
    };

    let mut happened = Happened {
        began,
        now: clock::monotonic_ns(),
        stdin_ready,
        events: 0,
    };
    for part in lists.steps() {
        yield_point().await;
        fetch_part(caller, lists.subscriptions(part.clone())).await;
        // At most as many events as subscriptions come.
        let events = happened.events..happened.events + part.len() as u32;
        fetch_part(caller, lists.events(events)).await;
        lists.report(caller, part, &mut happened)?;
    }
    fetch_part(caller, (lists.result as usize, 4)).await;
    lists.conclude(caller, &happened)
}

async fn fetch_part(caller: &mut Caller<'_, Guest>, (start, length): (usize, usize)) {
    fetch(caller, start as u32, length).await;
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
