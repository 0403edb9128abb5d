//! Arguments, clocks, random numbers, and the end.

use super::call::{Call, answered};
use super::memory::{fetch, parts};
use super::state::State;
use crate::guest::Guest;
use crate::host::answer::{Answer, Fail, to_guest};
use crate::host::yield_point::yield_point;
use crate::steps::{caps, mark, step};
use rand::Rng as _;
use rustix::time::{ClockId, clock_getres, clock_gettime};
use wasmtime::{Caller, Result};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p1::types::Errno;

/// Writes strings, each with a zero at its end, to `bytes` on, and where each begins to `list` on.
fn strings<'a, const N: usize>(
    caller: &mut Caller<'_, Guest>,
    (mut list, mut bytes): (u32, u32),
    strings: impl Iterator<Item = [&'a [u8]; N]>,
) -> Answer {
    let (mut memory, _) = parts(caller)?;
    for string in strings {
        memory.write_u32(list, bytes)?;
        list = list.wrapping_add(4);
        for part in string {
            // Bounded when the execution was made.
            let length = part.len() as u32;
            memory.bytes_mut(bytes, length)?.copy_from_slice(part);
            bytes = bytes.wrapping_add(length);
        }
    }
    Ok(())
}

/// Writes strings for a tenant that pages: a step touches one page, which may have to be fetched from the disk.
async fn strings_by_pages(
    caller: &mut Caller<'_, Guest>,
    (mut list, mut bytes): (u32, u32),
    strings: Vec<Vec<u8>>,
) -> Answer {
    for string in strings {
        fetch(caller, list, 4).await;
        parts(caller)?.0.write_u32(list, bytes)?;
        list = list.wrapping_add(4);
        let mut rest = string.as_slice();
        while !rest.is_empty() {
            yield_point().await;
            let room = TOUCHED - bytes % TOUCHED;
            let (now, later) = rest.split_at(rest.len().min(room as usize));
            let length = now.len() as u32;
            fetch(caller, bytes, now.len()).await;
            let (mut memory, _) = parts(caller)?;
            memory.bytes_mut(bytes, length)?.copy_from_slice(now);
            bytes = bytes.wrapping_add(length);
            rest = later;
        }
        yield_point().await;
    }
    Ok(())
}

/// Returns the parts of an argument, as the guest gets it.
fn argument(argument: &str) -> [&[u8]; 2] {
    [argument.as_bytes(), b"\0"]
}

/// Returns the parts of a variable, as the guest gets it.
fn variable((name, value): &(String, String)) -> [&[u8]; 4] {
    [name.as_bytes(), b"=", value.as_bytes(), b"\0"]
}

pub(super) fn args_get(mut caller: Caller<'_, Guest>, list: u32, bytes: u32) -> Call<'_> {
    let to = (list, bytes);
    if caller.data().limiter.pages() {
        return by_pages(caller, to, |state| {
            state
                .args
                .iter()
                .map(|arg| argument(arg).concat())
                .collect()
        });
    }
    answered(args_at_once(&mut caller, to))
}

fn args_at_once(caller: &mut Caller<'_, Guest>, to: (u32, u32)) -> Answer {
    let args = std::mem::take(&mut caller.data_mut().preview1()?.args);
    let answer = strings(caller, to, args.iter().map(|arg| argument(arg)));
    caller.data_mut().preview1()?.args = args;
    answer
}

/// Writes strings of the guest's state, a page a step.
fn by_pages(
    mut caller: Caller<'_, Guest>,
    to: (u32, u32),
    strings: fn(&State) -> Vec<Vec<u8>>,
) -> Call<'_> {
    match caller.data_mut().preview1() {
        Ok(state) => {
            let strings = strings(state);
            Box::new(async move { to_guest(strings_by_pages(&mut caller, to, strings).await) })
        }
        Err(fail) => answered(Err(fail)),
    }
}

