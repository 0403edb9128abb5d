//! Work that a process of its own does: for each job a new one.
//!
//! What a job takes, the process that asked for it does not: memory, the kernel's lock on mappings, descriptors. A job
//! that crashes, or takes more than its [`Limits`], ends by itself. It reaches no file and no network: what it is to
//! read, and what it has made, are open files in a [`Packet`].
//!
//! A confined process starts no other. So a copy of this one, the server, is made before it is confined, while it has one thread.
//! The server reads no job: it makes a copy of itself for each. It ends with the process that started it, and each of
//! its jobs with it.

mod fork;
mod packet;
mod server;

use crate::process::{ConfineError, Mode, system};
use packet::Sent;
pub use packet::{MAX_PACKET_BYTES, Packet};
use rustix::fd::OwnedFd;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

/// The most that a job may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of address space, beyond those that the process had when its server was started.
    pub memory: u64,
    /// Seconds of processor time.
    pub processor: u64,
}

/// The other side of a server. Jobs are done one after the other.
#[derive(Debug)]
pub struct ForkServer {
    socket: Mutex<OwnedFd>,
    limits: Limits,
}

/// Why a job has no result.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The system refused to start it, or to pass something on.
    #[error("a process for it: {0}")]
    System(#[from] io::Error),
    /// The server has ended.
    #[error("the server that starts processes for it has ended")]
    Gone,
    /// It took more processor time than it may.
    #[error("took more than {} s of processor time", .0.processor)]
    Time(Limits),
    /// It ended by itself: mostly, because it asked for more memory than it may have.
    #[error("{ended}; it may have {} MiB of memory", limits.memory >> 20)]
    Ended {
        /// How.
        ended: Ended,
        /// What it was allowed.
        limits: Limits,
    },
}

impl JobError {
    fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Gone,
            _ => Self::System(error),
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "its process ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "its process was ended by signal {signal}"),
        }
    }
}

impl ForkServer {
    /// Starts the server, confined as `mode` says: the calling process must have one thread. What the process has open is not
    /// open there, but standard error.
    ///
    /// `job` does a job, in a process that ends when it returns. That has one thread then, which must be
    /// [narrowed](crate::narrow) to [`Thread::Job`](crate::Thread::Job) before it reads what it was given. It uses no
    /// descriptor that was opened before the server was started: there it is closed.
    ///
    /// # Errors
    /// When the process has other threads, or the system refuses a step.
    pub fn start(
        mode: Mode,
        limits: Limits,
        job: impl Fn(Packet) -> Packet,
    ) -> Result<Self, ConfineError> {
        let (here, there) = packet::sockets().map_err(system("a pair of sockets"))?;
        let serve = |socket| server::run(socket, (mode, limits), &job);
        fork::start(there, serve)?;
        Ok(Self {
            socket: Mutex::new(here),
            limits,
        })
    }

    /// Has a job done, and waits for its result.
    ///
    /// # Errors
    /// When it ends without one.
    pub fn run(&self, request: &Packet) -> Result<Packet, JobError> {
        // A job whose caller panicked has left nothing unread but its result, which is of no use.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        packet::send(&socket, request).map_err(JobError::of)?;
        let mut result = None;
        loop {
            match packet::receive(&socket).map_err(JobError::of)? {
                Some(Sent::Packet(packet)) => result = Some(packet),
                Some(Sent::Refused(error)) => return Err(error.into()),
                Some(Sent::Ended(ended)) => return result.ok_or_else(|| self.failed(ended)),
                None => return Err(JobError::Gone),
            }
        }
    }

    fn failed(&self, ended: Ended) -> JobError {
        let limits = self.limits;
        match ended {
            Ended::Signal(libc::SIGXCPU) => JobError::Time(limits),
            ended => JobError::Ended { ended, limits },
        }
    }
}
