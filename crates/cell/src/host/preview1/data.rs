//! Functions that move data: between files or streams and the guest's memory, and directories to it.

use super::call::{Call, Finish, answered};
use super::memory::{fetch, parts};
use crate::guest::Guest;
use crate::host::answer::{Answer, Fail, to_guest};
use crate::host::fs::STEP;
use crate::host::fs::class::Class;
use crate::host::fs::descriptor::{Descriptor, Open};
use crate::host::fs::growth::Growth;
use crate::host::fs::listing::{Window, last_cookie};
use crate::host::fs::transfer::{self, Buffers, Reach, Step, Tried};
use crate::host::io;
use crate::host::yield_point::yield_point;
use crate::steps::watch;
use rustix::fs::StatxFlags;
use rustix::io::Errno as HostErrno;
use std::future::poll_fn;
use std::os::fd::AsFd as _;
use wasmtime::{Caller, Memory as WasmMemory};
use wasmtime_wasi::p1::types::Errno;
use wasmtime_wasi::p2::{InputStream, StreamError};

/// A call that reads or writes.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    fd: u32,
    buffers: Buffers,
    /// The offset, if not the file's own position.
    at: Option<u64>,
    done: u32,
    result: u32,
}

/// The result of a step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing is left to do.
    Over,
    /// There is more to do.
    Working,
    /// The next step would wait.
    Blocks,
}

impl Transfer {
    fn new(
        guest: &Guest,
        fd: u32,
        (list, count): (u32, u32),
        at: Option<u64>,
        result: u32,
    ) -> Self {
        let buffers = Buffers::new(list, count);
        Self {
            fd,
            buffers: match guest.limiter.pages() {
                true => buffers.paged(),
                false => buffers,
            },
            at,
            done: 0,
            result,
        }
    }

    /// Returns the result, or `Over` for an error after some bytes were moved: the next call reports it.
    fn or_over(&self, result: Answer<Progress>) -> Answer<Progress> {
        match result {
            Err(Fail::Errno(_)) if self.done > 0 => Ok(Progress::Over),
            result => result,
        }
    }

    /// Records that the first `bytes` of a step were moved.
    fn moved(&mut self, memory: &[u8], step: &Step, bytes: usize) -> Progress {
        if bytes == 0 {
            return Progress::Over;
        }
        self.buffers = step.after(bytes);
        // A step moves no more than `STEP`.
        self.done = self.done.saturating_add(bytes as u32);
        match self.buffers.next(memory) {
            Ok(Some(_)) => Progress::Working,
            // What follows may be no buffer by now, since the bytes lie over the list. These were moved.
            Ok(None) | Err(_) => Progress::Over,
        }
    }

    /// Has the pages fetched that its next step visits, if the tenant pages.
    async fn fetch(&self, caller: &mut Caller<'_, Guest>) -> Answer {
        if !caller.data().limiter.pages() {
            return Ok(());
        }
        let (list, bytes) = self.buffers.next_in_list();
        fetch(caller, list, bytes).await;
        let step = self.buffers.step(parts(caller)?.0.0, STEP)?;
        for part in step.parts() {
            // It is within the memory.
            fetch(caller, part.start as u32, part.length).await;
        }
        fetch(caller, self.result, size_of::<u32>()).await;
        Ok(())
    }

    /// Writes the number of moved bytes to the guest.
    fn tell(&self, caller: &mut Caller<'_, Guest>) -> Answer {
        parts(caller)?.0.write_u32(self.result, self.done)
    }
}

/// Returns how the memory of a guest is reached.
fn reach(guest: &Guest) -> Reach {
    match guest.limiter.pages() {
        true => Reach::Copied,
        false => Reach::Direct,
    }
}

// Reading.

/// Takes the next step of reading a file, if that does not wait.
fn read_step(caller: &mut Caller<'_, Guest>, transfer: &mut Transfer) -> Answer<Progress> {
    let (memory, guest) = parts(caller)?;
    let reach = reach(guest);
    let state = guest.preview1()?;
    let open = match (state.table.get_mut(transfer.fd)?, transfer.at) {
        (Descriptor::Open(open), _) if !open.node.is_directory() => open,
        (Descriptor::Stdin, Some(_)) => return Err(Errno::Spipe.into()),
        (Descriptor::Stdin, None) => return read_input(caller, transfer),
        _ => return Err(Errno::Badf.into()),
    };
    let step = transfer.buffers.step(memory.0, STEP)?;
    if !open.node.is_prompt() {
        return Ok(match step.len() {
            0 => Progress::Over,
            _ => Progress::Blocks,
        });
    }
    // Even for an empty read the kernel checks the other arguments.
    let offset = match transfer.at {
        Some(at) => at.checked_add(transfer.done.into()).ok_or(Errno::Inval)?,
        None => open.position,
    };
    match transfer::read_promptly(&open.node, (memory.0, reach), &step, offset)? {
        Tried::Moved(bytes) => {
            if transfer.at.is_none() {
                open.position += bytes as u64;
            }
            Ok(transfer.moved(memory.0, &step, bytes))
        }
        Tried::Blocks => Ok(Progress::Blocks),
    }
}