pub(super) fn environ_get(mut caller: Caller<'_, Guest>, list: u32, bytes: u32) -> Call<'_> {
    let to = (list, bytes);
    if caller.data().limiter.pages() {
        return by_pages(caller, to, |state| {
            state
                .env
                .iter()
                .map(|pair| variable(pair).concat())
                .collect()
        });
    }
    answered(environ_at_once(&mut caller, to))
}

fn environ_at_once(caller: &mut Caller<'_, Guest>, to: (u32, u32)) -> Answer {
    let env = std::mem::take(&mut caller.data_mut().preview1()?.env);
    let answer = strings(caller, to, env.iter().map(variable));
    caller.data_mut().preview1()?.env = env;
    answer
}

fn sizes(caller: &mut Caller<'_, Guest>, at: [u32; 2], numbers: [usize; 2]) -> Answer {
    let (mut memory, _) = parts(caller)?;
    for (at, number) in at.into_iter().zip(numbers) {
        let number = u32::try_from(number).map_err(|_| Errno::Overflow)?;
        memory.write_u32(at, number)?;
    }
    Ok(())
}

pub(super) fn args_sizes_get(caller: &mut Caller<'_, Guest>, count: u32, bytes: u32) -> Answer {
    let args = &caller.data_mut().preview1()?.args;
    let length = args.iter().map(|arg| arg.len() + 1).sum();
    let numbers = [args.len(), length];
    sizes(caller, [count, bytes], numbers)
}

pub(super) fn environ_sizes_get(caller: &mut Caller<'_, Guest>, count: u32, bytes: u32) -> Answer {
    let env = &caller.data_mut().preview1()?.env;
    let length = env.iter().map(|(name, value)| name.len() + value.len() + 2);
    let numbers = [env.len(), length.sum()];
    sizes(caller, [count, bytes], numbers)
}

/// Returns the host's clock for one of a guest's.
fn clock(number: u32) -> Answer<ClockId> {
    match number {
        0 => Ok(ClockId::Realtime),
        1 => Ok(ClockId::Monotonic),
        2 | 3 => Err(Errno::Badf.into()),
        _ => Err(Errno::Inval.into()),
    }
}

fn nanoseconds(time: rustix::time::Timespec) -> Answer<u64> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::Overflow)?;
    let nanoseconds = u64::try_from(time.tv_nsec).map_err(|_| Errno::Overflow)?;
    let sum = seconds.checked_mul(1_000_000_000);
    let sum = sum.and_then(|sum| sum.checked_add(nanoseconds));
    Ok(sum.ok_or(Errno::Overflow)?)
}

pub(super) fn clock_res_get(caller: &mut Caller<'_, Guest>, number: u32, result: u32) -> Answer {
    let resolution = nanoseconds(clock_getres(clock(number)?))?;
    parts(caller)?.0.write_u64(result, resolution)
}

pub(super) fn clock_time_get(
    caller: &mut Caller<'_, Guest>,
    number: u32,
    _precision: u64,
    result: u32,
) -> Answer {
    let now = nanoseconds(clock_gettime(clock(number)?))?;
    parts(caller)?.0.write_u64(result, now)
}

pub(super) fn proc_exit(_: Caller<'_, Guest>, status: u32) -> Result<()> {
    mark(step!("wasi_snapshot_preview1", "proc_exit"));
    // A program may use any number; the host determines what a parent process sees of it.
    Err(I32Exit(status.cast_signed()).into())
}

pub(super) fn proc_raise(_: &mut Caller<'_, Guest>, signal: u32) -> Answer {
    const SIGNALS: u32 = 31;
    match signal {
        0..SIGNALS => Err(Errno::Notsup.into()),
        _ => Err(Errno::Inval.into()),
    }
}

pub(super) fn sched_yield(_: &mut Caller<'_, Guest>) -> Answer {
    // Guests are preempted when their time is up: a yield needs no earlier decision.
    Ok(())
}

/// Bytes of guest memory that one step of a tenant that pages touches, on two pages at the most.
const TOUCHED: u32 = leasehold_pager::PAGE as u32;

/// Random bytes that are made in one step: some 20 µs.
const RANDOM_STEP: u32 = caps::RANDOM_STEP.most as u32;

/// Makes the next random bytes; returns how many.
fn random_step(caller: &mut Caller<'_, Guest>, buffer: u32, length: u32) -> Answer<u32> {
    let (mut memory, guest) = parts(caller)?;
    let length = length.min(match guest.limiter.pages() {
        true => TOUCHED,
        false => RANDOM_STEP,
    });
    rand::rng().fill_bytes(memory.bytes_mut(buffer, length)?);
    Ok(length)
}

pub(super) fn random_get(mut caller: Caller<'_, Guest>, buffer: u32, length: u32) -> Call<'_> {
    if length == 0 {
        // Wherever that is.
        return answered(Ok(()));
    }
    let first = parts(&mut caller)
        .and_then(|(memory, _)| memory.bytes(buffer, length).map(drop))
        .and_then(|()| random_step(&mut caller, buffer, length));
    match first {
        Ok(made) if made == length => answered(Ok(())),
        Ok(made) => Box::new(async move {
            to_guest(random_rest(&mut caller, buffer + made, length - made).await)
        }),
        Err(fail) => answered(Err(fail)),
    }
}

async fn random_rest(
    caller: &mut Caller<'_, Guest>,
    mut buffer: u32,
    mut length: u32,
) -> Result<(), Fail> {
    while length > 0 {
        yield_point().await;
        fetch(caller, buffer, length.min(TOUCHED) as usize).await;
        let made = random_step(caller, buffer, length)?;
        (buffer, length) = (buffer.wrapping_add(made), length - made);
    }
    Ok(())
}
