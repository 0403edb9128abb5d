//! The process that makes a process for each job.

use super::fork::{self, Fork, OneThread};
use super::packet::{self, Packet, Sent};
use super::{Ended, Limits};
use crate::calls::Thread;
use crate::places::Places;
use crate::privileges::Locking;
use crate::process::{Mode, enter_as};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use std::fs::File;
use std::io::{self, Write as _};
use std::panic::AssertUnwindSafe;

/// Does a job.
type Job<'a> = &'a dyn Fn(Packet) -> Packet;

/// How a process that could not prepare itself ends.
const UNPREPARED: i32 = 71;

/// Does the jobs that are asked for, until the process that asks has ended. Returns an exit code.
pub(super) fn run(socket: OwnedFd, begun: (Mode, Limits), job: Job<'_>) -> i32 {
    match serve(socket, begun, job) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "leasehold: the server of jobs: {error}");
            UNPREPARED
        }
    }
}

fn serve(socket: OwnedFd, (mode, limits): (Mode, Limits), job: Job<'_>) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"leasehold-jobs");
    fork::outlive_interruptions();
    let limits = Limits {
        memory: address_space()?.saturating_add(limits.memory),
        ..limits
    };
    let one_thread = OneThread::of_process().map_err(io::Error::other)?;
    let mut oom = Oom::open();
    enter_as(Thread::ForkServer, mode, Places::default(), Locking::Never)
        .map_err(io::Error::other)?;
    while let Some(sent) = packet::receive(&socket)? {
        let Sent::Packet(request) = sent else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        // A job has a connection of its own: no other one's request or result passes there.
        let (ours, theirs) = packet::sockets()?;
        oom.first(true);
        let forked = one_thread.fork();
        if let Ok(Fork::Copy) = forked {
            drop((oom, one_thread, socket, ours));
            do_job(&theirs, request, (job, limits));
        }
        oom.first(false);
        drop((request, theirs));
        let end = forked.and_then(|forked| match forked {
            Fork::Original(job) => wait(job, &ours, &socket),
            Fork::Copy => Err(io::ErrorKind::Other.into()),
        });
        if let Some(result) = packet::receive_now(&ours) {
            packet::send(&socket, &result)?;
        }
        packet::send_end(&socket, &end)?;
    }
    Ok(())
}

/// What the process of a job does.
fn do_job(socket: &OwnedFd, request: Packet, (job, limits): (Job<'_>, Limits)) -> ! {
    let limited = limit(Resource::As, limits.memory, limits.memory)
        // The first limit ends it by a signal which says so.
        .and_then(|()| limit(Resource::Cpu, limits.processor, limits.processor + 1));
    if limited.is_err() {
        fork::exit(UNPREPARED);
    }
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| job(request)));
    match result.map(|result| packet::send(socket, &result)) {
        Ok(Ok(())) => fork::exit(0),
        Ok(Err(_)) => fork::exit(UNPREPARED),
        Err(_) => fork::exit(PANICKED),
    }
}

/// How a process ends that panicked, as others do.
const PANICKED: i32 = 101;

/// Sets a limit, or leaves the host's where that is lower.
fn limit(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit {
        current: Some(current.min(most)),
        maximum: Some(maximum.min(most)),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Waits until a job has ended, which closes its end of its connection. If the process that asked for it ends before, so
/// does this one, and the job with it: the kernel does not end this one with that, whose Landlock domain is another.
fn wait(job: Pid, connection: &OwnedFd, socket: &OwnedFd) -> io::Result<Ended> {
    // Ends of connections are told in any case.
    let mut both = [connection, socket].map(|it| PollFd::new(it, PollFlags::empty()));
    loop {
        match poll(&mut both, None) {
            Err(rustix::io::Errno::INTR) => {}
            polled => break polled.map(drop)?,
        }
    }
    let has_ended = |nth: usize| !both[nth].revents().is_empty();
    if has_ended(1) && !has_ended(0) {
        fork::exit(0);
    }
    loop {
        match waitpid(Some(job), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let code = status.exit_status().map(Ended::Code);
                let signal = || status.terminating_signal().map(Ended::Signal);
                if let Some(ended) = code.or_else(signal) {
                    return Ok(ended);
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Bytes of address space that this process has.
fn address_space() -> io::Result<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm")?;
    let pages = sizes
        .split(' ')
        .next()
        .and_then(|it| it.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Which process the kernel ends first where the host has no memory left: a job, and not the tenants.
struct Oom {
    /// `None` if the system says nothing of it: then the largest is the first.
    score: Option<File>,
    own: String,
}

impl Oom {
    fn open() -> Self {
        const PATH: &str = "/proc/self/oom_score_adj";
        Self {
            score: File::options().write(true).open(PATH).ok(),
            own: std::fs::read_to_string(PATH).unwrap_or_else(|_| "0".to_owned()),
        }
    }

    /// Whether it is this process; a copy of it is what this one was when it was made.
    fn first(&mut self, first: bool) {
        if let Some(score) = &mut self.score {
            // It was lower before, so that both are allowed.
            let _ = score.write_all(if first { "1000" } else { &self.own }.as_bytes());
        }
    }
}