/// Takes the next step of reading a file on another thread.
async fn read_elsewhere(
    caller: &mut Caller<'_, Guest>,
    transfer: &mut Transfer,
) -> Answer<Progress> {
    let (memory, guest) = parts(caller)?;
    let most = STEP.min(usize::try_from(guest.call_bytes).unwrap_or(STEP));
    let step = transfer.buffers.step(memory.0, most)?;
    let length = step.len();
    let state = guest.preview1()?;
    let account = state.account().clone();
    let open = state.file(transfer.fd)?;
    let offset = match transfer.at {
        Some(at) => at.checked_add(transfer.done.into()).ok_or(Errno::Inval)?,
        None => open.position,
    };
    let node = open.node.clone();
    let read = node
        .elsewhere()
        .during(move || transfer::read(&node, length, offset));
    let bytes = io::run(&account, read).await?;
    let (memory, guest) = parts(caller)?;
    step.scatter(memory.0, &bytes);
    if transfer.at.is_none()
        && let Ok(open) = guest.preview1()?.file_mut(transfer.fd)
    {
        open.position += bytes.len() as u64;
    }
    Ok(transfer.moved(memory.0, &step, bytes.len()))
}

/// Reads standard input, if that does not wait.
fn read_input(caller: &mut Caller<'_, Guest>, transfer: &mut Transfer) -> Answer<Progress> {
    let state = caller.data_mut().preview1()?;
    if state.input.may_block() {
        return Ok(Progress::Blocks);
    }
    let Some(mut stream) = state.stdin.take() else {
        return Ok(Progress::Over);
    };
    let answer = take_input(caller, transfer, &mut *stream);
    caller.data_mut().preview1()?.stdin = Some(stream);
    answer
}

/// Takes the available standard input. Blocks if another execution of the tenant took it first:
/// preview 1 has no signals, so that no read is interrupted.
fn take_input(
    caller: &mut Caller<'_, Guest>,
    transfer: &mut Transfer,
    stream: &mut dyn InputStream,
) -> Answer<Progress> {
    let (memory, _) = parts(caller)?;
    let step = transfer.buffers.step(memory.0, STEP)?;
    let length = step.len();
    match stream.read(length) {
        Ok(bytes) if bytes.is_empty() && length > 0 => Ok(Progress::Blocks),
        Ok(bytes) => {
            step.scatter(memory.0, &bytes);
            transfer.moved(memory.0, &step, bytes.len());
            Ok(Progress::Over)
        }
        Err(StreamError::Closed) => Ok(Progress::Over),
        Err(StreamError::LastOperationFailed(error)) => Err(input_failure(&error)),
        Err(StreamError::Trap(trap)) => Err(Fail::Trap(trap)),
    }
}

/// Returns the failure that the host's kernel reported for a read of standard input, such as that it is a
/// directory.
fn input_failure(error: &wasmtime::Error) -> Fail {
    let host = error.downcast_ref::<std::io::Error>();
    let host = host.and_then(HostErrno::from_io_error);
    host.map_or(Errno::Io.into(), Fail::from)
}

/// Waits for standard input, and takes what there is.
async fn wait_for_input(
    caller: &mut Caller<'_, Guest>,
    transfer: &mut Transfer,
) -> Answer<Progress> {
    let state = caller.data_mut().preview1()?;
    let Some(mut stream) = state.stdin.take().or_else(|| state.input.stream()) else {
        return Ok(Progress::Over);
    };
    // The stream may be ready without a byte for this execution: it yields between two tries.
    yield_point().await;
    stream.ready().await;
    let answer = take_input(caller, transfer, &mut *stream);
    caller.data_mut().preview1()?.stdin = Some(stream);
    answer
}

async fn read_rest(
    caller: &mut Caller<'_, Guest>,
    transfer: &mut Transfer,
    mut progress: Progress,
) -> Answer {
    loop {
        progress = match progress {
            Progress::Over => return transfer.tell(caller),
            Progress::Working => {
                yield_point().await;
                let fetched = transfer.fetch(caller).await;
                let result = fetched.and_then(|()| read_step(caller, transfer));
                transfer.or_over(result)?
            }
            Progress::Blocks => {
                let state = caller.data_mut().preview1()?;
                let result = match state.table.get(transfer.fd)? {
                    Descriptor::Stdin => wait_for_input(caller, transfer).await,
                    _ => read_elsewhere(caller, transfer).await,
                };
                transfer.or_over(result)?
            }
        };
    }
}

/// Reads until the call would wait or the guest is to be preempted.
fn read_first(caller: &mut Caller<'_, Guest>, transfer: &mut Transfer) -> Answer<Progress> {
    loop {
        let result = read_step(caller, transfer);
        match transfer.or_over(result)? {
            Progress::Working if !leasehold_preempt::fired() => watch::next(),
            Progress::Over => {
                transfer.tell(caller)?;
                return Ok(Progress::Over);
            }
            progress => return Ok(progress),
        }
    }
}

fn read_all(mut caller: Caller<'_, Guest>, mut transfer: Transfer) -> Call<'_> {
    let first = match caller.data().limiter.pages() {
        // Its pages are fetched first.
        true => Ok(Progress::Working),
        false => read_first(&mut caller, &mut transfer),
    };
    match first {
        Ok(Progress::Over) => answered(Ok(())),
        Ok(progress) => {
            Box::new(async move { to_guest(read_rest(&mut caller, &mut transfer, progress).await) })
        }
        Err(fail) => answered(Err(fail)),
    }
}

pub(super) fn read(
    caller: Caller<'_, Guest>,
    fd: u32,
    list: u32,
    count: u32,
    result: u32,
) -> Call<'_> {
    let transfer = Transfer::new(caller.data(), fd, (list, count), None, result);
    read_all(caller, transfer)
}

pub(super) fn pread(
    caller: Caller<'_, Guest>,
    fd: u32,
    list: u32,
    count: u32,
    offset: u64,
    result: u32,
) -> Call<'_> {
    let transfer = Transfer::new(caller.data(), fd, (list, count), Some(offset), result);
    read_all(caller, transfer)
}

// Writing.

/// Returns the offset of the next write, which is ignored where all writes are appended.
fn write_offset(open: &Open, transfer: &Transfer) -> Result<u64, Errno> {
    match transfer.at {
        _ if open.append => Ok(0),
        Some(at) => at.checked_add(transfer.done.into()).ok_or(Errno::Inval),
        None => Ok(open.position),
    }
}

/// Takes the next step of writing, if that does not wait.
fn write_step(caller: &mut Caller<'_, Guest>, transfer: &mut Transfer) -> Answer<Progress> {
    let (memory, guest) = parts(caller)?;
    let reach = reach(guest);
    let state = guest.preview1()?;
    let sink = match (state.table.get_mut(transfer.fd)?, transfer.at) {
        (Descriptor::Open(open), _) if !open.node.is_directory() => {
            let step = transfer.buffers.step(memory.0, STEP)?;
            if !open.node.is_prompt() {
                return Ok(match step.len() {
                    0 => Progress::Over,
                    _ => Progress::Blocks,
                });
            }
            let offset = write_offset(open, transfer)?;
            let (node, append) = (open.node.clone(), open.append);
            let tried = transfer::write_promptly(&node, (memory.0, reach), &step, offset, append)?;
            let Tried::Moved(bytes) = tried else {
                return Ok(Progress::Blocks);
            };
            if transfer.at.is_none() {
                open.position = match append {
                    true => crate::host::linux::status(node.as_fd(), StatxFlags::SIZE)?.stx_size,
                    false => offset.checked_add(bytes as u64).ok_or(Errno::Overflow)?,
                };
            }
            return Ok(transfer.moved(memory.0, &step, bytes));
        }
        (Descriptor::Stdout | Descriptor::Stderr, Some(_)) => return Err(Errno::Spipe.into()),
        (Descriptor::Stdout, None) => &mut state.stdout,
        (Descriptor::Stderr, None) => &mut state.stderr,
        _ => return Err(Errno::Badf.into()),
    };
    let step = transfer.buffers.step(memory.0, STEP)?;
    let Some(first) = step.parts().first() else {
        return Ok(Progress::Over);
    };
    let bytes = &memory.0[first.start..first.start + first.length];
    match sink.write(bytes) {
        Ok(0) => Ok(Progress::Blocks),
        Ok(bytes) => Ok(transfer.moved(memory.0, &step, bytes)),
        // An error even after a partial write: the bytes that were written are never read.
        Err(_) => {
            transfer.done = 0;
            Err(Errno::Pipe.into())
        }
    }
}

/// Takes the next step of writing a file on another thread.
async fn write_elsewhere(
    caller: &mut Caller<'_, Guest>,
    transfer: &mut Transfer,
) -> Answer<Progress> {
    let (memory, guest) = parts(caller)?;
    let most = STEP.min(usize::try_from(guest.call_bytes).unwrap_or(STEP));
    let step = transfer.buffers.step(memory.0, most)?;
    let mut bytes = Vec::new();
    step.gather(memory.0, &mut bytes);
    let state = guest.preview1()?;
    let account = state.account().clone();
    let open = state.file(transfer.fd)?;
    let offset = write_offset(open, transfer)?;
    let (node, append) = (open.node.clone(), open.append);
    let moves = transfer.at.is_none();
    let growth = Growth::take(&node, bytes.len())?;
    let write = node.elsewhere().during(move || {
        let written = transfer::write(&node, &bytes, offset, append, growth)?;
        let end = match moves && append {
            true => crate::host::linux::status(node.as_fd(), StatxFlags::SIZE)?.stx_size,
            false => offset.saturating_add(written as u64),
        };
        rustix::io::Result::Ok((written, end))
    });
    let (written, end) = io::run(&account, write).await?;
    let (memory, guest) = parts(caller)?;
    if moves && let Ok(open) = guest.preview1()?.file_mut(transfer.fd) {
        open.position = end;
    }
    Ok(transfer.moved(memory.0, &step, written))
}

/// Waits until a stream takes something.
async fn wait_for_room(caller: &mut Caller<'_, Guest>, fd: u32) -> Answer {
    poll_fn(|context| {
        let state = match caller.data_mut().preview1() {
            Ok(state) => state,
            Err(fail) => return std::task::Poll::Ready(Err(fail)),
        };
        let sink = match state.table.get(fd) {
            Ok(Descriptor::Stdout) => &state.stdout,
            _ => &state.stderr,
        };
        sink.poll_room(context).map(Ok)
    })
    .await
}

async fn write_rest(
    caller: &mut Caller<'_, Guest>,
    transfer: &mut Transfer,
    mut progress: Progress,
) -> Answer {
    loop {
        progress = match progress {
            Progress::Over => return transfer.tell(caller),
            Progress::Working => {
                yield_point().await;
                let fetched = transfer.fetch(caller).await;
                let result = fetched.and_then(|()| write_step(caller, transfer));
                transfer.or_over(result)?
            }
            Progress::Blocks => {
                let state = caller.data_mut().preview1()?;
                match state.table.get(transfer.fd)? {
                    Descriptor::Stdout | Descriptor::Stderr => {
                        wait_for_room(caller, transfer.fd).await?;
                        Progress::Working
                    }
                    _ => {
                        let result = write_elsewhere(caller, transfer).await;
                        transfer.or_over(result)?
                    }
                }
            }
        };
    }
}

/// Writes until the call would wait or the guest is to be preempted.
fn write_first(caller: &mut Caller<'_, Guest>, transfer: &mut Transfer) -> Answer<Progress> {
    loop {
        let result = write_step(caller, transfer);
        match transfer.or_over(result)? {
            Progress::Working if !leasehold_preempt::fired() => watch::next(),
            Progress::Over => {
                transfer.tell(caller)?;
                return Ok(Progress::Over);
            }
            progress => return Ok(progress),
        }
    }
}

fn write_all(mut caller: Caller<'_, Guest>, mut transfer: Transfer) -> Call<'_> {
    let first = match caller.data().limiter.pages() {
        true => Ok(Progress::Working),
        false => write_first(&mut caller, &mut transfer),
    };
    match first {
        Ok(Progress::Over) => answered(Ok(())),
        Ok(progress) => {
            Box::new(
                async move { to_guest(write_rest(&mut caller, &mut transfer, progress).await) },
            )
        }
        Err(fail) => answered(Err(fail)),
    }
}

pub(super) fn write(
    caller: Caller<'_, Guest>,
    fd: u32,
    list: u32,
    count: u32,
    result: u32,
) -> Call<'_> {
    let transfer = Transfer::new(caller.data(), fd, (list, count), None, result);
    write_all(caller, transfer)
}

pub(super) fn pwrite(
    caller: Caller<'_, Guest>,
    fd: u32,
    list: u32,
    count: u32,
    offset: u64,
    result: u32,
) -> Call<'_> {
    let transfer = Transfer::new(caller.data(), fd, (list, count), Some(offset), result);
    write_all(caller, transfer)
}

// Directories.

/// A call that lists a directory.
#[derive(Debug, Clone, Copy)]
struct Listing {
    fd: u32,
    buffer: usize,
    length: usize,
    cookie: u64,
    used: usize,
    result: usize,
}

/// Checks that a range lies in the memory.
fn inside(memory: WasmMemory, caller: &Caller<'_, Guest>, start: usize, length: usize) -> Answer {
    match start.checked_add(length) {
        Some(end) if end <= memory.data_size(caller) => Ok(()),
        // Both are 32 bits long.
        _ => Err(Fail::pointer(start as u32, length as u64)),
    }
}

/// Takes the next step of a listing, from the present window; returns true when the listing is
/// complete.
fn list_step(caller: &mut Caller<'_, Guest>, listing: &mut Listing) -> Answer<bool> {
    let (memory, guest) = parts(caller)?;
    let state = guest.preview1()?;
    let Some((entries, is_end)) = state
        .window(listing.fd)
        .and_then(|window| window.after(listing.cookie))
    else {
        return Ok(false);
    };
    let room = listing.length - listing.used;
    let bytes = &entries[..entries.len().min(room)];
    let to = listing.buffer + listing.used;
    memory.0[to..to + bytes.len()].copy_from_slice(bytes);
    listing.used += bytes.len();
    if let Some(last) = last_cookie(entries) {
        listing.cookie = last;
    }
    let is_done = is_end || listing.used == listing.length;
    if is_done {
        let at = listing.result;
        // No more than the length, which is 32 bits.
        memory.0[at..at + 4].copy_from_slice(&(listing.used as u32).to_le_bytes());
    }
    Ok(is_done)
}

/// Reads the next window on a directory in memory; returns false if another thread must read it.
fn read_window(caller: &mut Caller<'_, Guest>, listing: &Listing) -> Answer<bool> {
    let state = caller.data_mut().preview1()?;
    let node = state.directory(listing.fd)?.node.clone();
    state.charge_window()?;
    if node.class != Class::Memory {
        return Ok(false);
    }
    let window = Window::read(&node, listing.cookie)?;
    state.keep_window(listing.fd, window);
    Ok(true)
}

async fn read_window_elsewhere(caller: &mut Caller<'_, Guest>, listing: &Listing) -> Answer {
    let state = caller.data_mut().preview1()?;
    let node = state.directory(listing.fd)?.node.clone();
    let (fd, cookie) = (listing.fd, listing.cookie);
    let list = node.elsewhere().during(move || {
        let window = Window::read(&node, cookie);
        let finish: Finish = Box::new(move |caller| {
            caller.data_mut().preview1()?.keep_window(fd, window?);
            Ok(())
        });
        finish
    });
    super::call::elsewhere(caller, Box::new(list)).await
}

/// Lists until the call would wait or the guest is to be preempted; returns true when the listing
/// is complete.
fn list_first(caller: &mut Caller<'_, Guest>, listing: &mut Listing) -> Answer<bool> {
    let memory = Guest::memory(caller)
        .ok_or_else(|| Fail::Trap(wasmtime::Error::msg("the module exports no memory")))?;
    inside(memory, caller, listing.buffer, listing.length)?;
    inside(memory, caller, listing.result, 4)?;
    let state = caller.data_mut().preview1()?;
    state.directory(listing.fd)?;
    if listing.cookie == 0 {
        // A listing from the beginning shows the present state.
        state.forget_window();
    }
    loop {
        if list_step(caller, listing)? {
            return Ok(true);
        }
        if leasehold_preempt::fired() || !read_window(caller, listing)? {
            return Ok(false);
        }
        watch::next();
    }
}

async fn list_rest(caller: &mut Caller<'_, Guest>, listing: &mut Listing) -> Answer {
    loop {
        yield_point().await;
        if !read_window(caller, listing)? {
            read_window_elsewhere(caller, listing).await?;
        }
        if list_step(caller, listing)? {
            return Ok(());
        }
    }
}

pub(super) fn readdir(
    mut caller: Caller<'_, Guest>,
    fd: u32,
    buffer: u32,
    length: u32,
    cookie: u64,
    result: u32,
) -> Call<'_> {
    let mut listing = Listing {
        fd,
        buffer: buffer as usize,
        length: length as usize,
        cookie,
        used: 0,
        result: result as usize,
    };
    match list_first(&mut caller, &mut listing) {
        Ok(true) => answered(Ok(())),
        Ok(false) => Box::new(async move { to_guest(list_rest(&mut caller, &mut listing).await) }),
        Err(fail) => answered(Err(fail)),
    }
}
